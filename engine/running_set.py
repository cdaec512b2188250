"""Who holds blocks: the decoding and the prefilling sequences, each in order, and the seats they take."""

from bisect import bisect_left, insort
from collections.abc import Iterator

from engine.sequence import Sequence, seq_key


class RunningSet:
    """Running sequences in the order of `seq_key`.

    Attributes:
        decoding, prefilling: read-only for everyone else.
        num_seats: running sequences, and the choices that prefills among them will fork.
        num_resumed: those that have been preempted before.
    """

    def __init__(self) -> None:
        self.decoding: list[Sequence] = []
        self.prefilling: list[Sequence] = []
        self.num_seats = 0
        self.num_resumed = 0

    def __len__(self) -> int:
        return len(self.decoding) + len(self.prefilling)

    def __iter__(self) -> Iterator[Sequence]:
        """Iterate over all of them, in no order."""
        yield from self.decoding
        yield from self.prefilling

    def has_below(self, priority: int) -> bool:
        """Tell whether anybody runs with a lower priority, which is a larger number."""
        return any(group[-1].request.priority > priority for group in (self.decoding, self.prefilling) if group)

    def in_order(self) -> list[Sequence]:
        """Return all of them, in the order of `seq_key`."""
        return sorted(self.decoding + self.prefilling, key=seq_key)

    def add(self, seq: Sequence, *, num_seats: int) -> None:
        """Let a sequence run that holds its blocks already."""
        insort(self.prefilling if seq.is_prefilling else self.decoding, seq, key=seq_key)
        self.num_seats += num_seats
        self.num_resumed += seq.num_preemptions > 0

    def add_fork(self, seq: Sequence) -> None:
        """Let a choice run that has its first token coming; its parent has kept a seat for it."""
        insort(self.decoding, seq, key=seq_key)

    def end_prefill(self, seq: Sequence) -> None:
        """Move a sequence from the prefilling to the decoding ones."""
        del self.prefilling[_place(self.prefilling, seq)]
        insort(self.decoding, seq, key=seq_key)

    def remove(self, seq: Sequence, *, num_seats: int) -> None:
        for group in (self.decoding, self.prefilling):
            place = _place(group, seq)
            if place < len(group) and group[place] is seq:
                del group[place]
        self.num_seats -= num_seats
        self.num_resumed -= seq.num_preemptions > 0


def _place(group: list[Sequence], seq: Sequence) -> int:
    return bisect_left(group, seq_key(seq), key=seq_key)
