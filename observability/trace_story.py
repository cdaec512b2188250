"""What a trace says about each request: where its time went, what the cache did for it, who took its blocks.

Time is counted by steps. A wait is put down to what the head of the queue waited for when each step ended; a decode
step in which others' prompts were computed is set against those in which they weren't.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from engine.events import (
    BlockAllocated,
    EngineFailed,
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
    StepFinished,
    StepStarted,
)
from observability.snapshot import Snapshot, SnapshotRequest
from observability.trace_codec import TraceEvent

NEXT_STEP = "next_step"  # nothing stood in the way: it waited for the step in progress to end


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a prompt computed in one step, which took `step_s` in all."""

    step: int
    start: int
    num_tokens: int
    num_recomputed: int
    step_s: float


@dataclass(slots=True)
class Preemption:
    """One choice lost its blocks; `beneficiary` got the next block given out in that step, "" if nobody did."""

    step: int
    t: float
    index: int
    num_lost_tokens: int
    beneficiary: str = ""
    resumed_t: float | None = None
    num_recompute_tokens: int = 0


@dataclass(slots=True)
class Decoding:
    """Steps in which a request decoded, and their seconds: alone with other decodes, and beside others' prompts."""

    num_steps: int = 0
    seconds: float = 0.0
    num_shared_steps: int = 0
    shared_seconds: float = 0.0


@dataclass(slots=True)
class RequestStory:
    """One request; times are monotonic seconds, None while it hasn't come to that.

    Attributes:
        is_complete: its `arrived` event is in the trace.
        waits: seconds waited by reason (schedule.BlockedOn, or `next_step`), preempted ones included.
        outcome: `finished`, `failed`, `aborted`, `rejected`, or `in_flight` at the end of the trace.
        detail: finish reason, error or reason of the abort.
    """

    request_id: str
    is_complete: bool
    arrival: float
    num_prompt_tokens: int
    max_tokens: int
    n: int
    queued_t: float | None = None
    scheduled_t: float | None = None
    first_token_t: float | None = None
    ended_t: float | None = None
    num_cached_tokens: int = 0
    num_output_tokens: int = 0
    waits: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    lookups: list[PrefixLookup] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)
    preemptions: list[Preemption] = field(default_factory=list)
    decoding: Decoding = field(default_factory=Decoding)
    outcome: str = "in_flight"
    detail: str = ""
    waiting_since: float | None = None

    @property
    def ttft_s(self) -> float | None:
        return None if self.first_token_t is None else self.first_token_t - self.arrival

    @property
    def e2e_s(self) -> float | None:
        return None if self.ended_t is None else self.ended_t - self.arrival

    @property
    def queue_s(self) -> float:
        return sum(self.waits.values())


class TraceStories:
    """Takes the events of a trace in order.

    Attributes:
        stories: by request id, in order of arrival.
        num_steps, steps_s: steps that finished, and their seconds.

    Args:
        snapshot: the beginning of the trace, if it has one.
    """

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        self.stories: dict[str, RequestStory] = {}
        self.num_steps = 0
        self.steps_s = 0.0
        self.num_events = 0
        self.first_t = self.last_t = 0.0 if snapshot is None else snapshot.t
        self._has_begun = snapshot is not None
        self._in_flight: dict[str, RequestStory] = {}
        self._waiting: dict[str, RequestStory] = {}
        self._step_t: float | None = None
        self._chunks: list[tuple[RequestStory, RequestChunk]] = []
        self._decodes: dict[str, RequestStory] = {}
        self._unsettled: list[Preemption] = []
        self._victims: set[str] = set()
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            RequestTokens: self._on_tokens,
            RequestArrived: self._on_arrived,
            RequestQueued: self._on_queued,
            PrefixLookup: self._on_prefix_lookup,
            RequestScheduled: self._on_scheduled,
            RequestChunk: self._on_chunk,
            RequestFirstToken: self._on_first_token,
            RequestPreempted: self._on_preempted,
            RequestResumed: self._on_resumed,
            BlockAllocated: self._on_allocated,
            RequestRejected: lambda event: self._end(event, "rejected", event.message),
            RequestFailed: lambda event: self._end(event, "failed", event.message),
            RequestAborted: lambda event: self._end(event, "aborted", event.reason),
            RequestFinished: lambda event: self._end(event, "finished", event.finish_reason),
            StepStarted: self._on_step_started,
            StepFinished: self._on_step_finished,
            EngineFailed: self._on_engine_failed,
        }
        for request in () if snapshot is None else snapshot.requests:
            self._adopt(request)

    def take(self, event: TraceEvent) -> None:
        """Take in the next event."""
        if not self._has_begun:
            self.first_t, self._has_begun = event.t, True
        self.num_events += 1
        self.last_t = event.t
        handler = self._handlers.get(type(event))
        if handler is not None:
            handler(event)

    # --- requests ---

    def _adopt(self, told: SnapshotRequest) -> None:
        story = RequestStory(
            request_id=told.request_id,
            is_complete=False,
            arrival=told.arrival,
            num_prompt_tokens=told.num_prompt_tokens,
            max_tokens=told.max_tokens,
            n=told.n,
            num_cached_tokens=told.num_cached_tokens,
            num_output_tokens=sum(choice.num_output_tokens for choice in told.choices),
        )
        self.stories[told.request_id] = self._in_flight[told.request_id] = story
        if not any(choice.running for choice in told.choices):
            self._wait(story, self.first_t)

    def _story(self, request_id: str) -> RequestStory | None:
        return self._in_flight.get(request_id)

    def _wait(self, story: RequestStory, t: float) -> None:
        story.waiting_since = t
        self._waiting[story.request_id] = story

    def _wait_over(self, story: RequestStory, t: float) -> None:
        if story.waiting_since is not None:
            story.waits[NEXT_STEP] += t - story.waiting_since
            story.waiting_since = None
            self._waiting.pop(story.request_id, None)

    def _on_arrived(self, event: RequestArrived) -> None:
        story = RequestStory(
            request_id=event.request_id,
            is_complete=True,
            arrival=event.arrival,
            num_prompt_tokens=event.num_prompt_tokens,
            max_tokens=event.max_tokens,
            n=event.n,
        )
        self.stories[event.request_id] = self._in_flight[event.request_id] = story

    def _on_queued(self, event: RequestQueued) -> None:
        story = self._story(event.request_id)
        if story is not None:
            story.queued_t = event.t
            self._wait(story, event.t)

    def _on_prefix_lookup(self, event: PrefixLookup) -> None:
        story = self._story(event.request_id)
        if story is not None:
            story.lookups.append(event)

    def _on_scheduled(self, event: RequestScheduled) -> None:
        story = self._story(event.request_id)
        if story is not None:
            story.scheduled_t, story.num_cached_tokens = event.t, event.num_cached_tokens
            self._wait_over(story, event.t)

    def _on_chunk(self, event: RequestChunk) -> None:
        story = self._story(event.request_id)
        if story is not None:
            self._chunks.append((story, event))

    def _on_first_token(self, event: RequestFirstToken) -> None:
        story = self._story(event.request_id)
        if story is not None and story.first_token_t is None and story.is_complete:
            story.first_token_t = event.t

    def _on_tokens(self, event: RequestTokens) -> None:
        story = self._in_flight.get(event.request_id)
        if story is not None:
            story.num_output_tokens += event.num_tokens
            self._decodes[event.request_id] = story

    def _on_preempted(self, event: RequestPreempted) -> None:
        story = self._story(event.request_id)
        if story is not None:
            preemption = Preemption(event.step, event.t, event.index, event.num_lost_tokens)
            story.preemptions.append(preemption)
            self._unsettled.append(preemption)
            self._victims.add(event.request_id)
            self._wait(story, event.t)

    def _on_allocated(self, event: BlockAllocated) -> None:
        if self._unsettled and event.request_id not in self._victims:
            for preemption in self._unsettled:
                preemption.beneficiary = event.request_id
            self._unsettled.clear()

    def _on_resumed(self, event: RequestResumed) -> None:
        story = self._story(event.request_id)
        if story is not None:
            self._wait_over(story, event.t)
            for preemption in reversed(story.preemptions):
                if preemption.index == event.index and preemption.resumed_t is None:
                    preemption.resumed_t = event.t
                    preemption.num_recompute_tokens = event.num_recompute_tokens
                    break

    def _end(
        self, event: RequestRejected | RequestFailed | RequestAborted | RequestFinished, outcome: str, detail: str
    ) -> None:
        story = self._in_flight.pop(event.request_id, None)
        if story is not None:
            self._wait_over(story, event.t)
            story.ended_t, story.outcome, story.detail = event.t, outcome, detail

    # --- steps ---

    def _on_step_started(self, event: StepStarted) -> None:
        self._step_t = event.t
        self._chunks.clear()
        self._decodes.clear()

    def _on_step_finished(self, event: StepFinished) -> None:
        seconds = event.t - self._step_t if self._step_t is not None else 0.0
        self.num_steps += 1
        self.steps_s += seconds
        for story, chunk in self._chunks:
            story.chunks.append(Chunk(event.step, chunk.start, chunk.num_tokens, chunk.num_recomputed, seconds))
            self._decodes.pop(chunk.request_id, None)  # its tokens of this step came of a prefill
        is_shared = event.num_prefill_tokens > 0
        for story in self._decodes.values():
            if is_shared:
                story.decoding.num_shared_steps += 1
                story.decoding.shared_seconds += seconds
            else:
                story.decoding.num_steps += 1
                story.decoding.seconds += seconds
        for story in self._waiting.values():
            assert story.waiting_since is not None
            story.waits[event.blocked_on or NEXT_STEP] += event.t - story.waiting_since
            story.waiting_since = event.t
        self._chunks.clear()
        self._decodes.clear()
        self._unsettled.clear()
        self._victims.clear()
        self._step_t = None

    def _on_engine_failed(self, _: EngineFailed) -> None:
        self._step_t = None
        self._chunks.clear()
        self._decodes.clear()
