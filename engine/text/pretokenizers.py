"""Split rules of byte-level BPE models, by the names that `tokenizer.ggml.pre` uses.

A wrong split rule doesn't fail: it gives other tokens (8-10 % more of them) and a worse model. So only rules that are
known exactly are here, and any other name is refused. Sources: each family's own `tokenizer.json`; the names are
llama.cpp's.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tokenizers import Regex
from tokenizers.normalizers import NFC, Normalizer
from tokenizers.pre_tokenizers import ByteLevel, Digits, PreTokenizer, Sequence, Split

from engine.errors import ModelLoadError

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"

_LLAMA3 = rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}{{1,3}}|{_SYMBOLS}|{_SPACES}"
_QWEN2 = rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}|{_SYMBOLS}|{_SPACES}"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    rf"|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
)
_DEEPSEEK_V3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}"
)


@dataclass(frozen=True, slots=True)
class SplitRule:
    """How text is cut before the merges.

    Attributes:
        build: makes the pre-tokenizer, ending in the byte alphabet.
        normalizer: Unicode normalisation before it, None in most families.
        ignore_merges: a piece that is a token as a whole is taken without merging.
        adds_bos: raw prompts of the family begin with BOS where the file doesn't say (llama.cpp's default).
    """

    build: Callable[[], PreTokenizer]
    normalizer: Callable[[], Normalizer] | None = None
    ignore_merges: bool = False
    adds_bos: bool = False


def _split(*patterns: str) -> Callable[[], PreTokenizer]:
    def build() -> PreTokenizer:
        splits: list[PreTokenizer] = [Split(Regex(pattern), behavior="isolated") for pattern in patterns]
        return Sequence([*splits, ByteLevel(add_prefix_space=False, use_regex=False)])

    return build


def _gpt2() -> PreTokenizer:
    return ByteLevel(add_prefix_space=False, use_regex=True)


def _single_digits_gpt2() -> PreTokenizer:
    return Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False, use_regex=True)])


_RULES: dict[str, SplitRule] = {
    "gpt-2": SplitRule(_gpt2),
    "phi-2": SplitRule(_gpt2),
    "smollm": SplitRule(_single_digits_gpt2),
    "starcoder": SplitRule(_single_digits_gpt2),
    "llama-bpe": SplitRule(_split(_LLAMA3), ignore_merges=True, adds_bos=True),
    "llama3": SplitRule(_split(_LLAMA3), ignore_merges=True, adds_bos=True),
    "llama-v3": SplitRule(_split(_LLAMA3), ignore_merges=True, adds_bos=True),
    "qwen2": SplitRule(_split(_QWEN2), normalizer=NFC),
    "deepseek-r1-qwen": SplitRule(_split(_QWEN2)),
    "tekken": SplitRule(_split(_TEKKEN), ignore_merges=True, adds_bos=True),
    "deepseek-v3": SplitRule(_split(r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", _DEEPSEEK_V3)),
}

KNOWN_NAMES = tuple(sorted(_RULES))


def split_rule(name: str | None) -> SplitRule:
    """Return the rule that a file names.

    Raises:
        ModelLoadError: the name is absent, `default` or unknown: which rule the model was trained with can't be told.
    """
    rule = _RULES.get(name) if name is not None else None
    if rule is None:
        found = "no such field" if name is None else f"`{name}`"
        raise ModelLoadError(
            f"`tokenizer.ggml.pre` must name a known split rule ({', '.join(KNOWN_NAMES)}), found {found}; "
            "another rule would silently change the tokens"
        )
    return rule
