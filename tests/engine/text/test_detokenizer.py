"""IncrementalDetokenizer: pieces joined equal the whole, and no half character is ever shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model.tokenizer_source import ByteTokenizerSource
from engine.text.detokenizer import IncrementalDetokenizer
from engine.text.tokenizer import Tokenizer, build_tokenizer
from tests.support.text_sources import TURN_END, byte_level_tokenizer, sentencepiece_tokenizer

BYTE_LEVEL = byte_level_tokenizer()
TOKENIZERS = {
    "byte level": BYTE_LEVEL,
    "sentencepiece": sentencepiece_tokenizer(),
    "sentencepiece without prefix": sentencepiece_tokenizer(add_space_prefix=False),
    "bytes": build_tokenizer(ByteTokenizerSource(vocab_size=280)),
}
MUSIC = [0xF0, 0x9F, 0x8E, 0xB5]  # one character, four byte tokens


@pytest.mark.parametrize("kind", TOKENIZERS)
@given(data=st.data(), skip=st.booleans(), is_continuation=st.booleans())
def test_pieces_joined_equal_decode_of_all(kind: str, data: st.DataObject, skip: bool, is_continuation: bool) -> None:
    tokenizer = TOKENIZERS[kind]
    ids = st.integers(0, tokenizer.vocab_size + 3) | st.sampled_from([*MUSIC, 259, tokenizer.vocab_size - 1])
    batches = data.draw(st.lists(st.lists(ids, max_size=5), max_size=8))
    detokenizer = IncrementalDetokenizer(tokenizer, skip_special_tokens=skip, is_continuation=is_continuation)
    text = "".join(map(detokenizer.push, batches)) + detokenizer.finish()
    whole = [token_id for batch in batches for token_id in batch]
    assert text == tokenizer.decode(whole, skip_special_tokens=skip, is_continuation=is_continuation)


@given(text=st.text(max_size=20))
def test_no_replacement_character_for_one_that_completes(text: str) -> None:
    detokenizer = IncrementalDetokenizer(BYTE_LEVEL)
    shown = [detokenizer.push([token_id]) for token_id in BYTE_LEVEL.encode(text)]
    assert "".join(shown) == text
    assert detokenizer.finish() == ""


def test_character_of_four_tokens_appears_with_its_last_byte() -> None:
    detokenizer = IncrementalDetokenizer(BYTE_LEVEL)
    assert [detokenizer.push([byte]) for byte in MUSIC] == ["", "", "", "🎵"]


def test_two_outputs_interleaved_do_not_mix() -> None:
    first, second = IncrementalDetokenizer(BYTE_LEVEL), IncrementalDetokenizer(BYTE_LEVEL)
    shown = [
        (first.push([byte]), second.push([other])) for byte, other in zip(MUSIC, [*b"ok", 0xC3, 0xA9], strict=True)
    ]
    assert shown == [("", "o"), ("", "k"), ("", ""), ("🎵", "é")]


def test_unfinished_tail_is_replaced_at_the_end() -> None:
    detokenizer = IncrementalDetokenizer(BYTE_LEVEL)
    assert detokenizer.push(MUSIC[:2]) == ""
    assert detokenizer.finish() == "\ufffd"
    assert BYTE_LEVEL.decode(MUSIC[:2]) == "\ufffd"


def test_tail_before_a_skipped_end_token_is_replaced_at_the_end() -> None:
    detokenizer = IncrementalDetokenizer(BYTE_LEVEL)
    assert detokenizer.push([*MUSIC[:2], TURN_END]) == ""
    assert detokenizer.finish() == "\ufffd"


def test_bytes_that_can_not_complete_are_replaced_at_once() -> None:
    assert IncrementalDetokenizer(BYTE_LEVEL).push([0xF0, 0x9F, ord("a")]) == "\ufffda"


@pytest.mark.model
@given(ids=st.lists(st.integers(0, 49151), max_size=30))
def test_default_model_pieces_joined_equal_decode_of_all(ids: list[int], smollm2: Tokenizer) -> None:
    detokenizer = IncrementalDetokenizer(smollm2, skip_special_tokens=False)
    text = "".join(detokenizer.push([token_id]) for token_id in ids) + detokenizer.finish()
    assert text == smollm2.decode(ids, skip_special_tokens=False)
