"""Running an engine while watching that it gets on."""

from engine.events import Stalled, StepFinished
from engine.sampling_params import SamplingParams
from tests.support.scripted_engine import ScriptedEngine


def num_steps_one_by_one(requests: list[tuple[int, int]], *, budget: int) -> int:
    """Return the steps that (prompt tokens, output tokens) take when served one after another without a cache.

    A prompt of p tokens takes ceil(p / budget) steps, the last of which gives the first output token.
    """
    return sum(-(-num_prompt // budget) + num_outputs - 1 for num_prompt, num_outputs in requests)


def run_watched(engine: ScriptedEngine, *, max_steps: int) -> int:
    """Step until everything has ended and return the number of steps; fails beyond `max_steps`.

    Fails at the first step that computes nothing, raises the watchdog, or in which the oldest running sequence of the
    highest priority doesn't advance.
    """
    num_steps = 0
    while engine.core.has_work:
        assert num_steps < max_steps, f"{max_steps} steps; {engine.scheduler.running} {engine.scheduler.waiting_ids}"
        oldest = engine.scheduler.running[0] if engine.scheduler.running else None
        before = oldest.num_computed_tokens if oldest else 0
        message = engine.step()
        num_steps += 1
        if oldest is not None:
            has_ended = (oldest.request_id, oldest.index) in engine.ends
            assert has_ended or oldest.num_computed_tokens > before, f"step {engine.num_steps}: {oldest} stood still"
        for event in message.events:
            assert not isinstance(event, Stalled), event
            assert not isinstance(event, StepFinished) or event.num_seqs, event
        engine.check_between_steps()
    return num_steps


def fill_cache(engine: ScriptedEngine, *, num_blocks: int) -> None:
    """Leave exactly `num_blocks` blocks cached and the rest free.

    Each comes from a request of its own that never needs a second block: the block is filled by its first output.
    """
    size = engine.config.block_size
    params = SamplingParams(max_tokens=2, ignore_eos=True)
    for number in range(num_blocks):
        engine.add([900 - number] + [2] * (size - 2), params=params, request_id=f"filler{number}")
        engine.run(max_steps=2)
    counts = engine.blocks.counts
    assert (counts.cached, counts.free) == (num_blocks, engine.config.num_kv_blocks - num_blocks), counts
