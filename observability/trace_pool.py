"""The KV pool rebuilt from events alone: who holds which block, what is cached, what is free.

Every event is a claim about the pool; a claim that the rebuilt pool contradicts raises InvariantError. A trace that
starts in the middle of an engine's life has a snapshot of the pool, which is checked and taken over by `start_with`. If
it has none, nothing is known at first: blocks and tables are then adopted from what the first events say of them, and
checked from there on.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any

from engine.events import (
    BlockAllocated,
    BlockCopied,
    BlockEvicted,
    BlockFreed,
    BlockPublished,
    BlockReleased,
    BlockShared,
    CacheCleared,
)
from observability.snapshot import SnapshotBlock
from observability.trace_block import ROOT_BLOCK_ID, Block, Choice, InvariantError, name_of

KVEvent = (
    BlockAllocated
    | BlockShared
    | BlockCopied
    | BlockPublished
    | BlockReleased
    | BlockEvicted
    | BlockFreed
    | CacheCleared
)


class RebuiltPool:
    """Applies KV events.

    Attributes:
        tables: each choice's block table; choices of which only the end was seen have none.
        counts: how many blocks are in each place (Block.place).

    Args:
        num_blocks: blocks in the pool.
        from_start: whether all is known at the beginning: every block is free, but for those of `start_with`.
    """

    def __init__(self, *, num_blocks: int, from_start: bool) -> None:
        self._from_start = from_start
        place = "free" if from_start else "unknown"
        self._num_blocks = num_blocks
        self._blocks: dict[int, Block] = {}  # those that an event named; the others are as at the start
        self._first_place = place
        self.counts = {"free": 0, "referenced": 0, "cached": 0, "lost": 0, "unknown": 0, place: num_blocks}
        self.tables: dict[Choice, list[int]] = {}
        self._releasing: set[Choice] = set()
        self._replaced: dict[Choice, tuple[int, int]] = {}  # (old, new) block of an entry, until its copy is said
        self._copy_sources: dict[Choice, int] = {}  # held until released, though not in the table any more

    def handlers(self) -> dict[type[KVEvent], Callable[[Any], None]]:
        """Return what takes in an event of each type; each raises InvariantError if the event contradicts the pool."""
        return {
            BlockAllocated: self._allocated,
            BlockShared: self._shared,
            BlockCopied: self._copied,
            BlockPublished: self._published,
            BlockReleased: self._released,
            BlockEvicted: self._evicted,
            BlockFreed: self._freed,
            CacheCleared: self._cleared,
        }

    def start_with(self, blocks: Iterable[SnapshotBlock]) -> None:
        """Take over a snapshot of an untouched pool; raises InvariantError if it contradicts itself."""
        tables: dict[Choice, dict[int, int]] = {}
        for told in blocks:
            if told.block_id in self._blocks:
                raise InvariantError(f"the snapshot has block {told.block_id} twice")
            block = self._block(told.block_id)
            block.free, block.published = False, told.published
            block.block_hash, block.parent = told.block_hash, told.parent_block_id
            for owner in told.owners:
                choice = (owner.request_id, owner.index)
                if choice in block.holders or owner.position in tables.setdefault(choice, {}):
                    raise InvariantError(f"the snapshot has two blocks at entry {owner.position} of {name_of(choice)}")
                tables[choice][owner.position] = told.block_id
                block.holders.add(choice)
            if (told.ref_count, told.state) != (len(block.holders), block.place):
                raise InvariantError(
                    f"the snapshot says block {told.block_id} is {told.state} with ref_count {told.ref_count}; by its "
                    f"owners it is {block.place} with {len(block.holders)}"
                )
            self._recount(block)
        for choice, entries in tables.items():
            if sorted(entries) != list(range(len(entries))):
                raise InvariantError(
                    f"the snapshot has but entries {sorted(entries)} of the table of {name_of(choice)}"
                )
            self.tables[choice] = [entries[position] for position in range(len(entries))]
        for block_id, block in self._blocks.items():
            if block.published and block.parent != ROOT_BLOCK_ID:
                parent = self._blocks.get(block.parent)
                if parent is None or not parent.published:
                    raise InvariantError(
                        f"the snapshot has block {block_id} published below block {block.parent}, which isn't published"
                    )
                parent.num_children += 1

    def _allocated(self, event: BlockAllocated) -> None:
        block = self._block(event.block_id)
        if block.known and block.place != "free":
            raise InvariantError(f"block {event.block_id} is allocated while it is {self._describe(event.block_id)}")
        choice = (event.request_id, event.index)
        table = self.tables.get(choice)
        if table is not None and event.position == len(table) - 1 and choice not in self._copy_sources:
            self._replaced[choice] = (table[event.position], event.block_id)
            table[event.position] = event.block_id
            block.holders.add(choice)
        else:
            self._append(event.block_id, choice, event.position)
        block.known, block.free = True, False
        self._recount(block)

    def _shared(self, event: BlockShared) -> None:
        block = self._block(event.block_id)
        choice = (event.request_id, event.index)
        if block.place not in ("referenced", "cached", "unknown"):
            raise InvariantError(
                f"block {event.block_id} is shared with {name_of(choice)} while it is {self._describe(event.block_id)}"
            )
        self._append(event.block_id, choice, event.position)
        self._check_ref_count(event.block_id, event.ref_count)
        self._recount(block)

    def _copied(self, event: BlockCopied) -> None:
        choice = (event.request_id, event.index)
        if self._block(event.source).place in ("free", "lost"):
            raise InvariantError(f"block {event.source} is copied from while it is {self._describe(event.source)}")
        if event.source == event.block_id:
            raise InvariantError(f"block {event.block_id} is copied onto itself")
        target = self._block(event.block_id)
        if target.known and (target.holders != {choice} or target.published):
            raise InvariantError(
                f"block {event.block_id} is copied to by {name_of(choice)} while it is {self._describe(event.block_id)}"
            )
        replaced = self._replaced.pop(choice, None)
        if replaced is not None:
            if replaced != (event.source, event.block_id):
                raise InvariantError(
                    f"{name_of(choice)} replaced block {replaced[0]} by {replaced[1]}, but copies {event.source} to "
                    f"{event.block_id}"
                )
            self._copy_sources[choice] = event.source

    def _published(self, event: BlockPublished) -> None:
        block = self._block(event.block_id)
        if block.known and not any(holder[0] == event.request_id for holder in block.holders):
            raise InvariantError(
                f"block {event.block_id} is published by {event.request_id!r} while it is "
                f"{self._describe(event.block_id)}"
            )
        if block.published:
            raise InvariantError(f"block {event.block_id} is published twice")
        if event.parent_block_id != ROOT_BLOCK_ID:
            parent = self._block(event.parent_block_id)
            if parent.known and not parent.published:
                raise InvariantError(
                    f"block {event.block_id} is published below block {event.parent_block_id}, which is "
                    f"{self._describe(event.parent_block_id)} and not in the prefix tree"
                )
            if parent.block_hash and parent.block_hash != event.parent_hash:
                raise InvariantError(
                    f"block {event.block_id} is published with parent hash {event.parent_hash}, but block "
                    f"{event.parent_block_id} was published with {parent.block_hash}"
                )
            parent.num_children += 1
        block.published = True
        block.parent, block.block_hash = event.parent_block_id, event.block_hash
        self._recount(block)

    def _released(self, event: BlockReleased) -> None:
        block = self._block(event.block_id)
        choice = (event.request_id, event.index)
        if block.known and choice not in block.holders:
            raise InvariantError(
                f"block {event.block_id} is released by {name_of(choice)}, which doesn't hold it; it is "
                f"{self._describe(event.block_id)}"
            )
        block.holders.discard(choice)
        if block.published and event.ref_count == 0:
            block.known = True
        self._check_ref_count(event.block_id, event.ref_count)
        self._recount(block)
        table = self.tables.get(choice)
        if self._copy_sources.get(choice) == event.block_id:
            del self._copy_sources[choice]
        elif table is not None:
            if event.block_id not in table:
                raise InvariantError(f"block {event.block_id} is released by {name_of(choice)}, whose table is {table}")
            table.remove(event.block_id)
            self._releasing.add(choice)
            if not table:
                del self.tables[choice]
                self._releasing.discard(choice)

    def _evicted(self, event: BlockEvicted) -> None:
        block = self._block(event.block_id)
        if block.known and block.place != "cached":
            raise InvariantError(f"block {event.block_id} is evicted while it is {self._describe(event.block_id)}")
        if block.num_children:
            raise InvariantError(
                f"block {event.block_id} is evicted while {block.num_children} published blocks stand below it"
            )
        block.known = True
        if block.published and block.parent != ROOT_BLOCK_ID:
            self._blocks[block.parent].num_children -= 1
        block.published, block.block_hash, block.parent = False, "", ROOT_BLOCK_ID
        self._recount(block)

    def _freed(self, event: BlockFreed) -> None:
        block = self._block(event.block_id)
        if block.known and block.place != "lost":
            raise InvariantError(f"block {event.block_id} is freed while it is {self._describe(event.block_id)}")
        block.known, block.free = True, True
        self._recount(block)

    def _cleared(self, _: CacheCleared) -> None:
        """The tree is empty from here on; cached blocks must have been evicted one by one before."""
        for block_id, block in self._blocks.items():
            if block.place == "cached":
                raise InvariantError(f"the cache is cleared, but block {block_id} is still cached")
            block.published, block.num_children, block.block_hash, block.parent = False, 0, "", ROOT_BLOCK_ID
            self._recount(block)

    def holders(self, block_id: int) -> Collection[Choice]:
        """Return the choices whose tables hold a block."""
        return self._block(block_id).holders

    def first_lost(self) -> int | None:
        """Return a block that nobody holds, that isn't cached and that isn't free, if there is one."""
        return next((block_id for block_id, block in self._blocks.items() if block.place == "lost"), None)

    def check_settled(self, ended: Iterable[Choice]) -> None:
        """Raise on what may only be for a moment: an entry replaced and not copied, a copy's source not let go, a
        table half released, a block held by a choice of a request that just `ended`.
        """
        for choice, (old, new) in self._replaced.items():
            raise InvariantError(f"{name_of(choice)} replaced block {old} by {new} in its table and copied nothing")
        for choice, source in self._copy_sources.items():
            raise InvariantError(f"{name_of(choice)} copied block {source} and still holds it")
        for choice in ended:
            if choice in self.tables:
                raise InvariantError(f"{name_of(choice)} ended and still holds blocks {self.tables[choice]}")
        if self._releasing:
            choice = min(self._releasing)
            raise InvariantError(f"{name_of(choice)} released a part of its table only; it holds {self.tables[choice]}")

    def _append(self, block_id: int, choice: Choice, position: int) -> None:
        self._blocks[block_id].holders.add(choice)
        if position and choice not in self.tables and not self._from_start:
            return
        table = self.tables.setdefault(choice, [])
        if choice in self._releasing:
            raise InvariantError(f"{name_of(choice)} gets block {block_id} while it releases its table {table}")
        if position != len(table):
            raise InvariantError(
                f"block {block_id} became entry {position} of {name_of(choice)}, whose table has {len(table)} entries"
            )
        if block_id in table:
            raise InvariantError(
                f"block {block_id} became entry {position} of {name_of(choice)}, which holds it: {table}"
            )
        table.append(block_id)

    def _recount(self, block: Block) -> None:
        self.counts[block.counted_as] -= 1
        block.counted_as = block.place
        self.counts[block.counted_as] += 1

    def _check_ref_count(self, block_id: int, ref_count: int) -> None:
        num_holders = len(self._blocks[block_id].holders)
        if num_holders != ref_count and self._from_start:
            raise InvariantError(f"block {block_id} says ref_count {ref_count}, but {num_holders} tables hold it")

    def _block(self, block_id: int) -> Block:
        block = self._blocks.get(block_id)
        if block is None:
            if not 0 <= block_id < self._num_blocks:
                raise InvariantError(f"block ids must lie in 0..{self._num_blocks - 1}, got {block_id}")
            is_free = self._from_start
            block = self._blocks[block_id] = Block(known=is_free, free=is_free, counted_as=self._first_place)
        return block

    def _describe(self, block_id: int) -> str:
        block = self._blocks[block_id]
        held = f" by {', '.join(name_of(holder) for holder in sorted(block.holders))}" if block.holders else ""
        return f"{block.place}{held}"
