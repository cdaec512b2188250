"""A real engine's trace: written to a file, valid line by line, proven sound, and broken by changing it anywhere."""

import json
import random
from pathlib import Path

import jsonschema
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
    RequestFinished,
    RequestTokens,
)
from observability.trace_check import check_events, check_trace
from observability.trace_codec import encode_event
from observability.trace_file import TraceWriter
from observability.trace_schema import trace_schema
from tests.support.trace_script import header
from tests.support.workload import run_engine

POOL = {"block_size": 4, "num_blocks": 24, "max_num_seqs": 6, "max_num_batched_tokens": 24}


@pytest.fixture(scope="module")
def events() -> list[Event]:
    return run_engine(seed=1).events


def test_trace_of_an_engine_written_and_checked_is_sound(tmp_path: Path, events: list[Event]) -> None:
    path = tmp_path / "run.jsonl.gz"
    with TraceWriter(path, header(**POOL)) as writer:
        writer.write(events)
    report = check_trace(path)
    assert report.ok, report.to_text()
    assert report.num_events == len(events)
    assert report.num_ended["finished"] > 20


def test_trace_of_an_engine_whose_beginning_was_dropped_is_sound(events: list[Event], tmp_path: Path) -> None:
    for start in random.Random(5).sample(range(1, len(events)), 12):
        path = tmp_path / "ring.jsonl"
        with TraceWriter(path, header(**POOL, num_dropped_events=start)) as writer:
            writer.write(events[start:])
        report = check_trace(path)
        assert report.ok, (start, report.to_text())


def test_every_line_of_an_engine_is_valid_by_the_schema(events: list[Event]) -> None:
    check = jsonschema.Draft202012Validator(trace_schema())
    seen: dict[type[Event], Event] = {}
    for event in events:
        seen.setdefault(type(event), event)
    assert len(seen) >= 18
    for event in seen.values():
        check.validate(json.loads(encode_event(event)))


@pytest.mark.parametrize(
    "kind",
    [
        BlockAllocated,
        BlockShared,
        BlockPublished,
        BlockReleased,
        BlockFreed,
        BlockEvicted,
        RequestTokens,
        RequestFinished,
    ],
)
def test_event_left_out_of_an_engines_trace_is_noticed(events: list[Event], kind: type[Event]) -> None:
    """Any one event of these kinds, with the numbering closed over the gap: the pool or a request no longer adds up."""
    places = [place for place, event in enumerate(events) if isinstance(event, kind)]
    for place in random.Random(7).sample(places, 5):
        rest = [msgspec.structs.replace(event, seq=event.seq - 1) for event in events[place + 1 :]]
        report = check_events(header(**POOL), [*events[:place], *rest])  # type: ignore[list-item]
        assert report.violation is not None, events[place]
        assert report.violation.seq >= events[place].seq


@pytest.mark.parametrize("kind", [BlockAllocated, BlockShared, BlockPublished, BlockReleased, BlockFreed, BlockEvicted])
def test_block_id_changed_in_an_engines_trace_is_noticed(events: list[Event], kind: type[Event]) -> None:
    places = [place for place, event in enumerate(events) if isinstance(event, kind)]
    for place in random.Random(9).sample(places, 5):
        changed = msgspec.structs.replace(events[place], block_id=(events[place].block_id + 1) % 24)  # type: ignore[attr-defined]
        report = check_events(header(**POOL), [*events[:place], changed, *events[place + 1 :]])  # type: ignore[list-item]
        assert report.violation is not None, events[place]
