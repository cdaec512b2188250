"""The prefix tree: which cached blocks hold the KV of which tokens.

A radix tree with path compression whose unit is a block: a node holds a *run* of blocks that follow each other without
a branch, and a child starts where two prompts part. Prompts of different salts have different roots.

    match    walks runs and compares tokens, never hashes alone; cost is proportional to the tokens of the prompt
    insert   puts one block after its parent: it lengthens the parent's run, or starts a child, splitting a run in two
             if it branches in the middle; cost is proportional to the block, a split's to the run's upper part
    evict    takes the last block of the least recently used run that nothing hangs below: O(log runs) amortised

Whoever references a block references its ancestors too (a block table is a path from the root), so unreferenced blocks
are always at the lower end of their path, and each of them can be evicted at once or after those below it.
"""

import heapq
from collections.abc import Iterator
from collections.abc import Sequence as Many
from dataclasses import dataclass

from engine.kv.sorted_keys import SortedKeys

BlockTokens = tuple[int, ...]


class _Node:
    """A run of blocks. The root of a salt has none."""

    __slots__ = ("blocks", "children", "depth", "is_queued", "last_used", "order", "parent", "salt", "tokens")

    def __init__(self, *, parent: "_Node | None", salt: str, depth: int, tokens: list[int], blocks: list[int]) -> None:
        self.parent = parent
        self.salt = salt
        self.depth = depth  # of its first block, in blocks from the root
        self.tokens = tokens  # flat, len(blocks) * block_size
        self.blocks = blocks
        self.children: dict[BlockTokens, _Node] = {}  # by their first block's tokens
        self.order = SortedKeys()  # of children
        self.last_used = 0
        self.is_queued = False  # has its one entry in the eviction heap


@dataclass(frozen=True, slots=True)
class PartialBlock:
    """A cached block whose first `num_tokens` tokens (fewer than a block) continue the match."""

    block_id: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where the tree holds something else than the prompt asks for."""

    position: int
    block_id: int
    expected_token: int
    actual_token: int


@dataclass(frozen=True, slots=True)
class TreeMatch:
    """The longest cached beginning of a token list.

    Attributes:
        blocks: full blocks, from the root on.
        partial: a further block that matches in part.
        divergence: the first token that differs from what the tree holds there; None if the tree or the list ends.
    """

    blocks: list[int]
    partial: PartialBlock | None = None
    divergence: Divergence | None = None


class PrefixTree:
    """Maps token prefixes to blocks, and blocks to their place.

    Args:
        block_size: tokens per block.
        ref_counts: the pool's counts; a block with one isn't evicted.
    """

    def __init__(self, *, block_size: int, ref_counts: Many[int]) -> None:
        self._block_size = block_size
        self._ref_counts = ref_counts
        self._roots: dict[str, _Node] = {}
        self._node_of: list[_Node | None] = [None] * len(ref_counts)  # by block id: a list takes half a dict's time
        self._depth_of = [0] * len(ref_counts)
        self._num_blocks = 0
        self._num_roots_with: dict[BlockTokens, int] = {}
        self._heap: list[tuple[int, int, _Node]] = []
        self._num_queued = 0  # breaks ties in the heap, so that a run can be repeated exactly
        self._tick = 0

    def __contains__(self, block_id: int) -> bool:
        return self._node_of[block_id] is not None

    def __len__(self) -> int:
        """Return the number of blocks in the tree."""
        return self._num_blocks

    def match(self, salt: str, token_ids: list[int]) -> TreeMatch:
        """Find the longest cached beginning of `token_ids` and mark it as used now."""
        node = self._roots.get(salt)
        if node is None:
            return TreeMatch([])
        self._tick += 1
        size, position = self._block_size, 0
        blocks: list[int] = []
        while True:
            node.last_used = self._tick
            key = tuple(token_ids[position : position + size])
            child = node.children.get(key)
            if child is None:
                return self._partial_child(node, key, position, blocks)
            if token_ids[position : position + len(child.tokens)] != child.tokens:
                child.last_used = self._tick
                return self._partial_run(child, token_ids, position, blocks)
            blocks.extend(child.blocks)
            position += len(child.tokens)
            node = child

    def insert(self, *, salt: str, parent: int | None, tokens: BlockTokens, block_id: int) -> int:
        """Put a fully written block below `parent` (None: the root) and return the block that now stands there.

        That is another block than `block_id` when equal content is there already; then nothing changes.
        """
        size = self._block_size
        if parent is None:
            node = self._roots.get(salt)
            if node is None:
                node = self._roots[salt] = _Node(parent=None, salt=salt, depth=0, tokens=[], blocks=[])
            end = 0
        else:
            node = self._node(parent)
            end = self._depth_of[parent] - node.depth + 1
        if end < len(node.blocks):
            if node.tokens[end * size : (end + 1) * size] == list(tokens):
                return node.blocks[end]
            node = self._split(node, end)
        elif node.children:
            child = node.children.get(tokens)
            if child is not None:
                return child.blocks[0]
        depth = node.depth + len(node.blocks)
        if node.blocks and not node.children:
            node.tokens.extend(tokens)
            node.blocks.append(block_id)
        else:
            node = self._add_child(node, tokens, block_id, depth)
        self._node_of[block_id] = node
        self._depth_of[block_id] = depth
        self._num_blocks += 1
        return block_id

    def touch(self, block_id: int) -> None:
        """Mark a block and all before it as used now; call it for the deepest block of a table that lets go.

        If the block ends its path and nobody references it, it can be evicted from here on.
        """
        self._tick += 1
        last = self._node(block_id)
        node: _Node | None = last
        while node is not None:
            node.last_used = self._tick
            node = node.parent
        self._queue(last)

    def evict(self) -> int | None:
        """Remove the least recently used unreferenced block that nothing hangs below; None if there is none."""
        heap = self._heap
        while heap:
            last_used, _, node = heap[0]
            if node.last_used == last_used and self._is_evictable(node):
                return self._cut(node)  # the run keeps its entry: as a rule its next block goes next
            heapq.heappop(heap)
            node.is_queued = False
            self._queue(node)  # at its new place; one in use, or with others below it, when that ends
        return None

    def remove_last(self, block_id: int) -> None:
        """Take out an unreferenced block that nothing hangs below."""
        assert self.is_last(block_id), f"block {block_id} has others below it"
        assert self._ref_counts[block_id] == 0, f"block {block_id} is in use"
        node = self._node(block_id)
        self._cut(node)
        self._queue(node)

    def is_last(self, block_id: int) -> bool:
        """Tell whether nothing hangs below a block of the tree."""
        node = self._node(block_id)
        return node.blocks[-1] == block_id and not node.children

    def is_under_another_salt(self, salt: str, tokens: BlockTokens) -> bool:
        """Tell whether some other salt's prompts begin with this block."""
        root = self._roots.get(salt)
        own = 1 if root is not None and tokens in root.children else 0
        return self._num_roots_with.get(tokens, 0) > own

    def clear(self) -> list[int]:
        """Forget everything; return the blocks that were in the tree, deepest first within a path."""
        blocks = [block_id for block_id, node in enumerate(self._node_of) if node is not None]
        blocks.sort(key=self._depth_of.__getitem__, reverse=True)
        for block_id in blocks:
            self._node_of[block_id] = None
        self._num_blocks = 0
        for container in (self._roots, self._num_roots_with, self._heap):
            container.clear()
        return blocks

    def runs(self) -> Iterator[tuple[str, int, tuple[int, ...], tuple[int, ...]]]:
        """Yield (salt, depth, tokens, blocks) of every run, for checks and pictures; visits the whole tree."""
        stack = list(self._roots.values())
        while stack:
            node = stack.pop()
            if node.blocks:
                yield node.salt, node.depth, tuple(node.tokens), tuple(node.blocks)
            stack.extend(node.children.values())

    # --- inside --------------------------------------------------------------------------------------------------

    def _node(self, block_id: int) -> _Node:
        """Return the run of a block that is in the tree."""
        node = self._node_of[block_id]
        assert node is not None, f"block {block_id} is not in the tree"
        return node

    def _cut(self, node: _Node) -> int:
        """Take the last block out of a run, and the run out of the tree if it was its only one; return the block."""
        blocks = node.blocks
        block_id = blocks.pop()
        self._node_of[block_id] = None
        self._num_blocks -= 1
        if blocks:
            del node.tokens[-self._block_size :]
        else:
            self._unlink(node, tuple(node.tokens))
        return block_id

    def _partial_child(self, node: _Node, key: BlockTokens, position: int, blocks: list[int]) -> TreeMatch:
        """End a match between two runs, with the child that has most in common."""
        if not key or not node.order:
            return TreeMatch(blocks)
        best = max(node.order.neighbours(key), key=lambda neighbour: _num_common(neighbour, key))
        num_common = _num_common(best, key)
        child = node.children[best]
        if num_common:
            child.last_used = self._tick
        return _ended(blocks, child.blocks[0], best, key, num_common, position)

    def _partial_run(self, node: _Node, token_ids: list[int], position: int, blocks: list[int]) -> TreeMatch:
        """End a match inside a run, whose first block is known to match."""
        size, tokens = self._block_size, node.tokens
        end = 1
        while end < len(node.blocks) and (
            tokens[end * size : (end + 1) * size] == token_ids[position + end * size : position + (end + 1) * size]
        ):
            end += 1
        blocks.extend(node.blocks[:end])
        theirs = tokens[end * size : (end + 1) * size]
        ours = token_ids[position + end * size : position + (end + 1) * size]
        return _ended(blocks, node.blocks[end], theirs, ours, _num_common(theirs, ours), position + end * size)

    def _split(self, node: _Node, end: int) -> _Node:
        """Move the first `end` blocks of a run into a new node above it, and return that."""
        size = self._block_size
        parent = node.parent
        assert parent is not None
        key = tuple(node.tokens[:size])
        upper = _Node(
            parent=parent, salt=node.salt, depth=node.depth, tokens=node.tokens[: end * size], blocks=node.blocks[:end]
        )
        upper.last_used = node.last_used
        del node.tokens[: end * size], node.blocks[:end]
        node.depth += end
        node.parent = upper
        parent.children[key] = upper
        lower_key = tuple(node.tokens[:size])
        upper.children[lower_key] = node
        upper.order.add(lower_key)
        for block_id in upper.blocks:
            self._node_of[block_id] = upper
        return upper

    def _add_child(self, node: _Node, tokens: BlockTokens, block_id: int, depth: int) -> _Node:
        """Begin a run below a node, with one block."""
        child = _Node(parent=node, salt=node.salt, depth=depth, tokens=list(tokens), blocks=[block_id])
        child.last_used = self._tick
        node.children[tokens] = child
        node.order.add(tokens)
        if node.parent is None:
            self._num_roots_with[tokens] = self._num_roots_with.get(tokens, 0) + 1
        return child

    def _unlink(self, node: _Node, key: BlockTokens) -> None:
        """Remove an empty run from its parent, which may have become the end of its path."""
        parent = node.parent
        assert parent is not None
        del parent.children[key]
        parent.order.remove(key)
        if parent.parent is None:
            self._num_roots_with[key] -= 1
            if not self._num_roots_with[key]:
                del self._num_roots_with[key]
            if not parent.children:
                del self._roots[parent.salt]
        else:
            self._queue(parent)

    def _is_evictable(self, node: _Node) -> bool:
        return bool(node.blocks) and not node.children and not self._ref_counts[node.blocks[-1]]

    def _queue(self, node: _Node) -> None:
        if not node.is_queued and self._is_evictable(node):
            node.is_queued = True
            self._num_queued += 1
            heapq.heappush(self._heap, (node.last_used, self._num_queued, node))


def _num_common(a: Many[int], b: Many[int]) -> int:
    """Return how many leading items two sequences share."""
    count = 0
    for left, right in zip(a, b, strict=False):
        if left != right:
            break
        count += 1
    return count


def _ended(
    blocks: list[int], block_id: int, theirs: Many[int], ours: Many[int], num_common: int, position: int
) -> TreeMatch:
    """Describe a match that ended inside `block_id`, which holds `theirs` where the prompt has `ours`."""
    divergence = None
    if num_common < len(ours):
        divergence = Divergence(position + num_common, block_id, theirs[num_common], ours[num_common])
    return TreeMatch(blocks, PartialBlock(block_id, num_common) if num_common else None, divergence)
