"""What an engine holds, as its events tell it: every block in use, every request in flight.

It believes what it reads, unlike the trace checker, so it is cheap enough to follow every event of a running service.
Snapshots are made from it (observability/snapshot.py).
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from engine.events import (
    BlockAllocated,
    BlockCopied,
    BlockEvicted,
    BlockFreed,
    BlockPublished,
    BlockReleased,
    BlockShared,
    CacheCleared,
    EngineFailed,
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
    StepFinished,
    StepStarted,
)
from observability.trace_block import ROOT_BLOCK_ID, Choice

BlockEventOfOne = BlockAllocated | BlockShared | BlockCopied | BlockPublished | BlockReleased | BlockEvicted


class MirroredBlock:
    """A block that isn't free.

    Attributes:
        owners: entry in the block table, by the choice that holds it.
        published, block_hash, parent_block_id: its place in the prefix tree.
        last: the latest event that named it.
    """

    __slots__ = ("block_hash", "last", "owners", "parent_block_id", "published")

    def __init__(self, last: BlockEventOfOne) -> None:
        self.owners: dict[Choice, int] = {}
        self.published = False
        self.block_hash = ""
        self.parent_block_id = ROOT_BLOCK_ID
        self.last = last

    def copy(self) -> "MirroredBlock":
        twin = MirroredBlock(self.last)
        twin.owners = dict(self.owners)
        twin.published, twin.block_hash, twin.parent_block_id = self.published, self.block_hash, self.parent_block_id
        return twin


class MirroredChoice:
    """One choice of a request in flight; see num_computed_tokens for how `is_decoding` is used."""

    __slots__ = ("finished", "is_decoding", "num_output_tokens", "num_preemptions", "num_prefilled_tokens", "running")

    def __init__(self, num_prefilled_tokens: int) -> None:
        self.num_prefilled_tokens = num_prefilled_tokens
        self.num_output_tokens = 0
        self.is_decoding = False
        self.num_preemptions = 0
        self.running = True
        self.finished = False

    def num_computed_tokens(self, num_prompt_tokens: int) -> int:
        """Tokens whose KV is written: what chunks computed, or all but the newest once tokens come out."""
        return num_prompt_tokens + self.num_output_tokens - 1 if self.is_decoding else self.num_prefilled_tokens

    def copy(self) -> "MirroredChoice":
        twin = MirroredChoice(self.num_prefilled_tokens)
        twin.num_output_tokens, twin.is_decoding = self.num_output_tokens, self.is_decoding
        twin.num_preemptions, twin.running, twin.finished = self.num_preemptions, self.running, self.finished
        return twin


class MirroredRequest:
    """A request that arrived and hasn't ended. `num_matched_tokens` is None before its first lookup."""

    __slots__ = ("arrived", "choices", "num_cached_tokens", "num_matched_tokens", "queued", "scheduled")

    def __init__(self, arrived: RequestArrived) -> None:
        self.arrived = arrived
        self.queued = False
        self.scheduled = False
        self.num_cached_tokens = 0
        self.num_matched_tokens: int | None = None
        self.choices: dict[int, MirroredChoice] = {}

    def copy(self) -> "MirroredRequest":
        twin = MirroredRequest(self.arrived)
        twin.queued, twin.scheduled = self.queued, self.scheduled
        twin.num_cached_tokens, twin.num_matched_tokens = self.num_cached_tokens, self.num_matched_tokens
        twin.choices = {index: choice.copy() for index, choice in self.choices.items()}
        return twin


class EngineMirror:
    """Follows the events of one engine life from its first one, or from the state that another mirror had.

    Attributes:
        seq, t, step: of the last event taken in; 0 before the first.
        in_step: a step has started and not finished.
        blocks: every block that isn't free, by id.
        requests: every request in flight, by id.
    """

    def __init__(self) -> None:
        self.seq = 0
        self.t = 0.0
        self.step = 0
        self.in_step = False
        self.blocks: dict[int, MirroredBlock] = {}
        self.requests: dict[str, MirroredRequest] = {}

    def copy(self) -> "EngineMirror":
        """Return an independent mirror of the same state."""
        twin = EngineMirror()
        twin.seq, twin.t, twin.step, twin.in_step = self.seq, self.t, self.step, self.in_step
        twin.blocks.update((block_id, block.copy()) for block_id, block in self.blocks.items())
        twin.requests.update((request_id, request.copy()) for request_id, request in self.requests.items())
        return twin

    def apply(self, events: Iterable[Event]) -> None:
        """Take in the next events, in order."""
        event = None
        for event in events:
            handler = _HANDLERS.get(type(event))
            if handler is not None:
                handler(self, event)
        if event is not None:
            self.seq, self.t, self.step = event.seq, event.t, event.step

    # --- blocks ---

    def _block(self, event: BlockEventOfOne) -> MirroredBlock:
        """Return the block; one that was never heard of (a stream with a hole) is adopted."""
        block = self.blocks.get(event.block_id)
        if block is None:
            block = self.blocks[event.block_id] = MirroredBlock(event)
        block.last = event
        return block

    def _on_allocated(self, event: BlockAllocated) -> None:
        block = self.blocks[event.block_id] = MirroredBlock(event)
        block.owners[event.request_id, event.index] = event.position

    def _on_shared(self, event: BlockShared) -> None:
        self._block(event).owners[event.request_id, event.index] = event.position

    def _on_copied(self, event: BlockCopied) -> None:
        self._block(event)

    def _on_published(self, event: BlockPublished) -> None:
        block = self._block(event)
        block.published = True
        block.block_hash, block.parent_block_id = event.block_hash, event.parent_block_id

    def _on_released(self, event: BlockReleased) -> None:
        self._block(event).owners.pop((event.request_id, event.index), None)

    def _on_evicted(self, event: BlockEvicted) -> None:
        block = self._block(event)
        block.published, block.block_hash, block.parent_block_id = False, "", ROOT_BLOCK_ID

    def _on_freed(self, event: BlockFreed) -> None:
        self.blocks.pop(event.block_id, None)

    def _on_cleared(self, _: CacheCleared) -> None:
        for block in self.blocks.values():
            block.published, block.block_hash, block.parent_block_id = False, "", ROOT_BLOCK_ID

    # --- requests ---

    def _choice(self, request_id: str, index: int) -> MirroredChoice | None:
        request = self.requests.get(request_id)
        if request is None:
            return None
        choice = request.choices.get(index)
        if choice is None:  # the first word of a fork: it has its parent's whole prompt
            choice = request.choices[index] = MirroredChoice(request.arrived.num_prompt_tokens)
        return choice

    def _on_tokens(self, event: RequestTokens) -> None:
        request = self.requests.get(event.request_id)
        if request is not None:
            choice = request.choices.get(event.index) or self._choice(event.request_id, event.index)
            assert choice is not None
            choice.num_output_tokens = event.num_output_tokens
            choice.is_decoding = True

    def _on_arrived(self, event: RequestArrived) -> None:
        self.requests[event.request_id] = MirroredRequest(event)

    def _on_queued(self, event: RequestQueued) -> None:
        request = self.requests.get(event.request_id)
        if request is not None:
            request.queued = True

    def _on_prefix_lookup(self, event: PrefixLookup) -> None:
        request = self.requests.get(event.request_id)
        if request is not None:
            request.num_matched_tokens = event.num_matched_tokens

    def _on_scheduled(self, event: RequestScheduled) -> None:
        request = self.requests.get(event.request_id)
        if request is not None:
            request.scheduled = True
            request.num_cached_tokens = event.num_cached_tokens
            request.choices[0] = MirroredChoice(event.num_cached_tokens)

    def _on_chunk(self, event: RequestChunk) -> None:
        choice = self._choice(event.request_id, event.index)
        if choice is not None:
            choice.num_prefilled_tokens = event.start + event.num_tokens
            choice.is_decoding = False

    def _on_first_token(self, event: RequestFirstToken) -> None:
        self._choice(event.request_id, event.index)

    def _on_preempted(self, event: RequestPreempted) -> None:
        choice = self._choice(event.request_id, event.index)
        if choice is not None:
            choice.running = False
            choice.num_preemptions = event.num_preemptions

    def _on_resumed(self, event: RequestResumed) -> None:
        choice = self._choice(event.request_id, event.index)
        if choice is not None:
            choice.running = True
            choice.num_prefilled_tokens, choice.is_decoding = event.num_cached_tokens, False

    def _on_sequence_finished(self, event: SequenceFinished) -> None:
        choice = self._choice(event.request_id, event.index)
        if choice is not None:
            choice.running, choice.finished = False, True

    def _on_ended(self, event: RequestRejected | RequestFinished | RequestFailed | RequestAborted) -> None:
        self.requests.pop(event.request_id, None)

    # --- engine ---

    def _on_step_started(self, _: StepStarted) -> None:
        self.in_step = True

    def _on_step_finished(self, _: StepFinished) -> None:
        self.in_step = False

    def _on_engine_failed(self, event: EngineFailed) -> None:
        self.in_step = False
        if event.lost:
            self.blocks.clear()


# Functions, not bound methods: a mirror is copied often and must not wait for the cycle collector to go.
_HANDLERS: Final[dict[type[Event], Callable[[EngineMirror, Any], None]]] = {
    RequestTokens: EngineMirror._on_tokens,
    BlockAllocated: EngineMirror._on_allocated,
    BlockShared: EngineMirror._on_shared,
    BlockCopied: EngineMirror._on_copied,
    BlockPublished: EngineMirror._on_published,
    BlockReleased: EngineMirror._on_released,
    BlockEvicted: EngineMirror._on_evicted,
    BlockFreed: EngineMirror._on_freed,
    CacheCleared: EngineMirror._on_cleared,
    RequestArrived: EngineMirror._on_arrived,
    RequestQueued: EngineMirror._on_queued,
    PrefixLookup: EngineMirror._on_prefix_lookup,
    RequestScheduled: EngineMirror._on_scheduled,
    RequestChunk: EngineMirror._on_chunk,
    RequestFirstToken: EngineMirror._on_first_token,
    RequestPreempted: EngineMirror._on_preempted,
    RequestResumed: EngineMirror._on_resumed,
    SequenceFinished: EngineMirror._on_sequence_finished,
    RequestRejected: EngineMirror._on_ended,
    RequestFinished: EngineMirror._on_ended,
    RequestFailed: EngineMirror._on_ended,
    RequestAborted: EngineMirror._on_ended,
    StepStarted: EngineMirror._on_step_started,
    StepFinished: EngineMirror._on_step_finished,
    EngineFailed: EngineMirror._on_engine_failed,
}
