"""The common case of a step's end: a running sequence has one token more, and goes on.

Nearly every token of a full batch is of this kind, so it is taken in here with as little as it needs; everything else
(an end, log probabilities, an error, a prefill) goes the long way through the scheduler, with the same outcome.
"""

from collections.abc import Sequence as Many

from engine.events import EventSink
from engine.execution.executor import SampledToken, SamplingRow
from engine.kv.block_manager import BlockManager
from engine.messages import ChoiceOutput
from engine.schedule import ScheduledSequence
from engine.sequence import Sequence, SequenceStatus


class PlainDecodes:
    """Takes in the tokens of decodes that go on.

    Args:
        blocks, events: the scheduler's own.
    """

    def __init__(self, blocks: BlockManager, events: EventSink) -> None:
        self._blocks = blocks
        self._events = events

    def take(self, entries: Many[ScheduledSequence], sampled: Many[SampledToken], outputs: list[ChoiceOutput]) -> int:
        """Append tokens, emit their events, publish the blocks that they fill; stop at the first that isn't plain.

        Args:
            entries: decodes.
            sampled: one token for each of them.
            outputs: gets one output for each that was taken in.

        Returns:
            How many were taken in.
        """
        taken: list[Sequence] = []
        running, block_size = SequenceStatus.RUNNING, self._blocks.block_size
        full: list[Sequence] = []
        for entry, result in zip(entries, sampled, strict=True):
            seq, token_id = entry.seq, result.token_id
            output = seq.output_token_ids
            if (
                token_id in seq.stop_ids
                or len(output) + 1 >= seq.max_output_tokens
                or result.logprobs is not None
                or result.error
                or seq.status is not running
            ):
                break
            output.append(token_id)
            seq.is_catching_up = False
            seq.num_computed_tokens = num_computed_tokens = entry.start + 1
            if not num_computed_tokens % block_size:
                full.append(seq)
            taken.append(seq)
            outputs.append(
                ChoiceOutput(
                    request_id=seq.request_id,
                    index=seq.index,
                    token_ids=[token_id],
                    num_cached_tokens=seq.num_cached_tokens,
                )
            )
        self._events.emit_token_each(taken)
        for seq in full:
            self._blocks.publish(seq)
        return len(taken)


def num_one_row_decodes(entries: Many[ScheduledSequence], num_decodes: int, rows: Many[SamplingRow]) -> int:
    """Return how many leading entries are decodes with one row each: all decodes, or none.

    Each decode has a row at least, so one each it is if the last one's only row is where it then must be.
    """
    if not num_decodes:
        return 0
    last = entries[num_decodes - 1].seq
    has_one_each = rows[num_decodes - 1].seq is last and (len(rows) == num_decodes or rows[num_decodes].seq is not last)
    return num_decodes if has_one_each else 0
