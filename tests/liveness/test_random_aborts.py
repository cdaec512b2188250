"""Two hundred requests of random lengths, a third aborted at random moments: each ends once, and memory stays flat."""

import gc
import random
import tracemalloc
from functools import partial

from engine.events import TERMINAL_EVENTS, Event
from engine.kv.block_manager import BlockManager
from engine.request_ledger import RequestRecord
from engine.sampling_params import SamplingParams
from engine.sequence import EngineRequest, Sequence
from tests.support.plain_model import distinct_tokens, solo_output
from tests.support.scripted_engine import ScriptedEngine

NUM_REQUESTS = 200


def new_engine() -> ScriptedEngine:
    few_explanations = partial(BlockManager, max_evicted_prefixes=64)  # so that they don't grow through the test
    return ScriptedEngine(
        num_blocks=48,
        block_size=8,
        max_num_seqs=12,
        max_num_batched_tokens=64,
        blocks_class=few_explanations,  # type: ignore[arg-type]
    )


def serve_wave(engine: ScriptedEngine, *, wave: int, num_requests: int = NUM_REQUESTS) -> set[str]:
    """Serve requests with random arrivals and aborts; check the outputs; return who was aborted in time."""
    draw = random.Random(wave)
    expected = {}
    aborts = draw.sample(range(num_requests), num_requests // 3)
    at_step: dict[int, list[str]] = {}
    aborted: set[str] = set()

    def step() -> None:
        for victim in at_step.pop(engine.num_steps, []):
            if (victim, 0) not in engine.ends:
                aborted.add(victim)
            engine.abort(victim)
        engine.step()
        engine.check_between_steps()

    for number in range(num_requests):
        name = f"w{wave}-{number}"
        prompt = distinct_tokens(draw.randint(1, 90), salt=draw.randrange(12))
        params = SamplingParams(max_tokens=draw.randint(1, 40), n=draw.choice([1, 1, 1, 2]))
        engine.add(prompt, request_id=name, params=params)
        for index in range(params.n):
            expected[name, index] = solo_output(prompt, params, index=index)
        if number in aborts:
            at_step.setdefault(engine.num_steps + draw.randrange(40), []).append(name)
        for _ in range(draw.randrange(4)):
            step()
    while engine.core.has_work:
        step()
    for (name, index), (tokens, finish_reason) in expected.items():
        got = engine.outputs[name, index]
        if name in aborted:
            assert got == tokens[: len(got)]
        else:
            assert (got, engine.ends[name, index]) == (tokens, finish_reason)
    return aborted


def forget(engine: ScriptedEngine) -> None:
    """Drop what the test itself has kept."""
    engine.events.clear()
    engine.outputs.clear()
    engine.ends.clear()
    gc.collect()


def num_alive(*kinds: type) -> int:
    return sum(issubclass(type(thing), kinds) for thing in gc.get_objects())  # isinstance would ask the thing itself


def test_200_random_requests_a_third_aborted_each_end_in_one_terminal_event() -> None:
    engine = new_engine()
    aborted = serve_wave(engine, wave=1)
    report = engine.check_at_rest()
    terminal = [event for event in engine.events if isinstance(event, TERMINAL_EVENTS)]
    assert len(terminal) == NUM_REQUESTS
    assert len({event.request_id for event in terminal}) == NUM_REQUESTS
    assert report.num_ended == {"finished": NUM_REQUESTS - len(aborted), "aborted": len(aborted)}
    assert len(aborted) >= NUM_REQUESTS // 5, "most of the aborts came too late to mean anything"
    assert report.num_preemptions > 0
    counts = engine.blocks.counts
    assert counts.free + counts.cached == engine.config.num_kv_blocks


def test_waves_of_200_random_requests_leave_nothing_behind() -> None:
    gc.collect()
    before = num_alive(Sequence, RequestRecord, EngineRequest, Event)
    engine = new_engine()
    for wave in (2, 3):
        serve_wave(engine, wave=wave)
        forget(engine)
        # Trace checkers remember how each request ended and its own last event; the engine nothing.
        assert num_alive(Sequence, RequestRecord, EngineRequest) <= before
        assert num_alive(Event) <= before + 1


def test_memory_of_the_engine_is_flat_over_waves_of_random_requests() -> None:
    """Bytes allocated by the engine's lines and still alive differ by less than 8 KiB between two waves' ends.

    The scripted executor and its sampler are left out: they remember histories, up to a limit.
    """
    engine = new_engine()
    filters = [
        tracemalloc.Filter(inclusive=True, filename_pattern="*/engine/*"),
        tracemalloc.Filter(inclusive=False, filename_pattern="*/engine/execution/*"),
    ]
    sizes = []
    tracemalloc.start()
    try:
        for wave in (4, 5, 6):
            serve_wave(engine, wave=wave, num_requests=60)
            engine.reset_prefix_cache()
            forget(engine)
            snapshot = tracemalloc.take_snapshot().filter_traces(filters)
            sizes.append(sum(statistic.size for statistic in snapshot.statistics("filename")))
    finally:
        tracemalloc.stop()
    assert abs(sizes[2] - sizes[1]) < 8 * 1024, sizes
