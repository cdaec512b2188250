"""How many KV blocks are in which state, from the block events alone."""

from dataclasses import dataclass


@dataclass(slots=True)
class PoolCounts:
    """Counts per state; free + referenced + cached = total at the end of every message.

    A release to zero references is counted as cached and a following block_freed moves it on, because the release
    itself doesn't say whether the block was published:

        event                                free  referenced  cached
        block_allocated                        -1          +1
        block_shared, first reference                      +1      -1
        block_released, last reference                     -1      +1
        block_freed (also after an eviction)   +1                  -1
    """

    total: int = 0
    free: int = 0
    referenced: int = 0
    cached: int = 0

    def reset(self, total: int) -> None:
        """A new pool: all of it is free."""
        self.total = self.free = total
        self.referenced = self.cached = 0

    def allocated(self) -> None:
        self.free -= 1
        self.referenced += 1

    def shared(self, ref_count: int) -> None:
        if ref_count == 1:
            self.cached -= 1
            self.referenced += 1

    def released(self, ref_count: int) -> None:
        if ref_count == 0:
            self.referenced -= 1
            self.cached += 1

    def freed(self) -> None:
        self.cached -= 1
        self.free += 1

    def is_at(self, free: int, referenced: int, cached: int) -> bool:
        """Whether the counts are these."""
        return self.free == free and self.referenced == referenced and self.cached == cached

    def set_to(self, free: int, referenced: int, cached: int) -> None:
        """Take over the engine's own count at the end of a step."""
        self.free, self.referenced, self.cached = free, referenced, cached
        self.total = free + referenced + cached

    @property
    def usage_ratio(self) -> float:
        """Referenced / total, 0 without a pool."""
        return self.referenced / self.total if self.total else 0.0
