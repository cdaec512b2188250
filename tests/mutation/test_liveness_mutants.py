"""Rules switched off one by one: what the liveness suite looks at must show the difference."""

from collections.abc import Sequence as Many

import pytest

from engine.kv.block_manager import BlockManager
from engine.preemption import PreemptNewest
from engine.sequence import Sequence
from engine.waiting_queue import WaitingQueue
from tests.support.liveness import fill_cache, num_steps_one_by_one, run_watched
from tests.support.plain_model import distinct_tokens
from tests.support.scripted_engine import ScriptedEngine


class PreemptsTheOldest(PreemptNewest):
    def victim(self, running: Many[Sequence]) -> Sequence | None:
        return running[0] if len(running) > 1 else None


class ForgetsCachedBlocks(PreemptNewest):
    def num_available(self, blocks: BlockManager) -> int:
        return blocks.num_free_blocks


class KeepsNothingInReserve(PreemptNewest):
    def headroom(self, seq: Sequence, *, num_owed: int, num_growing: int, num_steps: int, block_size: int) -> int:
        return 0

    def victim(self, running: Many[Sequence]) -> Sequence | None:
        return running[-1] if len(running) > 1 else None


class LastComesFirst(WaitingQueue):
    """A stack."""

    def push(self, seq: Sequence) -> None:
        seq.order = -seq.order
        super().push(seq)


def growing_pair(policy: PreemptNewest) -> ScriptedEngine:
    engine = ScriptedEngine(num_blocks=12, block_size=8, max_num_batched_tokens=32, policy=policy)
    for salt in range(3):
        engine.add(distinct_tokens(16, salt=salt), max_tokens=48, ignore_eos=True)
    return engine


MOST = num_steps_one_by_one([(16, 48)] * 3, budget=32)


def test_growing_requests_under_the_server_policy_pass() -> None:
    engine = growing_pair(PreemptNewest(max_preemptions=8))
    run_watched(engine, max_steps=MOST)
    report = engine.check_at_rest()
    assert report.num_preemptions > 0
    assert report.num_futile_resumes == 0


def test_preempting_the_oldest_is_caught() -> None:
    with pytest.raises(AssertionError, match="stood still"):
        run_watched(growing_pair(PreemptsTheOldest(max_preemptions=8)), max_steps=MOST)


def test_forgetting_cached_blocks_is_caught() -> None:
    policy = PreemptNewest(max_preemptions=8)
    engine = ScriptedEngine(num_blocks=12, block_size=8, max_num_batched_tokens=32, policy=policy)
    fill_cache(engine, num_blocks=12)
    stuck = ScriptedEngine(
        num_blocks=12, block_size=8, max_num_batched_tokens=32, policy=ForgetsCachedBlocks(max_preemptions=8)
    )
    fill_cache(stuck, num_blocks=11)
    for each in (engine, stuck):
        each.add(distinct_tokens(60, salt=1), max_tokens=4, ignore_eos=True)
    run_watched(engine, max_steps=5)
    with pytest.raises(AssertionError, match="kind='empty'"):
        run_watched(stuck, max_steps=5)


@pytest.mark.parametrize("keeps_reserve", [True, False])
def test_resuming_without_headroom_is_caught_as_futile(keeps_reserve: bool) -> None:
    """A long prompt that takes many steps to recompute while five others grow by a block every second step."""
    policy = PreemptNewest(max_preemptions=8) if keeps_reserve else KeepsNothingInReserve(max_preemptions=8)
    engine = ScriptedEngine(
        num_blocks=48, block_size=2, max_num_seqs=6, max_num_batched_tokens=6, policy=policy, prefix_cache=False
    )
    for number in range(5):
        engine.add(distinct_tokens(4, salt=number), max_tokens=20 + 12 * number, ignore_eos=True)
    engine.add(distinct_tokens(30, salt=9), max_tokens=10, ignore_eos=True)
    engine.run(max_steps=200)
    report = engine.check_at_rest()
    assert report.num_preemptions > 0
    assert (report.num_futile_resumes == 0) == keeps_reserve


def test_last_come_first_served_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.scheduler.WaitingQueue", LastComesFirst)
    engine = ScriptedEngine(num_blocks=40, block_size=8, max_num_seqs=1)
    names = [engine.add(distinct_tokens(9, salt=salt), max_tokens=2) for salt in range(4)]
    engine.run(max_steps=40)
    assert [name for name, _ in engine.ends] != names
