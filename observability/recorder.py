"""The recorder: takes the engine's events and the service's stamps, and answers every question about them.

Called from one thread, the service's event loop. It reads no other state of the engine: what metrics, `/stats` and the
request table say is computed from the event stream alone, once.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
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
from observability import request_view
from observability.history import SLIDING_S, history_columns
from observability.kv_pool import PoolCounts
from observability.metrics import BLOCK_STATES, STAGES, STEP_KINDS, WAIT_REASONS, Metrics
from observability.requests import RequestBook
from observability.stats import (
    SCHEMA,
    VERSION,
    CounterStats,
    EngineStats,
    GaugeStats,
    KvStats,
    Rings,
    RingStats,
    Stats,
    window_stats,
)
from observability.timeline import Outcome, RequestTimeline
from observability.window import Gauges, Window

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
    """

    def __init__(self, clock: Clock, *, metrics: Metrics, ring_sizes: RingSizes | None = None) -> None:
        sizes = ring_sizes if ring_sizes is not None else RingSizes()
        self._clock = clock
        self._started = clock.now()
        self._wall_offset = clock.wall() - self._started
        self._metrics = metrics
        self._window = Window(MAX_HISTORY_S + SLIDING_S, self._started)
        self._book = RequestBook(metrics, self._window, wall_offset=self._wall_offset, num_recent=sizes.requests)
        self._pool = PoolCounts()
        self._events: deque[Event] = deque(maxlen=sizes.events)
        self._steps: deque[tuple[float, StepFinished]] = deque(maxlen=sizes.steps)
        self._num_events = 0
        self._num_steps_overwritten = 0
        self._last_seq = 0
        self._engine: EngineStarted | None = None
        self._engine_state = "loading"
        self._last_heard: float | None = None
        self._step_started: float | None = None
        self._last_step_end: float | None = None
        self._blocked_on = ""
        self._tail_waste_tokens = 0
        metrics.before_render(self._refresh_gauges)
        self._handlers = self._dispatch_table()

        # series touched in every step
        self._stage = {stage: metrics.stage_seconds.at(stage) for stage in STAGES}
        self._step_duration = {kind: metrics.step_duration.at(kind) for kind in STEP_KINDS}
        self._prefill_step_tokens = metrics.step_tokens.at("prefill")
        self._decode_step_tokens = metrics.step_tokens.at("decode")
        self._decode_batch = metrics.decode_batch.at()
        self._num_steps = metrics.steps.at()

    # --- what the engine says ---

    def consume(self, events: Sequence[Event]) -> None:
        """Take in the events of one engine message, in order."""
        if not events:
            return
        self._check_gapless(events)
        self._keep(events)
        handlers = self._handlers
        for event in events:
            handler = handlers.get(type(event))
            if handler is not None:
                handler(event)
        last = events[-1].t
        self._last_heard = last if self._last_heard is None else max(self._last_heard, last)
        self._window.set_gauges(last, self._gauges())

    def heartbeat(self, t: float) -> None:
        """Take note that the engine was alive at `t` (its own stamp)."""
        self._last_heard = t if self._last_heard is None else max(self._last_heard, t)

    def engine_lost(self, request_ids: Iterable[str], reason: str) -> None:
        """The engine's process is gone: these requests have failed, no pool exists until it starts again."""
        now = self._clock.now()
        for request_id in request_ids:
            self._book.ended_outside(request_id, Outcome.FAILED, now, error_type="internal_error", message=reason)
        self._engine_down()
        self._window.set_gauges(now, self._gauges())

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
        self._book.opened(
            RequestTimeline(
                request_id, arrival, via_service=True, trace_id=trace_id, route=route, model=model, stream=stream
            )
        )

    def request_refused(self, request_id: str, error_type: str, message: str = "") -> None:
        """An opened request was refused before the engine saw it (template, length, queue full)."""
        now = self._clock.now()
        self._book.ended_outside(request_id, Outcome.REJECTED, now, error_type=error_type, message=message)

    def request_abandoned(self, request_id: str, reason: str) -> None:
        """An opened request's client left before the engine saw it."""
        self._book.ended_outside(request_id, Outcome.ABORTED, self._clock.now(), message=reason)

    def rejected(self, error_type: str) -> None:
        """A request was refused before it was opened (unreadable body, no key)."""
        self._metrics.rejected(error_type)

    def sent_first(self, request_id: str, t: float) -> None:
        """The first token of a streamed answer was handed to the transport; later calls change nothing."""
        self._book.sent_first(request_id, t)

    def sent_last(self, request_id: str, t: float) -> None:
        """The last byte was handed to the transport, or nobody listens any more."""
        self._book.sent_last(request_id, t)

    # --- answers ---

    def stats(self, *, history_s: int = WINDOW_S) -> dict[str, Any]:
        """Return the body of `GET /stats` (see observability.stats), with `history_s` <= 300 rows of history."""
        now = self._clock.now()
        rows = max(1, min(history_s, MAX_HISTORY_S))
        seconds = self._window.complete(now, max(rows + SLIDING_S, WINDOW_S))
        stats = Stats(
            schema=SCHEMA,
            version=VERSION,
            t=now + self._wall_offset,
            uptime_s=now - self._started,
            engine=self._engine_stats(now),
            counters=self._counter_stats(),
            gauges=self._gauge_stats(now),
            recent=window_stats(seconds[-RECENT_S:]),
            window=window_stats(seconds[-WINDOW_S:]),
            history=history_columns(seconds, rows, self._wall_offset),
            rings=self._ring_stats(),
        )
        body: dict[str, Any] = msgspec.to_builtins(stats)
        return body

    def requests(self) -> dict[str, list[request_view.JsonObject]]:
        """Return the request table: in flight, oldest first, and recent, newest first."""
        now = self._clock.now()
        return {
            "in_flight": [self._summary(timeline, now) for timeline in self._book.in_flight()],
            "recent": [self._summary(timeline, now) for timeline in reversed(self._book.recent)],
        }

    def request(self, request_id: str) -> request_view.JsonObject | None:
        """Return the timeline of one request, None if it is unknown or forgotten."""
        timeline = self._book.get(request_id)
        if timeline is None:
            return None
        return request_view.detail(timeline, now=self._clock.now(), wall_offset=self._wall_offset)

    def steps(self, since: int = 0) -> list[dict[str, Any]]:
        """Return the records of the steps after number `since` that are still kept, oldest first."""
        return [
            {**msgspec.to_builtins(event), "started": started} for started, event in self._steps if event.step > since
        ]

    def events(self, since: int = 0) -> list[Event]:
        """Return the events after number `since` that are still kept, oldest first."""
        return [event for event in self._events if event.seq > since]

    # --- steps, KV, engine ---

    def _dispatch_table(self) -> dict[type[Event], Callable[[Any], None]]:
        book = self._book
        return {
            RequestArrived: book.on_arrived,
            RequestRejected: book.on_rejected,
            RequestQueued: book.on_queued,
            RequestScheduled: book.on_scheduled,
            RequestChunk: book.on_chunk,
            RequestFirstToken: book.on_first_token,
            RequestTokens: book.on_tokens,
            RequestPreempted: book.on_preempted,
            RequestResumed: book.on_resumed,
            SequenceFinished: book.on_sequence_finished,
            RequestFinished: book.on_finished,
            RequestFailed: book.on_failed,
            RequestAborted: book.on_aborted,
            PrefixLookup: book.on_prefix_lookup,
            StepStarted: self._on_step_started,
            StepFinished: self._on_step_finished,
            BlockAllocated: self._on_block_allocated,
            BlockShared: self._on_block_shared,
            BlockReleased: self._on_block_released,
            BlockFreed: self._on_block_freed,
            BlockEvicted: self._on_block_evicted,
            EngineStarted: self._on_engine_started,
            EngineStopped: self._on_engine_down,
            EngineFailed: self._on_engine_down,
            Stalled: self._on_stalled,
        }

    def _on_step_started(self, event: StepStarted) -> None:
        self._step_started = event.t
        if self._last_step_end is not None:
            self._stage["idle"].inc(max(0.0, event.t - self._last_step_end))

    def _on_step_finished(self, event: StepFinished) -> None:
        stages = event.schedule_s + event.execute_s + event.sample_s + event.update_s
        started = self._step_started if self._step_started is not None else event.t - stages
        self._step_started = None
        self._last_step_end = event.t
        duration = event.t - started
        self._num_steps.inc()
        self._stage["schedule"].inc(event.schedule_s)
        self._stage["execute"].inc(event.execute_s)
        self._stage["sample"].inc(event.sample_s)
        self._stage["update"].inc(event.update_s)
        self._stage["other"].inc(max(0.0, duration - stages))
        if event.kind in self._step_duration:
            self._step_duration[event.kind].observe(duration)
        if event.num_prefill_tokens:
            self._prefill_step_tokens.observe(event.num_prefill_tokens)
        if event.num_decode_seqs:
            self._decode_step_tokens.observe(event.num_decode_tokens)
            self._decode_batch.observe(event.num_decode_seqs)
        self._blocked_on = event.blocked_on
        self._tail_waste_tokens = event.num_tail_waste_tokens
        self._pool.set_to(event.num_free_blocks, event.num_referenced_blocks, event.num_cached_blocks)
        if len(self._steps) == self._steps.maxlen:
            self._num_steps_overwritten += 1
        self._steps.append((started, event))
        self._add_to_second(event, duration)

    def _add_to_second(self, event: StepFinished, duration: float) -> None:
        second = self._window.at(event.t)
        second.steps += 1
        second.prefill_tokens += event.num_prefill_tokens
        second.decode_tokens += event.num_decode_tokens
        if event.num_decode_seqs:
            second.decode_steps += 1
            second.decode_seqs += event.num_decode_seqs
        second.busy_s += duration
        second.schedule_s += event.schedule_s
        second.execute_s += event.execute_s
        second.sample_s += event.sample_s
        second.update_s += event.update_s

    def _on_block_allocated(self, event: BlockAllocated) -> None:
        self._pool.allocated()

    def _on_block_shared(self, event: BlockShared) -> None:
        self._pool.shared(event.ref_count)

    def _on_block_released(self, event: BlockReleased) -> None:
        self._pool.released(event.ref_count)

    def _on_block_freed(self, event: BlockFreed) -> None:
        self._pool.freed()

    def _on_block_evicted(self, event: BlockEvicted) -> None:
        self._metrics.kv_evictions.at().inc()
        self._window.at(event.t).evictions += 1

    def _on_stalled(self, event: Stalled) -> None:
        self._metrics.stalls.at().inc()

    def _on_engine_started(self, event: EngineStarted) -> None:
        for request_id in self._book.ids_in_engine():
            self._book.ended_outside(
                request_id, Outcome.FAILED, event.t, error_type="internal_error", message="the engine was restarted"
            )
        if self._engine is not None:
            self._metrics.engine_restarts.at().inc()
        self._engine = event
        self._engine_state = "ready"
        self._step_started = None
        self._last_step_end = None
        self._pool.reset(event.num_blocks)
        self._metrics.model_info.set(model=event.model, executor=event.executor)

    def _on_engine_down(self, event: EngineStopped | EngineFailed) -> None:
        self._engine_down()

    def _engine_down(self) -> None:
        self._engine_state = "down"
        self._pool.reset(0)
        self._blocked_on = ""
        self._tail_waste_tokens = 0

    # --- the parts of the answers ---

    def _check_gapless(self, events: Sequence[Event]) -> None:
        first, last = events[0].seq, events[-1].seq
        if first <= self._last_seq:  # another engine's life began
            self._last_seq = 0
        num_missing = (last - self._last_seq) - len(events)
        if num_missing > 0:
            self._metrics.events_dropped.at("stream").inc(num_missing)
        self._last_seq = last

    def _keep(self, events: Sequence[Event]) -> None:
        ring = self._events
        overflow = len(ring) + len(events) - (ring.maxlen or 0)
        if overflow > 0:
            self._metrics.events_dropped.at("ring").inc(overflow)
        ring.extend(events)
        self._num_events += len(events)

    def _waiting_reason(self) -> str:
        if self._book.num_waiting == 0:
            return ""
        return self._blocked_on if self._blocked_on in WAIT_REASONS else "next_step"

    def _tail_waste(self) -> int:
        return self._tail_waste_tokens if self._pool.referenced else 0

    def _oldest_waiting_s(self, now: float) -> float:
        since = self._book.oldest_waiting_since()
        return 0.0 if since is None else max(0.0, now - since)

    def _heartbeat_age_s(self, now: float) -> float | None:
        return None if self._last_heard is None else max(0.0, now - self._last_heard)

    def _gauges(self) -> Gauges:
        pool = self._pool
        return Gauges(
            running=self._book.num_running,
            waiting=self._book.num_waiting,
            kv_free=pool.free,
            kv_referenced=pool.referenced,
            kv_cached=pool.cached,
        )

    def _refresh_gauges(self) -> None:
        now = self._clock.now()
        metrics = self._metrics
        metrics.requests_running.at().set(self._book.num_running)
        waiting_reason = self._waiting_reason()
        for reason in WAIT_REASONS:
            metrics.requests_waiting.at(reason).set(self._book.num_waiting if reason == waiting_reason else 0)
        metrics.oldest_waiting.at().set(self._oldest_waiting_s(now))
        counts = (self._pool.free, self._pool.referenced, self._pool.cached)
        for state, count in zip(BLOCK_STATES, counts, strict=True):
            metrics.kv_blocks.at(state).set(count)
        metrics.kv_usage.at().set(self._pool.usage_ratio)
        metrics.kv_tail_waste.at().set(self._tail_waste())
        metrics.engine_up.at().set(self._engine_state == "ready")
        metrics.heartbeat_age.at().set(self._heartbeat_age_s(now) or 0.0)

    def _engine_stats(self, now: float) -> EngineStats:
        engine = self._engine
        return EngineStats(
            state=self._engine_state,
            model=engine.model if engine else "",
            executor=engine.executor if engine else "",
            block_size=engine.block_size if engine else 0,
            num_blocks=engine.num_blocks if engine else 0,
            max_num_seqs=engine.max_num_seqs if engine else 0,
            max_num_batched_tokens=engine.max_num_batched_tokens if engine else 0,
            max_model_len=engine.max_model_len if engine else 0,
            prefix_cache=engine.prefix_cache if engine else False,
            restarts=int(self._metrics.engine_restarts.total()),
            heartbeat_age_s=self._heartbeat_age_s(now),
        )

    def _counter_stats(self) -> CounterStats:
        metrics = self._metrics
        return CounterStats(
            requests_received=int(metrics.requests_received.total()),
            requests_finished=int(metrics.requests.at("stop").value + metrics.requests.at("length").value),
            requests_aborted=int(metrics.requests.at("abort").value),
            requests_failed=int(metrics.requests.at("error").value),
            requests_rejected=int(metrics.requests_rejected.total()),
            prompt_tokens_computed=int(metrics.prompt_tokens.at("computed").value),
            prompt_tokens_cached=int(metrics.prompt_tokens.at("cached").value),
            prompt_tokens_recomputed=int(metrics.prompt_tokens.at("recomputed").value),
            generated_tokens=int(metrics.generated_tokens.total()),
            recomputed_tokens=int(metrics.recomputed_tokens.total()),
            prefix_queries_tokens=int(metrics.prefix_queries.total()),
            prefix_hit_tokens=int(metrics.prefix_hits.total()),
            preemptions=int(metrics.preemptions.total()),
            kv_evictions=int(metrics.kv_evictions.total()),
            engine_steps=int(metrics.steps.total()),
            events=self._num_events,
            events_dropped=int(metrics.events_dropped.at("stream").value),
        )

    def _gauge_stats(self, now: float) -> GaugeStats:
        pool = self._pool
        return GaugeStats(
            in_flight=self._book.num_in_flight,
            running=self._book.num_running,
            waiting=self._book.num_waiting,
            blocked_on=self._waiting_reason(),
            oldest_waiting_s=self._oldest_waiting_s(now),
            kv=KvStats(
                total=pool.total,
                free=pool.free,
                referenced=pool.referenced,
                cached=pool.cached,
                usage_ratio=pool.usage_ratio,
                tail_waste_tokens=self._tail_waste(),
            ),
        )

    def _ring_stats(self) -> Rings:
        book = self._book
        return Rings(
            events=RingStats(
                size=len(self._events),
                capacity=self._events.maxlen or 0,
                overwritten=int(self._metrics.events_dropped.at("ring").value),
            ),
            steps=RingStats(
                size=len(self._steps), capacity=self._steps.maxlen or 0, overwritten=self._num_steps_overwritten
            ),
            requests=RingStats(
                size=len(book.recent), capacity=book.recent.maxlen or 0, overwritten=book.num_recent_overwritten
            ),
        )

    def _summary(self, timeline: RequestTimeline, now: float) -> request_view.JsonObject:
        return request_view.summary(timeline, now=now, wall_offset=self._wall_offset)
