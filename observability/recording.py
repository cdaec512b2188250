"""Recording the event stream to files, on request, off the event loop.

    start    a file of ours in the configured directory: header, what the engine holds, then every event
    while    a few times a second what is new on the tape is encoded, compressed and written by a worker thread
    restart  the file is closed and the next one begins with the new engine's first event
    stop     asked for, or a cap is reached, or the disk is full, or the ring went on without us: `reason` says which

What stands in a file is whole at any moment, so a service that is killed leaves a trace that can be read.
"""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from engine.clock import Clock
from observability.event_tape import EventTape, Life, Passage
from observability.snapshot import Snapshot
from observability.trace_codec import encode_lines
from observability.trace_file import TraceWriter, encode_beginning
from observability.trace_header import TraceHeader

WRITE_EVERY_S: Final = 0.2
BATCH_EVENTS: Final = 8_192
MIN_BYTES: Final = 65_536

HeaderOf = Callable[[Life, int], TraceHeader | None]
"""Makes the header for a life and a number of its events that are left out."""


class RecordingError(Exception):
    """A recording can't be started; the message says why."""


class RecordingBusyError(RecordingError):
    """One is running already."""


@dataclass(frozen=True, slots=True)
class Caps:
    """Where a recording ends by itself; whatever comes first. The files together never exceed `max_bytes`."""

    max_bytes: int
    max_events: int | None = None
    max_seconds: float | None = None


@dataclass(slots=True)
class RecordedFile:
    """One file: of one engine life, events first_seq..last_seq (0 while there are none)."""

    name: str
    life: str
    num_bytes: int = 0
    num_events: int = 0
    first_seq: int = 0
    last_seq: int = 0


@dataclass(frozen=True, slots=True)
class RecordingStatus:
    """How the current recording is, or how the last one was.

    Attributes:
        state: `never` (none was started), `recording` or `stopped`.
        reason: why it stopped: `asked`, `shutdown`, `max_bytes`, `max_events`, `max_seconds`, `ring_overrun`,
            `max_bytes: ...` at a restart, or `disk: ...`; "" before that.
        directory: where the files lie; "" if recording isn't configured.
        seconds: how long it ran.
        caps: of this recording.
        files: one for each engine life.
    """

    state: str
    reason: str
    directory: str
    seconds: float
    caps: Caps | None
    files: tuple[RecordedFile, ...]


class Recordings:
    """One per service; runs one recording at a time, on the event loop that writes the tape.

    Args:
        tape: what is recorded.
        header_of: see HeaderOf.
        clock: for names, durations and `max_seconds`.
        directory: where files go; None refuses every recording.
        max_bytes: the most a recording may ask for.
        write_every_s: pause between two writes.
    """

    def __init__(
        self,
        tape: EventTape,
        header_of: HeaderOf,
        *,
        clock: Clock,
        directory: Path | None,
        max_bytes: int,
        write_every_s: float = WRITE_EVERY_S,
    ) -> None:
        self._tape = tape
        self._header_of = header_of
        self._clock = clock
        self._directory = directory
        self._write_every_s = write_every_s
        self.max_bytes = max_bytes
        self._num_started = 0
        self._current: _Recording | None = None

    async def start(self, caps: Caps, *, is_gzip: bool = True) -> RecordingStatus:
        """Begin to record and return when the file is there.

        Raises:
            RecordingBusyError: one is running.
            RecordingError: no directory is configured, the engine hasn't started, or the file can't be made.
        """
        if self._directory is None:
            raise RecordingError("recording needs a directory: start the server with --trace-dir")
        if self._current is not None and not self._current.is_done:
            raise RecordingBusyError("a recording is running; stop it first")
        self._num_started += 1
        stamp = datetime.fromtimestamp(self._clock.wall(), UTC).strftime("%Y%m%dT%H%M%SZ")
        recording = _Recording(self, caps, f"{stamp}-{self._num_started}", ".jsonl.gz" if is_gzip else ".jsonl")
        self._current = recording
        await recording.begin(self._directory)
        return self.status()

    async def stop(self, reason: str = "asked") -> RecordingStatus:
        """End the recording after what happened up to now is written; does nothing if none runs."""
        if self._current is not None:
            await self._current.stop(reason)
        return self.status()

    def status(self) -> RecordingStatus:
        """Return how the current or last recording is."""
        directory = str(self._directory or "")
        current = self._current
        if current is None:
            return RecordingStatus("never", "", directory, 0.0, None, ())
        state = "stopped" if current.is_done else "recording"
        return RecordingStatus(state, current.reason, directory, current.seconds, current.caps, tuple(current.files))


class _Recording:
    """One run, from start to whatever ends it."""

    def __init__(self, owner: Recordings, caps: Caps, stamp: str, suffix: str) -> None:
        self.caps = caps
        self.reason = ""
        self.files: list[RecordedFile] = []
        self._tape, self._header_of, self._clock = owner._tape, owner._header_of, owner._clock
        self._write_every_s = owner._write_every_s
        self._stamp = stamp
        self._suffix = suffix
        self._directory = Path()
        self._started_at = self._ended_at = self._clock.now()
        self._life: Life | None = None
        self._place = 0
        self._writer: TraceWriter | None = None
        self._stopping = asyncio.Event()
        self._stop_place: int | None = None
        self._task: asyncio.Task[None] | None = None
        self.is_done = False

    @property
    def seconds(self) -> float:
        return (self._ended_at if self.is_done else self._clock.now()) - self._started_at

    async def begin(self, directory: Path) -> None:
        self._directory = directory
        self.is_done = True  # until it is under way
        self.reason = "not started"
        if not self._tape.lives:
            raise RecordingError("the engine has said nothing yet")
        self._life = self._tape.lives[-1]
        snapshot, self._place = self._tape.settled_now(self._life)
        self.is_done = False  # nobody else starts one while the file is opened
        try:
            await self._open_file(self._life, snapshot)
        except (OSError, RecordingError) as error:
            self.is_done = True
            why = _why(error) if isinstance(error, OSError) else str(error)
            self.reason = f"disk: {why}" if isinstance(error, OSError) else why
            raise RecordingError(f"the trace file can't be begun: {why}") from error
        self.reason = ""
        self._task = asyncio.create_task(self._run(), name="trace-recording")

    async def stop(self, reason: str) -> None:
        if self._task is None or self.is_done:
            return
        if self._stop_place is None:
            self.reason, self._stop_place = reason, self._tape.stop
        self._stopping.set()
        await asyncio.wait({self._task})

    async def _run(self) -> None:
        try:
            reason = await self._record()
        except OSError as error:
            reason = f"disk: {_why(error)}"
        except RecordingError as error:
            reason = str(error)
        finally:
            await self._close_file()
            self._ended_at = self._clock.now()
            self.is_done = True
        self.reason = reason

    async def _record(self) -> str:
        """Write until something ends it; return what."""
        while True:
            passage = self._tape.read(self._place, limit=BATCH_EVENTS)
            if passage is not None:
                if passage.num_lost:
                    return "ring_overrun"
                if passage.life.started is None:  # it was lost before it was ready: nothing to show
                    self._place = passage.next
                    continue
                if passage.life is not self._life:
                    await self._close_file()
                    self._life = passage.life
                    await self._open_file(passage.life, None)
                reason = await self._write(passage)
                if reason:
                    return reason
            if self._stop_place is not None and self._place >= self._stop_place:
                return self.reason
            left_s = self._write_every_s
            if self.caps.max_seconds is not None:
                left_s = min(left_s, self._started_at + self.caps.max_seconds - self._clock.now())
                if left_s <= 0:
                    return "max_seconds"
            if passage is None or len(passage.events) < BATCH_EVENTS:
                await self._rest(left_s)

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return

    async def _write(self, passage: Passage) -> str:
        """Write what fits; return the cap that is reached, "" if none is."""
        events = passage.events
        if self._stop_place is not None:
            events = events[: max(0, self._stop_place - self._place)]
        num_left = None
        if self.caps.max_events is not None:
            num_left = self.caps.max_events - sum(file.num_events for file in self.files)
            events = events[:num_left]
        writer, file = self._writer, self.files[-1]
        assert writer is not None
        num_bytes_before = sum(other.num_bytes for other in self.files[:-1])

        def work() -> bool:
            data = encode_lines(events)
            if num_bytes_before + writer.num_bytes + len(data) + 1024 > self.caps.max_bytes:
                return False
            writer.write_lines(data)
            writer.flush()
            return True

        if events:
            fits = await asyncio.to_thread(work)
            file.num_bytes = writer.num_bytes
            if not fits:
                return "max_bytes"
            self._place += len(events)
            file.num_events += len(events)
            file.first_seq = file.first_seq or events[0].seq
            file.last_seq = events[-1].seq
        return "max_events" if num_left is not None and num_left <= len(events) else ""

    async def _open_file(self, life: Life, snapshot: Snapshot | None) -> None:
        """Begin a file with the event at our place."""
        header = self._header_of(life, self._place - life.first)
        if header is None:
            raise RecordingError("the engine hasn't started yet")
        number = f"-{len(self.files) + 1}" if self.files else ""
        file = RecordedFile(name=f"pellucid-{self._stamp}{number}-{life.id}{self._suffix}", life=life.id)

        num_bytes_left = self.caps.max_bytes - sum(other.num_bytes for other in self.files)

        def work() -> TraceWriter:
            num_bytes = len(encode_beginning(header, snapshot))
            if num_bytes > num_bytes_left:
                raise RecordingError(f"max_bytes: its beginning alone takes {num_bytes}, {num_bytes_left} are left")
            self._directory.mkdir(parents=True, exist_ok=True)
            return TraceWriter(self._directory / file.name, header, snapshot)

        self._writer = await asyncio.to_thread(work)
        self.files.append(file)

    async def _close_file(self) -> None:
        writer, self._writer = self._writer, None
        if writer is None:
            return
        try:
            await asyncio.to_thread(writer.close)
        except OSError:
            return  # a full disk: what was flushed before can be read, and the reason is said already
        path = self._directory / self.files[-1].name
        self.files[-1].num_bytes = await asyncio.to_thread(lambda: path.stat().st_size)


def _why(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)
