"""Traces of a real engine with one event changed, whole or begun with a snapshot: the command names that event."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.events import (
    BlockAllocated,
    BlockEvicted,
    BlockFreed,
    BlockPublished,
    BlockReleased,
    BlockShared,
    Event,
    PrefixLookup,
    RequestChunk,
    RequestFinished,
    RequestPreempted,
    RequestScheduled,
    RequestTokens,
    StepFinished,
)
from observability.engine_mirror import EngineMirror
from observability.snapshot import snapshot_of
from observability.trace_codec import event_type
from observability.trace_file import TraceWriter
from service.cli import main
from tests.support.trace_script import header
from tests.support.workload import run_engine

POOL = {"block_size": 4, "num_blocks": 24, "max_num_seqs": 6, "max_num_batched_tokens": 24}

Corrupt = Callable[[Any, EngineMirror], dict[str, Any]]


def held_block(_: Any, mirror: EngineMirror) -> dict[str, Any]:
    return {"block_id": next(block_id for block_id, block in mirror.blocks.items() if block.owners)}


def more(name: str) -> Corrupt:
    return lambda event, _: {name: getattr(event, name) + 1}


CORRUPTIONS: dict[str, tuple[type[Event], Corrupt, str]] = {
    "a block in use is allocated": (BlockAllocated, held_block, "is allocated while it is referenced"),
    "a table entry is skipped": (BlockAllocated, more("position"), "whose table has"),
    "a reference is counted twice": (BlockShared, more("ref_count"), "says ref_count"),
    "a stranger publishes": (BlockPublished, lambda *_: {"request_id": "nobody"}, "is published by 'nobody'"),
    "a stranger releases": (BlockReleased, lambda *_: {"request_id": "nobody"}, "which doesn't hold it"),
    "a block in use is evicted": (BlockEvicted, held_block, "is evicted while it is referenced"),
    "a block in use is freed": (BlockFreed, held_block, "is freed while it is referenced"),
    "a chunk leaves tokens out": (RequestChunk, more("start"), "computes a chunk from position"),
    "a token is counted twice": (RequestTokens, more("num_output_tokens"), "but was given"),
    "a step miscounts its blocks": (StepFinished, more("num_free_blocks"), "the step says"),
    "a step is over its budget": (StepFinished, lambda *_: {"num_prefill_tokens": 99}, "its budget is"),
    "a preemption is counted twice": (RequestPreempted, more("num_preemptions"), "says it was preempted"),
    "an end miscounts the cache": (RequestFinished, more("num_cached_tokens"), "was scheduled with"),
    "more is reused than was found": (RequestScheduled, more("num_cached_tokens"), "its lookup found"),
    "time runs backwards": (PrefixLookup, lambda *_: {"t": 0.5}, "time runs backwards"),
    "a number is left out": (RequestTokens, more("seq"), "`seq` must be gapless"),
}


@pytest.fixture(scope="module")
def events() -> list[Event]:
    return run_engine(seed=1).events


@pytest.mark.parametrize("begin", ["whole", "snapshot"])
@pytest.mark.parametrize("what", CORRUPTIONS)
def test_corrupted_trace_is_named_at_the_corrupted_event(
    events: list[Event], tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str, begin: str
) -> None:
    kind, corrupt, reason = CORRUPTIONS[what]
    ends = [place + 1 for place, event in enumerate(events) if isinstance(event, StepFinished)]
    start = 0 if begin == "whole" else ends[len(ends) // 3]
    place = next(
        place for place, event in enumerate(events) if place > start + len(events) // 3 and isinstance(event, kind)
    )
    mirror = EngineMirror()
    mirror.apply(events[:start])
    snapshot = snapshot_of(mirror) if start else None
    mirror.apply(events[start:place])
    changed = msgspec.structs.replace(events[place], **corrupt(events[place], mirror))
    path = tmp_path / "corrupted.jsonl.gz"
    with TraceWriter(path, header(**POOL, num_dropped_events=start), snapshot) as writer:
        writer.write([*events[start:place], changed, *events[place + 1 :]])
    assert main(["trace", "check", "--json", str(path)]) == 1
    violation = msgspec.json.decode(capsys.readouterr().out)["violation"]
    assert (violation["seq"], violation["event_type"]) == (changed.seq, event_type(changed))
    assert reason in violation["reason"]
