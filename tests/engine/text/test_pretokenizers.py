"""Split rules: how each family cuts one text that tells them apart."""

import pytest

from engine.errors import ModelLoadError
from engine.text.byte_alphabet import spelled_bytes
from engine.text.pretokenizers import KNOWN_NAMES, split_rule


def pieces(name: str, text: str) -> list[str]:
    return [spelled_bytes(piece).decode() for piece, _ in split_rule(name).build().pre_tokenize_str(text)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpt-2", ["don", "'t", " ", " 12345", " =", " ", " naïve"]),
        ("smollm", ["don", "'t", "  ", "1", "2", "3", "4", "5", " =", " ", " naïve"]),
        ("llama-bpe", ["don", "'t", " ", " ", "123", "45", " =", " ", " naïve"]),
        ("qwen2", ["don", "'t", " ", " ", "1", "2", "3", "4", "5", " =", " ", " naïve"]),
        ("tekken", ["don", "'t", " ", " ", "1", "2", "3", "4", "5", " =", " ", " naïve"]),
        ("deepseek-v3", ["don", "'t", "  ", "123", "45", " =", " ", " naïve"]),
    ],
)
def test_split_rule_contractions_digits_and_spaces(name: str, expected: list[str]) -> None:
    assert pieces(name, "don't  12345 =  naïve") == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpt-2", ["I", "'", "LL", "\n", "\n", "camelCase"]),
        ("llama-bpe", ["I", "'LL", "\n\n", "camelCase"]),
        ("qwen2", ["I", "'LL", "\n\n", "camelCase"]),
        ("tekken", ["I", "'LL", "\n\n", "camel", "Case"]),
    ],
)
def test_split_rule_upper_case_and_line_ends(name: str, expected: list[str]) -> None:
    assert pieces(name, "I'LL\n\ncamelCase") == expected


@pytest.mark.parametrize("name", KNOWN_NAMES)
def test_split_rule_pieces_join_to_the_text(name: str) -> None:
    text = "Hi there!\r\n\tI'm 42½ years — 你好 🙂  \u00a0x\x00y\n"
    assert "".join(pieces(name, text)) == text


def test_split_rule_qwen2_composes_accents() -> None:
    normalizer = split_rule("qwen2").normalizer
    assert normalizer is not None
    assert normalizer().normalize_str("e\u0301") == "é"


@pytest.mark.parametrize("name", [None, "default", "nonsense"])
def test_split_rule_unknown_name_says_what_is_known(name: str | None) -> None:
    with pytest.raises(ModelLoadError, match="llama-bpe, llama-v3"):
        split_rule(name)
