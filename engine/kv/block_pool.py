"""The pool of physical KV blocks: which are free, and how many tables hold each of the others."""


class BlockPool:
    """A free list and reference counts over blocks 0..num_blocks-1.

    A block is free, or taken. A taken block with a count of 0 is either in the prefix tree (cached) or on its way back;
    the block manager decides which. Fresh pools hand out 0, 1, 2, ...; after that the block given back last goes
    first, for its memory is the most likely to be in a cache.

    Args:
        num_blocks: size of the pool, >= 1.

    Attributes:
        ref_counts: for each block, the number of block tables that hold it. Read-only for everyone else.
    """

    __slots__ = ("_free", "_is_free", "num_blocks", "ref_counts")

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.ref_counts = [0] * num_blocks
        self._free = list(range(num_blocks - 1, -1, -1))
        self._is_free = bytearray(b"\x01" * num_blocks)

    @property
    def num_free(self) -> int:
        return len(self._free)

    def is_free(self, block_id: int) -> bool:
        return bool(self._is_free[block_id])

    def free_ids(self) -> tuple[int, ...]:
        """Return the free blocks, next one last."""
        return tuple(self._free)

    def take(self) -> int:
        """Remove a block from the free list and count one reference; IndexError when none is free."""
        block_id = self._free.pop()
        self._is_free[block_id] = 0
        self.ref_counts[block_id] = 1
        return block_id

    def acquire(self, block_id: int) -> int:
        """Count one reference more on a taken block; return the new count."""
        assert not self._is_free[block_id], f"block {block_id} is free and can't be shared"
        count = self.ref_counts[block_id] + 1
        self.ref_counts[block_id] = count
        return count

    def release(self, block_id: int) -> int:
        """Count one reference less; return the new count. At 0 the caller decides what becomes of the block."""
        count = self.ref_counts[block_id] - 1
        assert count >= 0, f"block {block_id} was released more often than taken"
        self.ref_counts[block_id] = count
        return count

    def give_back(self, block_id: int) -> None:
        """Put an unreferenced block on the free list."""
        assert not self._is_free[block_id], f"block {block_id} was freed twice"
        assert self.ref_counts[block_id] == 0, f"block {block_id} is freed with {self.ref_counts[block_id]} references"
        self._is_free[block_id] = 1
        self._free.append(block_id)
