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

from collections.abc import Sequence as Many

from engine.admission_room import AdmissionRoom
from engine.config import SchedulerConfig
from engine.departures import Departures
from engine.errors import InvalidRequestError
from engine.events import (
    EventSink,
    RequestChunk,
    RequestPreempted,
    RequestQueued,
    RequestResumed,
    RequestScheduled,
)
from engine.execution.executor import SampledToken, SamplingRow
from engine.kv.block_manager import BlockManager
from engine.kv.prefix_lookup import PrefixMatch
from engine.messages import ChoiceOutput
from engine.preemption import PreemptNewest, ShortagePolicy
from engine.request_ledger import RequestLedger
from engine.running_set import RunningSet
from engine.schedule import BlockedOn, Schedule
from engine.sequence import EngineRequest, FinishReason, Sequence, SequenceStatus, seq_key
from engine.step_plan import StepPlan
from engine.step_results import StepResults
from engine.waiting_queue import WaitingQueue
from engine.watchdog import Watchdog


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
        self._policy = policy or PreemptNewest(max_preemptions=config.max_preemptions)
        self._ledger = RequestLedger(config, events, eos_token_ids)
        self._records = self._ledger.records
        self._waiting = WaitingQueue()
        self._running = RunningSet()
        self._room = AdmissionRoom(config, blocks, self._policy, self._running, self._records)
        self._departures = Departures(self._waiting, self._running, blocks, self._ledger)
        self._results = StepResults(self._running, blocks, self._ledger, self._departures, events)
        self._watchdog = Watchdog(num_steps=config.watchdog_steps, events=events)

    # --- state ---------------------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        return bool(self._records)

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> list[Sequence]:
        """Every sequence that holds blocks, in the order of `seq_key`."""
        return self._running.in_order()

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
        self._departures.withdraw(record)
        return self._ledger.abort(record, reason)

    def stop_choice(self, request_id: str, index: int, num_output_tokens: int) -> list[ChoiceOutput]:
        """Complete a choice with its first `num_output_tokens` tokens; one that has ended is counted and ignored."""
        record = self._records.get(request_id)
        seq = record.sequences[index] if record is not None and index < len(record.sequences) else None
        if seq is None or seq.status is SequenceStatus.FINISHED or not 0 <= num_output_tokens <= seq.num_output_tokens:
            self.num_ignored += 1
            return []
        self._departures.leave(seq)
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
            outputs.extend(self._departures.fail(record, message))
        return outputs

    # --- one step: before the forward pass -----------------------------------------------------------------------

    def schedule(self) -> Schedule:
        """Plan one step and allocate every block that it writes."""
        plan = StepPlan(self.config.max_num_batched_tokens)
        running = SequenceStatus.RUNNING
        plan.add_decodes(self._running.decoding)
        growing = self.blocks.without_slot(self._running.decoding)
        if len(growing) <= self._policy.num_available(self.blocks):
            for seq in growing:
                self.blocks.allocate(seq, 1)
        else:
            for seq in growing:
                if seq.status is running and not self._make_room(seq, 1, plan):
                    plan.drop(seq)
        for seq in tuple(self._running.prefilling):
            if seq.status is running and plan.budget:
                wanted = min(seq.num_tokens - seq.num_computed_tokens, plan.budget)
                if num_tokens := self._make_room(seq, wanted, plan):
                    plan.add(seq, num_tokens)
        blocked_on = self._admit(plan)
        schedule = Schedule(plan.entries, self.blocks.take_copies(), blocked_on)
        for entry in plan.chunks.values():
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

    def _make_room(self, seq: Sequence, num_tokens: int, plan: StepPlan) -> int:
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

    def _admit(self, plan: StepPlan) -> BlockedOn:
        """Admit from the head of the queue as long as there is room; return what stopped it."""
        while (seq := self._waiting.head()) is not None:
            if self._running.num_seats + self._records[seq.request_id].num_seats > self.config.max_num_seqs:
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

    def _fit(self, seq: Sequence, match: PrefixMatch, plan: StepPlan) -> PrefixMatch | None:
        """Return as much of a match as there is room to admit with; preempts lower priorities if that is enough."""
        if self._room.shortfall(seq, match, plan) <= 0:
            return match
        if match.partial is not None:  # copying takes a block more than computing, while the source is held
            without_copy = match.without_partial()
            if self._room.shortfall(seq, without_copy, plan) <= 0:
                return without_copy
        if not self._running.has_below(seq.request.priority):
            return None
        victims = self._policy.displaced_by(seq, self.running)
        if self._room.shortfall(seq, match, plan) > sum(len(victim.block_table) for victim in victims):
            return None
        for victim in victims:
            self._preempt(victim, plan)
            if self._room.shortfall(seq, match, plan) <= 0:
                return match
        return None

    def _start(self, seq: Sequence, match: PrefixMatch, plan: StepPlan) -> None:
        """Move the head of the queue to the running ones, with its first chunk."""
        self._waiting.pop()
        is_resumed = seq.status is SequenceStatus.PREEMPTED
        if not is_resumed:
            self.blocks.explain(seq, match)
        self.blocks.admit(seq, match)
        seq.status = SequenceStatus.RUNNING
        self._running.add(seq, num_seats=self._records[seq.request_id].num_seats)
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
        plan.add(seq, num_tokens)

    def _preempt(self, seq: Sequence, plan: StepPlan) -> None:
        """Take a running sequence's blocks and put it back into the queue, at the place of its age."""
        plan.drop(seq)
        num_lost_tokens = seq.num_computed_tokens
        self._departures.leave(seq)
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
        return self._results.take_in(schedule, rows, sampled)
