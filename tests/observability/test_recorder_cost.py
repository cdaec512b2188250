"""What the recorder costs: it runs on the service's event loop, once per token of every stream."""

import time

import pytest

from engine.events import BlockAllocated, BlockPublished, Event, RequestTokens
from tests.support.event_script import Script

NUM_SEQS = 32
NUM_STEPS = 300
MAX_US_PER_EVENT = 12.0  # about 1.5 on a quiet core of 2024; the bound leaves room for a loaded one


def one_step(script: Script, step: int) -> list[Event]:
    events: list[Event] = []
    for i in range(NUM_SEQS):
        request_id = f"r{i}"
        events.append(script.event(RequestTokens, request_id=request_id, num_tokens=1, num_output_tokens=step))
        if (step + i) % 16 == 0:
            events.append(script.event(BlockAllocated, block_id=i, request_id=request_id, index=0, position=0))
            published = {"block_id": i, "parent_block_id": 0, "block_hash": "x", "parent_hash": "y"}
            events.append(script.event(BlockPublished, request_id=request_id, **published))
    return events


@pytest.mark.alone
def test_recorder_costs_microseconds_per_event() -> None:
    script = Script()
    script.engine_started(num_blocks=4096)
    for i in range(NUM_SEQS):
        script.open(f"r{i}", trace_id="a" * 32)
        script.arrive(f"r{i}")
        script.schedule(f"r{i}")
        script.tokens(f"r{i}")
    messages = []
    for step in range(NUM_STEPS):
        script.at(script.t + 0.02)
        messages.append(one_step(script, step))
    num_events = sum(len(message) for message in messages)
    started = time.process_time()
    for message in messages:
        script.recorder.consume(message)
    per_event_us = (time.process_time() - started) / num_events * 1e6
    assert per_event_us < MAX_US_PER_EVENT, f"{per_event_us:.2f} us per event"
