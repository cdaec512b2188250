"""What follows from a step's forward pass: tokens appended, full blocks published, choices forked and ended."""

from collections.abc import Sequence as Many

from engine.departures import Departures
from engine.events import EventSink, RequestFirstToken, RequestTokens
from engine.execution.executor import SampledToken, SamplingRow
from engine.kv.block_manager import BlockManager
from engine.messages import ChoiceOutput, TokenLogprobs
from engine.plain_decodes import PlainDecodes, num_one_row_decodes
from engine.request_ledger import RequestLedger, RequestRecord
from engine.running_set import RunningSet
from engine.schedule import Schedule, ScheduledSequence
from engine.sequence import FinishReason, Sequence, SequenceStatus
from engine.token_intake import append_tokens, sort_prefill_results


class StepResults:
    """Takes in what a step computed.

    Args:
        running, blocks, ledger, departures, events: the scheduler's own.
    """

    def __init__(
        self,
        running: RunningSet,
        blocks: BlockManager,
        ledger: RequestLedger,
        departures: Departures,
        events: EventSink,
    ) -> None:
        self._running = running
        self._blocks = blocks
        self._ledger = ledger
        self._records = ledger.records
        self._departures = departures
        self._events = events
        self._plain_decodes = PlainDecodes(blocks, events)

    def take_in(self, schedule: Schedule, rows: Many[SamplingRow], sampled: Many[SampledToken]) -> list[ChoiceOutput]:
        """See Scheduler.update."""
        assert len(sampled) == len(rows), f"{len(rows)} rows were asked for, {len(sampled)} came back"
        outputs: list[ChoiceOutput] = []
        entries, num_rows = schedule.entries, len(rows)
        num_plain = num_one_row_decodes(entries, schedule.num_decodes, rows)
        self._blocks.note_computed(schedule.num_tokens)
        place = row = 0
        while place < len(entries):
            if place < num_plain:  # then they are the first entries, and row and place the same
                place += self._plain_decodes.take(entries[place:num_plain], sampled[place:num_plain], outputs)
                row = place
                if place == num_plain:
                    continue
            entry, first = entries[place], row
            while row < num_rows and rows[row].seq is entry.seq:
                row += 1
            outputs.extend(self._take(entry, rows[first:row], sampled[first:row]))
            place += 1
        assert row == num_rows, f"{num_rows} rows for entries that have {row}"
        return outputs

    def _take(
        self, entry: ScheduledSequence, rows: Many[SamplingRow], results: Many[SampledToken]
    ) -> list[ChoiceOutput]:
        """Take in what a step computed for one entry, whatever came of it."""
        seq = entry.seq
        if seq.status is not SequenceStatus.RUNNING:  # failed with a sibling before it in the same step
            self._blocks.note_computed(-entry.num_tokens)
            return []
        seq.num_computed_tokens = entry.start + entry.num_tokens
        record = self._records[seq.request_id]
        error = next((result.error for result in results if result.error), "")
        if error:
            return self._departures.fail(record, error)
        if entry.is_decode:
            return [self._append(seq, results, ())]
        if results:
            return self._take_prefill(record, seq, rows, results)
        self._blocks.publish(seq)
        return []

    def _take_prefill(
        self, record: RequestRecord, seq: Sequence, rows: Many[SamplingRow], results: Many[SampledToken]
    ) -> list[ChoiceOutput]:
        """Take in a prefill chunk's results; after the last chunk all choices get their first token."""
        self._blocks.publish(seq)
        taken = sort_prefill_results(record, rows, results)
        if not taken.tokens:
            if not taken.prompt_logprobs:
                return []
            return [ChoiceOutput(request_id=seq.request_id, index=seq.index, prompt_logprobs=taken.prompt_logprobs)]
        if record.num_unborn:
            self._fork(record)
        self._running.end_prefill(seq)
        outputs = []
        prompt_logprobs: Many[TokenLogprobs] = taken.prompt_logprobs
        for index, tokens in taken.tokens.items():
            outputs.append(self._append(record.sequences[index], tokens, prompt_logprobs))
            prompt_logprobs = ()
        return outputs

    def _fork(self, record: RequestRecord) -> None:
        """Make the other choices of a request, which share all blocks of the first."""
        parent = record.sequences[0]
        for index in range(1, record.request.params.n):
            child = Sequence(parent.request, index=index, order=parent.order)
            child.max_output_tokens, child.stop_ids = parent.max_output_tokens, parent.stop_ids
            child.num_cached_tokens = parent.num_cached_tokens
            child.status = SequenceStatus.RUNNING
            self._blocks.fork(parent, child)
            record.sequences.append(child)
            self._running.add_fork(child)

    def _append(self, seq: Sequence, results: Many[SampledToken], prompt_logprobs: Many[TokenLogprobs]) -> ChoiceOutput:
        """Add new tokens to a choice, and end it if one of them does."""
        request_id, index = seq.request_id, seq.index
        if not seq.output_token_ids:
            self._events.emit(RequestFirstToken, request_id=request_id, index=index)
        seq.is_catching_up = False
        new, reason = append_tokens(seq, results)
        num_output_tokens = len(seq.output_token_ids)
        self._events.emit(
            RequestTokens,
            request_id=request_id,
            index=index,
            num_tokens=len(new),
            num_output_tokens=num_output_tokens,
        )
        if reason is not None:
            self._departures.leave(seq)
            self._ledger.finish(seq, reason, num_output_tokens)
        elif not seq.num_computed_tokens % self._blocks.block_size:
            self._blocks.publish(seq)
        return ChoiceOutput(
            request_id=request_id,
            index=index,
            token_ids=new,
            logprobs=[result.logprobs for result in results[: len(new)] if result.logprobs is not None],
            prompt_logprobs=list(prompt_logprobs),
            finish_reason=reason.value if reason is not None else "",
            stop_token_id=new[-1] if reason is FinishReason.STOP else -1,
            num_cached_tokens=seq.num_cached_tokens,
        )
