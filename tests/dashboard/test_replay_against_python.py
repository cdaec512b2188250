"""The page's replay of a recorded trace beside the same from Python: state at any event, the file for Perfetto."""

import json
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.events import BlockCopied, BlockEvicted, Event, RequestPreempted
from observability.engine_mirror import EngineMirror
from observability.snapshot import Snapshot, snapshot_of
from observability.trace_file import TraceReader, TraceWriter
from observability.trace_perfetto import perfetto_json
from tests.support.trace_script import header
from tests.support.workload import run_engine

TELL = Path(__file__).resolve().parent / "js" / "replay" / "tell.mjs"
POOL = {"block_size": 4, "num_blocks": 24, "max_num_seqs": 6, "max_num_batched_tokens": 24}
NOT_KEPT = {
    "blocks": ("block_hash", "last_t"),
    "requests": (
        "arrived_seq", "arrived_t", "arrived_step", "arrival", "max_tokens", "n", "priority", "salted",
    ),
}  # fmt: skip

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")


@pytest.fixture(scope="module")
def events() -> list[Event]:
    events = run_engine(seed=3).events
    for kind in (RequestPreempted, BlockEvicted, BlockCopied):
        assert any(isinstance(event, kind) for event in events)
    return events


def tell(path: Path, seqs: list[int]) -> dict[str, Any]:
    command = ["node", str(TELL), str(path), ",".join(map(str, seqs))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def expected(snapshot: Snapshot) -> dict[str, Any]:
    body: dict[str, Any] = msgspec.to_builtins(snapshot)
    for part, names in NOT_KEPT.items():
        for row in body[part]:
            for name in (*names, "type"):
                row.pop(name, None)
    return {name: body[name] for name in ("seq", "in_step", "blocks", "requests")}


def snapshots_at(events: list[Event], seqs: list[int], mirror: EngineMirror | None = None) -> list[dict[str, Any]]:
    mirror = mirror or EngineMirror()
    found = []
    for event in events:
        mirror.apply([event])
        if event.seq in seqs:
            found.append(expected(snapshot_of(mirror)))
    return found


def test_state_at_any_event_is_the_engine_mirrors(tmp_path: Path, events: list[Event]) -> None:
    path = tmp_path / "run.jsonl.gz"
    with TraceWriter(path, header(**POOL)) as writer:
        writer.write(events)
    seqs = sorted(random.Random(1).sample(range(1, len(events) + 1), 60))
    told = tell(path, seqs)
    assert told["num_events"] == len(events)
    for ours, theirs in zip(told["snapshots"], snapshots_at(events, seqs), strict=True):
        assert ours == theirs


def test_state_of_a_trace_that_begins_with_a_snapshot_is_the_engine_mirrors(
    tmp_path: Path, events: list[Event]
) -> None:
    first = next(
        event.seq for event in events if event.seq > len(events) // 2 and event.step > events[event.seq - 2].step
    )
    mirror = EngineMirror()
    mirror.apply(events[: first - 1])
    path = tmp_path / "ring.jsonl"
    with TraceWriter(path, header(**POOL, num_dropped_events=first - 1), snapshot_of(mirror)) as writer:
        writer.write(events[first - 1 :])
    seqs = sorted(random.Random(2).sample(range(first, len(events) + 1), 30))
    for ours, theirs in zip(
        tell(path, seqs)["snapshots"], snapshots_at(events[first - 1 :], seqs, mirror), strict=True
    ):
        for block, mirrored in zip(ours["blocks"], theirs["blocks"], strict=True):
            assert block.get("last_seq", mirrored["last_seq"]) == mirrored.pop("last_seq")
            assert block.pop("last_seq", 0) >= 0
            mirrored.pop("last_event")
            block.pop("last_event", None)
        assert ours == theirs


def test_perfetto_file_is_the_one_of_the_command_line(tmp_path: Path, events: list[Event]) -> None:
    path = tmp_path / "run.jsonl"
    with TraceWriter(path, header(**POOL, life="recorded")) as writer:
        writer.write(events)
    with TraceReader(path) as reader:
        theirs = json.loads(b"".join(perfetto_json(reader)))
    ours = tell(path, [1])["perfetto"]
    assert ours.keys() == theirs.keys()
    assert ours["otherData"] == theirs["otherData"]
    assert len(ours["traceEvents"]) == len(theirs["traceEvents"]) > 500
    for one, other in zip(ours["traceEvents"], theirs["traceEvents"], strict=True):
        times = [(record.pop("ts", 0.0), record.pop("dur", 0.0)) for record in (one, other)]
        assert one == other
        assert times[0] == pytest.approx(times[1], abs=2e-3)
