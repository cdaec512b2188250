"""What happens when blocks run out, on every path, and that everybody still ends."""

from collections.abc import Sequence as Many

import pytest

from engine.events import RequestChunk, RequestEvent, RequestPreempted, RequestResumed, Stalled
from engine.kv.block_manager import BlockManager
from engine.preemption import PreemptNewest
from engine.schedule import BlockedOn
from engine.sequence import Sequence
from tests.support.scheduler_bench import SchedulerBench


def test_decode_growth_preempts_the_newest_and_recomputes_it_later() -> None:
    bench = SchedulerBench(num_kv_blocks=5)
    bench.add("a", 8, max_tokens=6)
    bench.add("b", 7, max_tokens=6)
    assert bench.step() == ["a:8", "b:7"]  # a: blocks 0 1, b: 2 3
    assert bench.step() == ["a.", "b."]  # a takes 4, the last one; b writes its last slot
    bench.events()
    assert bench.step() == ["a."]  # b needs a block, and is the newest
    assert bench.events(RequestPreempted) == ["b is preempted, loses 8, time 1"]
    assert bench.scheduler.waiting_ids == [("b", 0)]
    bench.run(max_steps=10)
    lines = bench.events(RequestResumed, RequestChunk)
    assert lines[0].startswith("b resumes, ")
    assert bench.tokens("b") == [1007, 1008, 1009, 1010, 1011, 1012]
    assert bench.tokens("a") == [1008, 1009, 1010, 1011, 1012, 1013]


def test_resumed_sequence_computes_lost_tokens_again_and_says_how_many() -> None:
    bench = SchedulerBench(num_kv_blocks=5, prefix_cache=False)
    bench.add("a", 8, max_tokens=9)
    bench.step()
    bench.add("b", 7, max_tokens=3)
    bench.run(max_steps=20)
    lines = bench.events(RequestPreempted, RequestResumed, RequestChunk)
    assert lines == [
        "a computes 8 from 0",
        "b computes 7 from 0",
        "b is preempted, loses 8, time 1",
        "b resumes, 0 cached, 8 to compute again",
        "b computes 9 from 0, 8 again",
    ]


def test_cached_blocks_are_reclaimed_before_anybody_is_preempted() -> None:
    bench = SchedulerBench(num_kv_blocks=8)
    bench.add("old", 12, max_tokens=1)
    bench.run(max_steps=2)
    assert bench.blocks.counts.cached == 3
    bench.add("a", 16, max_tokens=15)
    bench.run(max_steps=20)
    assert bench.events(RequestPreempted) == []


def test_oldest_running_sequence_is_never_preempted() -> None:
    bench = SchedulerBench(num_kv_blocks=8)
    for name in "abcd":
        bench.add(name, 4, max_tokens=28)
    bench.run(max_steps=200)
    preempted = bench.events(RequestPreempted)
    assert preempted
    assert not [line for line in preempted if line.startswith("a ")]
    assert set(bench.ends().values()) == {"length"}


def test_lowest_priority_gives_way_before_the_newest() -> None:
    bench = SchedulerBench(num_kv_blocks=6)
    bench.add("a", 7, priority=1, max_tokens=8)
    bench.add("b", 7, priority=0, max_tokens=8)
    bench.add("c", 7, priority=0, max_tokens=8)
    bench.steps(3)
    assert bench.events(RequestPreempted)[0].startswith("a is preempted")


def test_prefill_chunk_shrinks_to_the_blocks_that_are_left() -> None:
    bench = SchedulerBench(num_kv_blocks=8, max_num_batched_tokens=16, prefix_cache=False)
    bench.add("a", 3, max_tokens=20)
    bench.step()
    bench.add("b", 26, max_tokens=2)
    shares = bench.steps(4)
    assert [share for step in shares for share in step if share.startswith("b")] == ["b:15", "b:9"]
    assert bench.events(RequestPreempted) == ["b is preempted, loses 24, time 1"]
    bench.run(max_steps=40)


class _NoReserve(PreemptNewest):
    """Admits whoever fits at the moment, as if nobody had to grow, so that prefills meet in a full pool."""

    def headroom(self, seq: Sequence, *, num_owed: int, num_growing: int, num_steps: int, block_size: int) -> int:
        return 0


def test_half_prefilled_requests_that_exhaust_the_pool_all_finish() -> None:
    bench = SchedulerBench(
        num_kv_blocks=10, max_num_batched_tokens=9, max_model_len=40, policy=_NoReserve(max_preemptions=8)
    )
    for name, num_prompt in (("a", 14), ("b", 23), ("c", 24), ("d", 22)):
        bench.add(name, num_prompt, max_tokens=8)
    bench.run(max_steps=120)
    assert set(bench.ends().values()) == {"length"}
    preempted = bench.events(RequestPreempted)
    assert preempted
    assert not [line for line in preempted if line.startswith("a ")]


def test_admission_waits_for_what_running_prefills_still_need() -> None:
    bench = SchedulerBench(num_kv_blocks=12, max_num_batched_tokens=8, max_model_len=48)
    bench.add("a", 32, max_tokens=1)
    bench.add("b", 20, max_tokens=1)
    schedule = bench.plan()
    bench.finish(schedule)
    for _ in range(3):
        schedule = bench.plan()
        assert [entry.seq.request_id for entry in schedule.entries] == ["a"]
        bench.finish(schedule)
    assert bench.step() == ["b:8"]
    assert bench.events(RequestPreempted) == []


def test_admission_never_takes_the_place_of_an_equal() -> None:
    bench = SchedulerBench(num_kv_blocks=8)
    for name in "ab":
        bench.add(name, 12, max_tokens=4)
    bench.step()
    bench.add("c", 8, max_tokens=1)
    schedule = bench.plan()
    assert schedule.blocked_on is BlockedOn.KV_BLOCKS
    assert bench.events(RequestPreempted) == []


def test_admission_takes_the_place_of_a_lower_priority() -> None:
    bench = SchedulerBench(num_kv_blocks=8)
    bench.add("a", 12, priority=5, max_tokens=4)
    bench.add("b", 12, priority=5, max_tokens=4)
    bench.step()
    bench.add("urgent", 8, priority=0, max_tokens=1)
    assert bench.step() == ["a.", "urgent:8"]
    assert bench.events(RequestPreempted) == ["b is preempted, loses 12, time 1"]


def test_sequence_that_gives_way_after_it_was_scheduled_is_unscheduled() -> None:
    bench = SchedulerBench(num_kv_blocks=8, max_num_batched_tokens=8)
    bench.add("a", 12, priority=5, max_tokens=4)
    bench.add("b", 12, priority=5, max_tokens=4)
    bench.steps(4)
    bench.add("urgent", 8, priority=0, max_tokens=1)
    schedule = bench.plan()
    assert [entry.seq.request_id for entry in schedule.entries] == ["a", "urgent"]
    assert schedule.num_tokens == 8  # b's token of the budget went to the newcomer
    bench.finish(schedule)
    bench.run(max_steps=20)


def test_lower_priorities_stay_when_even_all_of_them_are_not_enough() -> None:
    bench = SchedulerBench(num_kv_blocks=8, max_model_len=32)
    bench.add("a", 16, max_tokens=4)
    bench.add("b", 8, priority=5, max_tokens=4)
    bench.step()
    bench.add("urgent", 20, priority=0, max_tokens=1)
    assert bench.step() == ["a.", "b."]


def test_resume_leaves_room_for_the_growth_of_the_running_ones() -> None:
    bench = SchedulerBench(num_kv_blocks=12, max_model_len=48)
    for name in "abcd":
        bench.add(name, 8, max_tokens=30)
    resumed: set[str] = set()
    for _ in range(400):
        if not bench.scheduler.has_work:
            break
        bench.step()
        for line in bench.events(RequestEvent):
            name, _, what = line.partition(" ")
            if what.startswith("resumes"):
                resumed.add(name)
            elif what.startswith("gets"):
                resumed.discard(name)
            elif what.startswith("is preempted"):
                assert name not in resumed, f"{name} was resumed and preempted before it had a token"
    assert set(bench.ends().values()) == {"length"}


def test_sequence_that_was_preempted_often_is_the_last_to_be_taken() -> None:
    policy = PreemptNewest(max_preemptions=2)
    running = [_sequence(name, order) for order, name in enumerate("abc")]
    assert policy.victim(running) is running[2]
    running[2].num_preemptions = 2
    assert policy.victim(running) is running[1]
    running[1].is_catching_up = True
    assert policy.victim(running) is running[1]
    assert policy.victim([running[0], running[2]]) is running[2]
    assert policy.victim(running[:1]) is None


@pytest.mark.parametrize("max_preemptions", [1, 2, 3])
@pytest.mark.parametrize("prefix_cache", [True, False])
def test_preemptions_of_a_request_are_bounded(max_preemptions: int, prefix_cache: bool) -> None:
    """Many short requests of a high priority squeeze long ones of a low priority again and again."""
    bench = SchedulerBench(num_kv_blocks=16, prefix_cache=prefix_cache, max_preemptions=max_preemptions)
    num_preemptions: dict[str, int] = {}
    for name in "abc":
        bench.add(name, 8, priority=9, max_tokens=40, n=2 if name == "b" else 1)
    for number in range(200):
        if number % 5 == 0:
            bench.add(f"u{number}", [5000 + number] * 12, priority=number % 2, max_tokens=9)
        bench.step()
        for line in bench.events(RequestPreempted):
            name = line.split()[0]
            num_preemptions[name] = num_preemptions.get(name, 0) + 1
    bench.run(max_steps=1000)
    assert max(num_preemptions.values()) == max_preemptions


def test_resumed_sequence_without_a_token_is_spared_while_another_can_be_taken() -> None:
    policy = PreemptNewest(max_preemptions=8)
    running = [_sequence(name, order) for order, name in enumerate("abc")]
    running[2].is_catching_up = True
    assert policy.victim(running) is running[1]


def _sequence(name: str, order: int) -> Sequence:
    bench = SchedulerBench(num_kv_blocks=4)
    bench.add(name, 1, max_tokens=1)
    bench.plan()
    (seq,) = bench.scheduler.running
    seq.order = order
    return seq


@pytest.mark.parametrize("num_prompt", [60, 61, 63, 64])
def test_request_of_the_size_of_the_pool_is_served_again_and_again(num_prompt: int) -> None:
    bench = SchedulerBench(block_size=16, num_kv_blocks=4, max_model_len=200, overflow="truncate")
    for _ in range(3):
        refused = bench.add("a", num_prompt, max_tokens=50)
        if num_prompt == 64:
            assert refused
        else:
            assert not refused
            bench.run(max_steps=10)
    assert len(bench.tokens("a")) == 3 * (64 - num_prompt)


def test_pool_for_one_and_a_half_requests_serves_two_growing_ones() -> None:
    bench = SchedulerBench(block_size=16, num_kv_blocks=40, max_num_batched_tokens=512)
    for name in "ab":
        bench.add(name, 330, max_tokens=100)
    num_steps = bench.run(max_steps=300)
    assert num_steps < 230
    assert (len(bench.tokens("a")), len(bench.tokens("b"))) == (100, 100)


def test_full_cache_and_a_prompt_larger_than_what_is_free_finish() -> None:
    bench = SchedulerBench(block_size=8, num_kv_blocks=24, max_num_batched_tokens=40, max_num_seqs=4)
    for name in "abcdef":
        bench.add(name, 32, max_tokens=1)
        bench.run(max_steps=3)
    assert bench.blocks.counts.free == 0
    bench.add("x", 100, max_tokens=5)
    assert bench.run(max_steps=20) == 7
    assert bench.events(RequestPreempted) == []


# --- the watchdog ----------------------------------------------------------------------------------------------------


class _CachedBlocksAreUsed(PreemptNewest):
    """The rules switched off: cached blocks are not reclaimed, and nobody gives way."""

    def num_available(self, blocks: BlockManager) -> int:
        return blocks.num_free_blocks

    def victim(self, running: Many[Sequence]) -> Sequence | None:
        return None


def test_watchdog_names_request_and_cause_when_cached_blocks_are_not_reclaimed() -> None:
    bench = SchedulerBench(
        block_size=8, num_kv_blocks=24, watchdog_steps=3, policy=_CachedBlocksAreUsed(max_preemptions=8)
    )
    for name in "abcde":
        bench.add(name, 32, max_tokens=1)
        bench.run(max_steps=3)
    bench.events()
    for name in "xyz":
        bench.add(name, 100, max_tokens=5)
    assert bench.steps(6) == [[]] * 6
    stalled = bench.events(Stalled)
    assert stalled == [
        f"stalled after {n} steps: x: kv_blocks: waiting at 0 of 100 tokens; 4 blocks free, 20 cached, 0 referenced"
        for n in (3, 6)
    ]
    assert (bench.scheduler.num_running, bench.scheduler.num_waiting) == (0, 3)


def test_watchdog_names_a_running_request_that_cannot_go_on() -> None:
    bench = SchedulerBench(num_kv_blocks=4, watchdog_steps=2, policy=_CachedBlocksAreUsed(max_preemptions=8))
    bench.add("old", 8, max_tokens=1)
    bench.run(max_steps=2)
    bench.add("a", 7, max_tokens=5)
    bench.events()
    bench.steps(5)
    assert bench.events(Stalled) == [
        "stalled after 2 steps: a: kv_blocks: running at 8 of 9 tokens; 0 blocks free, 2 cached, 2 referenced"
    ]


def test_same_load_does_not_stall_with_the_rules_on() -> None:
    bench = SchedulerBench(block_size=8, num_kv_blocks=24, watchdog_steps=1)
    for name in "abcde":
        bench.add(name, 32, max_tokens=1)
        bench.run(max_steps=3)
    for name in "xyz":
        bench.add(name, 100, max_tokens=5)
    bench.run(max_steps=60)
    assert bench.events(Stalled) == []


def test_watchdog_is_silent_while_there_is_nothing_to_do() -> None:
    bench = SchedulerBench(num_kv_blocks=4, watchdog_steps=1)
    bench.steps(5)
    assert bench.events(Stalled) == []
