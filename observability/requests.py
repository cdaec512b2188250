"""The book of requests: who is in flight, who ended lately, and the metrics of their lives.

A request is *live* until its one terminal event, then *sending* until the service has handed over its last byte, then
*recent*. Durations are observed when it becomes recent, counts at the terminal event.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from engine.events import (
    PrefixLookup,
    RequestAborted,
    RequestArrived,
    RequestChunk,
    RequestEvent,
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
)
from observability.attribution import EngineShare, attribution_of
from observability.engine_tape import EngineTape
from observability.label_sets import CAUSES
from observability.metrics import Metrics
from observability.timeline import Interval, Outcome, RequestState, RequestTimeline, fresh_prompt_tokens
from observability.window import Window

_REASONS = {Outcome.ABORTED: "abort", Outcome.FAILED: "error", Outcome.REJECTED: ""}

# A service that forgets to say "last byte sent" must not make this grow for ever.
MAX_SENDING = 4096


@dataclass(slots=True)
class _Run:
    """Tokens that came at one moment, not counted yet.

    Nearly all tokens of a step come after the same gap, down to the last bit: they are observed together.

    Attributes:
        t: monotonic seconds.
        gap, num_gaps: so many of the newest tokens came so many seconds after the one before.
        trace_id: of the last of these that is sampled, "" for none.
    """

    t: float = 0.0
    num_tokens: int = 0
    gap: float = 0.0
    num_gaps: int = 0
    trace_id: str = ""


class RequestBook:
    """Timelines by request id, fed with request events and the service's stamps.

    Args:
        metrics: where counts and observations go.
        window: the same, by second.
        tape: what the engine did when.
        wall_offset: Unix epoch seconds minus monotonic seconds, for exemplars.
        num_recent: ended requests kept, newest first out of a ring.
        on_closed: told of each request that became one of them: nothing more will be known of it.
    """

    def __init__(
        self,
        metrics: Metrics,
        window: Window,
        *,
        tape: EngineTape,
        wall_offset: float,
        num_recent: int,
        on_closed: Callable[[RequestTimeline], None] = lambda _: None,
    ) -> None:
        self._metrics = metrics
        self._window = window
        self._tape = tape
        self._wall_offset = wall_offset
        self._on_closed = on_closed
        self._live: dict[str, RequestTimeline] = {}
        self._sending: dict[str, RequestTimeline] = {}
        self.recent: deque[RequestTimeline] = deque(maxlen=num_recent)
        self.num_recent_overwritten = 0
        self.num_unknown = 0
        self.num_running = 0
        self.num_waiting = 0
        self._run = _Run()
        # series that are touched once per token or more often
        self._itl = metrics.itl.at()
        self._generated = metrics.generated_tokens.at()
        self._computed = metrics.prompt_tokens.at("computed")
        self._recomputed_prompt = metrics.prompt_tokens.at("recomputed")
        self._attributed = [(cause, metrics.attributed.at(cause)) for cause in CAUSES]

    # --- reading ---

    @property
    def num_in_flight(self) -> int:
        return len(self._live)

    def get(self, request_id: str) -> RequestTimeline | None:
        """Return a request in flight or recent, None if it is unknown or forgotten."""
        timeline = self._live.get(request_id) or self._sending.get(request_id)
        if timeline is not None:
            return timeline
        return next((recent for recent in reversed(self.recent) if recent.request_id == request_id), None)

    def is_live(self, request_id: str) -> bool:
        return request_id in self._live

    def in_flight(self) -> list[RequestTimeline]:
        return [*self._live.values(), *self._sending.values()]

    @property
    def num_in_inbox(self) -> int:
        """Requests that were sent to the engine and that it hasn't taken note of: many, when it hangs."""
        return sum(timeline.is_in_inbox for timeline in self._live.values())

    def oldest_waiting_s(self, now: float) -> float:
        """Return how long the request that waits longest has waited, in the inbox or the queue; 0 when none does."""
        stamps = [t.waiting_since for t in self._live.values() if t.waiting_since is not None]
        stamps += [t.encoded for t in self._live.values() if t.is_in_inbox and t.encoded is not None]
        return max(0.0, now - min(stamps)) if stamps else 0.0

    # --- the service's stamps ---

    def opened(self, timeline: RequestTimeline) -> None:
        if timeline.request_id in self._live:
            raise ValueError(f"request {timeline.request_id} was opened before")
        self._live[timeline.request_id] = timeline
        self._received(timeline.arrival)

    def encoded(self, request_id: str, t: float) -> None:
        timeline = self._live.get(request_id)
        if timeline is not None:
            timeline.encoded = t

    def taken(self, request_id: str, interval: Interval, detokenize_s: float, finish_reason: str) -> None:
        timeline = self._live.get(request_id) or self._sending.get(request_id)
        if timeline is None or timeline.taken is not None:
            return
        timeline.taken = interval
        timeline.detokenize_s = detokenize_s
        timeline.answer_reason = finish_reason
        if finish_reason and timeline.outcome is Outcome.FINISHED:
            self._recount(timeline, finish_reason)
        self._answered(timeline, interval.start)

    def send_blocked(self, request_id: str, interval: Interval) -> None:
        timeline = self._live.get(request_id) or self._sending.get(request_id)
        if timeline is not None:
            timeline.blocked.append(interval)

    def sent_first(self, request_id: str, t: float) -> None:
        timeline = self._live.get(request_id) or self._sending.get(request_id)
        if timeline is None or not timeline.stream or timeline.sent_first is not None:
            return
        timeline.sent_first = t
        self._observe_ttft(timeline, t)

    def sent_last(self, request_id: str, t: float) -> None:
        timeline = self._sending.pop(request_id, None)
        if timeline is not None:
            timeline.sent_last = t
            self._close(timeline)
            return
        timeline = self._live.get(request_id)
        if timeline is not None and timeline.sent_last is None:
            timeline.sent_last = t
            self._answered(timeline, t)

    def _answered(self, timeline: RequestTimeline, t: float) -> None:
        """Whatever the engine does for it after `t` concerns nobody: a stop string was found, or the client left."""
        if timeline.share is not None and timeline.ended is None:
            timeline.share.limit = min(timeline.share.limit, t)

    def ended_outside(
        self, request_id: str, outcome: Outcome, t: float, *, error_type: str = "", message: str = ""
    ) -> None:
        """End a request by something else than an engine event; unknown and ended ones are left alone."""
        timeline = self._live.get(request_id)
        if timeline is not None:
            self._end(timeline, outcome, t, _REASONS[outcome], error_type=error_type, message=message)

    # --- request events ---

    def on_arrived(self, event: RequestArrived) -> None:
        timeline = self._live.get(event.request_id)
        if timeline is None:
            timeline = self._live[event.request_id] = RequestTimeline(event.request_id, event.arrival)
            self._received(event.t)
        timeline.in_engine = True
        timeline.num_prompt_tokens = event.num_prompt_tokens
        timeline.max_tokens = event.max_tokens
        timeline.first_seq = event.seq
        timeline.share = EngineShare(self._tape)

    def on_queued(self, event: RequestQueued) -> None:
        if timeline := self._known(event.request_id):
            before = timeline.state
            timeline.queued(event.t)
            if timeline.share is not None:
                timeline.share.queued(event.t)
            self._moved(before, timeline.state)

    def on_scheduled(self, event: RequestScheduled) -> None:
        if timeline := self._known(event.request_id):
            before = timeline.state
            timeline.first_step = event.step
            timeline.scheduled(event.t, event.num_cached_tokens)
            if timeline.share is not None:
                timeline.share.scheduled(event.t)
            self._moved(before, timeline.state)
            self._metrics.prompt_tokens.at("cached").inc(event.num_cached_tokens)

    def on_prefix_lookup(self, event: PrefixLookup) -> None:
        self._metrics.prefix_queries.at().inc(event.num_prompt_tokens)
        self._metrics.prefix_hits.at().inc(event.num_matched_tokens)
        second = self._window.at(event.t)
        second.prefix_queries += event.num_prompt_tokens
        second.prefix_hits += event.num_matched_tokens
        if event.why:
            self._metrics.prefix_misses.at(event.why).inc()
        if timeline := self._known(event.request_id):
            timeline.lookup = event

    def on_chunk(self, event: RequestChunk) -> None:
        if event.num_recomputed:
            self._metrics.recomputed_tokens.at().inc(event.num_recomputed)
            self._window.at(event.t).recomputed_tokens += event.num_recomputed
        if timeline := self._known(event.request_id):
            timeline.add_chunk(event)
            self._share_chunk(timeline, event)
            num_prompt = timeline.num_prompt_tokens
            self._computed.inc(fresh_prompt_tokens(event, num_prompt))
            recomputed_end = min(event.start + event.num_recomputed, num_prompt)
            self._recomputed_prompt.inc(max(0, recomputed_end - event.start))

    def on_first_token(self, event: RequestFirstToken) -> None:
        if timeline := self._known(event.request_id):
            is_first = timeline.first_token is None
            timeline.choice(event.index).first_token = event.t
            if timeline.share is not None:
                timeline.share.decodes(event.index, event.t)
            if is_first and not timeline.stream:
                self._observe_ttft(timeline, event.t)

    def on_tokens(self, event: RequestTokens) -> None:
        """Take in what comes once for each token, so with as little as it needs; `settle` must follow."""
        t, num_tokens = event.t, event.num_tokens
        run = self._run
        if t != run.t:
            self.settle()
            run.t = t
        run.num_tokens += num_tokens
        timeline = self._live.get(event.request_id)
        if timeline is None:
            self.num_unknown += 1
            return
        choice = timeline.choices.get(event.index) or timeline.choice(event.index)
        gap = choice.add(num_tokens, t)
        if choice.num_tokens >= choice.next_mark:
            choice.mark(event)
        if gap is not None:
            if gap != run.gap:
                self._observe_gaps()
                run.gap = gap
            run.num_gaps += 1
            if timeline.trace_id:
                run.trace_id = timeline.trace_id
        if num_tokens > 1:
            self._itl.observe(0.0, times=num_tokens - 1)
            self._window.at(t).itl.add(0.0, num_tokens - 1)

    def settle(self) -> None:
        """Count the tokens that have been taken in; comes with the end of each message."""
        run = self._run
        if not run.num_tokens:
            return
        self._observe_gaps()
        self._generated.value += run.num_tokens
        self._window.at(run.t).generated_tokens += run.num_tokens
        run.num_tokens = 0

    def _observe_gaps(self) -> None:
        run = self._run
        if run.num_gaps:
            wall = run.t + self._wall_offset
            self._itl.observe(run.gap, times=run.num_gaps, trace_id=run.trace_id, wall=wall)
            self._window.at(run.t).itl.add(run.gap, run.num_gaps)
            run.num_gaps, run.trace_id = 0, ""

    def on_preempted(self, event: RequestPreempted) -> None:
        self._metrics.preemptions.at().inc()
        self._window.at(event.t).preemptions += 1
        if timeline := self._known(event.request_id):
            before = timeline.state
            timeline.preempted(event)
            if timeline.share is not None:
                timeline.share.rests(event.index, event.t, waits=timeline.waiting_since is not None)
            self._moved(before, timeline.state)

    def on_resumed(self, event: RequestResumed) -> None:
        if timeline := self._known(event.request_id):
            before = timeline.state
            timeline.resumed(event)
            if timeline.share is not None:
                num_output = timeline.choice(event.index).num_tokens
                num_missing = timeline.num_prompt_tokens + num_output - event.num_cached_tokens
                timeline.share.resumed(event.index, event.t, decodes=num_output > 0 and num_missing == 1)
            self._moved(before, timeline.state)

    def on_sequence_finished(self, event: SequenceFinished) -> None:
        if timeline := self._known(event.request_id):
            before = timeline.state
            timeline.choice_finished(event.index, event.finish_reason, event.t)
            if timeline.share is not None:
                timeline.share.rests(event.index, event.t, waits=timeline.waiting_since is not None)
            self._moved(before, timeline.state)

    def on_rejected(self, event: RequestRejected) -> None:
        timeline = self._live.get(event.request_id)
        if timeline is None:
            timeline = self._live[event.request_id] = RequestTimeline(event.request_id, event.t)
            self._received(event.t)
        _last_event(timeline, event)
        self._end(timeline, Outcome.REJECTED, event.t, "", error_type=event.error_type, message=event.message)

    def on_finished(self, event: RequestFinished) -> None:
        if timeline := self._known(event.request_id):
            _last_event(timeline, event)
            self._end(timeline, Outcome.FINISHED, event.t, event.finish_reason)

    def on_failed(self, event: RequestFailed) -> None:
        if timeline := self._known(event.request_id):
            _last_event(timeline, event)
            self._end(timeline, Outcome.FAILED, event.t, "error", error_type=event.error_type, message=event.message)

    def on_aborted(self, event: RequestAborted) -> None:
        if timeline := self._known(event.request_id):
            _last_event(timeline, event)
            self._end(timeline, Outcome.ABORTED, event.t, "abort", message=event.reason)

    def _share_chunk(self, timeline: RequestTimeline, event: RequestChunk) -> None:
        step = self._tape.step(event.step)
        if timeline.share is None or step is None:
            return
        num_output = timeline.choice(event.index).num_tokens
        num_known = timeline.num_prompt_tokens + num_output
        timeline.share.computes(
            step,
            event.index,
            num_tokens=event.num_tokens,
            num_recomputed=event.num_recomputed,
            # with outputs, the newest token that alone is missing is a decode
            is_last=event.start + event.num_tokens >= num_known - (num_output > 0),
        )

    # --- the three moves ---

    def _received(self, t: float) -> None:
        self._metrics.requests_received.at().inc()
        self._window.at(t).requests_received += 1

    def _known(self, request_id: str) -> RequestTimeline | None:
        timeline = self._live.get(request_id)
        if timeline is None:
            self.num_unknown += 1
        return timeline

    def _moved(self, before: RequestState, after: RequestState) -> None:
        if before is after:
            return
        self.num_running += (after is RequestState.RUNNING) - (before is RequestState.RUNNING)
        self.num_waiting += (after is RequestState.WAITING) - (before is RequestState.WAITING)

    def _end(
        self,
        timeline: RequestTimeline,
        outcome: Outcome,
        t: float,
        finish_reason: str,
        *,
        error_type: str = "",
        message: str = "",
    ) -> None:
        before = timeline.state
        timeline.end(outcome, t, finish_reason=finish_reason, error_type=error_type, message=message)
        if timeline.share is not None:
            timeline.share.settle(t)
        self._moved(before, timeline.state)
        del self._live[timeline.request_id]
        self._window.at(t).requests_ended += 1
        if outcome is Outcome.REJECTED:
            self._metrics.requests_rejected.at(error_type).inc()
            self._remember(timeline)
            return
        if outcome is Outcome.FINISHED and timeline.answer_reason:
            timeline.finish_reason = timeline.answer_reason
        self._metrics.requests.at(timeline.finish_reason).inc()
        timeline.counted_before_scrape = self._metrics.num_renders
        self._observe_phases(timeline)
        nobody_listens = outcome is Outcome.ABORTED or not timeline.via_service
        if nobody_listens or timeline.sent_last is not None:
            self._close(timeline)
            return
        timeline.is_sending = True
        self._sending[timeline.request_id] = timeline
        if len(self._sending) > MAX_SENDING:
            self._close(self._sending.pop(next(iter(self._sending))))

    def _recount(self, timeline: RequestTimeline, finish_reason: str) -> None:
        """Count an ended request under what its client is told, which is known a moment later than its end.

        Not once it was scraped, as after a slow reader: a counter never falls.
        """
        if timeline.counted_before_scrape == self._metrics.num_renders:
            self._metrics.requests.at(timeline.finish_reason).inc(-1.0)
            self._metrics.requests.at(finish_reason).inc()
            timeline.finish_reason = finish_reason

    def _close(self, timeline: RequestTimeline) -> None:
        timeline.is_sending = False
        if timeline.stream and timeline.sent_first is None and timeline.first_token is not None:
            self._observe_ttft(timeline, timeline.first_token)
        wall = self._wall(timeline)
        if timeline.e2e_s is not None:
            self._metrics.duration.at().observe(timeline.e2e_s, trace_id=timeline.trace_id, wall=wall)
            self._attribute(timeline, wall)
        if timeline.outcome is Outcome.FINISHED and timeline.tpot_s is not None:
            self._metrics.tpot.at().observe(timeline.tpot_s, trace_id=timeline.trace_id, wall=wall)
        self._remember(timeline)

    def _attribute(self, timeline: RequestTimeline, wall: float) -> None:
        seconds = attribution_of(timeline, now=0.0)
        residual = max(0.0, seconds["unattributed"])
        self._metrics.unattributed.at().observe(residual, trace_id=timeline.trace_id, wall=wall)
        for cause, series in self._attributed:
            series.inc(max(0.0, seconds[cause]))

    def _remember(self, timeline: RequestTimeline) -> None:
        if len(self.recent) == self.recent.maxlen:
            self.num_recent_overwritten += 1
        self.recent.append(timeline)
        self._on_closed(timeline)

    def _observe_ttft(self, timeline: RequestTimeline, t: float) -> None:
        ttft = timeline.ttft_s
        if ttft is None:
            return
        self._metrics.ttft.at().observe(ttft, trace_id=timeline.trace_id, wall=t + self._wall_offset)
        self._window.at(t).ttft.add(ttft)

    def _observe_phases(self, timeline: RequestTimeline) -> None:
        metrics, trace_id, wall = self._metrics, timeline.trace_id, self._wall(timeline)
        for histogram, seconds in (
            (metrics.queue, timeline.queue_s if timeline.waits else None),
            (metrics.first_queue, timeline.first_queue_s),
            (metrics.prefill, timeline.prefill_s),
            (metrics.decode, timeline.decode_s),
        ):
            if seconds is not None:
                histogram.at().observe(seconds, trace_id=trace_id, wall=wall)
        if timeline.in_engine:
            metrics.request_prompt_tokens.at().observe(timeline.num_prompt_tokens)
            metrics.request_output_tokens.at().observe(timeline.num_output_tokens)

    def _wall(self, timeline: RequestTimeline) -> float:
        return (timeline.ended or timeline.arrival) + self._wall_offset


def _last_event(timeline: RequestTimeline, event: RequestEvent) -> None:
    timeline.last_seq, timeline.last_step = event.seq, event.step
