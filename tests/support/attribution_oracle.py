"""The definition of attribution applied by hand: each request's life cut at every stamp, each piece looked at."""

import itertools
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence

from engine.events import (
    Event,
    RequestChunk,
    RequestEvent,
    RequestFirstToken,
    RequestPreempted,
    RequestQueued,
    RequestResumed,
    RequestScheduled,
    RequestTokens,
    SequenceFinished,
    StepFinished,
    StepStarted,
)
from observability.timeline import RequestTimeline


class Oracle:
    """Knows all events of a run, and splits any request's time piece by piece."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._of_request: dict[str, list[RequestEvent]] = defaultdict(list)
        self._steps: list[tuple[float, float, float, float, StepFinished]] = []
        started = 0.0
        for event in events:
            if isinstance(event, RequestEvent):
                self._of_request[event.request_id].append(event)
            elif isinstance(event, StepStarted):
                started = event.t
            elif isinstance(event, StepFinished):
                scheduled = started + event.schedule_s
                self._steps.append((started, scheduled, scheduled + event.execute_s, event.t, event))
        self._begins = [step[0] for step in self._steps]

    def split(self, timeline: RequestTimeline) -> dict[str, float]:
        """Return seconds by cause."""
        events = self._of_request[timeline.request_id]
        end = timeline.end_of_life
        assert end is not None
        assert timeline.encoded is not None
        cuts = {timeline.arrival, timeline.encoded, end, *(event.t for event in events)}
        if timeline.taken:
            cuts.update(timeline.taken)
        cuts.update(t for blocked in timeline.blocked for t in blocked)
        first, last = self._index(timeline.arrival), self._index(end)
        for step in self._steps[max(0, first - 1) : last + 1]:
            cuts.update(step[:4])
        ordered = sorted(t for t in cuts if timeline.arrival <= t <= end)
        seconds: dict[str, float] = defaultdict(float)
        for start, stop in itertools.pairwise(ordered):
            for cause, part in self._piece(timeline, events, (start + stop) / 2).items():
                seconds[cause] += (stop - start) * part
        return seconds

    def _index(self, t: float) -> int:
        return bisect_right(self._begins, t) - 1

    def _piece(self, timeline: RequestTimeline, events: Sequence[RequestEvent], t: float) -> dict[str, float]:
        """Return the causes of the moment `t` and how much of it is each one's."""
        assert timeline.encoded is not None
        queued = next((e.t for e in events if isinstance(e, RequestQueued)), float("inf"))
        if t < timeline.encoded:
            return {"tokenize": 1.0}
        if t < queued:
            return {"queue_inbox": 1.0}
        if timeline.ended is not None and t > timeline.ended:
            return {self._delivery(timeline, t): 1.0}
        holding: set[int] = set()
        has_started = False
        for event in events:
            if event.t > t:
                break
            if isinstance(event, RequestScheduled):
                holding, has_started = {0}, True
            elif isinstance(event, RequestFirstToken | RequestResumed):
                holding.add(event.index)
            elif isinstance(event, RequestPreempted | SequenceFinished):
                holding.discard(event.index)
        if not has_started:
            return {f"queue_{self._reason(t)}": 1.0}
        if not holding:
            return {"preempted": 1.0}
        return self._computing(events, t)

    def _delivery(self, timeline: RequestTimeline, t: float) -> str:
        taken = timeline.taken
        if any(blocked.start < t < blocked.end for blocked in timeline.blocked):
            return "send"
        if taken is None:
            return "unattributed"
        if t < taken.start:
            return "host"
        return "detokenize" if t < taken.end else "send"

    def _reason(self, t: float) -> str:
        index = self._index(t)
        if index >= 0 and t < self._steps[index][1]:
            index -= 1
        return (self._steps[index][4].blocked_on if index >= 0 else "") or "next_step"

    def _computing(self, events: Sequence[RequestEvent], t: float) -> dict[str, float]:
        _, scheduled, executed, _, step = self._steps[self._index(t)]
        if not scheduled < t < executed:
            return {"host": 1.0}
        mine = [e for e in events if e.step == step.step]
        chunks = [e for e in mine if isinstance(e, RequestChunk)]
        in_prefill = {e.index for e in mine if isinstance(e, RequestChunk | RequestFirstToken)}
        decodes = any(isinstance(e, RequestTokens) and e.index not in in_prefill for e in mine)
        total = step.num_prefill_tokens + step.num_decode_tokens
        own, again = sum(c.num_tokens for c in chunks), sum(c.num_recomputed for c in chunks)
        parts = {
            "prefill": (own - again) / total,
            "recompute": again / total,
            "interference": (step.num_prefill_tokens - own) / total,
        }
        if decodes:
            parts["decode"] = step.num_decode_tokens / total
        elif own:
            first = chunks[0]
            again_part = first.num_recomputed / first.num_tokens
            parts["recompute"] += step.num_decode_tokens / total * again_part
            parts["prefill"] += step.num_decode_tokens / total * (1 - again_part)
        else:
            parts["interference"] += step.num_decode_tokens / total
        return parts
