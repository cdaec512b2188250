"""Proves the engine's invariants from a trace alone, and names the first event that breaks one.

free + referenced + cached = total          after every step, rebuilt = reported
no block in two places                      a block is allocated only when free, freed only when nobody holds it
ref_count = number of tables holding it     at every share and release
block tables append-only while running      entries come in order; a release gives back the whole table
only written blocks are published           a choice that holds it has computed its last token
eviction takes cached leaves only           never a block in use, never one with published blocks below it
arrival <= queued <= scheduled <= first token <= end, exactly one terminal event, nothing after it
received = finished + failed + aborted + rejected + in flight
sum of scheduled tokens <= budget           and equal to what the step's chunks and tokens say
"""

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from engine.events import (
    BlockPublished,
    EngineFailed,
    EngineStarted,
    EngineStopped,
    Event,
    RequestChunk,
    RequestPreempted,
    RequestTokens,
    Stalled,
    StepFinished,
    StepStarted,
)
from observability.snapshot import Snapshot
from observability.trace_block import InvariantError, name_of
from observability.trace_codec import TraceEvent, UnknownEvent, event_type
from observability.trace_file import TraceReader
from observability.trace_header import TraceHeader
from observability.trace_pool import RebuiltPool
from observability.trace_report import TraceReport, Violation
from observability.trace_requests import RebuiltRequests


def check_trace(path: Path) -> TraceReport:
    """Check a trace file; raises TraceFormatError if it isn't one, OSError if it can't be opened."""
    with TraceReader(path) as reader:
        checker: TraceChecker | None = None
        for events in reader.batches():
            if events and checker is None:
                from_start = events[0].seq == 1 and reader.header.num_dropped_events == 0
                checker = checker_for(reader.header, from_start=from_start, snapshot=reader.snapshot)
            if checker is not None and not checker.feed_all(events):
                break
        if checker is None:
            from_start = reader.header.num_dropped_events == 0
            checker = checker_for(reader.header, from_start=from_start, snapshot=reader.snapshot)
        return checker.finish(truncated=reader.truncated)


def check_events(header: TraceHeader, events: Iterable[TraceEvent], snapshot: Snapshot | None = None) -> TraceReport:
    """Check events that are in memory, from an engine's first one on or from a snapshot on."""
    checker = checker_for(header, from_start=snapshot is None, snapshot=snapshot)
    checker.feed_all(events)
    return checker.finish()


def checker_for(header: TraceHeader, *, from_start: bool, snapshot: Snapshot | None = None) -> "TraceChecker":
    return TraceChecker(
        num_blocks=header.num_blocks,
        block_size=header.block_size,
        token_budget=header.max_num_batched_tokens,
        from_start=from_start,
        snapshot=snapshot,
    )


class TraceChecker:
    """Takes events one by one; stops at the first that breaks an invariant.

    Args:
        num_blocks, block_size: of the pool.
        token_budget: tokens a step may compute.
        from_start: the first event fed is the engine's first.
        snapshot: what the engine held before the first event fed, if that isn't its first.

    Attributes:
        pool: as rebuilt from the events so far.
    """

    def __init__(
        self,
        *,
        num_blocks: int,
        block_size: int,
        token_budget: int,
        from_start: bool,
        snapshot: Snapshot | None = None,
    ) -> None:
        self._block_size = block_size
        self._token_budget = token_budget
        self._from_start = from_start
        self._num_blocks = num_blocks
        self._has_snapshot = snapshot is not None
        self._has_life_ended = False
        self._violation: Violation | None = None
        self._last_seq = 0
        self._last_t = 0.0
        self._last_step = 0
        self._is_first = True
        self._in_step = False
        self._step_seen = from_start or self._has_snapshot
        self._num_prefill_tokens = 0
        self._num_generated_tokens = 0
        self._num_events = 0
        self._num_steps = 0
        self._num_unknown = 0
        self._num_preemptions = 0
        self._num_stalls = 0
        self._num_kv_events: Counter[type[Event]] = Counter()
        self._num_lives = 0
        self._num_received_before = self._num_futile_before = 0
        self._num_ended_before: Counter[str] = Counter()
        self._open_life(all_known=from_start or self._has_snapshot)
        if snapshot is not None:
            self._start_with(snapshot)

    def feed(self, event: TraceEvent) -> bool:
        """Check the next event; returns False when it, or one before it, broke an invariant."""
        return self.feed_all((event,))

    def feed_all(self, events: Iterable[TraceEvent]) -> bool:
        """Check the next events; returns False when one of them, or one before them, broke an invariant."""
        if self._violation is not None:
            return False
        event = None
        try:
            for event in events:
                self._num_events += 1
                if event.seq != self._last_seq + 1 or event.t < self._last_t or event.step < self._last_step:
                    self._check_order(event)
                handler = self._handlers.get(type(event))
                if handler is not None:
                    handler(event)
                self._last_seq, self._last_t, self._last_step = event.seq, event.t, event.step
        except InvariantError as error:
            assert event is not None
            self._violation = Violation(seq=event.seq, step=event.step, event_type=event_type(event), reason=str(error))
            return False
        if event is not None:
            self._is_first = False
        return True

    def finish(self, *, truncated: bool = False) -> TraceReport:
        """Check what must hold at the end and return the report."""
        if self._violation is None and not truncated and not self._in_step:
            try:
                self._check_between_steps()
            except InvariantError as error:
                self._violation = Violation(seq=self._last_seq, step=self._last_step, event_type="", reason=str(error))
        requests = self._requests
        return TraceReport(
            ok=self._violation is None,
            violation=self._violation,
            num_events=self._num_events,
            num_steps=self._num_steps,
            num_unknown_events=self._num_unknown,
            from_start=self._from_start,
            from_snapshot=self._has_snapshot,
            truncated=truncated,
            num_lives=self._num_lives,
            num_received=self._num_received_before + requests.num_received,
            num_adopted=requests.num_adopted,
            num_in_flight=len(requests.live),
            num_ended=dict(self._num_ended_before + requests.num_ended),
            num_blocks=dict(self.pool.counts),
            num_kv_events={str(kind.__struct_config__.tag): count for kind, count in self._num_kv_events.items()},
            num_preemptions=self._num_preemptions,
            num_futile_resumes=self._num_futile_before + requests.num_futile_resumes,
            num_stalls=self._num_stalls,
        )

    # --- the beginning, and a new life ---

    def _open_life(self, *, all_known: bool) -> None:
        self._requests = RebuiltRequests(from_start=all_known)
        self._num_lives += 1
        self._renew_pool(all_known=all_known)

    def _renew_pool(self, *, all_known: bool) -> None:
        """Begin with a pool of which nothing is in use; whoever handles an event is looked up once, not per event."""
        self.pool = RebuiltPool(num_blocks=self._num_blocks, from_start=all_known)
        handlers: dict[type[Any], Callable[[Any], None]] = {
            **self._requests.handlers(),
            UnknownEvent: self._unknown,
            StepStarted: self._step_started,
            StepFinished: self._step_finished,
            Stalled: self._stalled,
            EngineStarted: self._engine_started,
            EngineFailed: self._engine_failed,
            EngineStopped: self._engine_stopped,
        }
        for kind, handle in self.pool.handlers().items():
            handlers[kind] = self._counted(kind, handle)
        handlers[BlockPublished] = _both(self._check_written, handlers[BlockPublished])
        handlers[RequestTokens] = _both(handlers[RequestTokens], self._count_tokens)
        handlers[RequestChunk] = _both(handlers[RequestChunk], self._count_chunk)
        handlers[RequestPreempted] = _both(handlers[RequestPreempted], self._count_preemption)
        self._handlers = handlers

    def _start_with(self, snapshot: Snapshot) -> None:
        try:
            self.pool.start_with(snapshot.blocks)
            self._requests.start_with(snapshot.requests)
            for choice in self.pool.tables:
                if not self._requests.is_running(choice):
                    raise InvariantError(f"the snapshot has blocks held by {name_of(choice)}, which isn't running")
        except InvariantError as error:
            self._violation = Violation(seq=snapshot.seq, step=snapshot.step, event_type="snapshot", reason=str(error))
        self._last_seq, self._last_t, self._last_step = snapshot.seq, snapshot.t, snapshot.step
        self._is_first = False

    def _check_order(self, event: TraceEvent) -> None:
        """Something is out of order: it may be the first event, or another life's."""
        if self._is_first and self._num_events == 1:
            if self._from_start and event.seq != 1:
                raise InvariantError(f"`seq` must start at 1, got {event.seq}")
            return
        if self._has_life_ended and event.seq == 1:
            self._begin_life()
            return
        if event.seq != self._last_seq + 1:
            raise InvariantError(f"`seq` must be gapless: {event.seq} follows {self._last_seq}")
        if event.t < self._last_t:
            raise InvariantError(f"time runs backwards: {event.t} follows {self._last_t}")
        raise InvariantError(f"steps run backwards: {event.step} follows {self._last_step}")

    def _begin_life(self) -> None:
        """A restarted engine: a stream of its own, from 1, with a pool of its own, all of it free."""
        requests = self._requests
        if requests.live:
            raise InvariantError(f"an engine starts, but the one before ended with {len(requests.live)} in flight")
        self._num_received_before += requests.num_received
        self._num_futile_before += requests.num_futile_resumes
        self._num_ended_before += requests.num_ended
        self._open_life(all_known=True)
        self._has_life_ended = self._in_step = False
        self._step_seen = True

    # --- what is added up ---

    def _counted(self, kind: type[Event], handle: Callable[[Any], None]) -> Callable[[Any], None]:
        counts = self._num_kv_events

        def handle_and_count(event: Event) -> None:
            handle(event)
            counts[kind] += 1

        return handle_and_count

    def _count_tokens(self, event: RequestTokens) -> None:
        self._num_generated_tokens += event.num_tokens

    def _count_chunk(self, event: RequestChunk) -> None:
        self._num_prefill_tokens += event.num_tokens

    def _count_preemption(self, _: RequestPreempted) -> None:
        self._num_preemptions += 1

    def _unknown(self, _: UnknownEvent) -> None:
        self._num_unknown += 1

    def _stalled(self, _: Stalled) -> None:
        self._num_stalls += 1

    # --- the engine and its steps ---

    def _engine_started(self, event: EngineStarted) -> None:
        if (event.num_blocks, event.block_size) != (self._num_blocks, self._block_size):
            raise InvariantError(
                f"the engine starts with {event.num_blocks} blocks of {event.block_size} tokens, the header says "
                f"{self._num_blocks} of {self._block_size}"
            )

    def _engine_failed(self, event: EngineFailed) -> None:
        self._in_step = False
        self._has_life_ended = True
        if event.lost:
            self._renew_pool(all_known=True)

    def _engine_stopped(self, _: EngineStopped) -> None:
        self._has_life_ended = True
        if self._requests.live:
            raise InvariantError(f"the engine stops with {len(self._requests.live)} requests in flight")

    def _check_written(self, event: BlockPublished) -> None:
        """A published block must be full of written KV: some choice that holds it has computed past its end."""
        needs = []
        for request_id, index in self.pool.holders(event.block_id):
            table = self.pool.tables.get((request_id, index))
            if request_id == event.request_id and table is not None and event.block_id in table:
                stop = (table.index(event.block_id) + 1) * self._block_size
                num_written = self._requests.num_written_tokens(request_id, index)
                if num_written is None or num_written >= stop:
                    return
                needs.append((stop, num_written))
        if needs:
            stop, num_written = min(needs)
            raise InvariantError(
                f"block {event.block_id} is published before it is written: it ends at token {stop}, "
                f"request {event.request_id!r} has {num_written} computed tokens"
            )

    def _step_started(self, _: StepStarted) -> None:
        if self._in_step:
            raise InvariantError("a step starts before the one before it finished")
        self._check_between_steps()
        self._in_step = self._step_seen = True
        self._num_prefill_tokens = self._num_generated_tokens = 0

    def _step_finished(self, event: StepFinished) -> None:
        if not self._in_step and self._step_seen:
            raise InvariantError("a step finishes that never started")
        self._num_steps += 1
        num_tokens = event.num_prefill_tokens + event.num_decode_tokens
        if num_tokens > min(self._token_budget, event.token_budget):
            raise InvariantError(f"the step computed {num_tokens} tokens, its budget is {event.token_budget}")
        if self._in_step:
            for name, told, seen in (
                ("prefill", event.num_prefill_tokens, self._num_prefill_tokens),
                ("generated", event.num_generated_tokens, self._num_generated_tokens),
            ):
                if told != seen:
                    raise InvariantError(f"the step says {told} {name} tokens, its events add up to {seen}")
        self._in_step = False
        self._check_between_steps()
        counts = self.pool.counts
        if not counts["unknown"]:
            said = (event.num_free_blocks, event.num_referenced_blocks, event.num_cached_blocks)
            if said != (counts["free"], counts["referenced"], counts["cached"]):
                raise InvariantError(
                    f"the step says {said[0]} free + {said[1]} referenced + {said[2]} cached blocks; the trace has "
                    f"{counts['free']} + {counts['referenced']} + {counts['cached']}"
                )

    def _check_between_steps(self) -> None:
        if self.pool.counts["lost"]:
            raise InvariantError(
                f"block {self.pool.first_lost()} is lost: nobody holds it, it is neither cached nor free"
            )
        self.pool.check_settled(self._requests.just_ended())
        self._requests.settle()


def _both(first: Callable[[Any], None], then: Callable[[Any], None]) -> Callable[[Any], None]:
    def handle(event: Event) -> None:
        first(event)
        then(event)

    return handle
