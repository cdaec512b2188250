"""The incident: a pool full of cached blocks, a request that waits for ever, metrics that look idle.

It needs one rule to be missing: that cached blocks count as available everywhere. With the rule switched off it is
reproduced here on both paths, and the watchdog names the request and the cause. With the rule on, nothing stalls.
"""

from engine.events import Stalled, StepFinished
from engine.kv.block_manager import BlockManager
from engine.preemption import PreemptNewest
from tests.support.liveness import fill_cache, run_watched
from tests.support.plain_model import distinct_tokens
from tests.support.scripted_engine import ScriptedEngine

WATCHDOG_STEPS = 3


class MayForgetCachedBlocks(PreemptNewest):
    """Takes cached blocks for used ones while `is_forgetful`."""

    def __init__(self) -> None:
        super().__init__(max_preemptions=8)
        self.is_forgetful = False

    def num_available(self, blocks: BlockManager) -> int:
        return blocks.num_free_blocks if self.is_forgetful else super().num_available(blocks)


def engine_with(policy: PreemptNewest, *, num_cached: int) -> ScriptedEngine:
    engine = ScriptedEngine(
        num_blocks=24, block_size=8, max_num_batched_tokens=16, policy=policy, watchdog_steps=WATCHDOG_STEPS
    )
    fill_cache(engine, num_blocks=num_cached)
    return engine


def stalls(engine: ScriptedEngine) -> list[Stalled]:
    return [event for event in engine.events if isinstance(event, Stalled)]


def test_incident_at_admission_with_the_rule_off_stalls_and_the_watchdog_names_it() -> None:
    policy = MayForgetCachedBlocks()
    engine = engine_with(policy, num_cached=24)
    policy.is_forgetful = True
    engine.add(distinct_tokens(100, salt=1), request_id="victim", max_tokens=4, ignore_eos=True)
    engine.add(distinct_tokens(5, salt=2), request_id="behind", max_tokens=4, ignore_eos=True)
    for _ in range(WATCHDOG_STEPS):
        assert not stalls(engine)
        engine.step()
    (stall,) = stalls(engine)
    assert stall.request_id == "victim"
    assert (stall.num_waiting, stall.num_running) == (2, 0)
    assert "kv_blocks" in stall.cause
    assert "0 blocks free, 24 cached, 0 referenced" in stall.cause
    last = [event for event in engine.events if isinstance(event, StepFinished)][-1]
    assert (last.kind, last.num_seqs, last.blocked_on) == ("empty", 0, "kv_blocks")

    policy.is_forgetful = False
    run_watched(engine, max_steps=7 + 4 + 4)
    assert engine.check_at_rest().num_stalls == 1


def test_incident_in_the_middle_of_a_prefill_with_the_rule_off_stalls_and_the_watchdog_names_it() -> None:
    """Running, half prefilled, nothing free: neither waiting nor decoding, the case that is easily forgotten."""
    policy = MayForgetCachedBlocks()
    engine = engine_with(policy, num_cached=19)
    engine.add(distinct_tokens(100, salt=1), request_id="victim", max_tokens=4, ignore_eos=True)
    engine.step()
    policy.is_forgetful = True
    for _ in range(4 + WATCHDOG_STEPS):
        if stalls(engine):
            break
        engine.step()
    (stall,) = stalls(engine)
    assert stall.request_id == "victim"
    assert (stall.num_waiting, stall.num_running) == (0, 1)
    assert "running at 40 of 100 tokens" in stall.cause
    assert "0 blocks free, 19 cached, 5 referenced" in stall.cause

    policy.is_forgetful = False
    run_watched(engine, max_steps=4 + 4)
    assert engine.ends["victim", 0] == "length"


def test_watchdog_barks_again_while_the_stall_lasts() -> None:
    policy = MayForgetCachedBlocks()
    engine = engine_with(policy, num_cached=24)
    policy.is_forgetful = True
    engine.add(distinct_tokens(100, salt=1), max_tokens=4)
    for _ in range(3 * WATCHDOG_STEPS):
        engine.step()
    assert [stall.num_steps for stall in stalls(engine)] == [3, 6, 9]


def test_incident_with_the_rule_on_never_stalls() -> None:
    for num_cached in (19, 24):
        engine = engine_with(MayForgetCachedBlocks(), num_cached=num_cached)
        engine.add(distinct_tokens(100, salt=1), max_tokens=4, ignore_eos=True)
        engine.add(distinct_tokens(5, salt=2), max_tokens=4, ignore_eos=True)
        run_watched(engine, max_steps=7 + 4 + 4)
        assert engine.check_at_rest().num_stalls == 0
