"""loadtest/prompts.py and corpus.py: real text, exact lengths, no two prompts alike."""

import pytest

from loadtest.corpus import MIN_CHARACTERS, docstrings
from loadtest.prompts import HEAD, PromptSource


def test_prompts_have_the_exact_length_and_differ_in_their_first_tokens() -> None:
    prompts = PromptSource(range(1000), seed=3).take_many(50, 20)
    assert {len(prompt) for prompt in prompts} == {20}
    assert len({tuple(prompt[:HEAD]) for prompt in prompts}) == 50
    assert all(prompt == list(range(prompt[0], prompt[0] + 20)) for prompt in prompts)


def test_prompts_shared_part_is_equal_in_one_call_and_new_in_the_next() -> None:
    source = PromptSource(range(1000), seed=3)
    first, second = source.take_many(5, 30, shared=20), source.take_many(5, 30, shared=20)
    assert {len(prompt) for prompt in first + second} == {30}
    assert len({tuple(prompt[:20]) for prompt in first}) == len({tuple(prompt[:20]) for prompt in second}) == 1
    assert first[0][:20] != second[0][:20]
    assert len({tuple(prompt[20:]) for prompt in first}) == 5


def test_prompts_equal_seeds_give_equal_prompts() -> None:
    assert PromptSource(range(99), seed=1).take_many(4, 9) == PromptSource(range(99), seed=1).take_many(4, 9)
    assert PromptSource(range(99), seed=1).take_many(4, 9) != PromptSource(range(99), seed=2).take_many(4, 9)


@pytest.mark.parametrize(("num_tokens", "count"), [(12, 1), (9, 4)])
def test_prompts_text_that_has_no_more_is_an_error(num_tokens: int, count: int) -> None:
    with pytest.raises(ValueError, match="no unused prompt"):
        PromptSource(range(11), seed=1).take_many(count, num_tokens)


def test_docstrings_are_real_text_of_about_the_size_asked_for() -> None:
    found = docstrings(20_000)
    assert 20_000 <= sum(map(len, found)) < 60_000
    assert min(map(len, found)) >= MIN_CHARACTERS
    assert found == docstrings(20_000)
