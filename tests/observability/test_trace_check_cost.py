"""What a check costs: a million events in under 30 seconds and in memory that doesn't grow with the trace."""

import time
import tracemalloc
from pathlib import Path

import pytest

from observability.trace_check import check_trace
from observability.trace_file import TraceWriter
from tests.support.trace_script import header, rounds

MAX_US_PER_EVENT = 30.0  # a million in 30 s; about 6 on a quiet core of 2024
MAX_MB = 12
NUM_ROUNDS = 2_500


def write(path: Path, num_rounds: int) -> int:
    events = rounds(num_rounds)
    with TraceWriter(path, header()) as writer:
        writer.write(events)
    return len(events)


@pytest.mark.alone
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_check_costs_microseconds_per_event(tmp_path: Path, name: str) -> None:
    num_events = write(tmp_path / name, NUM_ROUNDS)
    started = time.process_time()
    report = check_trace(tmp_path / name)
    per_event_us = (time.process_time() - started) / num_events * 1e6
    assert (report.ok, report.num_events) == (True, num_events)
    assert per_event_us < MAX_US_PER_EVENT, f"{per_event_us:.1f} us per event"


def test_check_takes_as_much_memory_for_a_long_trace_as_for_a_short_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("observability.trace_requests.MAX_ENDED", 100)
    peaks = []
    for num_rounds in (500, 2_000):
        path = tmp_path / f"{num_rounds}.jsonl"
        write(path, num_rounds)
        tracemalloc.start()
        check_trace(path)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] * 1.2, peaks
    assert peaks[1] < MAX_MB * 1e6
