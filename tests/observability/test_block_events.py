"""The projection for outside indexers loses nothing: what they have stored is the prefix tree, at every event."""

import random

import pytest

from engine.events import BlockPublished, CacheCleared, EngineFailed, EngineStarted, Event, StepFinished
from observability.block_events import (
    AllBlocksCleared,
    BlockProjection,
    BlockRemoved,
    BlockStored,
    IndexerEvent,
    indexer_batches,
)
from observability.engine_mirror import EngineMirror
from observability.snapshot import snapshot_of
from tests.support.trace_script import TraceScript, one_request, started
from tests.support.workload import run_engine


class Indexer:
    """An outside index that knows nothing but what it is told."""

    def __init__(self) -> None:
        self.parents: dict[str, str | None] = {}

    def take(self, event: IndexerEvent) -> None:
        if isinstance(event, AllBlocksCleared):
            self.parents.clear()
        elif isinstance(event, BlockRemoved):
            for block_hash in event.block_hashes:
                del self.parents[block_hash]
        else:
            parent = event.parent_block_hash
            for block_hash in event.block_hashes:
                assert block_hash not in self.parents
                assert parent is None or parent in self.parents, "stored below a block that isn't there"
                self.parents[block_hash] = parent
                parent = block_hash


def tree(mirror: EngineMirror) -> dict[str, str | None]:
    """Return the parent of every published hash."""
    return {
        block.block_hash: mirror.blocks[block.parent_block_id].block_hash if block.parent_block_id >= 0 else None
        for block in mirror.blocks.values()
        if block.published
    }


@pytest.mark.parametrize("seed", range(4))
def test_indexer_has_the_prefix_tree_after_every_event(seed: int) -> None:
    mirror, projection, indexer = EngineMirror(), BlockProjection(block_size=4), Indexer()
    for event in run_engine(seed=seed, num_requests=25).events:
        mirror.apply([event])
        told = projection.take(event)  # type: ignore[arg-type]
        if told is not None:
            indexer.take(told)
        assert indexer.parents == tree(mirror), event
    assert indexer.parents


@pytest.mark.parametrize("seed", range(4))
def test_batches_from_a_snapshot_on_give_the_same_tree_after_every_step(seed: int) -> None:
    events = run_engine(seed=seed, num_requests=25).events
    ends = [place + 1 for place, event in enumerate(events) if isinstance(event, StepFinished)]
    start = random.Random(seed).choice(ends)
    mirror, indexer = EngineMirror(), Indexer()
    mirror.apply(events[:start])
    batches = indexer_batches(events[start:], block_size=4, wall_offset_s=5.0, snapshot=snapshot_of(mirror))  # type: ignore[arg-type]
    by_seq: dict[int, Event] = {event.seq: event for event in events}
    seen = start
    for batch in batches:
        mirror.apply(events[seen : batch.seq])
        seen = batch.seq
        for told in batch.events:
            indexer.take(told)
        assert indexer.parents == tree(mirror)
        assert batch.ts == by_seq[batch.seq].t + 5.0
    mirror.apply(events[seen:])
    assert indexer.parents == tree(mirror)


def test_chain_published_in_one_step_is_stored_at_once() -> None:
    script = TraceScript().arrive("a", num_prompt=9).step().admit("a")
    for number in range(3):
        script.allocate(number, "a", number)
    script.chunk("a", 0, 9).publish(0, "a").publish(1, "a", parent=0)
    (batch,) = indexer_batches(script.events, block_size=4, wall_offset_s=0.0)  # type: ignore[arg-type]
    assert batch.events == [BlockStored(block_hashes=["h0", "h1"], parent_block_hash=None, token_ids=[], block_size=4)]


def test_reset_and_restart_clear_everything() -> None:
    projection = BlockProjection(block_size=4)
    script = one_request(started(TraceScript()))
    script.say(CacheCleared, num_blocks=1).say(EngineFailed, error="step raised").say(
        EngineFailed, error="x", lost=True
    )
    told = [projection.take(event) for event in script.events]  # type: ignore[arg-type]
    kinds = [type(event).__name__ for event in told if event is not None]
    assert kinds == ["AllBlocksCleared", "BlockStored", "AllBlocksCleared", "AllBlocksCleared"]
    assert [type(event) for event in script.events if isinstance(event, EngineStarted | BlockPublished)]
