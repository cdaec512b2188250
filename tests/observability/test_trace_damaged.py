"""Traces come from anywhere: whatever stands in the file, the answer is a report or a TraceFormatError."""

import gzip
import random
import tracemalloc
import zlib
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from engine.events import StepFinished
from observability.block_events import indexer_batches
from observability.engine_mirror import EngineMirror
from observability.snapshot import snapshot_of
from observability.trace_check import check_trace
from observability.trace_codec import TraceFormatError, encode_event
from observability.trace_explain import sentences
from observability.trace_file import TraceReader, encode_beginning
from observability.trace_perfetto import perfetto_json
from observability.trace_story import TraceStories
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


@pytest.fixture(scope="module")
def snapshot_lines() -> list[bytes]:
    """A whole file: header, snapshot, events."""
    events = run_engine(seed=3, num_requests=12).events
    start = [place for place, event in enumerate(events) if isinstance(event, StepFinished)][12] + 1
    mirror = EngineMirror()
    mirror.apply(events[:start])
    beginning = encode_beginning(header(**POOL, num_dropped_events=start), snapshot_of(mirror))
    return [*beginning.splitlines(), *(encode_event(event) for event in events[start : start + 200])]


def check_bytes(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with suppress(TraceFormatError):
        check_trace(path).to_text()
    with suppress(TraceFormatError), TraceReader(path) as reader:
        stories = TraceStories(reader.snapshot)
        batches = indexer_batches(reader, block_size=4, wall_offset_s=0.0, snapshot=reader.snapshot)
        assert sum(1 for _ in batches) >= 0
    with suppress(TraceFormatError), TraceReader(path) as reader:
        for event in reader:
            stories.take(event)
        for story in stories.stories.values():
            assert sentences(story)
    with suppress(TraceFormatError), TraceReader(path) as reader:
        assert b"".join(perfetto_json(reader)).endswith(b"]}\n")


@pytest.mark.parametrize("seed", range(60))
def test_snapshot_with_random_fields_changed_gives_a_report_or_a_format_error(
    seed: int, snapshot_lines: list[bytes], tmp_path: Path
) -> None:
    draw = random.Random(seed)
    changed = [*snapshot_lines]
    num_beginning = sum(1 for line in changed if b'"snapshot' in line[:30]) + 1
    for _ in range(draw.randint(1, 4)):
        place = draw.randrange(num_beginning)
        told = msgspec.json.decode(changed[place])
        parts = [told, *told.get("owners", []), *told.get("choices", [])]
        part = draw.choice(parts)
        name = draw.choice(sorted(part))
        if isinstance(part[name], bool):
            part[name] = not part[name]
        elif isinstance(part[name], int | float):
            part[name] = draw.choice(NUMBERS)
        elif isinstance(part[name], list):
            part[name] = draw.choice([[], part[name] * 2])
        elif name not in ("type", "schema"):
            part[name] = draw.choice(["", "r1", "cached", "referenced"])
        changed[place] = msgspec.json.encode(told)
    check_bytes(tmp_path / "a.jsonl", b"\n".join(changed) + b"\n")


@pytest.mark.parametrize("seed", range(40))
def test_snapshot_with_lines_lost_doubled_and_swapped_gives_a_report_or_a_format_error(
    seed: int, snapshot_lines: list[bytes], tmp_path: Path
) -> None:
    draw = random.Random(seed)
    changed = [*snapshot_lines]
    for _ in range(draw.randint(1, 3)):
        place = draw.randrange(min(40, len(changed) - 1))
        what = draw.choice(["lose", "double", "swap", "cut"])
        if what == "lose":
            del changed[place]
        elif what == "double":
            changed.insert(place, changed[place])
        elif what == "cut":
            del changed[place + 1 :]
        else:
            changed[place], changed[place + 1] = changed[place + 1], changed[place]
        if len(changed) < 3:
            break
    check_bytes(tmp_path / "a.jsonl", b"\n".join(changed))


@pytest.mark.parametrize("seed", range(60))
def test_gzip_with_bytes_changed_cut_or_added_gives_a_report_or_a_format_error(
    seed: int, snapshot_lines: list[bytes], tmp_path: Path
) -> None:
    draw = random.Random(seed)
    data = bytearray(gzip.compress(b"\n".join(snapshot_lines) + b"\n"))
    for _ in range(draw.randint(0, 3)):
        data[draw.randrange(2, len(data))] = draw.randrange(256)
    if draw.random() < 0.4:
        del data[draw.randrange(2, len(data)) :]
    if draw.random() < 0.3:
        data += draw.choice([b"\0" * 40, b"junk", gzip.compress(b"more\n"), b"\x1f\x8b"])
    check_bytes(tmp_path / "a.gz", bytes(data))


def test_gzip_that_unpacks_to_gigabytes_needs_no_memory_for_it(tmp_path: Path) -> None:
    packer = zlib.compressobj(9, wbits=31)
    packed = packer.compress(msgspec.json.encode(header()) + b"\n")
    packed += b"".join(packer.compress(b" " * (1 << 20)) for _ in range(64)) + packer.flush()
    tracemalloc.start()
    (tmp_path / "a.gz").write_bytes(packed)
    with pytest.raises(TraceFormatError, match="longer than"):
        check_trace(tmp_path / "a.gz")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8e6
