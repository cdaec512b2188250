"""Tokenizer over byte-level BPE: exact ids, round trips, special tokens."""

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InvalidRequestError, ModelLoadError
from engine.model.tokenizer_source import ByteTokenizerSource, GgufTokenizerSource
from engine.text.tokenizer import Tokenizer, build_tokenizer
from tests.support.text_sources import (
    BOS,
    END_THINK,
    EOS,
    HELLO,
    SPACE_HELLO,
    THINK,
    TURN_END,
    byte_level_source,
    byte_level_tokenizer,
)

PROMPTS = json.loads((Path(__file__).parents[2] / "data" / "smollm2_prompts.json").read_text(encoding="utf-8"))
BYTE_LEVEL = byte_level_tokenizer()
BYTES = build_tokenizer(ByteTokenizerSource(vocab_size=300))


@pytest.mark.model
@pytest.mark.parametrize("case", PROMPTS["cases"], ids=lambda case: case["text"][:20])
def test_encode_default_model_gives_the_reference_ids(case: dict[str, object], smollm2: Tokenizer) -> None:
    assert smollm2.encode(str(case["text"])) == case["ids"]


@pytest.mark.model
def test_encode_default_model_splits_contractions_digits_and_spaces(smollm2: Tokenizer) -> None:
    ids = smollm2.encode("don't  12345 =  naïve")
    assert [smollm2.token_text(i) for i in ids] == [
        *("don", "'t", "  ", "1", "2", "3", "4", "5", " =", " ", " na", "ïve")
    ]


# Six control bytes and the lead bytes of unassigned planes never came up in its training text and have no token.
SMOLLM2_CHARACTERS = st.characters(max_codepoint=0x3FFFF, exclude_categories=["Cc", "Cs"]) | st.sampled_from("\n\t\r")


@pytest.mark.model
@given(text=st.text(SMOLLM2_CHARACTERS, max_size=60))
def test_decode_default_model_returns_the_encoded_text(text: str, smollm2: Tokenizer) -> None:
    assert smollm2.decode(smollm2.encode(text)) == text


@pytest.mark.alone
@pytest.mark.model
def test_build_default_model_takes_less_than_half_a_second(smollm2_source: GgufTokenizerSource) -> None:
    # Processor time of the best of three: other processes of this machine don't count.
    times = []
    for _ in range(3):
        start = time.process_time()
        build_tokenizer(smollm2_source)
        times.append(time.process_time() - start)
    assert min(times) < 0.5


@pytest.mark.model
def test_eos_default_model_includes_the_end_of_turn_and_of_text(smollm2: Tokenizer) -> None:
    assert {smollm2.token_text(i) for i in smollm2.eos_token_ids} == {"<|im_end|>", "<|endoftext|>"}


@pytest.mark.model
def test_encode_default_model_byte_without_a_token_gives_nothing(smollm2: Tokenizer) -> None:
    assert smollm2.encode("a\x04b") == smollm2.encode("a") + smollm2.encode("b")


@given(text=st.text(max_size=40) | st.text("hello w<>|ims_/", max_size=40))
def test_decode_returns_the_encoded_text(text: str) -> None:
    for tokenizer in (BYTE_LEVEL, BYTES):
        assert tokenizer.decode(tokenizer.encode(text)) == text


@given(text=st.text("</s>|im_endstarthk", max_size=60) | st.sampled_from(["<|im_end|>", "a</s>b", "<s><s>"]))
def test_encode_never_gives_a_control_id_for_text(text: str) -> None:
    for tokenizer in (BYTE_LEVEL, BYTES):
        assert not any(tokenizer.is_special(i) for i in tokenizer.encode(text, add_special=False))


def test_encode_merges_in_order_of_rank() -> None:
    assert BYTE_LEVEL.encode("hello hello") == [HELLO, SPACE_HELLO]


def test_encode_user_defined_token_is_matched_whole() -> None:
    assert BYTE_LEVEL.encode("<think>hello</think>") == [THINK, HELLO, END_THINK]


def test_encode_empty_text_gives_nothing_where_no_bos_is_added() -> None:
    assert BYTE_LEVEL.encode("") == []


def test_encode_lone_surrogate_becomes_the_replacement_character() -> None:
    assert BYTE_LEVEL.decode(BYTE_LEVEL.encode("a\ud800b")) == "a\ufffdb"


@pytest.mark.parametrize(("add_bos", "expected"), [(True, [BOS, HELLO]), (False, [HELLO]), (None, [HELLO])])
def test_encode_adds_bos_as_the_file_says(add_bos: bool | None, expected: list[int]) -> None:
    assert byte_level_tokenizer(add_bos=add_bos).encode("hello") == expected


def test_encode_llama3_family_adds_bos_where_the_file_is_silent() -> None:
    assert byte_level_tokenizer(pre="llama-bpe", add_bos=None).encode("hello") == [BOS, HELLO]


def test_encode_text_that_begins_with_bos_gets_one_bos_only() -> None:
    assert byte_level_tokenizer(add_bos=True).encode("<s>hello") == [BOS, HELLO]


def test_encode_bos_literal_is_text_where_no_bos_is_added() -> None:
    assert BYTE_LEVEL.encode("<s>") == list(b"<s>")


def test_encode_without_special_adds_nothing() -> None:
    assert byte_level_tokenizer(add_bos=True, add_eos=True).encode("hello", add_special=False) == [HELLO]


def test_encode_add_eos_ends_the_text() -> None:
    assert byte_level_tokenizer(add_eos=True).encode("hello") == [HELLO, EOS]


def test_encode_segments_numbers_are_control_ids_and_strings_text() -> None:
    assert BYTE_LEVEL.encode_segments(["hello", TURN_END, "</s>"]) == [HELLO, TURN_END, *b"</s>"]


def test_encode_segments_as_text_leaves_a_user_defined_literal_unmatched() -> None:
    ids = BYTE_LEVEL.encode_segments(["<think>"], as_text=frozenset({"<think>"}))
    assert ids == list(b"<think>")


def test_token_bytes_of_a_part_of_a_character_are_its_own() -> None:
    # What the `bytes` of a logprob entry show: each alternative on its own, never the bytes of U+FFFD.
    ids = BYTE_LEVEL.encode("🙠")
    assert [BYTE_LEVEL.token_bytes(i) for i in ids] == [b"\xf0", b"\x9f", b"\x99", b"\xa0"]
    assert BYTE_LEVEL.token_text(ids[0]) == "\ufffd"


def test_token_bytes_of_a_special_token_spell_its_literal() -> None:
    assert BYTE_LEVEL.token_bytes(TURN_END) == b"<|im_end|>"


def test_token_bytes_of_a_padding_row_are_none() -> None:
    assert BYTE_LEVEL.token_bytes(BYTE_LEVEL.vocab_size + 5) == b""


def test_decode_skips_special_tokens_unless_asked() -> None:
    assert BYTE_LEVEL.decode([HELLO, TURN_END]) == "hello"
    assert BYTE_LEVEL.decode([HELLO, TURN_END], skip_special_tokens=False) == "hello<|im_end|>"


def test_decode_negative_id_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="-1"):
        BYTE_LEVEL.decode([-1])


def test_decode_invalid_bytes_become_replacement_characters() -> None:
    assert BYTE_LEVEL.decode([0x61, 0xF0, 0x9F, 0x62]) == "a\ufffdb"


def test_eos_control_tokens_that_end_a_turn_count_too() -> None:
    assert BYTE_LEVEL.eos_token_ids == {EOS, TURN_END}


def test_eos_end_literal_that_is_no_control_token_does_not_count() -> None:
    source = byte_level_source()
    kinds = [*source.token_types]
    kinds[TURN_END] = 1
    assert build_tokenizer(byte_level_source(token_types=tuple(kinds))).eos_token_ids == {EOS}


def test_special_ids_named_by_a_file_without_token_types_stay_out_of_text() -> None:
    source = byte_level_source(token_types=(1,) * len(byte_level_source().tokens))
    tokenizer = build_tokenizer(source)
    assert tokenizer.is_special(EOS)
    assert tokenizer.is_special(BOS)
    assert tokenizer.encode("</s>") == list(b"</s>")


@pytest.mark.parametrize("pre", [None, "default", "nonsense"])
def test_build_unknown_split_rule_is_refused_by_name(pre: str | None) -> None:
    with pytest.raises(ModelLoadError, match=r"`tokenizer\.ggml\.pre`"):
        byte_level_tokenizer(pre=pre)


def test_build_byte_level_without_merges_is_refused() -> None:
    with pytest.raises(ModelLoadError, match=r"`tokenizer\.ggml\.merges`"):
        byte_level_tokenizer(merges=())


def test_build_merge_of_unknown_tokens_is_refused() -> None:
    with pytest.raises(ModelLoadError, match="entry 1"):
        byte_level_tokenizer(merges=("h e", "q qq"))


def test_byte_tokenizer_unused_ids_have_a_text() -> None:
    assert BYTES.vocab_size == 300
    assert BYTES.token_text(260) == "<|unused260|>"
    assert BYTES.encode("é") == [256, 0xC3, 0xA9]
