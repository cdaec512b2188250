"""Publishing: full blocks whose KV is written enter the prefix tree, under a hash for outside indexers.

Equal content computed by two sequences at a time stays in two blocks (tables are append-only); the later one is not
published, and its owner publishes nothing behind it before it lets go of all. So every holder of a tree block holds its
ancestors too, every unreferenced tree block is evictable, and the count of available blocks is exact.
"""

from collections.abc import Iterator
from collections.abc import Sequence as Many
from dataclasses import dataclass, replace

from engine.events import EventSink
from engine.kv.block_hash import chain_hash, root_hash
from engine.kv.prefix_tree import PrefixTree
from engine.kv.promises import Promises
from engine.sequence import Sequence


@dataclass(slots=True)
class _Holding:
    """How far a running sequence has come in publishing."""

    num_published: int  # leading blocks of its table that are in the tree
    num_matched: int  # of them, those found there at admission
    may_publish: bool = True  # until it meets a block of equal content, or the cache is cleared
    is_cleared: bool = False  # the cache was cleared since: its KV stays out of the tree for good


class Publisher:
    """Puts blocks of running sequences into the tree and knows every tree block's hash.

    Args:
        tree: where they go.
        block_size: tokens per block.
        ref_counts: the pool's counts.
        events: where block_published is said.
        is_on: False when there is no prefix cache; then nothing is ever published.

    Attributes:
        hash_of: by block id, "" for blocks outside the tree; read-only for everyone else.
        promises: what running sequences are going to publish.
    """

    def __init__(
        self, tree: PrefixTree, *, block_size: int, ref_counts: Many[int], events: EventSink, is_on: bool
    ) -> None:
        self.hash_of = [""] * len(ref_counts)
        self.promises = Promises()
        self._tree = tree
        self._block_size = block_size
        self._ref_counts = ref_counts
        self._events = events
        self._is_on = is_on
        self._holdings: dict[Sequence, _Holding] = {}

    @property
    def sequences(self) -> set[Sequence]:
        """Everybody between `begin` and `end`."""
        return set(self._holdings)

    def begin(self, seq: Sequence, num_matched: int) -> None:
        """Note that a sequence has been admitted, whose first `num_matched` blocks are of the tree."""
        self._holdings[seq] = _Holding(num_published=num_matched, num_matched=num_matched)
        if self._is_on:
            self.promises.make(seq, self._hashes_to_publish(seq, num_matched))

    def begin_fork(self, parent: Sequence, child: Sequence) -> None:
        """Note that a child holds all that its parent holds."""
        self._holdings[child] = replace(self._holdings[parent])

    def publish(self, seq: Sequence) -> None:
        """Put a running sequence's newly full blocks, whose KV is written, into the tree."""
        holding = self._holdings[seq]
        if not (self._is_on and holding.may_publish):
            return
        table, number = seq.block_table, holding.num_published
        num_full = seq.num_computed_tokens // self._block_size
        while number < num_full:
            if self._publish_block(seq, number, table[number - 1] if number else None) != table[number]:
                holding.may_publish = False
                self.promises.withdraw(seq)
                break
            number += 1
        holding.num_published = number

    def end(self, seq: Sequence, *, is_faulty: bool) -> list[int]:
        """Publish what is left of a sequence that is about to let go of its blocks.

        Args:
            seq: still holds its blocks.
            is_faulty: its KV may be damaged: nothing more is published.

        Returns:
            Of a faulty one, the blocks that it had published, in order.
        """
        holding = self._holdings.pop(seq)
        self.promises.withdraw(seq)
        if holding.is_cleared:
            return []
        if is_faulty:
            return seq.block_table[holding.num_matched : holding.num_published]
        if self._is_on:
            self._publish_rest(seq, holding)
        return []

    def forget(self, block_id: int) -> str:
        """Return the hash of a block that has left the tree, and forget it."""
        block_hash = self.hash_of[block_id]
        self.hash_of[block_id] = ""
        return block_hash

    def stop_all(self) -> None:
        """Note that the cache was cleared: nobody who runs now publishes anything any more."""
        for seq, holding in self._holdings.items():
            holding.may_publish = False
            holding.is_cleared = True
            self.promises.withdraw(seq)

    def hash_after(self, blocks: Many[int], seq: Sequence, number: int) -> str:
        """Return the hash of a sequence's block `number`, which follows `blocks` of the tree."""
        size = self._block_size
        parent_hash = self.hash_of[blocks[-1]] if blocks else root_hash(seq.request.cache_salt)
        return chain_hash(parent_hash, seq.token_ids(number * size, (number + 1) * size))

    def _publish_block(self, seq: Sequence, number: int, parent: int | None) -> int:
        """Offer block `number` of a sequence to the tree below `parent`; return the block that stands there now."""
        size = self._block_size
        block_id = seq.block_table[number]
        if self.hash_of[block_id]:  # a fork that shares it was first
            return block_id
        tokens = tuple(seq.token_ids(number * size, (number + 1) * size))
        salt = seq.request.cache_salt
        present = self._tree.insert(salt=salt, parent=parent, tokens=tokens, block_id=block_id)
        if present == block_id:
            parent_hash = root_hash(salt) if parent is None else self.hash_of[parent]
            block_hash = self.hash_of[block_id] = chain_hash(parent_hash, tokens)
            self.promises.fulfil(block_hash)
            self._events.emit_published(
                block_id, -1 if parent is None else parent, block_hash, parent_hash, seq.request_id
            )
        return present

    def _publish_rest(self, seq: Sequence, holding: _Holding) -> None:
        """Publish what is full, behind the equal content of others where there is such.

        Behind another's block nothing goes that somebody goes on to use: that block might be let go before.
        """
        table = seq.block_table
        parent = table[holding.num_published - 1] if holding.num_published else None
        for number in range(holding.num_published, seq.num_computed_tokens // self._block_size):
            is_own_path = number == 0 or parent == table[number - 1]
            if not is_own_path and self._ref_counts[table[number]] > 1:
                return
            parent = self._publish_block(seq, number, parent)

    def _hashes_to_publish(self, seq: Sequence, first: int) -> Iterator[str]:
        """Yield the hashes of a sequence's full blocks from number `first` on."""
        size = self._block_size
        block_hash = self.hash_of[seq.block_table[first - 1]] if first else root_hash(seq.request.cache_salt)
        for number in range(first, seq.num_tokens // size):
            block_hash = chain_hash(block_hash, seq.token_ids(number * size, (number + 1) * size))
            yield block_hash
