"""A trace as Chrome / Perfetto JSON, for https://ui.perfetto.dev or chrome://tracing.

    engine      one slice per step with its stages inside; counters of pool and queue; stalls and failures as marks
    requests    one track per request (and per further choice): queue, prefill chunk, decode, preempted

A prefill chunk is as long as the step that computed it. Slices of a track never overlap: each begins where the one
before ended or later.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from engine.events import (
    CacheCleared,
    EngineFailed,
    EngineStarted,
    EngineStopped,
    RequestAborted,
    RequestArrived,
    RequestChunk,
    RequestFailed,
    RequestFinished,
    RequestPreempted,
    RequestQueued,
    RequestRejected,
    RequestResumed,
    RequestTokens,
    SequenceFinished,
    Stalled,
    StepFinished,
    StepStarted,
)
from observability.trace_block import Choice
from observability.trace_codec import TraceEvent, event_type
from observability.trace_file import TraceReader

ENGINE_PID: Final = 1
REQUESTS_PID: Final = 2
STEP_TID: Final = 1

Record = dict[str, Any]


class _Track:
    """One row of slices: at most one is open, and each ends before the next begins."""

    def __init__(self, tid: int) -> None:
        self.tid = tid
        self.open_name = ""
        self.open_args: Record = {}
        self._start = 0.0
        self._free_from = float("-inf")

    def begin(self, name: str, t: float, args: Record | None = None) -> None:
        self.open_name, self.open_args = name, args or {}
        self._start = t

    def end(self, t: float) -> Iterator[Record]:
        """Yield the open slice, if there is one and it has a length."""
        name, self.open_name = self.open_name, ""
        if name:
            yield from self.slice(name, self._start, t, self.open_args)

    def slice(self, name: str, start: float, end: float, args: Record | None = None) -> Iterator[Record]:
        start = max(start, self._free_from)
        if end > start:
            self._free_from = end
            yield {"name": name, "ph": "X", "pid": REQUESTS_PID, "tid": self.tid, "ts": start, "dur": end - start,
                   "args": dict(args or {})}  # fmt: skip


class PerfettoTrace:
    """Turns events into records whose times are still monotonic seconds; `perfetto_json` writes them out."""

    def __init__(self) -> None:
        self._tracks: dict[Choice, _Track] = {}
        self._num_tracks = 0
        self._step: StepStarted | None = None
        self._chunks: list[RequestChunk] = []
        self._first_tokens: list[Choice] = []
        self._ended: list[Choice] = []
        self._handlers: dict[type[Any], Callable[[Any], Iterator[Record]]] = {
            RequestArrived: self._on_arrived,
            RequestQueued: self._on_queued,
            RequestChunk: self._on_chunk,
            RequestTokens: self._on_tokens,
            RequestPreempted: self._on_preempted,
            RequestResumed: self._on_resumed,
            SequenceFinished: self._on_sequence_finished,
            RequestFinished: self._on_end,
            RequestFailed: self._on_end,
            RequestAborted: self._on_end,
            RequestRejected: self._on_end,
            StepStarted: self._on_step_started,
            StepFinished: self._on_step_finished,
            EngineStarted: self._on_mark,
            EngineFailed: self._on_mark,
            EngineStopped: self._on_mark,
            Stalled: self._on_mark,
            CacheCleared: self._on_mark,
        }

    def beginning(self) -> Iterator[Record]:
        """Yield what names processes and the step track."""
        yield _meta("process_name", ENGINE_PID, 0, "engine")
        yield _meta("process_name", REQUESTS_PID, 0, "requests")
        yield _meta("thread_name", ENGINE_PID, STEP_TID, "steps")

    def take(self, event: TraceEvent) -> Iterator[Record]:
        """Yield what an event completes."""
        handler = self._handlers.get(type(event))
        return handler(event) if handler is not None else iter(())

    def ending(self, t: float) -> Iterator[Record]:
        """Yield what is still open at the end of the trace."""
        for track in self._tracks.values():
            track.open_args["unfinished"] = True
            yield from track.end(t)

    # --- requests ---

    def _track(self, choice: Choice) -> Iterator[Record]:
        """Make sure that a choice has a track; yield its name if it is new."""
        if choice not in self._tracks:
            self._num_tracks += 1
            self._tracks[choice] = _Track(self._num_tracks)
            name = choice[0] if choice[1] == 0 else f"{choice[0]} choice {choice[1]}"
            yield _meta("thread_name", REQUESTS_PID, self._num_tracks, name)

    def _on_arrived(self, event: RequestArrived) -> Iterator[Record]:
        yield from self._track((event.request_id, 0))
        args = {"num_prompt_tokens": event.num_prompt_tokens, "max_tokens": event.max_tokens, "n": event.n}
        self._tracks[event.request_id, 0].begin("arrived", event.arrival, args)

    def _on_queued(self, event: RequestQueued) -> Iterator[Record]:
        yield from self._track((event.request_id, 0))
        track = self._tracks[event.request_id, 0]
        yield from track.end(event.t)
        track.begin("queue", event.t, {"num_waiting": event.num_waiting})

    def _on_chunk(self, event: RequestChunk) -> Iterator[Record]:
        self._chunks.append(event)
        choice = (event.request_id, event.index)
        yield from self._track(choice)
        if self._step is not None:
            yield from self._tracks[choice].end(self._step.t)

    def _on_tokens(self, event: RequestTokens) -> Iterator[Record]:
        choice = (event.request_id, event.index)
        if choice not in self._tracks or not self._tracks[choice].open_name:
            yield from self._track(choice)
            self._first_tokens.append(choice)

    def _on_preempted(self, event: RequestPreempted) -> Iterator[Record]:
        choice = (event.request_id, event.index)
        yield from self._track(choice)
        track = self._tracks[choice]
        yield from track.end(event.t)
        track.begin("preempted", event.t, {"num_lost_tokens": event.num_lost_tokens})

    def _on_resumed(self, event: RequestResumed) -> Iterator[Record]:
        choice = (event.request_id, event.index)
        yield from self._track(choice)
        yield from self._tracks[choice].end(self._step.t if self._step is not None else event.t)

    def _on_sequence_finished(self, event: SequenceFinished) -> Iterator[Record]:
        choice = (event.request_id, event.index)
        yield from self._track(choice)
        track = self._tracks[choice]
        track.open_args["finish_reason"] = event.finish_reason
        track.open_args["num_output_tokens"] = event.num_output_tokens
        yield from track.end(event.t)

    def _on_end(self, event: RequestFinished | RequestFailed | RequestAborted | RequestRejected) -> Iterator[Record]:
        for choice in [c for c in self._tracks if c[0] == event.request_id and c not in self._ended]:
            track = self._tracks[choice]
            track.open_args["outcome"] = event_type(event)
            yield from track.end(event.t)
            self._ended.append(choice)
        if self._step is None:
            self._forget_ended()

    def _forget_ended(self) -> None:
        """Let go of the tracks of requests that are over, once the step that ended them has said how long it was."""
        for choice in self._ended:
            del self._tracks[choice]
        self._ended.clear()

    # --- engine ---

    def _on_step_started(self, event: StepStarted) -> Iterator[Record]:
        self._step = event
        self._chunks.clear()
        self._first_tokens.clear()
        yield from ()

    def _on_step_finished(self, event: StepFinished) -> Iterator[Record]:
        step, self._step = self._step, None
        start = step.t if step is not None else event.t
        args = {
            name: getattr(event, name)
            for name in ("num_seqs", "num_prefill_tokens", "num_decode_tokens", "num_generated_tokens", "token_budget",
                         "blocked_on")
        }  # fmt: skip
        yield _engine_slice(f"{event.kind} step", start, event.t, {"step": event.step, **args})
        at = start
        for stage in ("schedule", "execute", "sample", "update"):
            end = min(at + max(0.0, getattr(event, f"{stage}_s")), event.t)
            if end > at:
                yield _engine_slice(stage, at, end, {})
            at = end
        yield _counter("KV blocks", event.t, {
            "referenced": event.num_referenced_blocks, "cached": event.num_cached_blocks, "free": event.num_free_blocks,
        })  # fmt: skip
        yield _counter("requests", event.t, {"running": event.num_running, "waiting": event.num_waiting})
        for chunk in self._chunks:
            track = self._tracks.get((chunk.request_id, chunk.index))
            if track is not None:
                told = {"start": chunk.start, "num_tokens": chunk.num_tokens, "num_recomputed": chunk.num_recomputed}
                yield from track.slice("prefill chunk", start, event.t, told)
        self._forget_ended()
        for choice in self._first_tokens:
            if choice in self._tracks and not self._tracks[choice].open_name:
                self._tracks[choice].begin("decode", event.t)
        self._chunks.clear()
        self._first_tokens.clear()

    def _on_mark(
        self, event: EngineStarted | EngineFailed | EngineStopped | Stalled | CacheCleared
    ) -> Iterator[Record]:
        args = {name: value for name, value in msgspec.to_builtins(event).items() if name not in ("seq", "t", "type")}
        yield {"name": event_type(event), "ph": "i", "s": "g", "pid": ENGINE_PID, "tid": STEP_TID, "ts": event.t,
               "args": args}  # fmt: skip


def perfetto_json(reader: TraceReader) -> Iterator[bytes]:
    """Yield the file in pieces; times are microseconds since the first event."""
    trace = PerfettoTrace()
    origin: float | None = None
    last_t = 0.0
    other = {"model": reader.header.model, "executor": reader.header.executor, "life": reader.header.life}
    yield b'{"displayTimeUnit":"ms","otherData":' + msgspec.json.encode(other) + b',"traceEvents":[\n'
    yield b",\n".join(msgspec.json.encode(record) for record in trace.beginning())
    for events in reader.batches():
        records: list[Record] = []
        for event in events:
            origin = event.t if origin is None else origin
            last_t = event.t
            records.extend(trace.take(event))
        yield _encoded(records, origin)
    yield _encoded(list(trace.ending(last_t)), origin)
    yield b"\n]}\n"


def _encoded(records: list[Record], origin: float | None) -> bytes:
    for record in records:
        if "ts" in record:
            record["ts"] = round((record["ts"] - (origin or 0.0)) * 1e6, 3)
        if "dur" in record:
            record["dur"] = round(record["dur"] * 1e6, 3)
    return b"".join(b",\n" + msgspec.json.encode(record) for record in records)


def _meta(name: str, pid: int, tid: int, value: str) -> Record:
    return {"name": name, "ph": "M", "pid": pid, "tid": tid, "args": {"name": value}}


def _engine_slice(name: str, start: float, end: float, args: Record) -> Record:
    return {"name": name, "ph": "X", "pid": ENGINE_PID, "tid": STEP_TID, "ts": start, "dur": max(0.0, end - start),
            "args": args}  # fmt: skip


def _counter(name: str, t: float, values: Record) -> Record:
    return {"name": name, "ph": "C", "pid": ENGINE_PID, "ts": t, "args": values}
