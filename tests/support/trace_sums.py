"""Sums over an event trace, by its events alone: the second opinion to every metric."""

from collections import Counter, defaultdict
from collections.abc import Iterable

from engine.events import (
    BlockEvicted,
    Event,
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
    StepFinished,
    StepStarted,
)

TERMINAL = (RequestFinished, RequestAborted, RequestFailed, RequestRejected)


class TraceSums:
    """Counts and times of one engine life.

    Attributes:
        num: events by type.
        ends: requests by finish reason; `finished` has the terminal events of those that finished.
        queue_s, prefill_s, decode_s, gaps_s: over all requests, by the definitions of observability/timeline.py.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self.num: Counter[type[Event]] = Counter()
        self.ends: Counter[str] = Counter()
        self.misses: Counter[str] = Counter()
        self.finished: dict[str, RequestFinished] = {}
        self.generated = self.overrun = self.aborted_tokens = 0
        self.scheduled_cached = self.computed = self.recomputed = 0
        self.looked_up = self.matched = 0
        self.gaps_s, self.num_gaps, self.num_first = 0.0, 0, 0
        self.step_s: Counter[str] = Counter()
        self.stages_s: Counter[str] = Counter()
        self.queue_s = self.prefill_s = self.decode_s = 0.0
        lives: dict[str, list[RequestEvent]] = defaultdict(list)
        last_token: dict[tuple[str, int], float] = {}
        started = 0.0
        for event in events:
            self.num[type(event)] += 1
            if isinstance(event, RequestEvent):
                lives[event.request_id].append(event)
            if isinstance(event, RequestTokens):
                self.generated += event.num_tokens
                key = (event.request_id, event.index)
                if key in last_token:
                    self.gaps_s += event.t - last_token[key]
                self.num_gaps += event.num_tokens - (key not in last_token)
                last_token[key] = event.t
            elif isinstance(event, StepStarted):
                started = event.t
            elif isinstance(event, StepFinished):
                self.step_s[event.kind] += event.t - started
                for stage in ("schedule", "execute", "sample", "update"):
                    self.stages_s[stage] += getattr(event, f"{stage}_s")
            else:
                self._count(event)
        for life in lives.values():
            self._time(life)

    def _count(self, event: Event) -> None:
        if isinstance(event, RequestChunk):
            self.recomputed += event.num_recomputed
            self.computed += event.num_tokens - event.num_recomputed
        elif isinstance(event, RequestScheduled):
            self.scheduled_cached += event.num_cached_tokens
        elif isinstance(event, PrefixLookup):
            self.looked_up += event.num_prompt_tokens
            self.matched += event.num_matched_tokens
            if event.why:
                self.misses[event.why] += 1
        elif isinstance(event, SequenceFinished):
            self.overrun += event.num_overrun_tokens
        elif isinstance(event, RequestFinished):
            self.ends[event.finish_reason] += 1
            self.finished[event.request_id] = event
        elif isinstance(event, RequestAborted):
            self.ends["abort"] += 1
            self.aborted_tokens += event.num_output_tokens
        elif isinstance(event, RequestFailed):
            self.ends["error"] += 1

    def _time(self, life: list[RequestEvent]) -> None:
        """Add the times of one request; it waits while it is queued, and while no choice of it holds blocks."""
        waiting: float | None = None
        holding: set[int] = set()
        preempted: set[int] = set()
        scheduled = first = last = None
        for event in life:
            if isinstance(event, RequestQueued):
                waiting = event.t
            elif isinstance(event, RequestScheduled | RequestResumed):
                holding.add(event.index if isinstance(event, RequestResumed) else 0)
                preempted.discard(event.index if isinstance(event, RequestResumed) else 0)
                if isinstance(event, RequestScheduled):
                    scheduled = event.t
                if waiting is not None:
                    self.queue_s, waiting = self.queue_s + event.t - waiting, None
            elif isinstance(event, RequestFirstToken):
                holding.add(event.index)
                first = event.t if first is None else first
            elif isinstance(event, RequestTokens):
                last = event.t
            elif isinstance(event, RequestPreempted | SequenceFinished):
                holding.discard(event.index)
                preempted.discard(event.index)
                if isinstance(event, RequestPreempted):
                    preempted.add(event.index)
                if preempted and not holding and waiting is None:
                    waiting = event.t
            elif isinstance(event, TERMINAL) and waiting is not None:
                self.queue_s += event.t - waiting
        if first is not None and scheduled is not None and last is not None:
            self.num_first += 1
            self.prefill_s += first - scheduled
            self.decode_s += last - first

    @property
    def num_received(self) -> int:
        return self.num[RequestArrived]

    @property
    def num_evictions(self) -> int:
        return self.num[BlockEvicted]
