"""The engine's event stream: everything that metrics, spans, traces and the dashboard are computed from.

Every event is frozen and carries `seq` (gapless from 1 over an engine's life), `t` (monotonic seconds) and
`step` (the engine step it belongs to; 0 before the first). On the wire and in trace files an event is a JSON or
MessagePack map whose `type` is the tag given below.
"""

from collections.abc import Sequence as Many
from typing import Any, ClassVar, Protocol, cast

import msgspec

from engine.clock import Clock


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag_field="type"):
    """Common part of all events. They hold no containers, so the garbage collector needn't look at them."""

    seq: int
    t: float
    step: int


# --- request -----------------------------------------------------------------------------------------------------


class RequestEvent(Event, frozen=True, kw_only=True):
    """An event in the life of one request; `index` says which of its choices, where that matters."""

    request_id: str


class RequestArrived(RequestEvent, frozen=True, kw_only=True, tag="arrived"):
    """The engine took note of a request. `arrival` is the service's stamp, before template and tokenizer."""

    arrival: float
    num_prompt_tokens: int
    max_tokens: int
    n: int = 1
    priority: int = 0
    salted: bool = False


class RequestRejected(RequestEvent, frozen=True, kw_only=True, tag="rejected"):
    """Terminal: refused by the engine before it was queued."""

    error_type: str
    message: str


class RequestQueued(RequestEvent, frozen=True, kw_only=True, tag="queued"):
    """It waits for admission from here on; after a preemption `preempted` opens the waiting interval instead."""

    num_waiting: int


class RequestScheduled(RequestEvent, frozen=True, kw_only=True, tag="scheduled"):
    """First admission: it holds blocks from here on. Cached tokens came from the prefix tree."""

    num_cached_tokens: int


class RequestChunk(RequestEvent, frozen=True, kw_only=True, tag="chunk"):
    """A prefill chunk is computed in this step: tokens start..start+num_tokens-1.

    `num_recomputed` of them had been computed before a preemption.
    """

    index: int = 0
    start: int
    num_tokens: int
    num_recomputed: int = 0


class RequestFirstToken(RequestEvent, frozen=True, kw_only=True, tag="first_token"):
    """The choice's first token was sampled (engine side)."""

    index: int = 0


class RequestTokens(RequestEvent, frozen=True, kw_only=True, tag="tokens"):
    """`num_tokens` new tokens of one choice in this step, `num_output_tokens` of it in all."""

    index: int = 0
    num_tokens: int
    num_output_tokens: int


class RequestPreempted(RequestEvent, frozen=True, kw_only=True, tag="preempted"):
    """One choice gave its blocks back and waits again; `num_lost_tokens` of computed KV went with them."""

    index: int = 0
    num_lost_tokens: int
    num_preemptions: int


class RequestResumed(RequestEvent, frozen=True, kw_only=True, tag="resumed"):
    """A preempted choice holds blocks again; `num_recompute_tokens` must be computed a second time."""

    index: int = 0
    num_cached_tokens: int
    num_recompute_tokens: int


class SequenceFinished(RequestEvent, frozen=True, kw_only=True, tag="sequence_finished"):
    """One choice is complete. `num_overrun_tokens` were computed after the stop the service found, and dropped."""

    index: int
    finish_reason: str
    num_output_tokens: int
    num_overrun_tokens: int = 0


class RequestFinished(RequestEvent, frozen=True, kw_only=True, tag="finished"):
    """Terminal: every choice is complete. `finish_reason` is `length` if any choice ran into it, else `stop`."""

    finish_reason: str
    num_prompt_tokens: int
    num_cached_tokens: int
    num_output_tokens: int
    num_preemptions: int


class RequestFailed(RequestEvent, frozen=True, kw_only=True, tag="failed"):
    """Terminal: ended by a fault of ours."""

    error_type: str
    message: str
    num_output_tokens: int


class RequestAborted(RequestEvent, frozen=True, kw_only=True, tag="aborted"):
    """Terminal: ended because nobody wants it any more (client gone, cancelled, drain)."""

    reason: str
    num_output_tokens: int


# --- step --------------------------------------------------------------------------------------------------------


class StepStarted(Event, frozen=True, kw_only=True, tag="step_started"):
    """A step begins; the time since the previous step_finished was idle or inbox work."""

    num_waiting: int
    num_running: int


class StepFinished(Event, frozen=True, kw_only=True, tag="step_finished"):
    """A step ended. Token counts are those of its one forward pass; durations are its exclusive stages.

    Attributes:
        kind: `prefill`, `decode`, `mixed`, or `empty` when nothing could be scheduled.
        num_recomputed_tokens: part of num_prefill_tokens that a preemption made necessary.
        num_generated_tokens: sampled in this step.
        blocked_on: what the head of the queue waits for (schedule.BlockedOn), "" if nothing waits on purpose.
        num_tail_waste_tokens: slots allocated to running sequences and not written, after the step.
    """

    kind: str
    num_seqs: int
    num_decode_seqs: int
    num_prefill_tokens: int
    num_decode_tokens: int
    num_recomputed_tokens: int
    num_generated_tokens: int
    token_budget: int
    num_running: int
    num_waiting: int
    blocked_on: str
    schedule_s: float
    execute_s: float
    sample_s: float
    update_s: float
    num_free_blocks: int
    num_referenced_blocks: int
    num_cached_blocks: int
    num_tail_waste_tokens: int


# --- KV ----------------------------------------------------------------------------------------------------------


class BlockAllocated(Event, frozen=True, kw_only=True, tag="block_allocated"):
    """A free block became entry `position` of a choice's block table; ref_count is 1."""

    block_id: int
    request_id: str
    index: int
    position: int


class BlockShared(Event, frozen=True, kw_only=True, tag="block_shared"):
    """An existing block was referenced once more: prefix hit or fork."""

    block_id: int
    request_id: str
    index: int
    position: int
    ref_count: int


class BlockCopied(Event, frozen=True, kw_only=True, tag="block_copied"):
    """Copy-on-write: the first `num_tokens` slots of `source` are copied to `block_id`, already allocated."""

    block_id: int
    source: int
    request_id: str
    index: int
    num_tokens: int


class BlockPublished(Event, frozen=True, kw_only=True, tag="block_published"):
    """A fully written block entered the prefix tree below `parent_block_id` (-1: the root of its salt).

    `block_hash` chains parent and token ids for outside indexers; matching inside compares tokens.
    """

    block_id: int
    parent_block_id: int
    block_hash: str
    parent_hash: str
    request_id: str


class BlockReleased(Event, frozen=True, kw_only=True, tag="block_released"):
    """A choice let go of a block; at ref_count 0 it is cached if published, else a block_freed follows."""

    block_id: int
    request_id: str
    index: int
    ref_count: int


class BlockEvicted(Event, frozen=True, kw_only=True, tag="block_evicted"):
    """A cached block left the prefix tree; a block_freed follows.

    `reason` is `capacity` (room was needed), `reset` (the cache was cleared) or `fault` (its request failed, so its KV
    may be damaged).
    """

    block_id: int
    reason: str


class BlockFreed(Event, frozen=True, kw_only=True, tag="block_freed"):
    """The block is on the free list again."""

    block_id: int


class CacheCleared(Event, frozen=True, kw_only=True, tag="cache_cleared"):
    """The prefix tree was emptied on request; referenced blocks stay with their owners, unpublished."""

    num_blocks: int


class PrefixLookup(RequestEvent, frozen=True, kw_only=True, tag="prefix_lookup"):
    """What admission found in the prefix tree, and why not more.

    Attributes:
        why: "" (all that can be reused was), `cold`, `diverged`, `evicted`, `salt`, `tail` (only the last token or an
            unfinished block is missing), `disabled`.
        position: first token position that did not match; -1 if not applicable.
        block_id: the block in which it diverged; -1 if none.
        expected_token, actual_token: the two tokens at `position`; -1 if not applicable.
    """

    index: int = 0
    num_prompt_tokens: int
    num_matched_tokens: int
    why: str
    position: int = -1
    block_id: int = -1
    expected_token: int = -1
    actual_token: int = -1


# --- engine ------------------------------------------------------------------------------------------------------


class EngineStarted(Event, frozen=True, kw_only=True, tag="engine_started"):
    """The engine is ready to step."""

    model: str
    executor: str
    block_size: int
    num_blocks: int
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    prefix_cache: bool


class EngineStopped(Event, frozen=True, kw_only=True, tag="engine_stopped"):
    """The engine ended in order."""

    reason: str


class EngineFailed(Event, frozen=True, kw_only=True, tag="engine_failed"):
    """A step raised, or the engine was lost; everything in flight has failed.

    `lost` says that the process is gone, or was killed, and its KV blocks with it: their release is not told one by
    one. The client writes this event in its place (engine/event_ledger.py).
    """

    error: str
    lost: bool = False


class Stalled(Event, frozen=True, kw_only=True, tag="stalled"):
    """The watchdog: nothing was scheduled for `num_steps` steps while something waited."""

    request_id: str
    cause: str
    num_steps: int
    num_waiting: int
    num_running: int


AnyEvent = (
    RequestArrived
    | RequestRejected
    | RequestQueued
    | RequestScheduled
    | RequestChunk
    | RequestFirstToken
    | RequestTokens
    | RequestPreempted
    | RequestResumed
    | SequenceFinished
    | RequestFinished
    | RequestFailed
    | RequestAborted
    | StepStarted
    | StepFinished
    | BlockAllocated
    | BlockShared
    | BlockCopied
    | BlockPublished
    | BlockReleased
    | BlockEvicted
    | BlockFreed
    | CacheCleared
    | PrefixLookup
    | EngineStarted
    | EngineStopped
    | EngineFailed
    | Stalled
)

TERMINAL_EVENTS = (RequestRejected, RequestFinished, RequestFailed, RequestAborted)


class Choice(Protocol):
    """As much of a sequence as an event about its newest token tells."""

    request_id: str
    index: int
    output_token_ids: list[int]


class EventSink(Protocol):
    """Where the scheduler and the block manager say what they did.

    `emit` says anything. What a full batch says in every step has a method of its own, which takes a quarter of the
    time: the fields needn't travel as a dictionary.
    """

    def emit(self, kind: type[Event], /, **fields: object) -> None:
        """Append one event; `seq`, `t` and `step` are filled in."""
        ...

    def emit_token_each(self, choices: Many[Choice]) -> None:
        """Append RequestTokens for each of these, who have one new token; all with one time stamp."""
        ...

    def emit_allocated(self, block_id: int, request_id: str, index: int, position: int) -> None:
        """Append BlockAllocated."""
        ...

    def emit_shared(self, block_id: int, request_id: str, index: int, position: int, ref_count: int) -> None:
        """Append BlockShared."""
        ...

    def emit_published(
        self, block_id: int, parent_block_id: int, block_hash: str, parent_hash: str, request_id: str
    ) -> None:
        """Append BlockPublished."""
        ...

    def emit_released(self, block_id: int, request_id: str, index: int, ref_count: int) -> None:
        """Append BlockReleased."""
        ...

    def emit_evicted(self, block_id: int, reason: str) -> None:
        """Append BlockEvicted."""
        ...

    def emit_freed(self, block_id: int) -> None:
        """Append BlockFreed."""
        ...


class EventLog:
    """Numbers and stamps events and holds them until the step's message takes them away.

    Args:
        clock: where `t` comes from.
        first_seq: number of the first event; past 1 only when a stream is continued in its writer's place.
    """

    FIRST_SEQ: ClassVar[int] = 1

    def __init__(self, clock: Clock, *, first_seq: int = FIRST_SEQ) -> None:
        self._now = clock.now
        self._next_seq = first_seq
        self._pending: list[Event] = []
        self.step = 0

    def emit(self, kind: type[Event], /, **fields: object) -> None:
        seq = self._next_seq
        self._next_seq = seq + 1
        values: dict[str, Any] = fields
        values["seq"], values["t"], values["step"] = seq, self._now(), self.step
        self._pending.append(kind(**values))

    def emit_token_each(self, choices: Many[Choice]) -> None:
        first, t, step = self._next_seq, self._now(), self.step
        self._next_seq = first + len(choices)
        self._pending += [
            RequestTokens(
                seq=seq,
                t=t,
                step=step,
                request_id=choice.request_id,
                index=choice.index,
                num_tokens=1,
                num_output_tokens=len(choice.output_token_ids),
            )
            for seq, choice in enumerate(choices, first)
        ]

    def emit_allocated(self, block_id: int, request_id: str, index: int, position: int) -> None:
        self._next_seq = (seq := self._next_seq) + 1
        self._pending.append(
            BlockAllocated(
                seq=seq,
                t=self._now(),
                step=self.step,
                block_id=block_id,
                request_id=request_id,
                index=index,
                position=position,
            )
        )

    def emit_shared(self, block_id: int, request_id: str, index: int, position: int, ref_count: int) -> None:
        self._next_seq = (seq := self._next_seq) + 1
        self._pending.append(
            BlockShared(
                seq=seq,
                t=self._now(),
                step=self.step,
                block_id=block_id,
                request_id=request_id,
                index=index,
                position=position,
                ref_count=ref_count,
            )
        )

    def emit_published(
        self, block_id: int, parent_block_id: int, block_hash: str, parent_hash: str, request_id: str
    ) -> None:
        self._next_seq = (seq := self._next_seq) + 1
        self._pending.append(
            BlockPublished(
                seq=seq,
                t=self._now(),
                step=self.step,
                block_id=block_id,
                parent_block_id=parent_block_id,
                block_hash=block_hash,
                parent_hash=parent_hash,
                request_id=request_id,
            )
        )

    def emit_released(self, block_id: int, request_id: str, index: int, ref_count: int) -> None:
        self._next_seq = (seq := self._next_seq) + 1
        self._pending.append(
            BlockReleased(
                seq=seq,
                t=self._now(),
                step=self.step,
                block_id=block_id,
                request_id=request_id,
                index=index,
                ref_count=ref_count,
            )
        )

    def emit_evicted(self, block_id: int, reason: str) -> None:
        self._next_seq = (seq := self._next_seq) + 1
        self._pending.append(BlockEvicted(seq=seq, t=self._now(), step=self.step, block_id=block_id, reason=reason))

    def emit_freed(self, block_id: int) -> None:
        self._next_seq = (seq := self._next_seq) + 1
        self._pending.append(BlockFreed(seq=seq, t=self._now(), step=self.step, block_id=block_id))

    @property
    def has_pending(self) -> bool:
        """Whether `drain` would return anything."""
        return bool(self._pending)

    def drain(self) -> list[AnyEvent]:
        """Return the events since the last call and forget them."""
        events, self._pending = self._pending, []
        return cast(list[AnyEvent], events)
