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
from collections.abc import Iterable
from pathlib import Path

from engine.events import (
    BlockPublished,
    EngineFailed,
    EngineStarted,
    EngineStopped,
    Event,
    RequestChunk,
    RequestEvent,
    RequestPreempted,
    RequestTokens,
    Stalled,
    StepFinished,
    StepStarted,
)
from observability.trace_block import InvariantError
from observability.trace_file import TraceEvent, TraceReader, UnknownEvent
from observability.trace_header import TraceHeader
from observability.trace_pool import KVEvent, RebuiltPool
from observability.trace_report import TraceReport, Violation
from observability.trace_requests import RebuiltRequests


def check_trace(path: Path) -> TraceReport:
    """Check a trace file; raises TraceFormatError if it isn't one, OSError if it can't be opened."""
    with TraceReader(path) as reader:
        checker: TraceChecker | None = None
        for event in reader:
            if checker is None:
                from_start = event.seq == 1 and reader.header.num_dropped_events == 0
                checker = checker_for(reader.header, from_start=from_start)
            if not checker.feed(event):
                break
        if checker is None:
            checker = checker_for(reader.header, from_start=reader.header.num_dropped_events == 0)
        return checker.finish(truncated=reader.truncated)


def check_events(header: TraceHeader, events: Iterable[TraceEvent]) -> TraceReport:
    """Check events that are in memory, from an engine's first one on."""
    checker = checker_for(header, from_start=True)
    for event in events:
        if not checker.feed(event):
            break
    return checker.finish()


def checker_for(header: TraceHeader, *, from_start: bool) -> "TraceChecker":
    return TraceChecker(
        num_blocks=header.num_blocks,
        block_size=header.block_size,
        token_budget=header.max_num_batched_tokens,
        from_start=from_start,
    )


class TraceChecker:
    """Takes events one by one; stops at the first that breaks an invariant.

    Args:
        num_blocks, block_size: of the pool.
        token_budget: tokens a step may compute.
        from_start: the first event fed is the engine's first.

    Attributes:
        pool: as rebuilt from the events so far.
    """

    def __init__(self, *, num_blocks: int, block_size: int, token_budget: int, from_start: bool) -> None:
        self._block_size = block_size
        self._token_budget = token_budget
        self._from_start = from_start
        self._num_blocks = num_blocks
        self.pool = RebuiltPool(num_blocks=num_blocks, from_start=from_start)
        self._requests = RebuiltRequests(from_start=from_start)
        self._lives_before: list[RebuiltRequests] = []
        self._has_life_ended = False
        self._violation: Violation | None = None
        self._last: TraceEvent | None = None
        self._in_step = False
        self._step_seen = from_start
        self._num_prefill_tokens = 0
        self._num_generated_tokens = 0
        self._num_events = 0
        self._num_steps = 0
        self._num_unknown = 0
        self._num_preemptions = 0
        self._num_stalls = 0
        self._num_kv_events: dict[str, int] = {}

    def feed(self, event: TraceEvent) -> bool:
        """Check the next event; returns False when it, or one before it, broke an invariant."""
        if self._violation is not None:
            return False
        self._num_events += 1
        try:
            self._check_order(event)
            if isinstance(event, UnknownEvent):
                self._num_unknown += 1
            else:
                self._apply(event)
        except InvariantError as error:
            tag = event.type if isinstance(event, UnknownEvent) else str(event.__struct_config__.tag)
            self._violation = Violation(seq=event.seq, step=event.step, event_type=tag, reason=str(error))
            return False
        self._last = event
        return True

    def finish(self, *, truncated: bool = False) -> TraceReport:
        """Check what must hold at the end and return the report."""
        if self._violation is None and not truncated and not self._in_step:
            try:
                self._check_between_steps()
            except InvariantError as error:
                seq, step = (self._last.seq, self._last.step) if self._last else (0, 0)
                self._violation = Violation(seq=seq, step=step, event_type="", reason=str(error))
        lives = [*self._lives_before, self._requests]
        num_ended = sum((Counter(life.ended.values()) for life in lives), Counter[str]())
        return TraceReport(
            ok=self._violation is None,
            violation=self._violation,
            num_events=self._num_events,
            num_steps=self._num_steps,
            num_unknown_events=self._num_unknown,
            from_start=self._from_start,
            truncated=truncated,
            num_lives=len(lives),
            num_received=sum(life.num_received for life in lives),
            num_in_flight=len(self._requests.live),
            num_ended=dict(num_ended),
            num_blocks=dict(self.pool.counts),
            num_kv_events=dict(self._num_kv_events),
            num_preemptions=self._num_preemptions,
            num_futile_resumes=sum(life.num_futile_resumes for life in lives),
            num_stalls=self._num_stalls,
        )

    def _check_order(self, event: TraceEvent) -> None:
        if self._last is None:
            if self._from_start and event.seq != 1:
                raise InvariantError(f"`seq` must start at 1, got {event.seq}")
            return
        if self._has_life_ended and event.seq == 1:
            self._begin_life()
            return
        if event.seq != self._last.seq + 1:
            raise InvariantError(f"`seq` must be gapless: {event.seq} follows {self._last.seq}")
        if event.t < self._last.t:
            raise InvariantError(f"time runs backwards: {event.t} follows {self._last.t}")
        if event.step < self._last.step:
            raise InvariantError(f"steps run backwards: {event.step} follows {self._last.step}")

    def _begin_life(self) -> None:
        """A restarted engine: a stream of its own, from 1, with a pool of its own, all of it free."""
        if self._requests.live:
            raise InvariantError(
                f"an engine starts, but the one before ended with {len(self._requests.live)} in flight"
            )
        self._lives_before.append(self._requests)
        self._requests = RebuiltRequests(from_start=True)
        self.pool = RebuiltPool(num_blocks=self._num_blocks, from_start=True)
        self._has_life_ended = self._in_step = False
        self._step_seen = True

    def _apply(self, event: Event) -> None:
        if isinstance(event, RequestEvent):
            self._requests.apply(event)
            if isinstance(event, RequestChunk):
                self._num_prefill_tokens += event.num_tokens
            elif isinstance(event, RequestTokens):
                self._num_generated_tokens += event.num_tokens
            elif isinstance(event, RequestPreempted):
                self._num_preemptions += 1
        elif isinstance(event, KVEvent):
            if isinstance(event, BlockPublished):
                self._check_written(event)
            self.pool.apply(event)
            tag = str(event.__struct_config__.tag)
            self._num_kv_events[tag] = self._num_kv_events.get(tag, 0) + 1
        elif isinstance(event, StepStarted):
            self._step_started()
        elif isinstance(event, StepFinished):
            self._step_finished(event)
        elif isinstance(event, Stalled):
            self._num_stalls += 1
        elif isinstance(event, EngineStarted):
            if (event.num_blocks, event.block_size) != (self._num_blocks, self._block_size):
                raise InvariantError(
                    f"the engine starts with {event.num_blocks} blocks of {event.block_size} tokens, the header says "
                    f"{self._num_blocks} of {self._block_size}"
                )
        elif isinstance(event, EngineFailed):
            self._in_step = False
            self._has_life_ended = True
            if event.lost:
                self.pool = RebuiltPool(num_blocks=self._num_blocks, from_start=True)
        elif isinstance(event, EngineStopped):
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

    def _step_started(self) -> None:
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
        self.pool.check_settled(self._requests.ended)
        self._requests.settle()
