"""The prefix tree's changes in the shape that outside indexers of KV blocks read: stored, removed, all cleared.

    block_published                 BlockStored, several in a row of one chain together
    block_evicted                   BlockRemoved
    cache_cleared                   AllBlocksCleared
    engine_started, lost engines    AllBlocksCleared: nothing is left of what was stored before
    a snapshot's beginning          AllBlocksCleared, then BlockStored for all that it has

Nothing is lost: at every moment the hashes that an indexer has stored are those of the blocks in the tree. Token ids
are in no event of ours (docs/adr/0001), so `token_ids` is empty; who routes by prefix compares hashes.
"""

from collections.abc import Iterable, Iterator

import msgspec

from engine.events import BlockEvicted, BlockPublished, CacheCleared, EngineFailed, EngineStarted
from observability.snapshot import Snapshot, SnapshotBlock
from observability.trace_block import ROOT_BLOCK_ID
from observability.trace_codec import TraceEvent


class BlockStored(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="BlockStored"):
    """Blocks of one chain, each the parent of the next; the first stands below `parent_block_hash`, None at a root."""

    block_hashes: list[str]
    parent_block_hash: str | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None = None


class BlockRemoved(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="BlockRemoved"):
    """Blocks that can't be found any more."""

    block_hashes: list[str]


class AllBlocksCleared(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="AllBlocksCleared"):
    """Nothing can be found any more."""


IndexerEvent = BlockStored | BlockRemoved | AllBlocksCleared


class IndexerBatch(msgspec.Struct, frozen=True, kw_only=True):
    """What one step changed: `ts` is seconds since the Unix epoch, `seq` that of the last event it comes from."""

    ts: float
    seq: int
    events: list[IndexerEvent]


class BlockProjection:
    """Follows a trace.

    Args:
        block_size: of the header.
    """

    def __init__(self, *, block_size: int) -> None:
        self._block_size = block_size
        self._hashes: dict[int, str] = {}

    def begin(self, snapshot: Snapshot | None) -> list[IndexerEvent]:
        """Return what an indexer must be told before the first event."""
        if snapshot is None:
            return []
        events: list[IndexerEvent] = [AllBlocksCleared()]
        for block in _parents_first(snapshot.blocks):
            parent = self._hashes.get(block.parent_block_id)
            events.append(self._store(block.block_id, block.block_hash, parent))
        return events

    def take(self, event: TraceEvent) -> IndexerEvent | None:
        """Return what an event means to an indexer, None if nothing."""
        if isinstance(event, BlockPublished):
            parent = None if event.parent_block_id == ROOT_BLOCK_ID else event.parent_hash
            return self._store(event.block_id, event.block_hash, parent)
        if isinstance(event, BlockEvicted):
            found = self._hashes.pop(event.block_id, None)
            return None if found is None else BlockRemoved(block_hashes=[found])
        if isinstance(event, CacheCleared | EngineStarted) or (isinstance(event, EngineFailed) and event.lost):
            self._hashes.clear()
            return AllBlocksCleared()
        return None

    def _store(self, block_id: int, block_hash: str, parent: str | None) -> BlockStored:
        self._hashes[block_id] = block_hash
        return BlockStored(
            block_hashes=[block_hash], parent_block_hash=parent, token_ids=[], block_size=self._block_size
        )


def joined(events: Iterable[IndexerEvent]) -> list[IndexerEvent]:
    """Return the same events with those that continue one another put together."""
    result: list[IndexerEvent] = []
    for event in events:
        last = result[-1] if result else None
        if (
            isinstance(event, BlockStored)
            and isinstance(last, BlockStored)
            and event.parent_block_hash == last.block_hashes[-1]
        ):
            result[-1] = msgspec.structs.replace(last, block_hashes=[*last.block_hashes, *event.block_hashes])
        elif isinstance(event, BlockRemoved) and isinstance(last, BlockRemoved):
            result[-1] = BlockRemoved(block_hashes=[*last.block_hashes, *event.block_hashes])
        else:
            result.append(event)
    return result


def indexer_batches(
    events: Iterable[TraceEvent], *, block_size: int, wall_offset_s: float, snapshot: Snapshot | None = None
) -> Iterator[IndexerBatch]:
    """Yield one batch for each step, and for what happens between two, that changes something.

    Args:
        events: of a trace, in order.
        block_size: of its header.
        wall_offset_s: wall minus monotonic seconds.
        snapshot: its beginning.
    """
    projection = BlockProjection(block_size=block_size)
    pending = projection.begin(snapshot)
    seq, t, step = (0, 0.0, 0) if snapshot is None else (snapshot.seq, snapshot.t, snapshot.step)
    for event in events:
        if event.step != step and pending:
            yield IndexerBatch(ts=t + wall_offset_s, seq=seq, events=joined(pending))
            pending = []
        seq, t, step = event.seq, event.t, event.step
        found = projection.take(event)
        if found is not None:
            pending.append(found)
    if pending:
        yield IndexerBatch(ts=t + wall_offset_s, seq=seq, events=joined(pending))


def _parents_first(blocks: Iterable[SnapshotBlock]) -> Iterator[SnapshotBlock]:
    """Yield the published blocks, each after the one it stands below."""
    children: dict[int, list[SnapshotBlock]] = {}
    for block in blocks:
        if block.published:
            children.setdefault(block.parent_block_id, []).append(block)
    stack = list(reversed(children.get(ROOT_BLOCK_ID, [])))
    while stack:
        block = stack.pop()
        yield block
        stack.extend(
            reversed(children.pop(block.block_id, []))
        )  # popped: a file may say that a block is its own parent
