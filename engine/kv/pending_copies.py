"""Copies on write that a step will do before it writes any KV."""

from dataclasses import dataclass

from engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """One block to copy.

    Attributes:
        holds_source: the sequence's reference on the source ends with the copy (a partly matching prefix); otherwise
            it has ended already (a forked tail).
    """

    source: int
    destination: int
    holds_source: bool


class PendingCopies:
    """At most one copy for each sequence, and who still reads which block."""

    def __init__(self) -> None:
        self._copies: dict[Sequence, BlockCopy] = {}
        self._num_readers: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._copies)

    def add(self, seq: Sequence, copy: BlockCopy) -> None:
        assert seq not in self._copies, f"{seq} copies two blocks in one step"
        self._copies[seq] = copy
        self._num_readers[copy.source] = self._num_readers.get(copy.source, 0) + 1

    def is_read(self, block_id: int) -> bool:
        """Tell whether a copy that is still to be done reads a block."""
        return block_id in self._num_readers

    def pop(self, seq: Sequence) -> BlockCopy | None:
        """Drop and return a sequence's copy, if it has one."""
        copy = self._copies.pop(seq, None)
        if copy is not None:
            self._forget_reader(copy)
        return copy

    def pop_oldest(self) -> tuple[Sequence, BlockCopy]:
        """Remove and return the copy that was added first; KeyError if there is none."""
        seq = next(iter(self._copies))
        copy = self._copies.pop(seq)
        self._forget_reader(copy)
        return seq, copy

    def _forget_reader(self, copy: BlockCopy) -> None:
        self._num_readers[copy.source] -= 1
        if not self._num_readers[copy.source]:
            del self._num_readers[copy.source]
