"""The queue of sequences that wait for admission: a heap by priority and age."""

import heapq

from engine.sequence import SeqKey, Sequence, seq_key


class WaitingQueue:
    """Sequences in the order of `seq_key`. Every operation is O(log n) amortised.

    A removed sequence stays in the heap as a gap until it comes up, or until gaps are the larger half.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[SeqKey, Sequence]] = []
        self._members: set[Sequence] = set()

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, seq: Sequence) -> bool:
        return seq in self._members

    def push(self, seq: Sequence) -> None:
        self._members.add(seq)
        heapq.heappush(self._heap, (seq_key(seq), seq))

    def head(self) -> Sequence | None:
        """Return who is next, without removing it."""
        heap = self._heap
        while heap and heap[0][1] not in self._members:
            heapq.heappop(heap)
        return heap[0][1] if heap else None

    def pop(self) -> Sequence:
        """Remove and return the head; the queue must not be empty."""
        seq = self.head()
        assert seq is not None, "pop from an empty queue"
        heapq.heappop(self._heap)
        self._members.remove(seq)
        return seq

    def remove(self, seq: Sequence) -> None:
        """Take a sequence out, wherever it stands."""
        self._members.remove(seq)
        if len(self._heap) > 2 * len(self._members) + 8:
            self._heap = [entry for entry in self._heap if entry[1] in self._members]
            heapq.heapify(self._heap)

    def ids(self) -> list[tuple[str, int]]:
        """Return (request id, choice) in queue order; sorts the queue."""
        return [(seq.request_id, seq.index) for seq in sorted(self._members, key=seq_key)]
