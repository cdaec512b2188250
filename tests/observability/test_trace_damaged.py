"""Traces come from anywhere: whatever stands in the file, the answer is a report or a TraceFormatError."""

import random
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from observability.trace_check import check_trace
from observability.trace_codec import TraceFormatError, encode_event
from tests.support.trace_script import header
from tests.support.workload import run_engine

POOL = {"block_size": 4, "num_blocks": 24, "max_num_seqs": 6, "max_num_batched_tokens": 24}
NUMBERS = (-(2**70), -7, -1, 0, 1, 2, 3, 23, 24, 10**6, 2**31, 2**63, 2**70)


@pytest.fixture(scope="module")
def lines() -> list[bytes]:
    return [encode_event(event) for event in run_engine(seed=2, num_requests=12).events]


def check(path: Path, lines: list[bytes], **changes: object) -> None:
    path.write_bytes(b"\n".join([msgspec.json.encode(header(**{**POOL, **changes})), *lines]) + b"\n")
    with suppress(TraceFormatError):
        check_trace(path).to_text()


@pytest.mark.parametrize("seed", range(60))
def test_trace_with_random_fields_changed_gives_a_report_or_a_format_error(
    seed: int, lines: list[bytes], tmp_path: Path
) -> None:
    draw = random.Random(seed)
    start = draw.choice([0, 0, draw.randrange(len(lines) // 2)])
    changed = lines[start : start + 400]
    for _ in range(draw.randint(1, 6)):
        place = draw.randrange(len(changed))
        event = msgspec.json.decode(changed[place])
        name = draw.choice(sorted(event))
        if isinstance(event[name], int | float):
            event[name] = draw.choice(NUMBERS)
        elif name != "type":
            event[name] = draw.choice(["", "r1", "r2", "stop"])
        changed[place] = msgspec.json.encode(event)
    check(tmp_path / "a.jsonl", changed, num_dropped_events=start)


@pytest.mark.parametrize("seed", range(60))
def test_trace_with_lines_lost_doubled_and_swapped_gives_a_report(
    seed: int, lines: list[bytes], tmp_path: Path
) -> None:
    """The numbering is made whole again, so that what stands in the lines is reached."""
    draw = random.Random(seed)
    changed = lines[:400]
    for _ in range(draw.randint(1, 4)):
        place = draw.randrange(len(changed) - 1)
        what = draw.choice(["lose", "double", "swap"])
        if what == "lose":
            del changed[place]
        elif what == "double":
            changed.insert(place, changed[place])
        else:
            changed[place], changed[place + 1] = changed[place + 1], changed[place]
    numbered = []
    for seq, line in enumerate(changed, start=1):
        numbered.append(msgspec.json.encode({**msgspec.json.decode(line), "seq": seq, "t": float(seq)}))
    check(tmp_path / "a.jsonl", numbered)


def test_trace_with_a_pool_of_absurd_size_needs_no_memory_for_it(lines: list[bytes], tmp_path: Path) -> None:
    check(tmp_path / "a.jsonl", lines, num_blocks=10**15)


@pytest.mark.parametrize("seed", range(30))
def test_trace_with_random_bytes_changed_gives_a_report_or_a_format_error(
    seed: int, lines: list[bytes], tmp_path: Path
) -> None:
    draw = random.Random(seed)
    data = bytearray(b"\n".join(lines[:200]))
    for _ in range(draw.randint(1, 10)):
        data[draw.randrange(len(data))] = draw.randrange(256)
    check(tmp_path / "a.jsonl", bytes(data).split(b"\n"))
