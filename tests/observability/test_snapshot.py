"""Snapshots and the mirror they are made from, against the trace checker's own pool, at every step of a real engine."""

import json
import random
from pathlib import Path

import jsonschema
import msgspec
import pytest

from engine.events import Event, StepFinished
from observability.engine_mirror import EngineMirror
from observability.snapshot import Snapshot, snapshot_of
from observability.trace_check import check_events, check_trace, checker_for
from observability.trace_codec import event_type
from observability.trace_file import TraceReader, TraceWriter, encode_beginning
from observability.trace_schema import trace_schema
from tests.support.trace_script import header
from tests.support.workload import run_engine

UNPUBLISHED = -2  # stands for a block that is in no tree
POOL = {"block_size": 4, "num_blocks": 24, "max_num_seqs": 6, "max_num_batched_tokens": 24}


@pytest.fixture(scope="module")
def events() -> list[Event]:
    return run_engine(seed=4).events


def step_ends(events: list[Event]) -> list[int]:
    """Return after how many events each step has finished."""
    return [place + 1 for place, event in enumerate(events) if isinstance(event, StepFinished)]


def snapshot_at(events: list[Event], place: int) -> Snapshot:
    mirror = EngineMirror()
    mirror.apply(events[:place])
    return snapshot_of(mirror)


def test_mirror_has_the_tables_of_the_checker_after_every_step(events: list[Event]) -> None:
    mirror, checker = EngineMirror(), checker_for(header(**POOL), from_start=True)
    for event in events:
        mirror.apply([event])
        assert checker.feed(event)  # type: ignore[arg-type]
        if not isinstance(event, StepFinished):
            continue
        tables: dict[tuple[str, int], dict[int, int]] = {}
        for block_id, block in mirror.blocks.items():
            for choice, position in block.owners.items():
                tables.setdefault(choice, {})[position] = block_id
        assert {choice: [blocks[i] for i in sorted(blocks)] for choice, blocks in tables.items()} == checker.pool.tables
        snapshot = snapshot_of(mirror)
        states = [block.state for block in snapshot.blocks]
        counts = (event.num_free_blocks, event.num_referenced_blocks, event.num_cached_blocks)
        assert (24 - len(states), states.count("referenced"), states.count("cached")) == counts
        assert (snapshot.seq, snapshot.step, snapshot.in_step) == (event.seq, event.step, False)


def test_trace_that_begins_with_a_snapshot_proves_as_much_as_a_whole_one(events: list[Event]) -> None:
    whole = check_events(header(**POOL), events)  # type: ignore[arg-type]
    places = step_ends(events)
    for place in random.Random(5).sample(places, 25):
        report = check_events(header(**POOL), events[place:], snapshot_at(events, place))  # type: ignore[arg-type]
        assert report.ok, (place, report.to_text())
        assert report.num_blocks == whole.num_blocks
        assert report.from_snapshot
        assert report.num_received + report.num_adopted == sum(report.num_ended.values())


def test_any_block_left_out_of_a_snapshot_is_noticed(events: list[Event]) -> None:
    place = step_ends(events)[len(step_ends(events)) // 2]
    snapshot = snapshot_at(events, place)
    assert len(snapshot.blocks) > 12
    for left_out in range(len(snapshot.blocks)):
        blocks = [block for at, block in enumerate(snapshot.blocks) if at != left_out]
        changed = msgspec.structs.replace(snapshot, blocks=blocks)
        assert not check_events(header(**POOL), events[place:], changed).ok, snapshot.blocks[left_out]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"ref_count": 7}, "ref_count 7"),
        ({"owners": [], "ref_count": 0, "state": "cached", "published": False}, "by its owners it is lost"),
        ({"parent_block_id": UNPUBLISHED, "published": True}, "which isn't published"),
        ({"block_id": 99}, "block ids must lie in 0..23, got 99"),
    ],
)
def test_snapshot_that_contradicts_itself_is_named_before_any_event(
    events: list[Event], change: dict[str, object], reason: str
) -> None:
    place = step_ends(events)[10]
    snapshot = snapshot_at(events, place)
    at = next(at for at, block in enumerate(snapshot.blocks) if block.state == "referenced")
    if change.get("parent_block_id") == UNPUBLISHED:
        unpublished = next(block for block in snapshot.blocks if not block.published)
        change = {**change, "parent_block_id": unpublished.block_id}
    blocks = [*snapshot.blocks]
    blocks[at] = msgspec.structs.replace(blocks[at], **change)
    report = check_events(header(**POOL), events[place:], msgspec.structs.replace(snapshot, blocks=blocks))  # type: ignore[arg-type]
    assert report.violation is not None
    assert report.violation.event_type == "snapshot"
    assert reason in report.violation.reason, report.violation.reason


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_file_with_a_snapshot_is_read_back_equal_and_checks_as_a_whole(
    events: list[Event], tmp_path: Path, name: str
) -> None:
    place = step_ends(events)[20]
    snapshot = snapshot_at(events, place)
    with TraceWriter(tmp_path / name, header(**POOL, num_dropped_events=place, life="l1"), snapshot) as writer:
        writer.write(events[place:])
    with TraceReader(tmp_path / name) as reader:
        assert reader.snapshot == snapshot
        assert list(reader) == events[place:]
        assert reader.header.life == "l1"
    report = check_trace(tmp_path / name)
    assert report.ok, report.to_text()
    assert "starts with a snapshot" in report.to_text()


def test_every_line_of_a_snapshot_is_valid_by_the_schema(events: list[Event]) -> None:
    check = jsonschema.Draft202012Validator(trace_schema())
    snapshot = snapshot_at(events, step_ends(events)[20])
    lines = encode_beginning(header(**POOL), snapshot).splitlines()
    assert len(lines) == 2 + len(snapshot.blocks) + len(snapshot.requests)
    for line in lines:
        check.validate(json.loads(line))
    with pytest.raises(jsonschema.ValidationError):
        check.validate({"type": "snapshot_block", "seq": 1, "t": 0.5, "step": 0})


def test_copied_mirror_doesnt_follow_the_one_it_was_copied_from(events: list[Event]) -> None:
    place = step_ends(events)[10]
    mirror = EngineMirror()
    mirror.apply(events[:place])
    before, twin = snapshot_of(mirror), mirror.copy()
    mirror.apply(events[place:])
    assert snapshot_of(twin) == before
    twin.apply(events[place:])
    assert snapshot_of(twin) == snapshot_of(mirror)


def test_snapshot_says_which_event_named_a_block_last(events: list[Event]) -> None:
    place = step_ends(events)[15]
    named: dict[int, Event] = {}
    for event in events[:place]:
        if isinstance(getattr(event, "block_id", None), int) and event_type(event) != "prefix_lookup":
            named[event.block_id] = event  # type: ignore[attr-defined]

    for block in snapshot_at(events, place).blocks:
        last = named[block.block_id]
        assert (block.last_event, block.last_seq, block.last_t) == (event_type(last), last.seq, last.t)
