"""The book of the engine: its steps, its pool of KV blocks, and whether it is up."""

from collections import deque
from collections.abc import Callable

from engine.events import (
    BlockAllocated,
    BlockEvicted,
    BlockFreed,
    BlockReleased,
    BlockShared,
    EngineFailed,
    EngineStarted,
    EngineStopped,
    Stalled,
    StepFinished,
    StepStarted,
)
from observability.engine_tape import EngineTape
from observability.kv_pool import PoolCounts
from observability.label_sets import STAGES, STEP_KINDS, WAIT_REASONS
from observability.metrics import Metrics
from observability.window import Window


class EngineBook:
    """Fed with step, KV and engine events.

    Args:
        metrics: where counts and observations go.
        window: the same, by second.
        tape: gets the steps too.
        num_steps: step records kept, newest out of a ring.

    Attributes:
        started: what the engine said when it came up last, None before.
        state: `loading`, `ready` or `down`.
        pool: KV blocks by state, from block events; taken over from each step_finished.
        steps: (monotonic start, step_finished) of the steps kept, oldest first.
    """

    def __init__(self, metrics: Metrics, window: Window, *, tape: EngineTape, num_steps: int) -> None:
        self._metrics = metrics
        self._window = window
        self._tape = tape
        self.started: EngineStarted | None = None
        self.state = "loading"
        self.pool = PoolCounts()
        self.steps: deque[tuple[float, StepFinished]] = deque(maxlen=num_steps)
        self.num_steps_overwritten = 0
        self._last_heard: float | None = None
        self._heartbeat_age: Callable[[], float] | None = None
        self._step_started: float | None = None
        self._counted_until: float | None = None  # wall time of the loop is in the stages up to here
        self._has_work = False  # after the last event
        self._blocked_on = ""
        self._tail_waste_tokens = 0
        # series touched in every step
        self._num_steps = metrics.steps.at()
        self._evictions = metrics.kv_evictions.at()
        self._stages = {stage: metrics.stage_seconds.at(stage) for stage in STAGES}
        self._durations = {kind: metrics.step_duration.at(kind) for kind in STEP_KINDS}
        self._prefill_tokens = metrics.step_tokens.at("prefill")
        self._decode_tokens = metrics.step_tokens.at("decode")
        self._decode_batch = metrics.decode_batch.at()

    # --- reading ---

    @property
    def tail_waste_tokens(self) -> int:
        """As of the last step, 0 once no block is referenced."""
        return self._tail_waste_tokens if self.pool.referenced else 0

    def waiting_reason(self, num_waiting: int) -> str:
        """Return what the head of the queue waits for, "" when nothing waits.

        `next_step` means that no step has looked at it yet.
        """
        if num_waiting == 0:
            return ""
        return self._blocked_on if self._blocked_on in WAIT_REASONS else "next_step"

    def heartbeat_age_s(self, now: float) -> float | None:
        """Return the time since the engine was last heard from, None before the first word.

        Without a heartbeat to follow, only events count as words: an idle engine grows old.
        """
        if self._heartbeat_age is not None:
            return self._heartbeat_age()
        return None if self._last_heard is None else max(0.0, now - self._last_heard)

    def follow_heartbeat(self, age_s: Callable[[], float]) -> None:
        self._heartbeat_age = age_s

    def heard(self, t: float) -> None:
        self._last_heard = t if self._last_heard is None else max(self._last_heard, t)

    # --- step events ---

    def on_step_started(self, event: StepStarted) -> None:
        self._step_started = event.t
        self._between_steps(event.t)
        self._tape.begin(event)

    def rest(self, t: float) -> None:
        """Nothing runs or waits any more: from here on the engine is idle."""
        if self._has_work:
            self._between_steps(t)
            self._has_work = False

    def idle_until(self, now: float) -> None:
        """Count idle time up to now; else a scrape would not see it until the next step."""
        if not self._has_work:
            self._between_steps(now)

    def _between_steps(self, t: float) -> None:
        """Count the time since the last step's end; what was counted ahead of it by `idle_until` isn't twice."""
        if self._counted_until is None:
            return
        self._stages["messages" if self._has_work else "idle"].inc(max(0.0, t - self._counted_until))
        self._counted_until = max(t, self._counted_until)

    def on_step_finished(self, event: StepFinished) -> None:
        stages_s = event.schedule_s + event.execute_s + event.sample_s + event.update_s
        started = self._step_started if self._step_started is not None else event.t - stages_s
        duration = event.t - started
        self._step_started = None
        self._counted_until = event.t
        self._has_work = bool(event.num_running or event.num_waiting)
        self._blocked_on = event.blocked_on
        self._tail_waste_tokens = event.num_tail_waste_tokens
        self.pool.set_to(event.num_free_blocks, event.num_referenced_blocks, event.num_cached_blocks)
        self._tape.end(event)
        self._keep(started, event)
        self._observe(event, duration, stages_s)
        self._add_to_second(event, duration)

    def _keep(self, started: float, event: StepFinished) -> None:
        if len(self.steps) == self.steps.maxlen:
            self.num_steps_overwritten += 1
        self.steps.append((started, event))

    def _observe(self, event: StepFinished, duration: float, stages_s: float) -> None:
        stages = self._stages
        self._num_steps.value += 1
        stages["schedule"].value += event.schedule_s
        stages["execute"].value += event.execute_s
        stages["sample"].value += event.sample_s
        stages["update"].value += event.update_s
        stages["other"].value += max(0.0, duration - stages_s)
        if event.kind in self._durations:
            self._durations[event.kind].observe(duration)
        if event.num_prefill_tokens:
            self._prefill_tokens.observe(event.num_prefill_tokens)
        if event.num_decode_seqs:
            self._decode_tokens.observe(event.num_decode_tokens)
            self._decode_batch.observe(event.num_decode_seqs)

    def _add_to_second(self, event: StepFinished, duration: float) -> None:
        second = self._window.at(event.t)
        second.steps += 1
        second.prefill_tokens += event.num_prefill_tokens
        second.decode_tokens += event.num_decode_tokens
        if event.num_decode_seqs:
            second.decode_steps += 1
            second.decode_seqs += event.num_decode_seqs
        second.busy_s += duration
        second.schedule_s += event.schedule_s
        second.execute_s += event.execute_s
        second.sample_s += event.sample_s
        second.update_s += event.update_s

    def on_stalled(self, event: Stalled) -> None:
        self._metrics.stalls.at().inc()

    # --- KV events ---

    def on_block_allocated(self, event: BlockAllocated) -> None:
        self.pool.allocated()

    def on_block_shared(self, event: BlockShared) -> None:
        self.pool.shared(event.ref_count)

    def on_block_released(self, event: BlockReleased) -> None:
        self.pool.released(event.ref_count)

    def on_block_freed(self, event: BlockFreed) -> None:
        self.pool.freed()

    def on_block_evicted(self, event: BlockEvicted) -> None:
        self._evictions.value += 1
        self._window.at(event.t).evictions += 1

    # --- engine events ---

    def on_engine_started(self, event: EngineStarted) -> None:
        if self.started is not None:
            self._metrics.engine_restarts.at().inc()
        self.started = event
        self.state = "ready"
        self._forget_step()
        self._tape.restart()
        self.pool.reset(event.num_blocks)
        self._metrics.model_info.set(model=event.model, executor=event.executor)
        self._metrics.cache_info.set(
            block_size=str(event.block_size),
            num_blocks=str(event.num_blocks),
            prefix_cache="true" if event.prefix_cache else "false",
        )

    def on_engine_down(self, event: EngineStopped | EngineFailed) -> None:
        self.state = "down"
        self._forget_step()
        self.pool.reset(0)

    def _forget_step(self) -> None:
        self._step_started = None
        self._counted_until = None
        self._has_work = False
        self._blocked_on = ""
        self._tail_waste_tokens = 0
