"""Trace files of an engine under pressure: chats with shared system prompts, forks and aborts in a pool too small."""

import random
from pathlib import Path

from engine.clock import ManualClock
from engine.sampling_params import SamplingParams
from observability.trace_file import TraceWriter
from tests.support.plain_model import distinct_tokens
from tests.support.scripted_engine import ScriptedEngine
from tests.support.trace_script import header

NUM_BLOCKS = 512
BLOCK_SIZE = 16


def record_traffic(path: Path, *, num_events: int, seed: int = 0, num_blocks: int = NUM_BLOCKS) -> None:
    """Write a trace of so many events (gzipped if its name says so)."""
    events = run_traffic(num_events=num_events, seed=seed, num_blocks=num_blocks).events[:num_events]
    settings = {
        "block_size": BLOCK_SIZE, "num_blocks": num_blocks, "max_num_seqs": 32, "max_num_batched_tokens": 512,
        "max_model_len": 1 << 20, "life": f"recorded-{seed}", "executor": "scripted",
    }  # fmt: skip
    with TraceWriter(path, header(**settings)) as writer:
        writer.write(events)


def run_traffic(*, num_events: int, seed: int = 0, num_blocks: int = NUM_BLOCKS) -> ScriptedEngine:
    """Serve seeded traffic until so many events are said; a step takes 4 ms, and longer for a prefill."""
    clock = ManualClock(1.0)
    engine = ScriptedEngine(
        clock=clock,
        cues=[lambda _, batch: clock.advance(0.004 + 4e-5 * batch.num_tokens)],
        num_blocks=num_blocks,
        block_size=BLOCK_SIZE,
        max_num_seqs=32,
        max_num_batched_tokens=512,
        verify_kv=False,
        check_every_event=False,
    )
    draw = random.Random(seed)
    systems = [distinct_tokens(draw.randint(40, 400), salt=salt) for salt in range(6)]
    number = 0
    while len(engine.events) < num_events:
        for _ in range(draw.choice([0] * 9 + [1, 1, 2])):
            number += 1
            prompt = draw.choice(systems) + distinct_tokens(draw.randint(10, 300), salt=1_000 + number)
            params = SamplingParams(max_tokens=draw.randint(20, 200), n=draw.choice([1] * 9 + [2]), ignore_eos=True)
            engine.add(prompt, request_id=f"req-{number:05x}", params=params, priority=draw.choice([0, 0, 0, 1]))
            if draw.random() < 0.05:
                engine.abort(f"req-{draw.randint(1, number):05x}")
        engine.step()
    return engine
