"""AsyncEngine's requests, over an engine in a thread."""

import asyncio
import gc
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from engine.client import AsyncEngine, EngineState
from engine.errors import EngineUnavailableError
from engine.events import Event, RequestAborted, RequestArrived, RequestEvent, RequestFinished
from tests.support.async_engine import (
    collect,
    finish_reasons,
    hold_step,
    make_request,
    started_engine,
    token_ids,
    until,
)
from tests.support.fake_core import REFUSED_TOKEN, FakeEngine


def with_engine(test: Callable[[AsyncEngine, FakeEngine, list[Event]], Awaitable[None]]) -> None:
    """Run one async test body against a fresh engine."""

    async def main() -> None:
        fake, events = FakeEngine(), []
        async with started_engine(fake, events=events) as engine:
            await test(engine, fake, events)

    asyncio.run(main())


def terminal_events(events: list[Event], request_id: str) -> list[str]:
    return [
        type(event).__name__
        for event in events
        if isinstance(event, RequestEvent)
        and event.request_id == request_id
        and type(event).__name__ in ("RequestFinished", "RequestAborted", "RequestFailed", "RequestRejected")
    ]


def test_generate_one_request_yields_its_tokens_and_one_terminal_output() -> None:
    async def body(engine: AsyncEngine, fake: FakeEngine, events: list[Event]) -> None:
        outputs = await collect(engine.generate(make_request("a", max_tokens=5)))
        assert token_ids(outputs) == [0, 1, 2, 3, 4]
        assert finish_reasons(outputs) == {0: ["length"]}
        assert terminal_events(events, "a") == ["RequestFinished"]

    with_engine(body)


def test_generate_three_choices_ends_after_the_last_of_them() -> None:
    async def body(engine: AsyncEngine, fake: FakeEngine, events: list[Event]) -> None:
        outputs = await collect(engine.generate(make_request("a", n=3, max_tokens=2)))
        assert [token_ids(outputs, i) for i in range(3)] == [[0, 1], [100, 101], [200, 201]]
        assert finish_reasons(outputs) == {0: ["length"], 1: ["length"], 2: ["length"]}

    with_engine(body)


def test_generate_slow_consumer_gets_several_steps_joined_and_nothing_lost() -> None:
    async def body(engine: AsyncEngine, fake: FakeEngine, events: list[Event]) -> None:
        generation = engine.generate(make_request("a", n=2, max_tokens=50))
        await until(lambda: bool(terminal_events(events, "a")))
        batches = [batch async for batch in generation]
        assert len(batches) == 1
        assert [(o.index, len(o.token_ids), o.finish_reason) for o in batches[0]] == [
            (0, 50, "length"),
            (1, 50, "length"),
        ]
        assert token_ids(batches[0], 1) == [100 + i for i in range(50)]

    with_engine(body)


def test_generate_refused_at_admission_yields_an_error_output_per_choice() -> None:
    async def body(engine: AsyncEngine, fake: FakeEngine, events: list[Event]) -> None:
        outputs = await collect(engine.generate(make_request("a", n=2, prompt=[REFUSED_TOKEN])))
        assert [(o.index, o.finish_reason, o.error_type) for o in outputs] == [
            (0, "error", "invalid_request_error"),
            (1, "error", "invalid_request_error"),
        ]
        assert outputs[0].error == "`prompt` must not begin with 999"
        assert terminal_events(events, "a") == ["RequestRejected"]
        assert await collect(engine.generate(make_request("b"))) != []

    with_engine(body)


def test_generate_same_id_twice_refuses_the_second_and_serves_the_first() -> None:
    async def body(engine: AsyncEngine, fake: FakeEngine, events: list[Event]) -> None:
        first = engine.generate(make_request("a"))
        with pytest.raises(ValueError, match="'a' is in use"):
            engine.generate(make_request("a"))
        assert token_ids(await collect(first)) == [0, 1, 2]

    with_engine(body)


def test_generate_id_of_a_left_request_stays_refused_until_the_engine_ended_it() -> None:
    async def body(engine: AsyncEngine, fake: FakeEngine, events: list[Event]) -> None:
        fake.gate.clear()
        engine.generate(make_request("a")).close()
        with pytest.raises(ValueError, match="in use"):
            engine.generate(make_request("a"))
        fake.gate.set()
        await until(lambda: bool(terminal_events(events, "a")))
        assert token_ids(await collect(engine.generate(make_request("a")))) == [0, 1, 2]

    with_engine(body)


@pytest.mark.parametrize("way", ["close", "async_with", "garbage", "cancelled_task", "cancelled_task_in_with"])
@pytest.mark.parametrize("stage", ["queued", "first_step", "decode"])
def test_generate_consumer_leaves_aborts_within_two_steps(way: str, stage: str) -> None:
    async def body(engine: AsyncEngine, fake: FakeEngine, events: list[Event]) -> None:
        if stage != "decode":
            fake.gate.clear()
        if stage == "queued":
            other = engine.generate(make_request("other", max_tokens=10_000))
            await hold_step(fake)
        generation = engine.generate(make_request("a", max_tokens=1_000_000))
        if stage == "first_step":
            await hold_step(fake)
        elif stage == "decode":
            await anext(generation)
            fake.gate.clear()
            await hold_step(fake)
        (core,) = fake.cores
        step_when_left = core.num_steps

        if way == "close":
            generation.close()
        elif way == "async_with":
            async with generation:
                pass
        elif way == "garbage":
            del generation
            gc.collect()
            await asyncio.sleep(0)
        else:

            async def consume() -> None:
                if way == "cancelled_task":
                    async for _ in generations.pop():
                        pass
                else:
                    async with generations.pop() as mine:
                        async for _ in mine:
                            pass

            generations = [generation]
            del generation
            task = asyncio.create_task(consume())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.sleep(0)
        fake.gate.set()
        await until(lambda: bool(terminal_events(events, "a")))
        aborted = [event for event in events if isinstance(event, RequestAborted)]
        assert [(event.request_id, event.reason) for event in aborted] == [("a", "client_gone")]
        assert aborted[0].step - step_when_left <= 2
        assert "a" not in core.running_ids
        if stage == "queued":
            other.close()

    with_engine(body)


def test_generate_closed_while_its_consumer_waits_ends_the_iteration() -> None:
    async def body(engine: AsyncEngine, fake: FakeEngine, events: list[Event]) -> None:
        fake.gate.clear()
        generation = engine.generate(make_request("a"))
        task = asyncio.create_task(collect(generation))
        await asyncio.sleep(0)
        generation.close()
        assert await task == []
        fake.gate.set()

    with_engine(body)


def test_generate_wait_cancelled_by_a_timeout_keeps_the_request_and_its_tokens() -> None:
    async def body(engine: AsyncEngine, fake: FakeEngine, events: list[Event]) -> None:
        fake.gate.clear()
        async with engine.generate(make_request("a", max_tokens=4)) as generation:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(generation), 0.01)
            fake.gate.set()
            assert token_ids(await collect(generation)) == [0, 1, 2, 3]
        assert terminal_events(events, "a") == ["RequestFinished"]

    with_engine(body)


def test_generate_two_consumers_of_one_stream_refuses_the_second() -> None:
    async def body(engine: AsyncEngine, fake: FakeEngine, events: list[Event]) -> None:
        fake.gate.clear()
        generation = engine.generate(make_request("a"))
        first = asyncio.create_task(collect(generation))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="one consumer"):
            await anext(generation)
        fake.gate.set()
        assert token_ids(await first) == [0, 1, 2]

    with_engine(body)


def test_generate_closed_after_its_end_sends_no_abort() -> None:
    async def body(engine: AsyncEngine, fake: FakeEngine, events: list[Event]) -> None:
        async with engine.generate(make_request("a")) as generation:
            await collect(generation)
        await collect(engine.generate(make_request("b")))
        assert terminal_events(events, "a") == ["RequestFinished"]
        assert engine.num_dropped_outputs == 0

    with_engine(body)


def test_generate_left_in_the_finishing_step_drops_and_counts_the_late_output() -> None:
    async def body(engine: AsyncEngine, fake: FakeEngine, events: list[Event]) -> None:
        fake.gate.clear()
        generation = engine.generate(make_request("a", max_tokens=1))
        await hold_step(fake)
        generation.close()
        fake.gate.set()
        await until(lambda: bool(terminal_events(events, "a")))
        assert terminal_events(events, "a") == ["RequestFinished"]
        assert engine.num_dropped_outputs == 1
        assert token_ids(await collect(engine.generate(make_request("b")))) == [0, 1, 2]

    with_engine(body)


def test_abort_by_another_party_ends_the_consumer_with_abort() -> None:
    async def body(engine: AsyncEngine, fake: FakeEngine, events: list[Event]) -> None:
        generation = engine.generate(make_request("a", n=2, max_tokens=1_000_000))
        await anext(generation)
        assert engine.abort("a", "cancelled by an operator")
        assert finish_reasons(await collect(generation)) == {0: ["abort"], 1: ["abort"]}
        assert [e.reason for e in events if isinstance(e, RequestAborted)] == ["cancelled by an operator"]
        assert not engine.abort("a", "again")
        assert not engine.abort("never sent", "why not")

    with_engine(body)


def test_stop_choice_ends_that_choice_and_leaves_the_other() -> None:
    async def body(engine: AsyncEngine, fake: FakeEngine, events: list[Event]) -> None:
        fake.gate.clear()
        generation = engine.generate(make_request("a", n=2, max_tokens=4))
        await hold_step(fake)
        assert engine.stop_choice("a", 1, 0)
        fake.gate.set()
        assert finish_reasons(await collect(generation)) == {0: ["length"], 1: ["stop"]}
        assert not engine.stop_choice("a", 0, 1)

    with_engine(body)


def test_reset_prefix_cache_returns_what_the_engine_says() -> None:
    async def body(engine: AsyncEngine, fake: FakeEngine, events: list[Event]) -> None:
        assert await engine.reset_prefix_cache() == 7
        assert await asyncio.gather(*(engine.reset_prefix_cache() for _ in range(3))) == [7, 7, 7]

    with_engine(body)


def test_reset_prefix_cache_cancelled_leaves_the_engine_usable() -> None:
    async def body(engine: AsyncEngine, fake: FakeEngine, events: list[Event]) -> None:
        fake.gate.clear()
        generation = engine.generate(make_request("a"))
        await hold_step(fake)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(engine.reset_prefix_cache(), 0.01)
        fake.gate.set()
        assert token_ids(await collect(generation)) == [0, 1, 2]
        assert await engine.reset_prefix_cache() == 7

    with_engine(body)


def test_events_arrive_gapless_and_before_the_consumer_sees_the_outputs() -> None:
    async def body(engine: AsyncEngine, fake: FakeEngine, events: list[Event]) -> None:
        async for batch in engine.generate(make_request("a", max_tokens=20)):
            if batch[-1].finish_reason:
                assert isinstance(events[-1], RequestFinished)
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert sum(isinstance(event, RequestArrived) for event in events) == 1

    with_engine(body)


def test_events_callback_that_raises_is_reported_and_serving_goes_on() -> None:
    async def main() -> None:
        fake = FakeEngine()
        reported: list[BaseException] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))

        class Broken(list[Event]):
            def extend(self, _: object) -> None:
                raise LookupError("a projection is broken")

        async with started_engine(fake, events=Broken()) as engine:
            assert token_ids(await collect(engine.generate(make_request("a")))) == [0, 1, 2]
            assert engine.state is EngineState.READY
        assert {type(error) for error in reported} == {LookupError}

    asyncio.run(main())


@pytest.mark.alone
def test_heartbeat_while_idle_keeps_the_age_small() -> None:
    async def body(engine: AsyncEngine, fake: FakeEngine, events: list[Event]) -> None:
        await collect(engine.generate(make_request("a")))
        await asyncio.sleep(0.2)  # ten heartbeats of silence otherwise
        assert engine.heartbeat_age() < 0.15

    with_engine(body)


def test_generate_huge_prompt_arrives_whole() -> None:
    async def body(engine: AsyncEngine, fake: FakeEngine, events: list[Event]) -> None:
        await collect(engine.generate(make_request("a", prompt=range(200_000))))
        (arrived,) = [event for event in events if isinstance(event, RequestArrived)]
        assert arrived.num_prompt_tokens == 200_000

    with_engine(body)


def test_generate_500_requests_during_a_long_step_never_blocks_the_event_loop() -> None:
    async def body(engine: AsyncEngine, fake: FakeEngine, events: list[Event]) -> None:
        fake.gate.clear()
        blocker = engine.generate(make_request("blocker"))
        await hold_step(fake)
        generations = []
        for i in range(500):
            generations.append(engine.generate(make_request(f"r{i}", prompt=[1000] * 8000)))
            await asyncio.sleep(0)
        assert fake.in_step.is_set()  # so the engine has read nothing: 12 MB wait, and nobody waited for them
        assert engine.num_in_flight == 501
        fake.gate.set()
        results = await asyncio.gather(*(collect(g) for g in [blocker, *generations]))
        assert [token_ids(outputs) for outputs in results] == [[0, 1, 2]] * 501

    with_engine(body)


def test_generate_before_it_is_ready_says_why() -> None:
    async def main() -> None:
        fake = FakeEngine()
        fake.load_gate.clear()
        async with started_engine(fake, is_ready=False) as engine:
            await until(lambda: "fake weights" in engine.reason)
            assert engine.state is EngineState.LOADING
            assert engine.info is None
            with pytest.raises(EngineUnavailableError, match="loading the model: fake weights"):
                engine.generate(make_request())
            fake.load_gate.set()
            info = await engine.wait_ready()
            assert (info.model, engine.state, engine.reason) == ("fake", EngineState.READY, "")
            assert token_ids(await collect(engine.generate(make_request()))) == [0, 1, 2]

    asyncio.run(main())


def test_client_on_uvloop_serves_the_same() -> None:
    async def main() -> None:
        fake, events = FakeEngine(), []
        async with started_engine(fake, events=events) as engine:
            requests = [make_request(f"r{i}", n=2, max_tokens=4, prompt=range(1, 20_001)) for i in range(20)]
            results = await asyncio.gather(*(collect(engine.generate(request)) for request in requests))
            assert all(token_ids(outputs, 1) == [100, 101, 102, 103] for outputs in results)
        assert engine.state is EngineState.CLOSED
        assert [event.seq for event in events] == list(range(1, len(events) + 1))

    uvloop.run(main())
