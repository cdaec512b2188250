"""Recordings: whole files whatever ends them, within their caps, one per engine life."""

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from engine.clock import ManualClock
from engine.events import EngineFailed
from observability.event_tape import EventTape, Life
from observability.recording import Caps, RecordingBusyError, RecordingError, Recordings
from observability.trace_check import check_trace
from observability.trace_file import TraceReader, TraceWriter
from observability.trace_header import TraceHeader
from tests.support.trace_script import header, rounds

LOTS = Caps(max_bytes=1 << 20)


class Bench:
    """A tape, and recordings of it into a directory."""

    def __init__(self, directory: Path | None, *, capacity: int = 65_536) -> None:
        self.clock = ManualClock(1.8e9)
        self.tape = EventTape(self.clock, capacity=capacity)
        self.recordings = Recordings(
            self.tape, self._header, clock=self.clock, directory=directory, max_bytes=1 << 20, write_every_s=0.001
        )
        self.directory = directory

    def _header(self, life: Life, num_dropped: int) -> TraceHeader | None:
        return header(num_dropped_events=num_dropped, life=life.id) if life.started else None

    async def until_stopped(self) -> str:
        """Wait for the recording to end by itself; return its reason."""
        while self.recordings.status().state == "recording":
            await asyncio.sleep(0.001)
            self.clock.advance(0.001)
        return self.recordings.status().reason

    def paths(self) -> list[Path]:
        assert self.directory is not None
        return [self.directory / file.name for file in self.recordings.status().files]


def run(body: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await body()

    asyncio.run(bounded())


@pytest.mark.parametrize("is_gzip", [True, False])
def test_recording_holds_what_happened_from_the_last_step_on_until_it_was_stopped(
    tmp_path: Path, is_gzip: bool
) -> None:
    async def body() -> None:
        bench = Bench(tmp_path / "made")
        events = rounds(9)
        bench.tape.append(events[:40])
        status = await bench.recordings.start(LOTS, is_gzip=is_gzip)
        assert (status.state, status.reason) == ("recording", "")
        bench.tape.append(events[40:80])
        await asyncio.sleep(0.02)
        bench.tape.append(events[80:])
        status = await bench.recordings.stop()
        assert (status.state, status.reason) == ("stopped", "asked")
        (path,), (file,) = bench.paths(), status.files
        assert path.suffix == (".gz" if is_gzip else ".jsonl")
        with TraceReader(path) as reader:
            read = list(reader)
            assert reader.snapshot is not None
            assert reader.header.num_dropped_events == read[0].seq - 1
        assert read == events[read[0].seq - 1 :]
        assert read[0].seq <= 41
        assert (file.num_events, file.first_seq, file.last_seq) == (len(read), read[0].seq, events[-1].seq)
        assert file.num_bytes == path.stat().st_size
        assert check_trace(path).ok

    run(body)


def test_recording_of_an_engine_that_has_just_started_is_a_whole_trace(tmp_path: Path) -> None:
    async def body() -> None:
        bench = Bench(tmp_path)
        events = rounds(3)
        bench.tape.append(events[:1])
        await bench.recordings.start(LOTS)
        bench.tape.append(events[1:])
        await bench.recordings.stop()
        report = check_trace(bench.paths()[0])
        assert report.ok
        assert report.from_start
        assert report.num_events == len(events)

    run(body)


def test_recording_of_a_restarted_engine_goes_on_in_another_file(tmp_path: Path) -> None:
    async def body() -> None:
        bench = Bench(tmp_path)
        first = [*rounds(2)]
        first.append(EngineFailed(seq=first[-1].seq + 1, t=9.0, step=2, error="killed", lost=True))
        bench.tape.append(first[:1])
        await bench.recordings.start(LOTS)
        bench.tape.append(first[1:])
        bench.tape.append(rounds(5))
        status = await bench.recordings.stop()
        assert [file.num_events for file in status.files] == [len(first), len(rounds(5))]
        assert len({file.life for file in status.files}) == 2
        for path in bench.paths():
            report = check_trace(path)
            assert report.ok, report.to_text()
            assert (report.num_lives, report.from_start) == (1, True)

    run(body)


def test_recording_skips_an_engine_that_never_started(tmp_path: Path) -> None:
    async def body() -> None:
        bench = Bench(tmp_path)
        bench.tape.append(rounds(1))
        await bench.recordings.start(LOTS)
        bench.tape.append([EngineFailed(seq=1, t=9.0, step=0, error="lost while loading", lost=True)])
        bench.tape.append(rounds(2))
        status = await bench.recordings.stop()
        assert [file.first_seq for file in status.files][-1] == 1
        assert len(status.files) == 2

    run(body)


def test_recording_ends_with_the_last_event_of_its_cap(tmp_path: Path) -> None:
    async def body() -> None:
        bench = Bench(tmp_path)
        bench.tape.append(rounds(1)[:1])
        await bench.recordings.start(Caps(max_bytes=1 << 20, max_events=20))
        bench.tape.append(rounds(9)[1:])
        assert await bench.until_stopped() == "max_events"
        with TraceReader(bench.paths()[0]) as reader:
            assert [event.seq for event in reader] == list(range(1, 21))

    run(body)


def test_recording_ends_when_its_time_is_over(tmp_path: Path) -> None:
    async def body() -> None:
        bench = Bench(tmp_path)
        bench.tape.append(rounds(1))
        await bench.recordings.start(Caps(max_bytes=1 << 20, max_seconds=0.01))
        assert await bench.until_stopped() == "max_seconds"
        assert bench.recordings.status().seconds >= 0.01
        assert check_trace(bench.paths()[0]).ok

    run(body)


def test_files_of_a_recording_never_exceed_its_bytes(tmp_path: Path) -> None:
    async def body() -> None:
        bench = Bench(tmp_path)
        bench.tape.append(rounds(1)[:1])
        await bench.recordings.start(Caps(max_bytes=65_536), is_gzip=False)
        events = rounds(100)
        for start in range(1, len(events), 50):
            bench.tape.append(events[start : start + 50])
            await asyncio.sleep(0.002)
        assert await bench.until_stopped() == "max_bytes"
        (path,) = bench.paths()
        assert 32_768 < path.stat().st_size <= 65_536
        assert check_trace(path).ok

    run(body)


def test_recording_that_the_ring_left_behind_says_so_and_its_file_is_whole(tmp_path: Path) -> None:
    async def body() -> None:
        bench = Bench(tmp_path, capacity=64)
        events = rounds(30)
        bench.tape.append(events[:30])
        await bench.recordings.start(LOTS)
        bench.tape.append(events[30:])  # more than the ring holds, before the writer had a chance
        assert await bench.until_stopped() == "ring_overrun"
        assert check_trace(bench.paths()[0]).ok

    run(body)


def test_disk_that_fills_up_ends_the_recording_and_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flush(_: TraceWriter) -> None:
        raise OSError(errno.ENOSPC, "no room")

    async def body() -> None:
        bench = Bench(tmp_path)
        events = rounds(9)
        bench.tape.append(events[:20])
        await bench.recordings.start(LOTS, is_gzip=False)
        monkeypatch.setattr(TraceWriter, "flush", flush)
        bench.tape.append(events[20:])
        assert await bench.until_stopped() == f"disk: {os.strerror(errno.ENOSPC)}"
        assert check_trace(bench.paths()[0]).ok

    run(body)


def test_disk_that_is_full_already_refuses_the_recording(tmp_path: Path) -> None:
    async def body() -> None:
        bench = Bench(tmp_path)
        bench.tape.append(rounds(1))
        life = bench.tape.lives[-1].id
        (tmp_path / f"pellucid-20270115T080000Z-1-{life}.jsonl.gz").symlink_to("/dev/full")
        with pytest.raises(RecordingError, match=os.strerror(errno.ENOSPC)):
            await bench.recordings.start(LOTS)

    run(body)


def test_recording_that_cant_be_begun_says_why(tmp_path: Path) -> None:
    async def body() -> None:
        with pytest.raises(RecordingError, match="--trace-dir"):
            await Bench(None).recordings.start(LOTS)
        with pytest.raises(RecordingError, match="said nothing yet"):
            await Bench(tmp_path).recordings.start(LOTS)
        (tmp_path / "file").write_text("in the way")
        bench = Bench(tmp_path / "file")
        bench.tape.append(rounds(1))
        for _ in range(2):
            with pytest.raises(RecordingError, match="can't be begun"):
                await bench.recordings.start(LOTS)
        status = bench.recordings.status()
        assert (status.state, status.reason) == ("stopped", f"disk: {os.strerror(errno.EEXIST)}")

    run(body)


def test_second_recording_is_refused_while_one_runs_and_stopping_twice_is_harmless(tmp_path: Path) -> None:
    async def body() -> None:
        bench = Bench(tmp_path)
        assert bench.recordings.status().state == "never"
        assert (await bench.recordings.stop()).state == "never"
        bench.tape.append(rounds(1))
        await bench.recordings.start(LOTS)
        with pytest.raises(RecordingBusyError):
            await bench.recordings.start(LOTS)
        await bench.recordings.stop()
        assert (await bench.recordings.stop("again")).reason == "asked"
        await bench.recordings.start(LOTS)
        await bench.recordings.stop()

    run(body)
    assert len(list(tmp_path.iterdir())) == 2


def test_file_of_a_recording_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    async def body() -> None:
        bench = Bench(tmp_path)
        events = rounds(2)
        bench.tape.append(events[:10])
        await bench.recordings.start(LOTS)
        bench.tape.append(events[10:])
        for _ in range(2_000):
            if bench.recordings.status().files[0].num_events:
                break
            await asyncio.sleep(0.001)
        with TraceReader(bench.paths()[0]) as reader:
            assert len(list(reader)) == bench.recordings.status().files[0].num_events > 0
        report = check_trace(bench.paths()[0])
        assert report.ok
        assert report.truncated  # a gzip stream without its end
        await bench.recordings.stop()

    run(body)
