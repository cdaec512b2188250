"""What ring, mirror and one live viewer cost the service's event loop, for steps of 256 sequences."""

import asyncio
import time

import msgspec
import pytest

from engine.clock import ManualClock
from engine.events import (
    BlockAllocated,
    BlockFreed,
    BlockPublished,
    BlockReleased,
    Event,
    RequestArrived,
    RequestTokens,
)
from observability.event_tape import EventTape
from observability.live_feed import Happened, live_feed

NUM_SEQS = 256
NUM_STEPS = 120
MAX_US_PER_STEP = 3_000  # about 300 on a quiet core of 2024: 1 % of a 30 ms step; room for a loaded machine


def messages() -> list[list[Event]]:
    """A token of every sequence in every step, and every 16 steps a block published, given back and another taken."""
    seq, made = 0, []

    def event(kind: type[Event], step: int, **fields: object) -> Event:
        nonlocal seq
        seq += 1
        return kind(seq=seq, t=step * 0.02, step=step, **fields)

    for step in range(NUM_STEPS):
        events = []
        for i in range(NUM_SEQS):
            name = f"request-{i}"
            if step == 0:
                fields = {"arrival": 0.0, "num_prompt_tokens": 9, "max_tokens": 999}
                events.append(event(RequestArrived, step, request_id=name, **fields))
            if (step + i) % 16 == 0:
                told = {"parent_block_id": -1, "block_hash": "x" * 32, "parent_hash": ""}
                if step >= 16:
                    events.append(event(BlockPublished, step, block_id=i, request_id=name, **told))
                    events.append(event(BlockReleased, step, block_id=i, request_id=name, index=0, ref_count=0))
                    events.append(event(BlockFreed, step, block_id=i))
                events.append(event(BlockAllocated, step, block_id=i, request_id=name, index=0, position=step // 16))
            events.append(event(RequestTokens, step, request_id=name, num_tokens=1, num_output_tokens=step + 1))
        made.append(events)
    return made


@pytest.mark.alone
def test_ring_and_one_viewer_cost_a_fraction_of_a_step() -> None:
    tape = EventTape(ManualClock(), capacity=8_192)  # full after some steps, so that the oldest state follows too
    made = messages()
    seen = 0

    async def body() -> float:
        nonlocal seen
        feed = live_feed(tape, 0, interval_s=0.0)
        started = time.process_time()
        for message in made:
            tape.append(message)
            async for item in feed:
                if isinstance(item, Happened):
                    seen += len(item.events)
                    msgspec.json.encode(item.events)
                    break
        spent = time.process_time() - started
        await feed.aclose()
        return spent

    per_step_us = asyncio.run(body()) / NUM_STEPS * 1e6
    assert seen == sum(len(message) for message in made)
    assert per_step_us < MAX_US_PER_STEP, f"{per_step_us:.0f} us per step"
