"""SentencePiece out of GGUF: merges by score, byte fallback, the space before the text."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ModelLoadError
from engine.model.tokenizer_source import TokenType
from engine.text.tokenizer import build_tokenizer
from tests.support.text_sources import PIECES, piece_id, sentencepiece_source, sentencepiece_tokenizer

TOKENIZER = sentencepiece_tokenizer()
NO_PREFIX = sentencepiece_tokenizer(add_space_prefix=False)


def merged_by_score(text: str) -> list[int]:
    """Join the neighbours with the best joined score, leftmost first, until none can be joined: the plain algorithm."""
    scores = dict(PIECES)
    symbols = list(("▁" + text.replace(" ", "▁")) if text else "")
    while True:
        joined = [scores.get(a + b, -math.inf) for a, b in itertools.pairwise(symbols)]
        best = max(range(len(joined)), key=lambda i: (joined[i], -i), default=None)
        if best is None or joined[best] == -math.inf:
            break
        symbols[best : best + 2] = [symbols[best] + symbols[best + 1]]
    ids: list[int] = []
    for symbol in symbols:
        ids += [piece_id(symbol)] if symbol in scores else [3 + byte for byte in symbol.encode()]
    return ids


@given(text=st.text("thelo </s>é", max_size=20))
def test_encode_equals_merging_by_score(text: str) -> None:
    assert TOKENIZER.encode(text, add_special=False) == merged_by_score(text)


@given(text=st.text(max_size=30))
def test_decode_returns_the_encoded_text(text: str) -> None:
    plain = text.replace("▁", "_")  # the one character that this kind of vocabulary can't tell from a space
    for tokenizer in (TOKENIZER, NO_PREFIX):
        assert tokenizer.decode(tokenizer.encode(plain)) == plain


def test_encode_without_merge_list_joins_by_score() -> None:
    assert TOKENIZER.encode("the hello", add_special=False) == [piece_id("▁the"), piece_id("▁hello")]


def test_encode_adds_bos_where_the_file_is_silent() -> None:
    assert TOKENIZER.encode("the") == [1, piece_id("▁the")]
    assert sentencepiece_tokenizer(add_bos=False).encode("the") == [piece_id("▁the")]


def test_encode_unknown_characters_fall_back_to_bytes() -> None:
    assert TOKENIZER.encode("é", add_special=False) == [piece_id("▁"), 3 + 0xC3, 3 + 0xA9]


def test_encode_control_literal_in_text_stays_text() -> None:
    ids = TOKENIZER.encode("</s>", add_special=False)
    assert ids == [piece_id("▁"), piece_id("</s"), piece_id(">")]
    assert TOKENIZER.decode(ids) == "</s>"


def test_encode_without_space_prefix_begins_with_the_text() -> None:
    assert NO_PREFIX.encode("the", add_special=False) == [piece_id("t"), piece_id("he")]
    assert not NO_PREFIX.drops_leading_space


def test_decode_drops_one_leading_space_but_not_of_a_continuation() -> None:
    ids = [piece_id("▁the"), piece_id("▁hello")]
    assert TOKENIZER.decode(ids) == "the hello"
    assert TOKENIZER.decode(ids, is_continuation=True) == " the hello"
    assert NO_PREFIX.decode(ids) == " the hello"


def test_token_bytes_of_byte_and_word_tokens() -> None:
    assert TOKENIZER.token_bytes(3 + 0xC3) == b"\xc3"
    assert TOKENIZER.token_bytes(piece_id("▁the")) == b" the"


def test_build_without_scores_is_refused() -> None:
    with pytest.raises(ModelLoadError, match=r"`tokenizer\.ggml\.scores`"):
        sentencepiece_tokenizer(scores=None)


def test_build_misspelled_byte_token_is_refused() -> None:
    source = sentencepiece_source()
    tokens = [*source.tokens]
    tokens[3] = "<0xZZ>"
    with pytest.raises(ModelLoadError, match="<0xZZ>"):
        build_tokenizer(sentencepiece_source(tokens=tuple(tokens)))


def test_encode_user_defined_piece_is_matched_whole_with_real_spaces() -> None:
    source = sentencepiece_source()
    tokenizer = sentencepiece_tokenizer(
        tokens=(*source.tokens, "▁▁▁"),
        scores=(*(source.scores or ()), 0.0),
        token_types=(*source.token_types, TokenType.USER_DEFINED),
    )
    assert tokenizer.encode("   the", add_special=False) == [len(source.tokens), piece_id("▁the")]
