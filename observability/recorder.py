"""The recorder: takes the engine's events and the service's stamps, and answers every question about them.

Called from one thread, the service's event loop. It reads no other state of the engine: what metrics, `/stats` and the
request table say is computed from the event stream alone, once. The stream of each engine life ends every request
(engine/event_ledger.py writes the last events of an engine that died), so there is no second way to end one.

What it is told waits in a backlog until somebody asks, or for a moment at most (observability/backlog.py).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec

from engine.clock import Clock
from engine.events import (
    BlockAllocated,
    BlockEvicted,
    BlockFreed,
    BlockReleased,
    BlockShared,
    EngineFailed,
    EngineStarted,
    EngineStopped,
    Event,
    PrefixLookup,
    RequestAborted,
    RequestArrived,
    RequestChunk,
    RequestFailed,
    RequestFinished,
    RequestFirstToken,
    RequestPreempted,
    RequestQueued,
    RequestRejected,
    RequestResumed,
    RequestScheduled,
    RequestTokens,
    SequenceFinished,
    Stalled,
    StepFinished,
    StepStarted,
)
from observability import report, request_form, request_view
from observability.backlog import Backlog
from observability.engine_book import EngineBook
from observability.engine_tape import EngineTape
from observability.event_tape import EventTape, Life
from observability.history import SLIDING_S, history_columns
from observability.metrics import Metrics
from observability.request_form import STEPS_SCHEMA, TABLE_SCHEMA, RequestTable
from observability.request_view import Moment
from observability.requests import RequestBook
from observability.stats import SCHEMA, VERSION, Rings, RingStats, Stats, TracingStats, window_stats
from observability.timeline import Interval, Outcome, RequestTimeline
from observability.trace_header import TraceHeader, header_of
from observability.window import Gauges, Window

JsonObject = dict[str, Any]

RECENT_S = 5
WINDOW_S = 60
MAX_HISTORY_S = 300


@dataclass(frozen=True, slots=True)
class RingSizes:
    """How many of each the bounded memories keep; the oldest goes first and is counted."""

    events: int = 65_536
    steps: int = 4_096
    requests: int = 1_024


class Recorder:
    """One per service.

    Args:
        clock: the one that stamps the service's side; must be comparable with the engine's.
        metrics: gets counts and observations; its gauges are refreshed from here before each exposition.
        ring_sizes: bounds of the memories.
        on_closed: told of each request of which nothing more will be known, while it is taken in.
        tracing_stats: asked for what became of the spans.
        backlog: where what it is told waits; by default everything is taken in at once.

    Attributes:
        tape: the newest events themselves, for traces, recordings and the live feed.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        metrics: Metrics,
        ring_sizes: RingSizes | None = None,
        on_closed: Callable[[RequestTimeline], None] = lambda _: None,
        tracing_stats: Callable[[], TracingStats] = TracingStats,
        backlog: Backlog | None = None,
    ) -> None:
        sizes = ring_sizes if ring_sizes is not None else RingSizes()
        self._clock = clock
        self._metrics = metrics
        self._backlog = backlog if backlog is not None else Backlog()
        self._opened_at = clock.now()
        self._wall_offset = clock.wall() - self._opened_at
        self._window = Window(MAX_HISTORY_S + SLIDING_S, self._opened_at)
        self._engine_tape = EngineTape(self._opened_at)
        self._engine = EngineBook(metrics, self._window, tape=self._engine_tape, num_steps=sizes.steps)
        self._requests = RequestBook(
            metrics,
            self._window,
            tape=self._engine_tape,
            wall_offset=self._wall_offset,
            num_recent=sizes.requests,
            on_closed=on_closed,
        )
        self._tracing_stats = tracing_stats
        self._opening: set[str] = set()  # requests whose opening is in the backlog
        self.tape = EventTape(clock, capacity=sizes.events, backlog=self._backlog.beside())
        self._num_events = 0
        self._last_seq = 0
        self._handlers = self._dispatch_table()
        metrics.before_render(self._refresh_gauges)

    # --- what the engine says ---

    def consume(self, events: Sequence[Event]) -> None:
        """Take in the events of one engine message, in order.

        All events of a step come together, its step_finished last: so they can be taken in knowing how long its stages
        took.
        """
        if events:
            self.tape.put(events)
            self._backlog.put(self._take_in, events, weight=len(events))

    def follow_heartbeat(self, age_s: Callable[[], float]) -> None:
        """Ask `age_s` from now on how many seconds ago the engine was last heard from."""
        self._engine.follow_heartbeat(age_s)

    # --- what the service says ---

    def request_opened(
        self, request_id: str, *, trace_id: str, route: str, model: str, stream: bool, arrival: float
    ) -> None:
        """A parsed request exists. Whatever happens, `sent_last` must follow in the end.

        Args:
            request_id: ours, unique.
            trace_id: 32 hex digits if the trace is sampled, else "".
            route: template.
            model: a loaded model's name.
            stream: whether the answer is streamed.
            arrival: monotonic seconds when the body was parsed.

        Raises:
            ValueError: it is in flight already.
        """
        timeline = RequestTimeline(
            request_id, arrival, via_service=True, trace_id=trace_id, route=route, model=model, stream=stream
        )
        if request_id in self._opening or self._requests.is_live(request_id):
            self._backlog.settle()  # unless its end is in there, this raises
            self._requests.opened(timeline)
            return
        self._opening.add(request_id)
        self._backlog.put(self._open, timeline)

    def request_refused(self, request_id: str, error_type: str, message: str = "") -> None:
        """An opened request was refused before the engine saw it (template, length, queue full)."""
        self._backlog.put(self._end_outside, request_id, Outcome.REJECTED, self._clock.now(), error_type, message)

    def request_abandoned(self, request_id: str, reason: str) -> None:
        """An opened request's client left before the engine saw it."""
        self._backlog.put(self._end_outside, request_id, Outcome.ABORTED, self._clock.now(), "", reason)

    def rejected(self, error_type: str) -> None:
        """A request was refused before it was opened (unreadable body, no key)."""
        self._backlog.put(self._metrics.rejected, error_type)

    def request_encoded(self, request_id: str, t: float) -> None:
        """The prompt of an opened request is token ids; it goes to the engine next."""
        self._backlog.put(self._requests.encoded, request_id, t)

    def answer_taken(
        self, request_id: str, start: float, end: float, *, detokenize_s: float = 0.0, finish_reason: str = ""
    ) -> None:
        """The service turned the last tokens of a request into text; later calls change nothing.

        Args:
            request_id: in flight or ended.
            start, end: monotonic seconds when it took them up and when it was done.
            detokenize_s: seconds that all tokens of the request took so far, these included.
            finish_reason: what its client is told, for the engine can't know of a stop string that came with the last
                token it was allowed; "" if it broke off.
        """
        self._backlog.put(self._requests.taken, request_id, Interval(start, end), detokenize_s, finish_reason)

    def send_blocked(self, request_ids: Iterable[str], start: float, end: float) -> None:
        """A write of one call's answer took from `start` to `end` because its reader is slow."""
        self._backlog.put(self._send_blocked, tuple(request_ids), Interval(start, end))

    def sent_first(self, request_id: str, t: float) -> None:
        """The first token of a streamed answer was handed to the transport; later calls change nothing."""
        self._backlog.put(self._requests.sent_first, request_id, t)

    def sent_last(self, request_id: str, t: float) -> None:
        """The last byte was handed to the transport, or nobody listens any more; later calls change nothing."""
        self._backlog.put(self._requests.sent_last, request_id, t)

    # --- answers ---

    def stats(self, *, history_s: int = WINDOW_S) -> dict[str, Any]:
        """Return the body of `GET /stats` (see observability.stats), with `history_s` <= 300 rows of history."""
        self._settle()
        now = self._clock.now()
        num_rows = max(1, min(history_s, MAX_HISTORY_S))
        seconds = self._window.complete(now, max(num_rows + SLIDING_S, WINDOW_S))
        stats = Stats(
            schema=SCHEMA,
            version=VERSION,
            t=now + self._wall_offset,
            uptime_s=now - self._opened_at,
            engine=report.engine_stats(self._engine, self._metrics, now),
            counters=report.counter_stats(self._metrics, self._num_events),
            gauges=report.gauge_stats(self._requests, self._engine, now),
            recent=window_stats(seconds[-RECENT_S:]),
            window=window_stats(seconds[-WINDOW_S:]),
            history=history_columns(seconds, num_rows, self._wall_offset),
            rings=self._ring_stats(),
            tracing=self._tracing_stats(),
        )
        body: dict[str, Any] = msgspec.to_builtins(stats)
        return body

    def requests(self, *, num_recent: int | None = None) -> JsonObject:
        """Return the body of `GET /telemetry/requests` (observability/request_form.py).

        Args:
            num_recent: ended requests at most; all that are kept if None.
        """
        self._backlog.settle()
        moment = self._moment()
        recent = islice(reversed(self._requests.recent), num_recent)
        return _builtins(
            RequestTable(
                schema=TABLE_SCHEMA,
                version=request_form.VERSION,
                t=moment.now + moment.wall_offset,
                in_flight=[request_view.summary(timeline, moment) for timeline in self._requests.in_flight()],
                recent=[request_view.summary(timeline, moment) for timeline in recent],
            )
        )

    def request(self, request_id: str) -> JsonObject | None:
        """Return the body of `GET /telemetry/requests/{id}`, None if the request is unknown or forgotten."""
        self._backlog.settle()
        timeline = self._requests.get(request_id)
        if timeline is None:
            return None
        if timeline.share is not None and timeline.ended is None:
            timeline.share.settle(self._engine_tape.latest)
        return _builtins(request_view.detail(timeline, self._moment()))

    def steps(self, since: int = 0, *, limit: int | None = None) -> list[JsonObject]:
        """Return the records of the newest `limit` steps after number `since` that are still kept, oldest first."""
        self._backlog.settle()
        kept = [(started, event) for started, event in self._engine.steps if event.step > since]
        if limit is not None:
            kept = kept[max(0, len(kept) - limit) :]
        return [{**msgspec.to_builtins(event), "started": started} for started, event in kept]

    def step_table(self, since: int, *, limit: int) -> JsonObject:
        """Return the body of `GET /telemetry/steps`."""
        return {
            "schema": STEPS_SCHEMA,
            "version": request_form.VERSION,
            "monotonic_origin": self._wall_offset,
            "steps": self.steps(since, limit=limit),
        }

    def header(self, life: Life, *, num_dropped_events: int = 0) -> TraceHeader | None:
        """Return the header of a trace of one engine life; None if that engine never came so far as to say its sizes.

        Args:
            life: of the tape.
            num_dropped_events: of this life, left out before the first event of the trace.
        """
        if life.started is None:
            return None
        return header_of(
            life.started,
            wall_origin_s=self._opened_at + self._wall_offset,
            monotonic_origin_s=self._opened_at,
            num_dropped_events=num_dropped_events,
            life=life.id,
        )

    # --- inside ---

    def _take_in(self, message: Sequence[Event]) -> None:
        events = list(message)
        self._check_gapless(events)
        self._num_events += len(events)
        self._engine_tape.expect(events)
        handlers = self._handlers
        for event in events:
            handler = handlers.get(type(event))
            if handler is not None:
                handler(event)
        self._requests.settle()
        last = events[-1].t
        self._engine.heard(last)
        if not (self._requests.num_running or self._requests.num_waiting):
            self._engine.rest(last)
        self._window.set_gauges(last, self._gauges())

    def _open(self, timeline: RequestTimeline) -> None:
        self._opening.discard(timeline.request_id)
        self._requests.opened(timeline)

    def _end_outside(self, request_id: str, outcome: Outcome, t: float, error_type: str, message: str) -> None:
        self._requests.ended_outside(request_id, outcome, t, error_type=error_type, message=message)

    def _send_blocked(self, request_ids: Sequence[str], interval: Interval) -> None:
        self._metrics.send_blocked.at().inc(interval.end - interval.start)
        for request_id in request_ids:
            self._requests.send_blocked(request_id, interval)

    def _settle(self) -> None:
        self._backlog.settle()
        self._metrics.events_dropped.at("ring").value = float(self.tape.num_overwritten)

    def _refresh_gauges(self) -> None:
        self._settle()
        report.refresh_gauges(self._metrics, self._requests, self._engine, self._clock.now())

    def _dispatch_table(self) -> dict[type[Event], Callable[[Any], None]]:
        requests, engine = self._requests, self._engine
        return {
            RequestArrived: requests.on_arrived,
            RequestRejected: requests.on_rejected,
            RequestQueued: requests.on_queued,
            RequestScheduled: requests.on_scheduled,
            RequestChunk: requests.on_chunk,
            RequestFirstToken: requests.on_first_token,
            RequestTokens: requests.on_tokens,
            RequestPreempted: requests.on_preempted,
            RequestResumed: requests.on_resumed,
            SequenceFinished: requests.on_sequence_finished,
            RequestFinished: requests.on_finished,
            RequestFailed: requests.on_failed,
            RequestAborted: requests.on_aborted,
            PrefixLookup: requests.on_prefix_lookup,
            StepStarted: engine.on_step_started,
            StepFinished: engine.on_step_finished,
            Stalled: engine.on_stalled,
            BlockAllocated: engine.on_block_allocated,
            BlockShared: engine.on_block_shared,
            BlockReleased: engine.on_block_released,
            BlockFreed: engine.on_block_freed,
            BlockEvicted: engine.on_block_evicted,
            EngineStarted: engine.on_engine_started,
            EngineStopped: engine.on_engine_down,
            EngineFailed: engine.on_engine_down,
        }

    def _check_gapless(self, events: Sequence[Event]) -> None:
        first, last = events[0].seq, events[-1].seq
        if first <= self._last_seq:  # another engine's life began
            self._last_seq = 0
        num_missing = (last - self._last_seq) - len(events)
        if num_missing > 0:
            self._metrics.events_dropped.at("stream").inc(num_missing)
        self._last_seq = last

    def _gauges(self) -> Gauges:
        pool = self._engine.pool
        return Gauges(
            running=self._requests.num_running,
            waiting=self._requests.num_waiting,
            kv_free=pool.free,
            kv_referenced=pool.referenced,
            kv_cached=pool.cached,
            blocked_on=self._engine.waiting_reason(self._requests.num_waiting),
        )

    def _ring_stats(self) -> Rings:
        engine, requests = self._engine, self._requests
        return Rings(
            events=RingStats(
                size=len(self.tape),
                capacity=self.tape.capacity,
                overwritten=self.tape.num_overwritten,
            ),
            steps=RingStats(
                size=len(engine.steps), capacity=engine.steps.maxlen or 0, overwritten=engine.num_steps_overwritten
            ),
            requests=RingStats(
                size=len(requests.recent),
                capacity=requests.recent.maxlen or 0,
                overwritten=requests.num_recent_overwritten,
            ),
        )

    def _moment(self) -> Moment:
        started = self._engine.started
        return Moment(
            now=self._clock.now(),
            wall_offset=self._wall_offset,
            waiting_reason=self._engine.waiting_reason(self._requests.num_waiting),
            block_size=started.block_size if started is not None else 0,
        )


def _builtins(form: msgspec.Struct) -> JsonObject:
    body: JsonObject = msgspec.to_builtins(form)
    return body
