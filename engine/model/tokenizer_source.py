"""TokenizerSource: what a model file says about its tokenizer, as data. Loaders produce it, `engine.text` consumes it.

    TokenizerSource = GgufTokenizerSource | HuggingFaceTokenizerSource | ByteTokenizerSource

All three answer `bos_id`, `eos_ids`, `add_bos` and `chat_template`; the rest is what each kind needs to be built.
"""

from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Literal


class TokenType(IntEnum):
    """Kind of a vocabulary entry, with the numbers that GGUF stores (`tokenizer.ggml.token_type`)."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class GgufTokenizerSource:
    """Vocabulary and rules out of GGUF metadata.

    The loader has checked that `token_types` and `scores`, where present, are as long as `tokens`, that `model` is one
    of the two kinds, and that every id lies in [0, len(tokens)).

    Attributes:
        model: `gpt2` is byte-level BPE (tokens in GPT-2's printable byte alphabet); `llama` is SentencePiece with byte
            fallback (tokens as they are, with U+2581 for the space).
        pre: name of the split rule (`tokenizer.ggml.pre`: `smollm`, `llama-bpe`, `qwen2`, ...), None when the file has
            none. The loader passes it on unjudged; which names are known is the tokenizer's business.
        tokens: text of each id.
        scores: SentencePiece log probabilities, None when the file has none.
        token_types: kind of each id (TokenType's numbers), all NORMAL when the file has none.
        merges: BPE merges as `left right`, best first; empty when the file has none.
        bos_id, eos_id, eot_id, eom_id, unk_id, pad_id: special ids, None where the file has none.
        add_bos: a raw prompt begins with BOS. None when the file doesn't say.
        add_eos: a raw prompt ends with EOS (False unless the file says so).
        add_space_prefix: SentencePiece puts a space before the text. None when the file doesn't say.
        chat_template: Jinja source, None when the file has none.
    """

    model: Literal["gpt2", "llama"]
    pre: str | None
    tokens: tuple[str, ...]
    scores: tuple[float, ...] | None
    token_types: tuple[int, ...]
    merges: tuple[str, ...]
    bos_id: int | None = None
    eos_id: int | None = None
    eot_id: int | None = None
    eom_id: int | None = None
    unk_id: int | None = None
    pad_id: int | None = None
    add_bos: bool | None = None
    add_eos: bool = False
    add_space_prefix: bool | None = None
    chat_template: str | None = None

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Ids that the file itself names as an end: of the text, of the turn, of the message; without repeats."""
        named = (self.eos_id, self.eot_id, self.eom_id)
        return tuple(dict.fromkeys(token_id for token_id in named if token_id is not None))


@dataclass(frozen=True, slots=True)
class HuggingFaceTokenizerSource:
    """Tokenizer files of a Hugging Face directory.

    Attributes:
        tokenizer_json: path of the `tokenizer.json` that the `tokenizers` library reads.
        bos_token, eos_token, unk_token, pad_token: texts from tokenizer_config.json, for templates; None where absent.
        bos_id: from generation_config.json, else config.json, else the id of `bos_token`; None where absent.
        eos_ids: from generation_config.json, else config.json, plus the id of `eos_token`; without repeats.
        add_bos: `add_bos_token` of tokenizer_config.json. None when absent: then the post-processor of tokenizer.json
            decides.
        chat_template: `chat_template.jinja`, else the `default` one of tokenizer_config.json; None where absent.
    """

    tokenizer_json: Path
    bos_token: str | None = None
    eos_token: str | None = None
    unk_token: str | None = None
    pad_token: str | None = None
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()
    add_bos: bool | None = None
    chat_template: str | None = None


@dataclass(frozen=True, slots=True)
class ByteTokenizerSource:
    """A tokenizer without files, for random weights: id b is the byte b.

    Ids 256 .. 259 are `<|bos|>`, `<|eos|>`, `<|im_start|>` and `<|im_end|>`; ids from 260 up to vocab_size mean
    `<|unused260|>` and so on, so that every id the model can pick has a text.

    Attributes:
        vocab_size: rows of the embedding, at least 260.
    """

    vocab_size: int
    bos_id: int = 256
    eos_id: int = 257
    turn_start_id: int = 258
    turn_end_id: int = 259
    add_bos: bool = True
    chat_template: str = (
        "{{ bos_token }}{% for message in messages %}"
        "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )

    @property
    def eos_ids(self) -> tuple[int, ...]:
        return (self.eos_id, self.turn_end_id)


TokenizerSource = GgufTokenizerSource | HuggingFaceTokenizerSource | ByteTokenizerSource
