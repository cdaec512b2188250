"""The block manager: gives sequences their blocks, shares what can be shared, and says every change as an event.

What happens to a block, and the events from which the pool can be rebuilt (position = entry of the block table):

    taken from the free list           block_allocated                           ref_count 1
    found in the tree, or forked       block_shared                              one reference more
    written to the end                 block_published                           also in the tree from here on
    let go by one choice               block_released                            cached at 0 if published, else freed
    reclaimed                          block_evicted, block_freed                the next block_allocated may be it
    copied on write, own tail forked   block_allocated, block_copied, block_released of the source, at once
    copied on write, prefix match      block_shared (source), block_allocated, block_copied, and block_released of the
                                       source by `take_copies`, so that nothing evicts it before the copy is planned

In both copies the new block takes the source's position in the table. A source that loses its last reference before
`take_copies` is freed only then: within a step no copy writes what another one reads.

What is published, and why each unreferenced tree block can be evicted, says publishing.py.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from engine.config import SchedulerConfig
from engine.events import (
    BlockCopied,
    CacheCleared,
    EventSink,
)
from engine.kv.block_pool import BlockPool
from engine.kv.invariants import check_pool, check_tables, check_tree
from engine.kv.pending_copies import BlockCopy, PendingCopies
from engine.kv.prefix_lookup import NO_PREFIX_CACHE, EvictedPrefixes, Explainer, PrefixMatch
from engine.kv.prefix_tree import PrefixTree
from engine.kv.publishing import Publisher
from engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class BlockCounts:
    """Every block of the pool, once."""

    free: int
    referenced: int
    cached: int


class BlockManager:
    """Paged KV bookkeeping of all sequences over one pool.

    Args:
        config: num_kv_blocks, block_size, prefix_cache.
        events: where changes are said.
        max_evicted_prefixes: evicted blocks remembered for explanations.

    Attributes:
        num_unwritten_slots: slots in the tables of running sequences that hold no KV yet.
    """

    def __init__(self, config: SchedulerConfig, events: EventSink, *, max_evicted_prefixes: int = 8192) -> None:
        self.block_size = config.block_size
        self.num_blocks = config.num_kv_blocks
        self.num_unwritten_slots = 0
        self._prefix_cache = config.prefix_cache
        self._events = events
        self._pool = BlockPool(config.num_kv_blocks)
        self._ref_counts = self._pool.ref_counts
        self._tree = PrefixTree(block_size=config.block_size, ref_counts=self._ref_counts)
        self._publisher = Publisher(
            self._tree,
            block_size=config.block_size,
            ref_counts=self._ref_counts,
            events=events,
            is_on=config.prefix_cache,
        )
        self._evicted = EvictedPrefixes(capacity=max_evicted_prefixes)
        self._explainer = Explainer(
            self._tree, self._evicted, self._publisher, block_size=config.block_size, events=events
        )
        self._num_cached = 0
        self._copies = PendingCopies()

    # --- counts --------------------------------------------------------------------------------------------------

    @property
    def num_available_blocks(self) -> int:
        """Blocks that can be allocated now: free ones, and cached ones that nobody references."""
        return self._pool.num_free + self._num_cached

    @property
    def num_free_blocks(self) -> int:
        return self._pool.num_free

    @property
    def num_evicted_prefixes(self) -> int:
        """Evicted blocks that are remembered for explanations."""
        return len(self._evicted)

    @property
    def counts(self) -> BlockCounts:
        free = self._pool.num_free
        return BlockCounts(free=free, referenced=self.num_blocks - free - self._num_cached, cached=self._num_cached)

    def num_blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    # --- admission -----------------------------------------------------------------------------------------------

    def match(self, seq: Sequence) -> PrefixMatch:
        """Look up what is cached of a sequence's prompt and output; takes nothing yet.

        The last token is never part of a match: its logits are wanted.
        """
        if not self._prefix_cache or seq.params.prompt_logprobs >= 0:
            return NO_PREFIX_CACHE
        found = self._tree.match(seq.request.cache_salt, seq.token_ids(0, seq.num_tokens - 1))
        num_tokens = len(found.blocks) * self.block_size + (found.partial.num_tokens if found.partial else 0)
        return PrefixMatch(found.blocks, num_tokens, found.partial, found.divergence)

    def being_computed_by(self, seq: Sequence, match: PrefixMatch) -> Sequence | None:
        """Return the running sequence that is about to publish the very block where a match ends, if there is one."""
        number, promises = len(match.blocks), self._publisher.promises
        if match.is_disabled or not promises or (number + 1) * self.block_size > seq.num_tokens:
            return None
        return promises.owner(self._publisher.hash_after(match.blocks, seq, number))

    def blocks_to_admit(self, match: PrefixMatch, num_tokens: int) -> int:
        """Return how many available blocks a sequence of `num_tokens` takes out of reach if admitted with a match.

        Those are its new blocks, and matched ones that nobody else references: they can't be evicted any longer.
        """
        ref_counts = self._ref_counts
        needed = self.num_blocks_for(num_tokens) - len(match.blocks)
        needed += sum(1 for block_id in match.blocks if not ref_counts[block_id])
        if match.partial is not None and not ref_counts[match.partial.block_id]:
            needed += 1
        return needed

    def admit(self, seq: Sequence, match: PrefixMatch) -> None:
        """Start a block table with what was matched; a partly matching block is copied.

        Sets `block_table` and `num_computed_tokens`.
        """
        assert not seq.block_table, f"{seq} is admitted with a block table"
        table = seq.block_table = []
        for block_id in match.blocks:
            self._share(block_id, seq, len(table))
            table.append(block_id)
        partial = match.partial
        if partial is not None:
            self._share(partial.block_id, seq, len(table))  # before anything is evicted to make room for the copy
            destination = self._take(seq, len(table))
            table.append(destination)
            self._copy(seq, partial.block_id, destination, partial.num_tokens, holds_source=True)
        seq.num_computed_tokens = match.num_tokens
        seq.num_slots = len(table) * self.block_size
        self._publisher.begin(seq, len(match.blocks))
        self.num_unwritten_slots += len(table) * self.block_size - match.num_tokens

    def explain(self, seq: Sequence, match: PrefixMatch) -> None:
        """Emit prefix_lookup: how much of the prompt was found, and why not more."""
        self._explainer.explain(seq, match)

    # --- growth --------------------------------------------------------------------------------------------------

    def without_slot(self, seqs: Iterable[Sequence]) -> list[Sequence]:
        """Return those whose next token needs a block, and those of forks for whom that must be looked at."""
        return [seq for seq in seqs if seq.num_computed_tokens >= seq.num_slots]

    def blocks_needed(self, seq: Sequence, num_new_tokens: int) -> int:
        """Return how many blocks `allocate` would take, the copy of a shared tail included."""
        table = seq.block_table
        computed = seq.num_computed_tokens
        needed = -(-(computed + num_new_tokens) // self.block_size) - len(table)
        if needed < 0:
            needed = 0
        first = computed // self.block_size
        if first < len(table) and self._ref_counts[table[first]] > 1:
            needed += 1
        return needed

    def max_new_tokens(self, seq: Sequence, num_blocks: int) -> int:
        """Return for how many more tokens `num_blocks` further blocks would be enough, as far as blocks go."""
        table = seq.block_table
        first = seq.num_computed_tokens // self.block_size
        if first < len(table) and self._ref_counts[table[first]] > 1:
            num_blocks -= 1
        if num_blocks < 0:
            return 0
        return (len(table) + num_blocks) * self.block_size - seq.num_computed_tokens

    def allocate(self, seq: Sequence, num_new_tokens: int) -> None:
        """Give a sequence every slot that its next `num_new_tokens` tokens write; there must be room."""
        table = seq.block_table
        size = self.block_size
        computed = seq.num_computed_tokens
        first = computed // size
        if first < len(table) and self._ref_counts[table[first]] > 1:
            source = table[first]
            table[first] = self._take(seq, first)
            self._copy(seq, source, table[first], computed - first * size, holds_source=False)
            self._let_go(source, seq)
        while len(table) * size < computed + num_new_tokens:
            table.append(self._take(seq, len(table)))
            self.num_unwritten_slots += size
        seq.num_slots = len(table) * size

    def take_copies(self) -> tuple[tuple[int, int], ...]:
        """Return the (source, destination) pairs to copy in this step, and let go of the sources."""
        pairs = []
        while self._copies:
            seq, copy = self._copies.pop_oldest()
            pairs.append((copy.source, copy.destination))
            self._end_copy(seq, copy)
        return tuple(pairs)

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """Let a child hold all blocks of its parent; whoever writes the shared tail first gets a copy."""
        table = child.block_table = []
        for block_id in parent.block_table:
            self._share(block_id, child, len(table))
            table.append(block_id)
        child.num_computed_tokens = child.num_slots = parent.num_slots = parent.num_computed_tokens
        self._publisher.begin_fork(parent, child)
        self.num_unwritten_slots += len(table) * self.block_size - child.num_computed_tokens

    def note_computed(self, num_tokens: int) -> None:
        """Count so many slots of running sequences as written."""
        self.num_unwritten_slots -= num_tokens

    # --- publishing and letting go -------------------------------------------------------------------------------

    def publish(self, seq: Sequence) -> None:
        """Put a running sequence's newly full blocks, whose KV is written, into the tree."""
        self._publisher.publish(seq)

    def release(self, seq: Sequence, *, is_faulty: bool = False) -> None:
        """Take a sequence's blocks back; full ones stay cached.

        Args:
            seq: holds no blocks afterwards.
            is_faulty: its KV may be damaged: nothing more is published, and what it alone had published is withdrawn.
        """
        doubtful = self._publisher.end(seq, is_faulty=is_faulty)
        table, seq.block_table, seq.num_slots = seq.block_table, [], 0
        self.num_unwritten_slots -= len(table) * self.block_size - seq.num_computed_tokens
        copy = self._copies.pop(seq)
        if copy is not None:
            self._end_copy(seq, copy)
        for block_id in reversed(table):
            self._let_go(block_id, seq)
        self._withdraw(doubtful)
        deepest = next((block_id for block_id in reversed(table) if block_id in self._tree), None)
        if deepest is not None:
            self._tree.touch(deepest)

    def reset_prefix_cache(self) -> int:
        """Empty the prefix tree; return how many blocks were in it.

        Blocks in use stay with their owners and are not published again by them.
        """
        blocks = self._tree.clear()
        for block_id in blocks:
            self._evicted.add(self._publisher.forget(block_id))
            if not self._ref_counts[block_id]:
                self._num_cached -= 1
                self._events.emit_evicted(block_id, "reset")
                self._free(block_id)
        self._publisher.stop_all()
        self._events.emit(CacheCleared, num_blocks=len(blocks))
        return len(blocks)

    # --- inside --------------------------------------------------------------------------------------------------

    def _take(self, seq: Sequence, position: int) -> int:
        if not self._pool.num_free:
            self._evict()
        block_id = self._pool.take()
        self._events.emit_allocated(block_id, seq.request_id, seq.index, position)
        return block_id

    def _share(self, block_id: int, seq: Sequence, position: int) -> None:
        ref_count = self._pool.acquire(block_id)
        if ref_count == 1:
            self._num_cached -= 1
        self._events.emit_shared(block_id, seq.request_id, seq.index, position, ref_count)

    def _let_go(self, block_id: int, seq: Sequence) -> None:
        ref_count = self._pool.release(block_id)
        self._events.emit_released(block_id, seq.request_id, seq.index, ref_count)
        if ref_count:
            return
        if block_id in self._tree:
            self._num_cached += 1
        elif not self._copies.is_read(block_id):
            self._free(block_id)

    def _free(self, block_id: int) -> None:
        self._pool.give_back(block_id)
        self._events.emit_freed(block_id)

    def _evict(self) -> None:
        block_id = self._tree.evict()
        assert block_id is not None, f"no block to evict, although {self._num_cached} are counted as cached"
        self._forget(block_id, reason="capacity")

    def _forget(self, block_id: int, *, reason: str) -> None:
        """Free a block that has just left the tree."""
        self._num_cached -= 1
        self._evicted.add(self._publisher.forget(block_id))
        self._events.emit_evicted(block_id, reason)
        self._free(block_id)

    def _copy(self, seq: Sequence, source: int, destination: int, num_tokens: int, *, holds_source: bool) -> None:
        self._copies.add(seq, BlockCopy(source, destination, holds_source))
        self._events.emit(
            BlockCopied,
            block_id=destination,
            source=source,
            request_id=seq.request_id,
            index=seq.index,
            num_tokens=num_tokens,
        )

    def _end_copy(self, seq: Sequence, copy: BlockCopy) -> None:
        """Let go of a source whose copy is planned or dropped."""
        source = copy.source
        if copy.holds_source:
            self._let_go(source, seq)
            if source in self._tree:
                self._tree.touch(source)
        elif not self._ref_counts[source] and not self._copies.is_read(source):
            self._free(source)

    def _withdraw(self, blocks: list[int]) -> None:
        """Take published blocks back out of the tree, from the last on, as far as nobody uses them."""
        for block_id in reversed(blocks):
            if self._ref_counts[block_id] or not self._tree.is_last(block_id):
                return
            self._tree.remove_last(block_id)
            self._forget(block_id, reason="fault")

    # --- checks --------------------------------------------------------------------------------------------------

    def check_invariants(self, running: Iterable[Sequence]) -> None:
        """Assert the bookkeeping invariants between two steps; visits the whole pool.

        Args:
            running: every sequence that should hold blocks.
        """
        sequences = list(running)
        publisher = self._publisher
        assert set(sequences) == publisher.sequences, f"hold blocks: {publisher.sequences}, running: {sequences}"
        assert publisher.promises.owners <= set(sequences), f"promised by others: {publisher.promises.owners}"
        assert not self._copies, "copies were never taken"
        check_tables(sequences, block_size=self.block_size)
        check_pool(self._pool, self._tree, sequences, num_cached=self._num_cached)
        check_tree(self._tree, self._pool, publisher.hash_of, block_size=self.block_size)
        unwritten = sum(len(seq.block_table) * self.block_size - seq.num_computed_tokens for seq in sequences)
        assert self.num_unwritten_slots == unwritten, f"{unwritten} unwritten slots, counted {self.num_unwritten_slots}"
