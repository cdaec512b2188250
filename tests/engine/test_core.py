"""EngineCore: one step from schedule to update, what it says, and what is left when a step raises."""

from collections.abc import Sequence as Many

import pytest

from engine.clock import ManualClock
from engine.config import SchedulerConfig
from engine.core import EngineCore, sampling_rows
from engine.events import (
    EngineFailed,
    EngineStopped,
    EventLog,
    RequestAborted,
    RequestFailed,
    StepFinished,
    StepStarted,
)
from engine.execution.executor import ModelRunner, SampledToken, SamplingRow
from engine.execution.forward_batch import ForwardBatch, build_forward_batch
from engine.kv.block_manager import BlockManager
from engine.messages import StepOutput
from engine.sampling_params import SamplingParams
from engine.scheduler import Scheduler
from engine.sequence import EngineRequest


class StepTimer:
    """Executor and sampler in one, each of which takes a known time and may fail at a given call."""

    def __init__(self, clock: ManualClock, *, execute_fails_at: int = 0, sample_fails_at: int = 0) -> None:
        self._clock = clock
        self._execute_fails_at, self._sample_fails_at = execute_fails_at, sample_fails_at
        self.num_calls = 0
        self.batches: list[ForwardBatch] = []

    @property
    def name(self) -> str:
        return "timer"

    def execute(self, batch: ForwardBatch) -> int:
        self.num_calls += 1
        self.batches.append(batch)
        if self.num_calls == self._execute_fails_at:
            raise RuntimeError("the kernel failed")
        self._clock.advance(0.25)
        return len(batch.logits_rows)

    def sample(self, logits: int, rows: Many[SamplingRow]) -> list[SampledToken]:
        if self.num_calls == self._sample_fails_at:
            raise RuntimeError("the sampler failed")
        self._clock.advance(0.125)
        assert {row.logits_row for row in rows} == set(range(logits))
        return [SampledToken(1000 + row.position) for row in rows]


class Bench:
    def __init__(self, *, execute_fails_at: int = 0, sample_fails_at: int = 0, **settings: object) -> None:
        values = {"block_size": 4, "num_kv_blocks": 16, "max_num_batched_tokens": 16, "max_num_seqs": 8, **settings}
        config = SchedulerConfig(**values)  # type: ignore[arg-type]
        clock = ManualClock(5.0)
        self.events = EventLog(clock)
        self.timer = StepTimer(clock, execute_fails_at=execute_fails_at, sample_fails_at=sample_fails_at)
        self.scheduler = Scheduler(config, BlockManager(config, self.events), self.events, (0,))
        self.core: EngineCore[int] = EngineCore(self.scheduler, ModelRunner(self.timer, self.timer), self.events, clock)

    def add(self, name: str, num_prompt: int, **params: object) -> None:
        self.core.add(
            EngineRequest(
                request_id=name,
                prompt_token_ids=list(range(num_prompt)),
                params=SamplingParams(**{"ignore_eos": True, **params}),  # type: ignore[arg-type]
                arrival=4.0,
            )
        )

    def run(self) -> StepOutput:
        outputs, events = [], []
        while self.core.has_work:
            message = self.core.step()
            outputs += message.outputs
            events += message.events
        return StepOutput.of(outputs, events)


def test_step_says_its_tokens_stages_and_pool() -> None:
    bench = Bench()
    bench.add("a", 6, max_tokens=3)
    bench.core.step()
    bench.core.add(
        EngineRequest(request_id="b", prompt_token_ids=[50, 51], params=SamplingParams(max_tokens=5), arrival=5.0)
    )
    message = bench.core.step()
    (finished,) = [event for event in message.events if isinstance(event, StepFinished)]
    assert finished == StepFinished(
        seq=finished.seq,
        t=5.75,
        step=2,
        kind="mixed",
        num_seqs=2,
        num_decode_seqs=1,
        num_prefill_tokens=2,
        num_decode_tokens=1,
        num_recomputed_tokens=0,
        num_generated_tokens=2,
        token_budget=16,
        num_running=2,
        num_waiting=0,
        blocked_on="",
        schedule_s=0.0,
        execute_s=0.25,
        sample_s=0.125,
        update_s=0.0,
        num_free_blocks=13,
        num_referenced_blocks=3,
        num_cached_blocks=0,
        num_tail_waste_tokens=3,
    )
    assert [(output.request_id, output.token_ids) for output in message.outputs] == [("a", [1007]), ("b", [1002])]


def test_steps_are_numbered_from_one_and_events_carry_the_step() -> None:
    bench = Bench()
    bench.add("a", 4, max_tokens=3)
    assert [event.step for event in bench.core.collect().events] == [0, 0]
    steps = [{event.step for event in bench.core.step().events} for _ in range(3)]
    assert steps == [{1}, {2}, {3}]


def test_events_are_numbered_without_a_gap() -> None:
    bench = Bench()
    for name in "abc":
        bench.add(name, 9, max_tokens=4)
    events = bench.run().events
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [event.t for event in events] == sorted(event.t for event in events)


def test_step_with_nothing_to_do_reports_and_is_no_step() -> None:
    bench = Bench()
    assert not bench.core.has_work
    bench.add("a", 4)
    bench.core.abort("a", "client gone")
    assert bench.core.has_work
    message = bench.core.step()
    assert [output.finish_reason for output in message.outputs] == ["abort"]
    assert not [event for event in message.events if isinstance(event, StepStarted | StepFinished)]
    assert (bench.core.num_steps, bench.core.has_work) == (0, False)


def test_refusal_comes_out_with_the_next_message() -> None:
    bench = Bench()
    bench.add("a", 100)
    (output,) = bench.core.step().outputs
    assert (output.finish_reason, output.error_type) == ("error", "invalid_request_error")


def test_prefill_chunks_and_decodes_share_one_forward_pass() -> None:
    bench = Bench()
    bench.add("a", 3, max_tokens=9)
    bench.core.step()
    bench.add("b", 30, max_tokens=1)
    bench.core.step()
    batch = bench.timer.batches[-1]
    assert (batch.num_seqs, batch.num_tokens) == (2, 16)
    assert batch.query_start.tolist() == [0, 1, 16]
    assert batch.logits_rows.tolist() == [0]


def test_sampling_rows_draw_all_first_tokens_of_a_request_from_one_row() -> None:
    bench = Bench()
    bench.add("a", 6, n=3, prompt_logprobs=0)
    schedule = bench.scheduler.schedule()
    _, meanings = build_forward_batch(schedule, block_size=4)
    rows = [(row.logits_row, row.index, row.position, row.given_token) for row in sampling_rows(schedule, meanings)]
    assert rows == [
        *[(i, 0, i + 1, i + 1) for i in range(5)],
        (5, 0, 6, -1),
        (5, 1, 6, -1),
        (5, 2, 6, -1),
    ]


def test_reset_of_the_prefix_cache_returns_the_number_of_blocks() -> None:
    bench = Bench()
    bench.add("a", 8, max_tokens=1)
    bench.run()
    assert bench.core.reset_prefix_cache() == 2
    assert bench.core.reset_prefix_cache() == 0


def test_service_stop_in_the_middle_is_reported_with_the_next_step() -> None:
    bench = Bench()
    bench.add("a", 4, max_tokens=9)
    bench.core.step()
    bench.core.step()
    bench.core.stop_choice("a", 0, 1)
    (output,) = bench.core.step().outputs
    assert (output.finish_reason, output.token_ids) == ("stop", [])


@pytest.mark.parametrize("failing", ["execute", "sample"])
@pytest.mark.parametrize("call", [1, 2, 3, 4])
def test_step_that_raises_fails_everything_and_leaves_the_engine_usable(failing: str, call: int) -> None:
    bench = Bench(max_num_batched_tokens=8, **{f"{failing}_fails_at": call})
    bench.add("a", 6, max_tokens=9, n=2)
    bench.add("b", 20, max_tokens=2)
    bench.add("c", 4, max_tokens=2)
    outputs, events = [], []
    for _ in range(call - 1):
        message = bench.core.step()
        outputs += message.outputs
        events += message.events
    with pytest.raises(RuntimeError, match="failed"):
        bench.core.step()
    message = bench.core.fail("reported by the loop")
    outputs += message.outputs
    events += message.events

    ended = [(output.request_id, output.index) for output in outputs if output.finish_reason]
    assert sorted(ended) == [("a", 0), ("a", 1), ("b", 0), ("c", 0)]
    failed = [event for event in message.events if isinstance(event, RequestFailed)]
    assert [event.request_id for event in failed] == ["a", "b", "c"]
    assert isinstance(message.events[-1], EngineFailed)
    assert len([event for event in events if isinstance(event, EngineFailed)]) == 1
    counts = bench.scheduler.blocks.counts
    assert (counts.free, counts.cached) == (16, 0)
    bench.scheduler.blocks.check_invariants([])

    bench.add("d", 6, max_tokens=2)
    assert [output.token_ids for output in bench.run().outputs] == [[1006], [1007]]


def test_failure_outside_a_step_fails_everything_once() -> None:
    bench = Bench()
    bench.add("a", 6)
    message = bench.core.fail("the loop raised")
    assert [output.finish_reason for output in message.outputs] == ["error"]
    assert isinstance(message.events[-1], EngineFailed)
    assert bench.core.fail("again").events == []


def test_stop_aborts_what_runs_and_waits_and_is_the_last_word() -> None:
    bench = Bench(max_num_seqs=1)
    bench.add("a", 6)
    bench.add("b", 6)
    bench.core.step()
    message = bench.core.stop("drained")
    assert [output.finish_reason for output in message.outputs] == ["abort", "abort"]
    assert [type(event) for event in message.events if isinstance(event, RequestAborted)] == [RequestAborted] * 2
    assert isinstance(message.events[-1], EngineStopped)
    assert bench.scheduler.blocks.counts.referenced == 0


def test_message_names_the_requests_whose_last_event_it_carries() -> None:
    log = EventLog(ManualClock())
    log.emit(RequestAborted, request_id="a", reason="x", num_output_tokens=1)
    log.emit(StepStarted, num_waiting=0, num_running=1)
    log.emit(RequestFailed, request_id="b", error_type="internal_error", message="x", num_output_tokens=1)
    assert StepOutput.of([], log.drain()).ended == ["a", "b"]
