"""A schedule in the making: what has been given out of the step's token budget so far."""

from collections.abc import Iterable, Iterator

from engine.schedule import ScheduledSequence
from engine.sequence import Sequence


class StepPlan:
    """Who computes what in the step that is being planned.

    Args:
        max_tokens: the step's budget.

    Attributes:
        decodes: sequences past their prefill, one token each, in order.
        chunks: prefill chunks.
        is_short: whether somebody running gave way; then it isn't the moment to admit more.
    """

    __slots__ = ("_max_tokens", "_num_chunk_tokens", "chunks", "decodes", "is_short")

    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._num_chunk_tokens = 0
        self.decodes: list[ScheduledSequence] = []
        self.chunks: dict[Sequence, ScheduledSequence] = {}
        self.is_short = False

    @property
    def budget(self) -> int:
        """Tokens still to be given out."""
        return self._max_tokens - len(self.decodes) - self._num_chunk_tokens

    @property
    def entries(self) -> tuple[ScheduledSequence, ...]:
        """Everything planned, in execution order."""
        return (*self.decodes, *self.chunks.values())

    def add_decodes(self, seqs: Iterable[Sequence]) -> None:
        """Give each of these sequences, all past their prefill, a token."""
        self.decodes = [ScheduledSequence(seq, seq.num_computed_tokens, 1, True, True) for seq in seqs]

    def add(self, seq: Sequence, num_tokens: int) -> None:
        """Give a sequence its next tokens."""
        start = seq.num_computed_tokens
        if not seq.is_prefilling:
            self.decodes.append(ScheduledSequence(seq, start, 1, True, True))
            return
        stop = start + num_tokens
        num_recomputed = max(0, min(stop, seq.max_computed_tokens) - start)
        self.chunks[seq] = ScheduledSequence(seq, start, num_tokens, False, stop == seq.num_tokens, num_recomputed)
        self._num_chunk_tokens += num_tokens

    def drop(self, seq: Sequence) -> None:
        """Take back what a sequence was given, if anything."""
        chunk = self.chunks.pop(seq, None)
        if chunk is not None:
            self._num_chunk_tokens -= chunk.num_tokens
            return
        place = next((i for i, entry in enumerate(self.decodes) if entry.seq is seq), None)
        if place is not None:
            del self.decodes[place]

    def incomplete(self) -> Iterator[Sequence]:
        """Yield those whose prefill goes on after this step: as a rule the last one only, whom the budget cut short."""
        for entry in reversed(self.chunks.values()):
            if entry.needs_sample:
                return
            yield entry.seq
