"""What to do about a shortage of blocks: the policy that the scheduler asks, and nothing else in it decides.

The order is the same on every path (decode growth, prefill chunk, copy-on-write, admission, resume): first blocks that
are only cached are reclaimed, which the block manager does by itself as they count as available; then a running
sequence is preempted, the newest of the lowest priority, never the first in order, so that one always advances.
"""

from collections.abc import Sequence as Many
from typing import Protocol

from engine.kv.block_manager import BlockManager
from engine.sequence import Sequence


class ShortagePolicy(Protocol):
    """Decides what is available, who gives way, and how much stays in reserve at admission."""

    def num_available(self, blocks: BlockManager) -> int:
        """Return how many blocks may be handed out now."""
        ...

    def victim(self, running: Many[Sequence]) -> Sequence | None:
        """Choose who is preempted so that the others can go on; None if nobody may be.

        Args:
            running: all that hold blocks, ordered by `seq_key`.
        """
        ...

    def displaced_by(self, newcomer: Sequence, running: Many[Sequence]) -> list[Sequence]:
        """Return those who may be preempted so that `newcomer` is admitted, first victim first."""
        ...

    def is_guaranteed(self, seq: Sequence) -> bool:
        """Tell whether a sequence must not be preempted any more.

        While such a one runs, and when it is admitted, everybody who runs is certain of all blocks up to the end.
        """
        ...

    def headroom(self, seq: Sequence, *, num_owed: int, num_growing: int, num_steps: int, block_size: int) -> int:
        """Return how many blocks must stay available after an admission.

        Args:
            seq: the one to be admitted.
            num_owed: blocks that running prefills still need for the tokens they have.
            num_growing: running sequences, each of which takes a block every `block_size` steps.
            num_steps: steps until `seq` has its next token.
            block_size: tokens per block.
        """
        ...


class PreemptNewest:
    """The server's policy.

    Spared while another can be taken is who was resumed and has had no token since, so that no resume is wasted on a
    second preemption before it gave anything.

    What running prefills still need is never given away. Who comes back after a preemption needs headroom for the
    growth of the others until its next token besides. A newcomer is admitted without that: if it was too much it is
    the newest, and the first to go. It displaces strictly lower priorities only, never an equal.

    Who was preempted `max_preemptions` times is not preempted again: it comes back only when all who run then, and it,
    have room up to their ends, and until it has ended nobody is admitted for whom that isn't so. That costs
    concurrency, and is rare; it bounds the waste for each request.

    Args:
        max_preemptions: see SchedulerConfig.
    """

    def __init__(self, *, max_preemptions: int) -> None:
        self._max_preemptions = max_preemptions

    def num_available(self, blocks: BlockManager) -> int:
        return blocks.num_available_blocks

    def victim(self, running: Many[Sequence]) -> Sequence | None:
        candidates = running[1:]
        for seq in reversed(candidates):
            if not self._is_spared(seq):
                return seq
        for seq in reversed(candidates):
            if not self.is_guaranteed(seq):
                return seq
        return candidates[-1] if candidates else None

    def displaced_by(self, newcomer: Sequence, running: Many[Sequence]) -> list[Sequence]:
        priority = newcomer.request.priority
        return [seq for seq in reversed(running[1:]) if seq.request.priority > priority and not self._is_spared(seq)]

    def is_guaranteed(self, seq: Sequence) -> bool:
        return seq.num_preemptions >= self._max_preemptions

    def headroom(self, seq: Sequence, *, num_owed: int, num_growing: int, num_steps: int, block_size: int) -> int:
        if not seq.num_preemptions:
            return num_owed
        return num_owed + num_growing * (1 + num_steps // block_size)

    def _is_spared(self, seq: Sequence) -> bool:
        return seq.is_catching_up or self.is_guaranteed(seq)
