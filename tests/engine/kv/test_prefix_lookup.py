"""Every explanation that a prefix_lookup can give."""

import pytest

from engine.kv.prefix_lookup import EvictedPrefixes
from tests.support.kv_bench import KVBench


def explain(bench: KVBench, prompt: list[int], *, salt: str = "", **params: object) -> str:
    seq = bench.seq("q", prompt, salt=salt, **params)
    bench.events()
    bench.blocks.explain(seq, bench.blocks.match(seq))
    (line,) = bench.events()
    return line.removeprefix("q finds ")


def tokens(start: int, count: int) -> list[int]:
    return list(range(start, start + count))


def test_unknown_prompt_is_cold() -> None:
    bench = KVBench(num_blocks=8)
    bench.cache("a", tokens(50, 9))
    assert explain(bench, tokens(0, 9)) == "0 of 9: cold"


def test_prompt_that_goes_on_after_all_that_is_cached_needs_no_excuse() -> None:
    bench = KVBench(num_blocks=8)
    bench.cache("a", tokens(0, 8))
    assert explain(bench, tokens(0, 17)) == "8 of 17: "


def test_other_token_in_the_middle_is_named_with_its_block() -> None:
    bench = KVBench(num_blocks=8)
    bench.cache("a", tokens(0, 12))
    prompt = tokens(0, 12)
    prompt[6] = 99
    assert explain(bench, prompt) == "6 of 12: diverged at 6 in 1, 6 not 99"


def test_other_token_at_a_block_boundary_is_named_with_its_block() -> None:
    bench = KVBench(num_blocks=8)
    bench.cache("a", tokens(0, 12))
    prompt = tokens(0, 12)
    prompt[8] = 99
    assert explain(bench, prompt) == "8 of 12: diverged at 8 in 2, 8 not 99"


@pytest.mark.parametrize(
    ("num_prompt", "expected"), [(8, "7 of 8: tail"), (9, "8 of 9: tail"), (11, "8 of 11: tail"), (12, "8 of 12: ")]
)
def test_missing_end_of_a_repeated_prompt_is_its_tail(num_prompt: int, expected: str) -> None:
    bench = KVBench(num_blocks=8)
    bench.cache("a", tokens(0, 8))
    assert explain(bench, tokens(0, num_prompt)) == expected


def test_prompt_shorter_than_a_block_is_all_tail() -> None:
    assert explain(KVBench(num_blocks=8), [1, 2, 3]) == "0 of 3: tail"


def test_evicted_prefix_is_remembered() -> None:
    bench = KVBench(num_blocks=4)
    bench.cache("a", tokens(0, 8))
    bench.cache("b", tokens(50, 12))
    assert explain(bench, tokens(0, 9)) == "4 of 9: evicted"
    bench.cache("c", tokens(80, 16))
    assert explain(bench, tokens(0, 9)) == "0 of 9: evicted"


def test_cleared_prefix_is_remembered_as_evicted() -> None:
    bench = KVBench(num_blocks=4)
    bench.cache("a", tokens(0, 8))
    bench.blocks.reset_prefix_cache()
    assert explain(bench, tokens(0, 9)) == "0 of 9: evicted"


def test_evicted_prefixes_are_forgotten_beyond_the_bound() -> None:
    bench = KVBench(num_blocks=4, max_evicted=2)
    bench.cache("a", tokens(0, 4))
    bench.cache("b", tokens(50, 16))
    assert explain(bench, tokens(0, 5)) == "0 of 5: evicted"
    bench.cache("c", tokens(80, 16))
    assert bench.blocks.num_evicted_prefixes == 2
    assert explain(bench, tokens(0, 5)) == "0 of 5: cold"


def test_prefix_of_another_salt_is_said_to_be_so() -> None:
    bench = KVBench(num_blocks=8)
    bench.cache("a", tokens(0, 8), salt="x")
    assert explain(bench, tokens(0, 9)) == "0 of 9: salt"
    assert explain(bench, tokens(0, 9), salt="y") == "0 of 9: salt"
    assert explain(bench, tokens(0, 9), salt="x") == "8 of 9: tail"


def test_disabled_cache_is_said_to_be_so() -> None:
    assert explain(KVBench(num_blocks=4, prefix_cache=False), tokens(0, 9)) == "0 of 9: disabled"


def test_prompt_logprobs_disable_the_cache() -> None:
    bench = KVBench(num_blocks=8)
    bench.cache("a", tokens(0, 8))
    assert explain(bench, tokens(0, 9), prompt_logprobs=0) == "0 of 9: disabled"


def test_evicted_prefixes_keep_the_latest() -> None:
    evicted = EvictedPrefixes(capacity=2)
    for block_hash in ("a", "b", "a", "c"):
        evicted.add(block_hash)
    assert [block_hash in evicted for block_hash in "abc"] == [True, False, True]
    assert len(evicted) == 2
