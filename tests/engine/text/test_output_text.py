"""TextAssembler: the text of one choice, cut at a stop string and counted in tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text.output_text import TextAssembler, TextDelta
from tests.support.text_sources import (
    EOS,
    HELLO,
    SPACE_HELLO,
    byte_level_tokenizer,
    piece_id,
    sentencepiece_tokenizer,
)

TOKENIZER = byte_level_tokenizer()
MUSIC = [0xF0, 0x9F, 0x8E, 0xB5]
# Tokens of whole pieces of text, as a scripted model emits them.
SCRIPT = [*b"ok", *b"\nQ", *b"::", *b" hi"]


def run(batches: list[list[int]], **settings: object) -> tuple[list[str], TextDelta | None]:
    assembler = TextAssembler(TOKENIZER, **settings)  # type: ignore[arg-type]
    shown: list[str] = []
    delta = None
    for batch in batches:
        delta = assembler.push(batch)
        shown.append(delta.text)
        if delta.stopped:
            break
    shown.append(assembler.finish())
    return shown, delta


@pytest.mark.parametrize("size", [1, 2, 3, 4, 9])
def test_stop_string_over_several_tokens_shows_nothing_of_it(size: int) -> None:
    batches = [SCRIPT[i : i + size] for i in range(0, len(SCRIPT), size)]
    shown, delta = run(batches, stop=("\nQ::",))
    assert "".join(shown) == "ok"
    assert delta is not None
    assert (delta.stopped, delta.stop_string, delta.num_tokens_used) == (True, "\nQ::", 6)


def test_tokens_behind_the_stop_string_in_one_batch_do_not_count() -> None:
    # A stop string completed by the second of four accepted tokens.
    assembler = TextAssembler(TOKENIZER, stop=("xy",))
    delta = assembler.push([*b"xyzz"])
    assert delta == TextDelta(text="", stopped=True, stop_string="xy", num_tokens_used=2, text_offsets=(0, 1))


def test_include_stop_shows_the_stop_string_and_nothing_behind_it() -> None:
    shown, _ = run([SCRIPT], stop=("\nQ::",), include_stop=True)
    assert "".join(shown) == "ok\nQ::"


def test_stop_string_inside_one_token_cuts_its_text() -> None:
    shown, delta = run([[HELLO]], stop=("ell",))
    assert "".join(shown) == "h"
    assert delta is not None
    assert delta.num_tokens_used == 1


def test_stop_string_of_a_character_of_four_tokens_is_found() -> None:
    shown, delta = run([[HELLO], *([byte] for byte in MUSIC)], stop=("🎵",))
    assert "".join(shown) == "hello"
    assert delta is not None
    assert delta.num_tokens_used == 5


def test_held_back_text_comes_with_any_other_end() -> None:
    shown, _ = run([[*b"ok\nQ:"]], stop=("\nQ::",))
    assert shown == ["ok", "\nQ:"]


def test_held_back_text_and_an_unfinished_character_come_in_order() -> None:
    shown, _ = run([[*b"ok\n", *MUSIC[:2]]], stop=("\nQ",))
    assert shown == ["ok", "\n\ufffd"]


def test_min_tokens_stop_string_completed_within_them_is_text() -> None:
    shown, delta = run([[*b"ababab"]], stop=("ab",), min_tokens=3)
    assert "".join(shown) == "ab"
    assert delta is not None
    assert delta.num_tokens_used == 4


def test_stop_token_counts_but_has_no_text() -> None:
    assembler = TextAssembler(TOKENIZER, skip_special_tokens=False)
    delta = assembler.push([HELLO, EOS], ends_with_stop_token=True)
    assert (delta.text, delta.num_tokens_used, delta.text_offsets) == ("hello", 2, (0, 5))


def test_stop_token_with_stops_included_shows_its_text() -> None:
    assembler = TextAssembler(TOKENIZER, skip_special_tokens=False, include_stop=True)
    assert assembler.push([HELLO, EOS], ends_with_stop_token=True).text == "hello</s>"


def test_text_offsets_point_where_each_token_begins() -> None:
    assembler = TextAssembler(TOKENIZER)
    assert assembler.push([HELLO, *MUSIC]).text_offsets == (0, 5, 5, 5, 5)
    assert assembler.push([SPACE_HELLO, HELLO]).text_offsets == (6, 12)


def test_sentencepiece_continuation_keeps_the_leading_space() -> None:
    tokenizer = sentencepiece_tokenizer()
    ids = [piece_id("▁the"), piece_id("▁hello")]
    assert TextAssembler(tokenizer).push(ids).text == "the hello"
    assert TextAssembler(tokenizer, is_continuation=True).push(ids).text == " the hello"


@given(
    ids=st.lists(st.sampled_from([*b"ab\n", *MUSIC, HELLO, EOS]), max_size=24),
    cuts=st.lists(st.integers(1, 5), max_size=24),
    stop=st.lists(st.sampled_from(["ab", "a\n", "🎵a", "lob", "b"]), max_size=3).map(tuple),
    include=st.booleans(),
    min_tokens=st.integers(0, 4),
)
def test_any_batching_gives_the_same_text_stop_and_count(
    ids: list[int], cuts: list[int], stop: tuple[str, ...], include: bool, min_tokens: int
) -> None:
    batches, start = [], 0
    for cut in [*cuts, len(ids)]:
        batches.append(ids[start : start + cut])
        start += cut
    settings: dict[str, object] = {"stop": stop, "include_stop": include, "min_tokens": min_tokens}
    streamed, streamed_end = run(batches, **settings)
    whole, whole_end = run([ids], **settings)
    assert "".join(streamed) == "".join(whole)
    assert streamed_end is not None
    assert whole_end is not None
    assert streamed_end.stop_string == whole_end.stop_string
    if whole_end.stopped:
        assert streamed_end.num_tokens_used == whole_end.num_tokens_used
    else:
        assert "".join(whole) == TOKENIZER.decode(ids)
