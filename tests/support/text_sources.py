"""Small tokenizer sources, written out by hand so that every id in a test can be checked by eye."""

from typing import Any

from engine.model.tokenizer_source import GgufTokenizerSource, TokenType
from engine.text.byte_alphabet import BYTE_TO_CHARACTER
from engine.text.tokenizer import Tokenizer, build_tokenizer

# Ids of byte_level_source: byte b is id b, then the merges' results, then the special tokens.
HELLO_MERGES = ("h e", "l l", "he ll", "hell o", "Ġ w", "Ġ hello")
HELLO, SPACE_HELLO = 259, 261
BOS, EOS, TURN_START, TURN_END, THINK, END_THINK = 262, 263, 264, 265, 266, 267


def byte_level_source(**changes: Any) -> GgufTokenizerSource:
    """Return a byte-level BPE source with six merges and six special tokens."""
    plain = [BYTE_TO_CHARACTER[byte] for byte in range(256)]
    plain += [merge.replace(" ", "") for merge in HELLO_MERGES]
    special = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
    kinds = [TokenType.CONTROL] * 4 + [TokenType.USER_DEFINED] * 2
    fields: dict[str, Any] = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": (*plain, *special),
        "scores": None,
        "token_types": (*(TokenType.NORMAL for _ in plain), *kinds),
        "merges": HELLO_MERGES,
        "bos_id": BOS,
        "eos_id": EOS,
        "add_bos": False,
    }
    return GgufTokenizerSource(**fields | changes)


def byte_level_tokenizer(**changes: Any) -> Tokenizer:
    return build_tokenizer(byte_level_source(**changes))


# SentencePiece: ids 0..2 special, 3..258 the bytes, then pieces with scores.
PIECES: tuple[tuple[str, float], ...] = (
    ("▁the", -1.0),
    ("▁t", -2.0),
    ("he", -3.0),
    ("▁h", -4.0),
    ("▁he", -4.5),
    ("ll", -5.0),
    ("llo", -6.0),
    ("▁hello", -7.0),
    ("</", -8.0),
    ("</s", -8.5),
    ("▁", -20.0),
    ("t", -21.0),
    ("h", -22.0),
    ("e", -23.0),
    ("l", -24.0),
    ("o", -25.0),
    ("<", -26.0),
    ("/", -27.0),
    ("s", -28.0),
    (">", -29.0),
)
FIRST_PIECE = 259


def piece_id(piece: str) -> int:
    return FIRST_PIECE + [text for text, _ in PIECES].index(piece)


def sentencepiece_source(**changes: Any) -> GgufTokenizerSource:
    """Return a SentencePiece source with byte fallback and no merge list, as `llama` GGUF files have."""
    tokens = ("<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *(text for text, _ in PIECES))
    kinds = (TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL, *(TokenType.BYTE for _ in range(256)))
    fields: dict[str, Any] = {
        "model": "llama",
        "pre": "default",
        "tokens": tokens,
        "scores": (*(0.0 for _ in range(FIRST_PIECE)), *(score for _, score in PIECES)),
        "token_types": (*kinds, *(TokenType.NORMAL for _ in PIECES)),
        "merges": (),
        "unk_id": 0,
        "bos_id": 1,
        "eos_id": 2,
    }
    return GgufTokenizerSource(**fields | changes)


def sentencepiece_tokenizer(**changes: Any) -> Tokenizer:
    return build_tokenizer(sentencepiece_source(**changes))
