"""Who owns which block at one moment: the answer of `/telemetry/kv/snapshot`, and how a trace of a later part begins.

In a trace file the records follow the header: one `snapshot`, then as many `snapshot_block` and `snapshot_request`
lines as it says. Blocks that aren't told are free.
"""

from typing import Final, Literal, get_args

import msgspec

from engine.events import Event
from observability.engine_mirror import EngineMirror, MirroredBlock, MirroredRequest
from observability.trace_block import Choice


class BlockOwner(msgspec.Struct, frozen=True, kw_only=True):
    """A choice whose block table holds the block as entry `position`."""

    request_id: str
    index: int
    position: int


class SnapshotBlock(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="snapshot_block"):
    """One block that isn't free.

    Attributes:
        block_id: which.
        state: `referenced` (an owner holds it), `cached` (in the prefix tree only) or, within a step, `released`
            (neither, and about to be freed).
        ref_count: number of owners.
        owners: by request, choice.
        published: it is in the prefix tree, with `block_hash`, below `parent_block_id` (-1: a root).
        last_event, last_seq, last_t: the latest event that named it.
    """

    block_id: int
    state: Literal["referenced", "cached", "released"]
    ref_count: int
    owners: list[BlockOwner]
    published: bool
    block_hash: str
    parent_block_id: int
    last_event: str
    last_seq: int
    last_t: float


class SnapshotChoice(msgspec.Struct, frozen=True, kw_only=True):
    """One choice: computed tokens are those whose KV is written; `running` holds blocks and makes progress."""

    index: int
    num_computed_tokens: int
    num_output_tokens: int
    num_preemptions: int
    running: bool
    finished: bool


class SnapshotRequest(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="snapshot_request"):
    """One request in flight: what its `arrived` event said, and how far it came.

    Attributes:
        num_matched_tokens: by its latest prefix lookup; -1 before that.
    """

    request_id: str
    arrived_seq: int
    arrived_t: float
    arrived_step: int
    arrival: float
    num_prompt_tokens: int
    max_tokens: int
    n: int
    priority: int
    salted: bool
    queued: bool
    scheduled: bool
    num_cached_tokens: int
    num_matched_tokens: int
    choices: list[SnapshotChoice]


class SnapshotStart(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="snapshot"):
    """The first line of a snapshot in a trace file: the state right after event `seq`; the next event is `seq` + 1."""

    seq: int
    t: float
    step: int
    num_blocks_told: int
    num_requests_told: int


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The state right after event `seq`, which is the first word of all the events that follow it.

    Attributes:
        in_step: it lies within a step; never so at the beginning of a trace.
        blocks: those that aren't free, by id.
        requests: those in flight, in order of arrival.
    """

    seq: int
    t: float
    step: int
    in_step: bool
    blocks: list[SnapshotBlock]
    requests: list[SnapshotRequest]

    @property
    def start(self) -> SnapshotStart:
        return SnapshotStart(
            seq=self.seq,
            t=self.t,
            step=self.step,
            num_blocks_told=len(self.blocks),
            num_requests_told=len(self.requests),
        )


SnapshotRecord = SnapshotStart | SnapshotBlock | SnapshotRequest

SNAPSHOT_TYPES: Final = frozenset(str(kind.__struct_config__.tag) for kind in get_args(SnapshotRecord))


def snapshot_of(mirror: EngineMirror) -> Snapshot:
    """Return what a mirror shows, independent of what it takes in later."""
    return Snapshot(
        seq=mirror.seq,
        t=mirror.t,
        step=mirror.step,
        in_step=mirror.in_step,
        blocks=[_block(block_id, mirror.blocks[block_id]) for block_id in sorted(mirror.blocks)],
        requests=[_request(request_id, request) for request_id, request in mirror.requests.items()],
    )


def type_name(event: Event) -> str:
    """Return the tag of an event's type."""
    return str(event.__struct_config__.tag)


def _block(block_id: int, block: MirroredBlock) -> SnapshotBlock:
    return SnapshotBlock(
        block_id=block_id,
        state="referenced" if block.owners else "cached" if block.published else "released",
        ref_count=len(block.owners),
        owners=[_owner(choice, position) for choice, position in sorted(block.owners.items())],
        published=block.published,
        block_hash=block.block_hash,
        parent_block_id=block.parent_block_id,
        last_event=type_name(block.last),
        last_seq=block.last.seq,
        last_t=block.last.t,
    )


def _owner(choice: Choice, position: int) -> BlockOwner:
    return BlockOwner(request_id=choice[0], index=choice[1], position=position)


def _request(request_id: str, request: MirroredRequest) -> SnapshotRequest:
    arrived = request.arrived
    return SnapshotRequest(
        request_id=request_id,
        arrived_seq=arrived.seq,
        arrived_t=arrived.t,
        arrived_step=arrived.step,
        arrival=arrived.arrival,
        num_prompt_tokens=arrived.num_prompt_tokens,
        max_tokens=arrived.max_tokens,
        n=arrived.n,
        priority=arrived.priority,
        salted=arrived.salted,
        queued=request.queued,
        scheduled=request.scheduled,
        num_cached_tokens=request.num_cached_tokens,
        num_matched_tokens=-1 if request.num_matched_tokens is None else request.num_matched_tokens,
        choices=[
            SnapshotChoice(
                index=index,
                num_computed_tokens=choice.num_computed_tokens(arrived.num_prompt_tokens),
                num_output_tokens=choice.num_output_tokens,
                num_preemptions=choice.num_preemptions,
                running=choice.running,
                finished=choice.finished,
            )
            for index, choice in sorted(request.choices.items())
        ],
    )
