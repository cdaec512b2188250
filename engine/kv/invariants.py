"""The invariants of the KV bookkeeping, asserted by looking at everything: for tests and for an idle engine."""

from collections.abc import Collection
from collections.abc import Sequence as Many

from engine.kv.block_pool import BlockPool
from engine.kv.prefix_tree import PrefixTree
from engine.sequence import Sequence


def check_tables(sequences: Collection[Sequence], *, block_size: int) -> None:
    """Assert that no table holds a block twice and that all computed KV lies within its table."""
    for seq in sequences:
        table = seq.block_table
        assert len(set(table)) == len(table), f"{seq} has a block twice: {table}"
        assert seq.num_computed_tokens <= len(table) * block_size, f"{seq} has KV outside its table {table}"


def check_pool(pool: BlockPool, tree: PrefixTree, sequences: Collection[Sequence], *, num_cached: int) -> None:
    """Assert that every block is in one place, with as many references as tables hold it."""
    num_holders = [0] * pool.num_blocks
    for seq in sequences:
        for block_id in seq.block_table:
            num_holders[block_id] += 1
    num_seen_cached = 0
    for block_id, count in enumerate(pool.ref_counts):
        assert count == num_holders[block_id], f"block {block_id}: {num_holders[block_id]} holders, count {count}"
        is_in_tree, is_free = block_id in tree, pool.is_free(block_id)
        assert is_free == (not count and not is_in_tree), f"block {block_id}: {is_free=}, {count=}, {is_in_tree=}"
        num_seen_cached += is_in_tree and not count
    assert num_cached == num_seen_cached, f"{num_seen_cached} blocks are cached, {num_cached} are counted"
    free = pool.free_ids()
    assert len(set(free)) == len(free), f"the free list has a block twice: {free}"


def check_tree(tree: PrefixTree, pool: BlockPool, hashes: Many[str], *, block_size: int) -> None:
    """Assert that runs are whole, that each block is in one, and that references never skip an ancestor."""
    blocks_seen: set[int] = set()
    for _, _, tokens, blocks in tree.runs():
        assert len(tokens) == len(blocks) * block_size, f"run {blocks} holds {len(tokens)} tokens"
        counts = [pool.ref_counts[block_id] for block_id in blocks]
        assert counts == sorted(counts, reverse=True), f"run {blocks} is referenced behind a gap: {counts}"
        assert blocks_seen.isdisjoint(blocks), f"run {blocks} has a block of another run"
        blocks_seen.update(blocks)
    assert len(blocks_seen) == len(tree), f"{len(blocks_seen)} blocks in runs, {len(tree)} in the index"
    hashed = {block_id for block_id, block_hash in enumerate(hashes) if block_hash}
    assert blocks_seen == hashed, f"blocks with and without a hash: {blocks_seen ^ hashed}"
