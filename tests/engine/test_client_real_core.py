"""AsyncEngine over the real scheduler and block manager (scripted executor): who leaves gives everything back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from engine.client import AsyncEngine
from engine.clock import SystemClock
from engine.config import SchedulerConfig
from engine.errors import RequestFailedError
from engine.events import EngineFailed, Event, RequestAborted, StepFinished
from engine.launch import EngineThread
from observability.trace_check import TraceChecker
from tests.support.async_engine import CONFIG, FAST, collect, finish_reasons, make_request, token_ids, until
from tests.support.scripted_service import ScriptedCore, StepGate, emits

SCHEDULING = SchedulerConfig(
    block_size=4, num_kv_blocks=64, max_num_seqs=2, max_num_batched_tokens=16, max_model_len=256
)
PROMPT = list(range(1, 65))  # four chunks of a step's whole budget


class Engine:
    """A client over a thread with a real core whose steps the test lets go one by one.

    Attributes:
        gate: holds the steps.
        events: everything delivered.
        client: the AsyncEngine.
        handle: the running engine's.
    """

    def __init__(self) -> None:
        self.gate = StepGate()
        self.events: list[Event] = []
        self.scripted = ScriptedCore(script=emits([65], then=66), scheduling=SCHEDULING, cues=[self.gate])
        self.client: AsyncEngine
        self.handle: EngineThread

    def launch(self) -> EngineThread:
        self.handle = EngineThread(self.scripted.build, clock=SystemClock())  # type: ignore[arg-type]
        return self.handle

    @property
    def num_held_blocks(self) -> int:
        assert self.scripted.core is not None
        return self.scripted.core.scheduler.blocks.counts.referenced

    @property
    def num_steps(self) -> int:
        assert self.scripted.core is not None
        return self.scripted.core.num_steps

    async def stand_in_step(self) -> None:
        assert await asyncio.to_thread(self.gate.waiting.wait, 10.0)

    async def step(self) -> None:
        """Let the step that is held go, and wait until the next one is held."""
        before = self.num_steps
        self.gate.waiting.clear()
        self.gate.step()
        await until(lambda: self.num_steps > before and self.gate.waiting.is_set())

    def check_trace(self) -> None:
        checker = TraceChecker(
            num_blocks=SCHEDULING.num_kv_blocks,
            block_size=SCHEDULING.block_size,
            token_budget=SCHEDULING.max_num_batched_tokens,
            from_start=True,
        )
        for event in self.events:
            checker.feed(event)
        report = checker.finish()
        assert report.ok, report.to_text()
        assert report.num_in_flight == 0, report.to_text()


@asynccontextmanager
async def running() -> AsyncIterator[Engine]:
    engine = Engine()
    engine.client = await AsyncEngine.start(
        CONFIG,
        clock=SystemClock(),
        on_events=engine.events.extend,
        launcher=engine.launch,
        supervision=FAST,
    )
    async with engine.client:
        await engine.client.wait_ready()
        yield engine


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("stage", ["in_the_first_chunk", "between_chunks", "at_the_first_token", "in_decode"])
def test_consumer_that_leaves_gives_its_blocks_back_within_two_steps(stage: str, n: int) -> None:
    num_steps_before = {"in_the_first_chunk": 0, "between_chunks": 2, "at_the_first_token": 3, "in_decode": 6}

    async def main() -> None:
        async with running() as engine:
            engine.gate.close()
            generation = engine.client.generate(make_request("a", n=n, max_tokens=100, prompt=PROMPT))
            await engine.stand_in_step()
            for _ in range(num_steps_before[stage]):
                await engine.step()
            assert engine.num_held_blocks > 0
            left_in_step = engine.num_steps
            generation.close()
            engine.gate.open()
            await until(lambda: any(isinstance(event, RequestAborted) for event in engine.events))
            assert engine.num_held_blocks == 0
            (aborted,) = [event for event in engine.events if isinstance(event, RequestAborted)]
            assert (aborted.request_id, aborted.reason) == ("a", "client_gone")
            assert engine.num_steps - left_in_step <= 1
            assert token_ids(await collect(engine.client.generate(make_request("b", max_tokens=2)))) == [65, 66]
        engine.check_trace()

    asyncio.run(main())


def test_consumer_that_leaves_while_it_waits_for_admission_never_gets_a_block() -> None:
    async def main() -> None:
        async with running() as engine:
            engine.gate.close()
            first = [engine.client.generate(make_request(f"r{i}", max_tokens=5)) for i in range(2)]
            await engine.stand_in_step()
            waiting = engine.client.generate(make_request("waits", max_tokens=5))
            await engine.step()
            waiting.close()
            engine.gate.open()
            for generation in first:
                assert finish_reasons(await collect(generation)) == {0: ["length"]}
            await until(lambda: any(isinstance(event, RequestAborted) for event in engine.events))
            assert engine.num_held_blocks == 0
        engine.check_trace()

    asyncio.run(main())


def test_consumer_that_leaves_in_the_finishing_step_ends_finished_once() -> None:
    async def main() -> None:
        async with running() as engine:
            engine.gate.close()
            generation = engine.client.generate(make_request("a", max_tokens=1))
            await engine.stand_in_step()
            generation.close()
            engine.gate.open()
            await until(lambda: any(isinstance(event, StepFinished) for event in engine.events))
            assert await engine.client.reset_prefix_cache() >= 0
            assert engine.num_held_blocks == 0
            assert engine.client.num_dropped_outputs == 1
        engine.check_trace()

    asyncio.run(main())


def test_many_requests_a_third_of_them_left_at_some_moment_all_end_once() -> None:
    async def use(engine: Engine, i: int) -> None:
        request = make_request(f"r{i}", n=1 + i % 2, max_tokens=1 + i % 13, prompt=[1 + i % 7] * (1 + i % 40))
        async with engine.client.generate(request) as generation:
            if i % 3 == 0:
                for _ in range(i % 5):
                    await anext(generation, None)
                return
            outputs = await collect(generation)
            assert finish_reasons(outputs) == {index: ["length"] for index in range(1 + i % 2)}

    async def main() -> None:
        async with running() as engine:
            async with asyncio.TaskGroup() as group:
                for i in range(200):
                    group.create_task(use(engine, i))
            await engine.client.reset_prefix_cache()
            await until(lambda: engine.num_held_blocks == 0)
        engine.check_trace()

    asyncio.run(main())


def test_engine_lost_in_decode_leaves_a_trace_that_holds() -> None:
    async def main() -> None:
        async with running() as engine:
            engine.gate.close()
            generation = engine.client.generate(make_request("a", max_tokens=100, prompt=PROMPT))
            await engine.stand_in_step()
            for _ in range(5):
                await engine.step()
            engine.handle.kill()
            with pytest.raises(RequestFailedError):
                await collect(generation)
            engine.gate.open()
            await until(lambda: engine.client.num_restarts == 1)
            await engine.client.wait_ready()
            end = 1 + next(i for i, event in enumerate(engine.events) if isinstance(event, EngineFailed))
            engine.events[end:] = []
            engine.check_trace()

    asyncio.run(main())
