"""The engine core: the one place where the scheduler's side and the tensor side meet.

    step():  schedule -> execute -> sample -> update

Whoever runs the loop (the engine process, `LLM`, a test) drains its inbox between steps by calling `add`, `abort`,
`stop_choice` and `reset_prefix_cache`; what those produce goes out with the next step, or at once by `collect`.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

from engine.clock import Clock
from engine.events import EngineFailed, EngineStopped, EventLog, StepFinished, StepStarted
from engine.execution.executor import ModelRunner, SampledToken, SamplingRow
from engine.execution.forward_batch import LogitsRow, build_forward_batch
from engine.messages import ChoiceOutput, StepOutput
from engine.schedule import Schedule
from engine.scheduler import Scheduler
from engine.sequence import EngineRequest

Logits = TypeVar("Logits")


@dataclass(frozen=True, slots=True)
class _Stages:
    """When the stages of a step ended, in monotonic seconds."""

    started: float
    scheduled: float
    executed: float
    sampled: float
    updated: float


class EngineCore(Generic[Logits]):
    """Runs requests to their end, one step at a time; synchronous and single-threaded.

    Args:
        scheduler: with its block manager; shares `events`.
        runner: executor and sampler.
        events: where everything is said, and what `collect` and `step` return.
        clock: for the durations of stages.
    """

    def __init__(self, scheduler: Scheduler, runner: ModelRunner[Logits], events: EventLog, clock: Clock) -> None:
        self.scheduler = scheduler
        self._runner = runner
        self._events = events
        self._clock = clock
        self._outputs: list[ChoiceOutput] = []

    @property
    def has_work(self) -> bool:
        """Whether `step` has something to compute or to report."""
        return self.scheduler.has_work or bool(self._outputs) or self._events.has_pending

    @property
    def num_steps(self) -> int:
        return self._events.step

    def add(self, request: EngineRequest) -> None:
        """Take a request in; one that can never be served ends with an error output."""
        self._outputs.extend(self.scheduler.add(request))

    def abort(self, request_id: str, reason: str) -> None:
        """End a request that nobody wants any more; unknown ids are counted and ignored."""
        self._outputs.extend(self.scheduler.abort(request_id, reason))

    def stop_choice(self, request_id: str, index: int, num_output_tokens: int) -> None:
        """Complete a choice in which the service found a stop string."""
        self._outputs.extend(self.scheduler.stop_choice(request_id, index, num_output_tokens))

    def reset_prefix_cache(self) -> int:
        """Empty the prefix tree; return how many blocks were in it."""
        return self.scheduler.blocks.reset_prefix_cache()

    def step(self) -> StepOutput:
        """Compute one batch and return what came of it; with nothing to compute, only what is to be reported.

        Raises:
            Exception: whatever the executor or the sampler raised. By then every request has failed, all blocks are
                back, and `collect` or `fail` returns what says so; the core could be used again.
        """
        events, scheduler, now = self._events, self.scheduler, self._clock.now
        if not scheduler.has_work:
            return self.collect()
        events.step += 1
        events.emit(StepStarted, num_waiting=scheduler.num_waiting, num_running=scheduler.num_running)
        started = now()
        try:
            schedule = scheduler.schedule()
            scheduled = executed = sampled = now()
            rows: list[SamplingRow] = []
            tokens: list[SampledToken] = []
            if schedule.entries:
                batch, meanings = build_forward_batch(schedule, block_size=scheduler.config.block_size)
                logits = self._runner.executor.execute(batch)
                executed = now()
                rows = sampling_rows(schedule, meanings)
                tokens = self._runner.sampler.sample(logits, rows)
                sampled = now()
            outputs = scheduler.update(schedule, rows, tokens)
        except Exception as error:
            self._fail(f"{type(error).__name__}: {error}")
            raise
        self._outputs.extend(outputs)
        num_generated = sum(len(output.token_ids) for output in outputs)
        self._say_finished(schedule, num_generated, _Stages(started, scheduled, executed, sampled, now()))
        return self.collect()

    def collect(self) -> StepOutput:
        """Return outputs and events since the last message, and forget them."""
        outputs, self._outputs = self._outputs, []
        return StepOutput.of(outputs, self._events.drain())

    def fail(self, error: str) -> StepOutput:
        """End everything in flight as failed; after a step that raised that is done already, and only reported."""
        if self.scheduler.has_work:
            self._fail(error)
        return self.collect()

    def stop(self, reason: str) -> StepOutput:
        """Abort everything in flight and say engine_stopped."""
        self._outputs.extend(self.scheduler.abort_all(reason))
        self._events.emit(EngineStopped, reason=reason)
        return self.collect()

    def _fail(self, error: str) -> None:
        self._outputs.extend(self.scheduler.fail_all(f"the engine's step failed: {error}"))
        self.reset_prefix_cache()  # nobody can vouch for KV that a failed step may have written
        self._events.emit(EngineFailed, error=error)

    def _say_finished(self, schedule: Schedule, num_generated_tokens: int, stages: _Stages) -> None:
        scheduler = self.scheduler
        counts = scheduler.blocks.counts
        prefills = [entry for entry in schedule.entries if not entry.is_decode]
        num_prefill_tokens = sum(entry.num_tokens for entry in prefills)
        num_decode_tokens = schedule.num_tokens - num_prefill_tokens
        self._events.emit(
            StepFinished,
            kind=_kind(num_prefill_tokens, num_decode_tokens),
            num_seqs=len(schedule.entries),
            num_decode_seqs=len(schedule.entries) - len(prefills),
            num_prefill_tokens=num_prefill_tokens,
            num_decode_tokens=num_decode_tokens,
            num_recomputed_tokens=sum(entry.num_recomputed for entry in prefills),
            num_generated_tokens=num_generated_tokens,
            token_budget=scheduler.config.max_num_batched_tokens,
            num_running=scheduler.num_running,
            num_waiting=scheduler.num_waiting,
            blocked_on=schedule.blocked_on.value,
            schedule_s=stages.scheduled - stages.started,
            execute_s=stages.executed - stages.scheduled,
            sample_s=stages.sampled - stages.executed,
            update_s=stages.updated - stages.sampled,
            num_free_blocks=counts.free,
            num_referenced_blocks=counts.referenced,
            num_cached_blocks=counts.cached,
            num_tail_waste_tokens=scheduler.blocks.num_unwritten_slots,
        )


def sampling_rows(schedule: Schedule, meanings: list[LogitsRow]) -> list[SamplingRow]:
    """Say what is to be done with each logits row; a request with n > 1 draws its first tokens from one row."""
    rows: list[SamplingRow] = []
    for number, meaning in enumerate(meanings):
        seq = schedule.entries[meaning.entry].seq
        position = meaning.position + 1
        if not meaning.is_sample:
            given_token = seq.request.prompt_token_ids[position]
            rows.append(SamplingRow(number, seq, seq.index, position, given_token))
        elif seq.params.n > 1 and not seq.output_token_ids:
            rows.extend(SamplingRow(number, seq, index, position) for index in range(seq.params.n))
        else:
            rows.append(SamplingRow(number, seq, seq.index, position))
    return rows


def _kind(num_prefill_tokens: int, num_decode_tokens: int) -> str:
    if num_prefill_tokens and num_decode_tokens:
        return "mixed"
    if num_prefill_tokens:
        return "prefill"
    return "decode" if num_decode_tokens else "empty"
