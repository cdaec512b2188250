"""Vocabulary: what every kind of tokenizer is made of, once its files are read."""

from dataclasses import dataclass, field
from typing import Protocol


class PlainEncoder(Protocol):
    """Encode text that holds no special token."""

    def __call__(self, text: str, /, *, at_start: bool) -> list[int]:
        """Return the ids of `text`; `at_start` says whether nothing precedes it in the prompt but an added BOS."""
        ...


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Tokens, their kinds and how plain text becomes them.

    Attributes:
        description: kind and split rule in words, for model info.
        token_bytes: exact bytes of each id; of a special token the UTF-8 of its literal.
        encode_plain: ids of plain text; never gives a control id.
        control_literals: text of each special token -> its id.
        user_defined_literals: text of tokens that are matched whole in any text (runs of spaces, markup) -> id.
        bos_id: None when the model has none.
        eos_ids: ids that end a text or a turn.
        add_bos: a raw prompt begins with BOS.
        appended_eos_id: ends a raw prompt, None in nearly all models.
        drops_leading_space: the encoder puts a space before the text, so decoding takes one away again.
        strips_left, strips_right: control ids that swallow the white space on that side of them.
    """

    description: str
    token_bytes: tuple[bytes, ...]
    encode_plain: PlainEncoder
    control_literals: dict[str, int]
    user_defined_literals: dict[str, int] = field(default_factory=dict)
    bos_id: int | None = None
    eos_ids: frozenset[int] = frozenset()
    add_bos: bool = False
    appended_eos_id: int | None = None
    drops_leading_space: bool = False
    strips_left: frozenset[int] = frozenset()
    strips_right: frozenset[int] = frozenset()


# Literals by which families mark the end of a turn or of the text. A control token with one of these texts ends the
# output even where the file names only one end-of-sequence id (llama.cpp treats them so too).
_END_LITERALS = frozenset(
    {
        "<|im_end|>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end|>",
        "<|eot|>",
        "<|return|>",
        "<|endofturn|>",
        "<|end_of_turn|>",
        "<end_of_turn>",
        "<|END_OF_TURN_TOKEN|>",
        "<｜end▁of▁sentence｜>",
    }
)


def with_end_literals(named_ids: tuple[int, ...], control_literals: dict[str, int]) -> frozenset[int]:
    """Return the ids that a file names as ends, and those of control tokens that are ends by their text."""
    return frozenset(named_ids) | {control_literals[text] for text in _END_LITERALS if text in control_literals}
