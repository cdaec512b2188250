"""An engine over the scripted executor that keeps everything it said and checks each event as it comes."""

from collections.abc import Mapping
from collections.abc import Sequence as Many
from typing import Any

from engine.clock import ManualClock
from engine.config import SchedulerConfig
from engine.core import EngineCore
from engine.events import Event, EventLog
from engine.execution.executor import ModelRunner
from engine.execution.simulated_executor import Cue, TokenScript, hashed_tokens, scripted_runner
from engine.kv.block_manager import BlockManager
from engine.messages import ChoiceOutput, StepOutput
from engine.preemption import ShortagePolicy
from engine.sampling_params import SamplingParams
from engine.scheduler import Scheduler
from engine.sequence import EngineRequest
from observability.trace_check import TraceChecker
from observability.trace_report import TraceReport
from tests.support.plain_model import EOS, VOCAB_SIZE

Choice = tuple[str, int]


class ScriptedEngine:
    """Requests in, tokens out, invariants checked by the trace checker after every event.

    Attributes:
        outputs: output tokens by (request id, choice).
        ends: finish reason by (request id, choice).
        errors: error message by request id.
        events: all events so far.
        num_steps: engine steps taken.

    Args:
        num_blocks, block_size, max_num_seqs, max_num_batched_tokens, max_model_len, settings: of SchedulerConfig.
        cues, row_errors, script, verify_kv: of the scripted executor.
        policy: of the scheduler.
        runner: a real executor and sampler instead of the scripted ones.
        blocks_class, scheduler_class: what to build it from, for mutants.
        clock: of the engine, a plain manual one if not given.
        check_every_event: feed the trace checker; off where only speed is measured.
    """

    def __init__(
        self,
        *,
        num_blocks: int,
        block_size: int,
        max_num_seqs: int = 8,
        max_num_batched_tokens: int = 64,
        max_model_len: int = 1 << 20,
        cues: Many[Cue] = (),
        row_errors: Mapping[str, int] | None = None,
        script: TokenScript | None = None,
        verify_kv: bool = True,
        policy: ShortagePolicy | None = None,
        runner: ModelRunner[Any] | None = None,
        blocks_class: type[BlockManager] = BlockManager,
        scheduler_class: type[Scheduler] = Scheduler,
        check_every_event: bool = True,
        eos_token_ids: tuple[int, ...] = (EOS,),
        clock: ManualClock | None = None,
        **settings: object,
    ) -> None:
        self.config = SchedulerConfig(
            num_kv_blocks=num_blocks,
            block_size=block_size,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            max_model_len=max_model_len,
            **settings,  # type: ignore[arg-type]
        )
        self.clock = clock if clock is not None else ManualClock(1.0)
        log = EventLog(self.clock)
        self.blocks = blocks_class(self.config, log)
        self.scheduler = scheduler_class(self.config, self.blocks, log, eos_token_ids, policy=policy)
        scripted = scripted_runner(
            num_blocks=num_blocks,
            block_size=block_size,
            script=script or hashed_tokens(VOCAB_SIZE),
            cues=cues,
            row_errors=row_errors,
            verify_kv=verify_kv,
        )
        self.core: EngineCore[Any] = EngineCore(self.scheduler, runner or scripted, log, self.clock)
        self.outputs: dict[Choice, list[int]] = {}
        self.ends: dict[Choice, str] = {}
        self.errors: dict[str, str] = {}
        self.events: list[Event] = []
        self.num_steps = 0
        self._num_added = 0
        self._check_every_event = check_every_event
        self._checker = TraceChecker(
            num_blocks=num_blocks, block_size=block_size, token_budget=max_num_batched_tokens, from_start=True
        )

    def add(
        self,
        prompt: list[int],
        *,
        request_id: str = "",
        priority: int = 0,
        salt: str = "",
        params: SamplingParams | None = None,
        **settings: object,
    ) -> str:
        """Add a request and return its id; `settings` are SamplingParams fields (`max_tokens`, `n`, ...)."""
        self._num_added += 1
        request_id = request_id or f"r{self._num_added}"
        self.core.add(
            EngineRequest(
                request_id=request_id,
                prompt_token_ids=prompt,
                params=params or SamplingParams(**settings),  # type: ignore[arg-type]
                arrival=self.clock.now(),
                priority=priority,
                cache_salt=salt,
            )
        )
        self.collect()
        return request_id

    def abort(self, request_id: str, reason: str = "cancelled") -> None:
        self.core.abort(request_id, reason)
        self.collect()

    def stop_choice(self, request_id: str, index: int, num_output_tokens: int) -> None:
        """Complete a choice as the service does; its outputs are cut accordingly."""
        self.core.stop_choice(request_id, index, num_output_tokens)
        self.collect()

    def reset_prefix_cache(self) -> int:
        num_blocks = self.core.reset_prefix_cache()
        self.collect()
        return num_blocks

    def step(self) -> StepOutput:
        """Take one step, a millisecond long; what it raised is raised after its outputs and events were taken in."""
        self.num_steps += 1
        self.clock.advance(0.001)
        try:
            output = self.core.step()
        except Exception:
            self.collect()
            raise
        self._take_in(output)
        return output

    def run(self, *, max_steps: int) -> int:
        """Step until nothing is left to do and return the number of steps; fails beyond `max_steps`."""
        for num_steps in range(max_steps):
            if not self.core.has_work:
                return num_steps
            self.step()
        assert not self.core.has_work, (
            f"after {max_steps} steps still waiting: {self.scheduler.waiting_ids}, running: {self.scheduler.running}"
        )
        return max_steps

    def collect(self) -> None:
        """Take in what was said since the last step."""
        self._take_in(self.core.collect())

    def check_at_rest(self) -> TraceReport:
        """Assert that nothing runs, waits or is held, and that the whole trace is sound; return its report."""
        assert not self.core.has_work
        assert (self.scheduler.num_running, self.scheduler.num_waiting) == (0, 0)
        counts = self.blocks.counts
        assert counts.referenced == 0, f"{counts} at rest"
        assert counts.free + counts.cached == self.config.num_kv_blocks
        report = self._checker.finish()
        assert report.ok, report.to_text()
        assert report.num_in_flight == 0, report.to_text()
        self.blocks.check_invariants([])
        assert report.num_received == sum(report.num_ended.values()), report.to_text()
        return report

    def check_between_steps(self) -> None:
        """Assert that the engine's own tables and the pool rebuilt from its events are the same."""
        running = self.scheduler.running
        assert self._checker.pool.tables == {(seq.request_id, seq.index): seq.block_table for seq in running}
        counts, rebuilt = self.blocks.counts, self._checker.pool.counts
        assert (counts.free, counts.referenced, counts.cached) == (
            rebuilt["free"],
            rebuilt["referenced"],
            rebuilt["cached"],
        )
        self.blocks.check_invariants(running)

    def kinds(self, *kinds: type[Event]) -> list[Event]:
        """Return the events of these types, in order."""
        return [event for event in self.events if isinstance(event, kinds)]

    def _take_in(self, message: StepOutput) -> None:
        for output in message.outputs:
            self._take_output(output)
        self.events.extend(message.events)
        if self._check_every_event:
            for event in message.events:
                if not self._checker.feed(event):
                    raise AssertionError(self._checker.finish().to_text())

    def _take_output(self, output: ChoiceOutput) -> None:
        choice = (output.request_id, output.index)
        assert choice not in self.ends, f"{choice} got {output} after it ended with {self.ends[choice]}"
        self.outputs.setdefault(choice, []).extend(output.token_ids)
        if output.finish_reason:
            self.ends[choice] = output.finish_reason
        if output.error:
            self.errors[output.request_id] = output.error
