"""Iteration-level scheduling: each step, who computes how many tokens in which blocks.

    schedule()   decodes first, then running prefills in chunks, then admissions, all within one token budget
    update()     takes the sampled tokens in, publishes full blocks, forks after prefill, ends what is complete

Within each of the three groups the order is `seq_key`: priority, then age. Blocks are allocated as soon as a sequence
is scheduled, so capacity is reserved cumulatively and a forward pass can't run out of it. On a shortage the
ShortagePolicy says who gives way; a sequence that gives way after it was scheduled in the same step is unscheduled.

Admission never makes an equal give way: the head of the queue waits until its whole prompt fits beside what the
running prefills still need, and takes the blocks (not the seats) of strictly lower priorities only. With nothing
running it always proceeds, for a request that can't fit the empty pool is refused when it arrives. Nobody overtakes
the head, so neither the large nor the small starve.

A prompt that goes on with a block which an older sequence is computing right now waits for it (one step, mostly) rather
than compute it again: of equal prompts that arrive together, one is computed.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence as Many

from engine.config import SchedulerConfig
from engine.errors import InvalidRequestError, RequestFailedError
from engine.events import (
    EventSink,
    RequestChunk,
    RequestFirstToken,
    RequestPreempted,
    RequestQueued,
    RequestResumed,
    RequestScheduled,
    RequestTokens,
)
from engine.execution.executor import SampledToken, SamplingRow
from engine.kv.block_manager import BlockManager
from engine.kv.prefix_lookup import PrefixMatch
from engine.messages import ChoiceOutput, TokenLogprobs
from engine.preemption import PreemptNewest, ShortagePolicy, seq_key
from engine.request_ledger import RequestLedger, RequestRecord
from engine.schedule import BlockedOn, Schedule, ScheduledSequence
from engine.sequence import EngineRequest, FinishReason, Sequence, SequenceStatus
from engine.waiting_queue import WaitingQueue
from engine.watchdog import Watchdog


class _Plan:
    """A schedule in the making."""

    __slots__ = ("budget", "decodes", "is_short", "prefills")

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.decodes: dict[Sequence, ScheduledSequence] = {}
        self.prefills: dict[Sequence, ScheduledSequence] = {}
        self.is_short = False  # somebody running gave way: not the moment to admit more

    def add_decode(self, seq: Sequence) -> None:
        self.decodes[seq] = ScheduledSequence(seq, seq.num_computed_tokens, 1, True, True)
        self.budget -= 1

    def add_chunk(self, seq: Sequence, num_tokens: int) -> None:
        start, stop = seq.num_computed_tokens, seq.num_computed_tokens + num_tokens
        num_recomputed = max(0, min(stop, seq.max_computed_tokens) - start)
        self.prefills[seq] = ScheduledSequence(seq, start, num_tokens, False, stop == seq.num_tokens, num_recomputed)
        self.budget -= num_tokens

    def drop(self, seq: Sequence) -> None:
        entry = self.decodes.pop(seq, None) or self.prefills.pop(seq, None)
        if entry is not None:
            self.budget += entry.num_tokens


class Scheduler:
    """Decides who runs, and keeps every sequence's state.

    Args:
        config: limits and budget.
        blocks: the KV bookkeeping, of the same config.
        events: where request events go.
        eos_token_ids: the model's end-of-sequence ids.
        policy: what to do about a shortage; PreemptNewest if not given.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        blocks: BlockManager,
        events: EventSink,
        eos_token_ids: tuple[int, ...] = (),
        *,
        policy: ShortagePolicy | None = None,
    ) -> None:
        self.config = config
        self.blocks = blocks
        self.num_ignored = 0  # aborts and stops for requests that had ended already
        self._events = events
        self._block_size = config.block_size
        self._policy = policy or PreemptNewest(max_preemptions=config.max_preemptions)
        self._ledger = RequestLedger(config, events, eos_token_ids)
        self._records = self._ledger.records
        self._waiting = WaitingQueue()
        self._decoding: list[Sequence] = []  # both in the order of seq_key
        self._prefilling: list[Sequence] = []
        self._num_seats = 0  # running sequences, and the choices that running prefills will fork
        self._watchdog = Watchdog(num_steps=config.watchdog_steps, events=events)

    # --- state ---------------------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        return bool(self._records)

    @property
    def num_running(self) -> int:
        return len(self._decoding) + len(self._prefilling)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> list[Sequence]:
        """Every sequence that holds blocks, in the order of `seq_key`."""
        return sorted(self._decoding + self._prefilling, key=seq_key)

    @property
    def waiting_ids(self) -> list[tuple[str, int]]:
        """(request id, choice) of those who wait, in queue order."""
        return self._waiting.ids()

    # --- requests ------------------------------------------------------------------------------------------------

    def add(self, request: EngineRequest) -> list[ChoiceOutput]:
        """Queue a request; return the outputs that refuse it, none if it was accepted."""
        try:
            seq = self._ledger.take_in(request)
        except InvalidRequestError as error:
            return [
                ChoiceOutput(
                    request_id=request.request_id,
                    index=index,
                    finish_reason=FinishReason.ERROR.value,
                    error=error.message,
                    error_type=error.error_type,
                )
                for index in range(request.params.n)
            ]
        self._waiting.push(seq)
        self._events.emit(RequestQueued, request_id=request.request_id, num_waiting=len(self._waiting))
        return []

    def abort(self, request_id: str, reason: str) -> list[ChoiceOutput]:
        """End a request and free what it holds; an unknown id is counted and ignored."""
        record = self._records.get(request_id)
        if record is None:
            self.num_ignored += 1
            return []
        self._withdraw(record)
        return self._ledger.abort(record, reason)

    def stop_choice(self, request_id: str, index: int, num_output_tokens: int) -> list[ChoiceOutput]:
        """Complete a choice with its first `num_output_tokens` tokens; one that has ended is counted and ignored."""
        record = self._records.get(request_id)
        seq = record.sequences[index] if record is not None and index < len(record.sequences) else None
        if seq is None or seq.status is SequenceStatus.FINISHED or not 0 <= num_output_tokens <= seq.num_output_tokens:
            self.num_ignored += 1
            return []
        self._leave(seq)
        self._ledger.finish(seq, FinishReason.STOP, num_output_tokens)
        return [
            ChoiceOutput(
                request_id=request_id,
                index=index,
                finish_reason=FinishReason.STOP.value,
                num_cached_tokens=seq.num_cached_tokens,
            )
        ]

    def abort_all(self, reason: str) -> list[ChoiceOutput]:
        """End every request as aborted."""
        return [output for request_id in tuple(self._records) for output in self.abort(request_id, reason)]

    def fail_all(self, message: str) -> list[ChoiceOutput]:
        """End every request for a fault that can't be put down to one of them; all blocks come back."""
        outputs: list[ChoiceOutput] = []
        for record in tuple(self._records.values()):
            outputs.extend(self._fail(record, message))
        return outputs

    # --- one step: before the forward pass -----------------------------------------------------------------------

    def schedule(self) -> Schedule:
        """Plan one step and allocate every block that it writes."""
        plan = _Plan(self.config.max_num_batched_tokens)
        has_slot = self.blocks.has_slot
        for seq in tuple(self._decoding):
            if seq.status is SequenceStatus.RUNNING and (has_slot(seq) or self._make_room(seq, 1, plan)):
                plan.add_decode(seq)
        for seq in tuple(self._prefilling):
            if seq.status is SequenceStatus.RUNNING and plan.budget:
                wanted = min(seq.num_tokens - seq.num_computed_tokens, plan.budget)
                if num_tokens := self._make_room(seq, wanted, plan):
                    plan.add_chunk(seq, num_tokens)
        blocked_on = self._admit(plan)
        schedule = Schedule(
            entries=(*plan.decodes.values(), *plan.prefills.values()),
            block_copies=self.blocks.take_copies(),
            blocked_on=blocked_on,
        )
        for entry in plan.prefills.values():
            self._events.emit(
                RequestChunk,
                request_id=entry.seq.request_id,
                index=entry.seq.index,
                start=entry.start,
                num_tokens=entry.num_tokens,
                num_recomputed=entry.num_recomputed,
            )
        self._watch(schedule)
        return schedule

    def _make_room(self, seq: Sequence, num_tokens: int, plan: _Plan) -> int:
        """Allocate for a running sequence; return for how many tokens: fewer if memory is short, 0 if it must wait."""
        blocks = self.blocks
        while True:
            available = self._policy.num_available(blocks)
            if blocks.blocks_needed(seq, num_tokens) <= available:
                break
            if (fitting := blocks.max_new_tokens(seq, available)) > 0:
                num_tokens = fitting
                break
            victim = self._policy.victim(self.running)
            if victim is None:
                return 0
            self._preempt(victim, plan)
            plan.is_short = True
            if victim is seq:
                return 0
        blocks.allocate(seq, num_tokens)
        return num_tokens

    def _admit(self, plan: _Plan) -> BlockedOn:
        """Admit from the head of the queue as long as there is room; return what stopped it."""
        while (seq := self._waiting.head()) is not None:
            if self._num_seats + self._num_seats_of(seq) > self.config.max_num_seqs:
                return BlockedOn.MAX_NUM_SEQS
            if not plan.budget:
                return BlockedOn.TOKEN_BUDGET
            if plan.is_short:
                return BlockedOn.KV_BLOCKS
            match = self.blocks.match(seq)
            owner = self.blocks.being_computed_by(seq, match)
            if owner is not None and seq_key(owner) < seq_key(seq):
                return BlockedOn.SHARED_PREFIX
            fitting = self._fit(seq, match, plan)
            if fitting is None:
                return BlockedOn.KV_BLOCKS
            self._start(seq, fitting, plan)
        return BlockedOn.NOTHING

    def _fit(self, seq: Sequence, match: PrefixMatch, plan: _Plan) -> PrefixMatch | None:
        """Return as much of a match as there is room to admit with; preempts lower priorities if that is enough."""
        for candidate in (match, match.without_partial()):
            if self._shortfall(seq, candidate) <= 0:
                return candidate
        victims = self._policy.displaced_by(seq, self.running)
        if self._shortfall(seq, match) > sum(len(victim.block_table) for victim in victims):
            return None
        for victim in victims:
            self._preempt(victim, plan)
            if self._shortfall(seq, match) <= 0:
                return match
        return None

    def _shortfall(self, seq: Sequence, match: PrefixMatch) -> int:
        """Return how many blocks are missing for an admission; none if it is 0 or less."""
        blocks = self.blocks
        missing = blocks.blocks_to_admit(match, seq.num_tokens + 1) - self._policy.num_available(blocks)
        if not self.num_running:
            return missing
        missing += self._num_seats_of(seq) - 1
        per_step = max(1, self.config.max_num_batched_tokens - self._num_seats)
        missing += self._policy.headroom(
            seq,
            num_owed=sum(
                blocks.blocks_needed(other, other.num_tokens - other.num_computed_tokens) for other in self._prefilling
            ),
            num_growing=self._num_seats,
            num_steps=-(-(seq.num_tokens - match.num_tokens) // per_step),
            block_size=blocks.block_size,
        )
        return missing

    def _start(self, seq: Sequence, match: PrefixMatch, plan: _Plan) -> None:
        """Move the head of the queue to the running ones, with its first chunk."""
        self._waiting.pop()
        is_resumed = seq.status is SequenceStatus.PREEMPTED
        if not is_resumed:
            self.blocks.explain(seq, match)
        self.blocks.admit(seq, match)
        seq.status = SequenceStatus.RUNNING
        self._num_seats += self._num_seats_of(seq)
        insort(self._prefilling if seq.is_prefilling else self._decoding, seq, key=seq_key)
        if is_resumed:
            seq.is_catching_up = True
            self._events.emit(
                RequestResumed,
                request_id=seq.request_id,
                index=seq.index,
                num_cached_tokens=match.num_tokens,
                num_recompute_tokens=max(0, seq.max_computed_tokens - match.num_tokens),
            )
        else:
            seq.num_cached_tokens = match.num_tokens
            self._events.emit(RequestScheduled, request_id=seq.request_id, num_cached_tokens=match.num_tokens)
        num_tokens = min(seq.num_tokens - seq.num_computed_tokens, plan.budget)
        self.blocks.allocate(seq, num_tokens)
        if seq.is_prefilling:
            plan.add_chunk(seq, num_tokens)
        else:
            plan.add_decode(seq)

    def _preempt(self, seq: Sequence, plan: _Plan) -> None:
        """Take a running sequence's blocks and put it back into the queue, at the place of its age."""
        plan.drop(seq)
        num_lost_tokens = seq.num_computed_tokens
        self._leave(seq)
        seq.status = SequenceStatus.PREEMPTED
        seq.is_catching_up = False
        seq.max_computed_tokens = max(seq.max_computed_tokens, num_lost_tokens)
        seq.num_computed_tokens = 0
        seq.num_preemptions += 1
        self._waiting.push(seq)
        self._events.emit(
            RequestPreempted,
            request_id=seq.request_id,
            index=seq.index,
            num_lost_tokens=num_lost_tokens,
            num_preemptions=seq.num_preemptions,
        )

    def _watch(self, schedule: Schedule) -> None:
        """Tell the watchdog whether the step computes anything."""
        if schedule.entries or not self.has_work:
            self._watchdog.saw_progress()
            return
        seq = self._waiting.head() or self.running[0]
        counts = self.blocks.counts
        self._watchdog.saw_empty_step(
            request_id=seq.request_id,
            cause=(
                f"{schedule.blocked_on.value or BlockedOn.KV_BLOCKS.value}: {seq.status.value} at "
                f"{seq.num_computed_tokens} of {seq.num_tokens} tokens; "
                f"{counts.free} blocks free, {counts.cached} cached, {counts.referenced} referenced"
            ),
            num_waiting=self.num_waiting,
            num_running=self.num_running,
        )

    # --- one step: after the forward pass ------------------------------------------------------------------------

    def update(self, schedule: Schedule, rows: Many[SamplingRow], sampled: Many[SampledToken]) -> list[ChoiceOutput]:
        """Take in what a step computed.

        Args:
            schedule: the step's plan, executed.
            rows: what was asked of the sampler, in the order of the entries.
            sampled: its answer to each row.

        Returns:
            One output for each choice that got tokens, prompt logprobs or an end.
        """
        assert len(sampled) == len(rows), f"{len(rows)} rows were asked for, {len(sampled)} came back"
        outputs: list[ChoiceOutput] = []
        num_rows, last = len(rows), 0
        self.blocks.note_computed(schedule.num_tokens)
        for entry in schedule.entries:
            seq, first = entry.seq, last
            while last < num_rows and rows[last].seq is seq:
                last += 1
            if seq.status is not SequenceStatus.RUNNING:  # failed with a sibling earlier in this loop
                self.blocks.note_computed(-entry.num_tokens)
                continue
            seq.num_computed_tokens += entry.num_tokens
            results = sampled[first:last]
            record = self._records[seq.request.request_id]
            for result in results:
                if result.error:
                    outputs.extend(self._fail(record, result.error))
                    break
            else:
                if entry.is_decode:
                    outputs.append(self._append(record, seq, results))
                elif results:
                    outputs.extend(self._take_prefill(record, entry, rows[first:last], results))
                else:
                    self.blocks.publish(seq)
        return outputs

    def _take_prefill(
        self, record: RequestRecord, entry: ScheduledSequence, rows: Many[SamplingRow], results: Many[SampledToken]
    ) -> list[ChoiceOutput]:
        """Take in what a prefill chunk gave: prompt log probabilities, and the first tokens if it was the last chunk.

        A request with n > 1 has a first token for each choice; its other choices are made here.
        """
        seq = entry.seq
        prompt_logprobs: list[TokenLogprobs] = []
        tokens: dict[int, list[SampledToken]] = {}
        for row, result in zip(rows, results, strict=True):
            if row.given_token < 0:
                tokens.setdefault(row.index, []).append(result)
            elif row.position > record.num_prompt_logprobs:
                assert result.logprobs is not None, f"prompt position {row.position} came without log probabilities"
                record.num_prompt_logprobs = row.position
                prompt_logprobs.append(result.logprobs)
        self.blocks.publish(seq)
        if not tokens:
            if not prompt_logprobs:
                return []
            return [ChoiceOutput(request_id=seq.request_id, index=seq.index, prompt_logprobs=prompt_logprobs)]
        if record.num_unborn:
            self._fork(record)
        self._prefilling.remove(seq)
        insort(self._decoding, seq, key=seq_key)
        outputs = []
        for index, choice_tokens in tokens.items():
            outputs.append(self._append(record, record.sequences[index], choice_tokens, prompt_logprobs))
            prompt_logprobs = []
        return outputs

    def _fork(self, record: RequestRecord) -> None:
        """Make the other choices of a request, which share all blocks of the first."""
        parent = record.sequences[0]
        for index in range(1, record.request.params.n):
            child = Sequence(parent.request, index=index, order=parent.order)
            child.num_cached_tokens = parent.num_cached_tokens
            child.status = SequenceStatus.RUNNING
            self.blocks.fork(parent, child)
            record.sequences.append(child)
            insort(self._decoding, child, key=seq_key)

    def _append(
        self,
        record: RequestRecord,
        seq: Sequence,
        results: Many[SampledToken],
        prompt_logprobs: Many[TokenLogprobs] = (),
    ) -> ChoiceOutput:
        """Add new tokens to a choice, up to the one that ends it."""
        output, stop_ids, limit = seq.output_token_ids, record.stop_ids, record.max_output_tokens
        request_id, index = seq.request.request_id, seq.index
        if not output:
            self._events.emit(RequestFirstToken, request_id=request_id, index=index)
        seq.is_catching_up = False
        new: list[int] = []
        logprobs: list[TokenLogprobs] = []
        reason: FinishReason | None = None
        for result in results:
            token_id = result.token_id
            new.append(token_id)
            output.append(token_id)
            if result.logprobs is not None:
                logprobs.append(result.logprobs)
            if token_id in stop_ids:
                reason = FinishReason.STOP
                break
            if len(output) >= limit:
                reason = FinishReason.LENGTH
                break
        num_output_tokens = len(output)
        self._events.emit(
            RequestTokens,
            request_id=request_id,
            index=index,
            num_tokens=len(new),
            num_output_tokens=num_output_tokens,
        )
        if reason is None:
            if not seq.num_computed_tokens % self._block_size:
                self.blocks.publish(seq)
            return ChoiceOutput(
                request_id=request_id,
                index=index,
                token_ids=new,
                logprobs=logprobs,
                prompt_logprobs=list(prompt_logprobs),
                num_cached_tokens=seq.num_cached_tokens,
            )
        self._leave(seq)
        self._ledger.finish(seq, reason, num_output_tokens)
        return ChoiceOutput(
            request_id=request_id,
            index=index,
            token_ids=new,
            logprobs=logprobs,
            prompt_logprobs=list(prompt_logprobs),
            finish_reason=reason.value,
            stop_token_id=token_id if reason is FinishReason.STOP else -1,
            num_cached_tokens=seq.num_cached_tokens,
        )

    # --- leaving -------------------------------------------------------------------------------------------------

    def _fail(self, record: RequestRecord, message: str) -> list[ChoiceOutput]:
        self._withdraw(record, is_faulty=True)
        return self._ledger.fail(record, error_type=RequestFailedError.error_type, message=message)

    def _withdraw(self, record: RequestRecord, *, is_faulty: bool = False) -> None:
        """Take all choices of a request out of the queues and free their blocks."""
        for seq in record.unfinished:
            self._leave(seq, is_faulty=is_faulty)

    def _leave(self, seq: Sequence, *, is_faulty: bool = False) -> None:
        """Take a sequence out of the queue it stands in; a running one gives its blocks back."""
        if seq.status is not SequenceStatus.RUNNING:
            self._waiting.remove(seq)
            return
        for group in (self._decoding, self._prefilling):
            place = bisect_left(group, seq_key(seq), key=seq_key)
            if place < len(group) and group[place] is seq:
                del group[place]
        self._num_seats -= self._num_seats_of(seq)
        self.blocks.release(seq, is_faulty=is_faulty)

    def _num_seats_of(self, seq: Sequence) -> int:
        """Return how many running sequences it counts for: with all those that it will fork."""
        return 1 + self._records[seq.request.request_id].num_unborn
