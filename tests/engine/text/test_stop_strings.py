"""StopStringMatcher against a plain model, over every chunking."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InvalidRequestError
from engine.text.stop_strings import StopStringMatcher


def plain_model(text: str, stop: tuple[str, ...], include: bool) -> tuple[str, str | None]:
    """Look at every end in turn; the first at which a stop string is complete counts, the longest of those there."""
    for end in range(1, len(text) + 1):
        found = [s for s in stop if text[:end].endswith(s)]
        if found:
            longest = max(found, key=len)
            return text[: end if include else end - len(longest)], longest
    return text, None


def run(chunks: list[str], stop: tuple[str, ...], include: bool = False) -> tuple[list[str], str | None]:
    matcher = StopStringMatcher(stop, include)
    emitted: list[str] = []
    for chunk in chunks:
        result = matcher.push(chunk)
        emitted.append(result.text_to_emit)
        if result.matched is not None:
            return emitted, result.matched
    emitted.append(matcher.finish())
    return emitted, None


STOPS = st.lists(st.text("abc", min_size=1, max_size=5), max_size=4).map(tuple)


@given(chunks=st.lists(st.text("abc", max_size=4), max_size=8), stop=STOPS, include=st.booleans())
def test_matcher_any_chunking_equals_plain_model(chunks: list[str], stop: tuple[str, ...], include: bool) -> None:
    emitted, matched = run(chunks, stop, include)
    assert ("".join(emitted), matched) == plain_model("".join(chunks), stop, include)


@given(text=st.text("ab", max_size=12), stop=STOPS)
def test_matcher_holds_back_exactly_the_longest_beginning_of_a_stop_string(text: str, stop: tuple[str, ...]) -> None:
    matcher = StopStringMatcher(stop)
    for end in range(len(text)):
        if matcher.push(text[end]).matched is not None:
            return
        seen = text[: end + 1]
        beginnings = {s[:n] for s in stop for n in range(1, len(s))}
        longest = max((len(b) for b in beginnings if seen.endswith(b)), default=0)
        assert matcher.num_held_characters == longest


def test_matcher_stop_string_over_two_chunks_shows_nothing_of_it() -> None:
    assert run(["ok", "\nQ", "::", " hi"], ("\nQ::",)) == (["ok", "", ""], "\nQ::")


def test_matcher_beginning_that_comes_to_nothing_is_emitted_at_once() -> None:
    matcher = StopStringMatcher(("\nQ::",))
    assert matcher.push("ok\nQ").text_to_emit == "ok"
    assert matcher.push("x").text_to_emit == "\nQx"


def test_matcher_beginning_at_the_end_of_the_output_is_flushed() -> None:
    matcher = StopStringMatcher(("\nQ::",))
    assert matcher.push("ok\nQ:").text_to_emit == "ok"
    assert matcher.finish() == "\nQ:"


def test_matcher_several_complete_together_takes_the_longest() -> None:
    assert run(["xabc"], ("c", "abc", "bc")) == (["x"], "abc")


def test_matcher_shorter_one_inside_a_longer_ends_first() -> None:
    assert run(["xabcd"], ("abcd", "bc")) == (["xa"], "bc")


def test_matcher_include_emits_the_stop_string() -> None:
    assert run(["a ST", "OP b"], ("STOP",), include=True) == (["a ", "STOP"], "STOP")


def test_matcher_unarmed_completion_is_text_but_may_begin_a_later_match() -> None:
    matcher = StopStringMatcher(("aa", "ab"))
    assert matcher.push("aa", armed=False).text_to_emit == "a"
    assert matcher.push("b").matched == "ab"


def test_matcher_without_stop_strings_holds_nothing_back() -> None:
    assert run(["a", "b"], ()) == (["a", "b", ""], None)


def test_matcher_empty_stop_string_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="`stop`"):
        StopStringMatcher(("a", ""))
