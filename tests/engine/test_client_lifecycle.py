"""AsyncEngine and the life of its engine: loading, loss, hang, restart, drain, close."""

import asyncio
import gc
import os
import threading

import pytest

from engine.client import AsyncEngine, EngineState
from engine.clock import ManualClock, SystemClock
from engine.errors import ConfigError, EngineUnavailableError, ModelLoadError, PellucidError, RequestFailedError
from engine.events import (
    EngineFailed,
    EngineStarted,
    EngineStopped,
    Event,
    RequestAborted,
    RequestArrived,
    RequestEvent,
    RequestFailed,
)
from engine.launch import EngineHandle, EngineThread, Launcher
from engine.supervision import SupervisionConfig
from tests.support.async_engine import (
    CONFIG,
    FAST,
    collect,
    hold_step,
    make_request,
    started_engine,
    token_ids,
    until,
)
from tests.support.fake_core import FakeEngine


class CountingLauncher:
    """Launches threads over a fake engine and keeps their handles."""

    def __init__(self, fake: FakeEngine) -> None:
        self._fake = fake
        self.handles: list[EngineHandle] = []

    def __call__(self) -> EngineHandle:
        self.handles.append(EngineThread(self._fake.build, clock=SystemClock()))
        return self.handles[-1]


async def start(
    launcher: Launcher, events: list[Event], *, supervision: SupervisionConfig = FAST, clock: ManualClock | None = None
) -> AsyncEngine:
    return await AsyncEngine.start(
        CONFIG, clock=clock or SystemClock(), on_events=events.extend, launcher=launcher, supervision=supervision
    )


def lives(events: list[Event]) -> list[list[Event]]:
    """Cut the delivered events into one list per life of the engine."""
    streams: list[list[Event]] = []
    for event in events:
        if event.seq == 1:
            streams.append([])
        streams[-1].append(event)
    return streams


def assert_stream_is_whole(stream: list[Event]) -> None:
    """Gapless, opened and ended by an engine event, one `arrived` and one terminal event per request."""
    assert [event.seq for event in stream] == list(range(1, len(stream) + 1))
    assert isinstance(stream[0], EngineStarted)
    assert isinstance(stream[-1], EngineFailed | EngineStopped)
    assert sum(isinstance(event, EngineFailed | EngineStopped) for event in stream) == 1
    requests = {event.request_id for event in stream if isinstance(event, RequestEvent)}
    for request_id in requests:
        own = [type(e).__name__ for e in stream if isinstance(e, RequestEvent) and e.request_id == request_id]
        assert own[0] == "RequestArrived", own
        terminal = ("RequestFinished", "RequestAborted", "RequestFailed", "RequestRejected")
        assert [name for name in own if name in terminal] == own[-1:], own


# --- loading -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ModelLoadError("`magic` is wrong"), ConfigError("`dtype` is unknown")])
def test_start_model_that_cannot_load_fails_for_good_with_its_error(
    error: PellucidError, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        fake, events = FakeEngine(), []
        fake.load_error = error
        launcher = CountingLauncher(fake)
        async with await start(launcher, events) as engine:
            with pytest.raises(type(error), match=error.message):
                await engine.wait_ready()
            assert (engine.state, engine.reason) == (EngineState.FAILED, error.message)
            with pytest.raises(EngineUnavailableError, match=error.message):
                engine.generate(make_request())
            with pytest.raises(type(error)):
                await engine.wait_ready()
        assert len(launcher.handles) == 1
        assert launcher.handles[0].wait(1.0) == 2
        assert events == []

    asyncio.run(main())
    assert caplog.records == []  # whoever waits for it says it, once


def test_start_loader_that_raises_something_unforeseen_fails_for_good_and_names_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        fake = FakeEngine()
        fake.load_error = KeyError("blk.0.weird")
        launcher = CountingLauncher(fake)
        async with await start(launcher, []) as engine:
            with pytest.raises(EngineUnavailableError, match=r"KeyError: 'blk\.0\.weird'"):
                await engine.wait_ready()
        assert len(launcher.handles) == 1

    asyncio.run(main())
    assert "loading the model raised" in caplog.text


def test_start_load_that_hangs_is_cut_after_the_load_timeout() -> None:
    async def main() -> None:
        fake = FakeEngine()
        fake.load_gate.clear()
        limits = SupervisionConfig(check_s=0.01, load_timeout_s=0.05, max_restarts=0, shutdown_s=0.1, reap_s=0.05)
        launcher = CountingLauncher(fake)
        async with await start(launcher, [], supervision=limits) as engine:
            with pytest.raises(EngineUnavailableError, match=r"silent for .* load: fake weights"):
                await engine.wait_ready()
        fake.load_gate.set()
        assert launcher.handles[0].wait(5.0) is not None

    asyncio.run(main())


def test_start_that_the_system_refuses_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        launcher = CountingLauncher(FakeEngine())
        refusals = [OSError("out of processes"), OSError("out of processes")]

        def launch() -> EngineHandle:
            if refusals:
                raise refusals.pop()
            return launcher()

        async with await start(launch, []) as engine:
            await engine.wait_ready()
            assert (engine.num_restarts, len(launcher.handles)) == (2, 1)

    asyncio.run(main())
    assert "out of processes" in caplog.text


def test_start_with_a_launcher_that_is_broken_fails_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    def launch() -> EngineHandle:
        raise LookupError("no such launcher")

    async def main() -> None:
        async with await start(launch, []) as engine:
            with pytest.raises(EngineUnavailableError, match="LookupError: no such launcher"):
                await engine.wait_ready()
            assert engine.state is EngineState.FAILED

    asyncio.run(main())


# --- loss ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["loading", "idle", "prefill", "decode"])
def test_engine_lost_at_any_stage_fails_what_was_in_flight_and_comes_back(stage: str) -> None:
    async def main() -> None:
        fake, events = FakeEngine(), []
        launcher = CountingLauncher(fake)
        if stage == "loading":
            fake.load_gate.clear()
        async with await start(launcher, events) as engine:
            generation = None
            if stage == "loading":
                await until(lambda: "fake weights" in engine.reason)
            else:
                await engine.wait_ready()
            if stage in ("prefill", "decode"):
                fake.gate.clear()
                generation = engine.generate(make_request("a", n=2, max_tokens=1_000_000))
                await hold_step(fake)
            if generation is not None and stage == "decode":
                fake.gate.set()
                await anext(generation)
            launcher.handles[0].kill()
            fake.load_gate.set()
            fake.gate.set()
            if generation is not None:
                with pytest.raises(RequestFailedError, match="the engine was lost"):
                    await collect(generation)
            await until(lambda: engine.num_restarts == 1)
            await engine.wait_ready()
            assert token_ids(await collect(engine.generate(make_request("a")))) == [0, 1, 2]
            assert engine.num_in_flight == 0
        streams = lives(events)
        for stream in streams:
            assert_stream_is_whole(stream)
        if stage in ("prefill", "decode"):
            failed = [event for event in streams[0] if isinstance(event, RequestFailed)]
            assert [(e.request_id, e.error_type) for e in failed] == [("a", "internal_error")]
            assert (failed[0].num_output_tokens > 0) == (stage == "decode")

    asyncio.run(main())


def test_engine_lost_ends_its_event_stream_in_its_place() -> None:
    async def main() -> None:
        fake, events = FakeEngine(), []
        launcher = CountingLauncher(fake)
        async with await start(launcher, events) as engine:
            await engine.wait_ready()
            fake.gate.clear()
            known = engine.generate(make_request("known", max_tokens=1_000_000))
            await hold_step(fake)
            fake.gate.set()
            await anext(known)
            fake.gate.clear()
            await hold_step(fake)
            unread = engine.generate(make_request("unread", prompt=[1] * 9))
            left = engine.generate(make_request("left"))
            left.close()
            launcher.handles[0].kill()
            for generation in (known, unread):
                with pytest.raises(RequestFailedError):
                    await collect(generation)
            fake.gate.set()
            await until(lambda: len(lives(events)) == 2)
        first = lives(events)[0]
        assert_stream_is_whole(first)
        assert {e.request_id for e in first if isinstance(e, RequestFailed)} == {"known", "unread", "left"}
        assert [e.num_prompt_tokens for e in first if isinstance(e, RequestArrived)] == [3, 9, 3]

    asyncio.run(main())


def test_engine_step_that_raises_fails_its_requests_and_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        fake, events = FakeEngine(), []
        fake.raise_in_step = 4
        async with started_engine(fake, events=events) as engine:
            outputs = await collect(engine.generate(make_request("a", max_tokens=100)))
            assert (outputs[-1].finish_reason, outputs[-1].error_type) == ("error", "internal_error")
            assert "ArithmeticError: step 4 was told to fail" in outputs[-1].error
            fake.raise_in_step = 0
            await until(lambda: engine.num_restarts == 1)
            await engine.wait_ready()
            assert token_ids(await collect(engine.generate(make_request("b")))) == [0, 1, 2]
        for stream in lives(events):
            assert_stream_is_whole(stream)

    asyncio.run(main())
    assert "ArithmeticError" in caplog.text


def test_engine_lost_too_often_stays_down_and_says_so() -> None:
    async def main() -> None:
        fake, events = FakeEngine(), []
        launcher = CountingLauncher(fake)
        limits = SupervisionConfig(check_s=0.01, first_delay_s=0.0, max_restarts=2)
        async with await start(launcher, events, supervision=limits) as engine:
            for life in range(3):
                await until(lambda: len(fake.cores) == life + 1)  # noqa: B023
                await engine.wait_ready()
                launcher.handles[-1].kill()
                await until(lambda: engine.state is EngineState.FAILED or len(fake.cores) == life + 2)  # noqa: B023
            await until(lambda: engine.state is EngineState.FAILED)
            with pytest.raises(EngineUnavailableError, match="lost too often"):
                await engine.wait_ready()
        assert (len(launcher.handles), engine.num_restarts) == (3, 2)

    asyncio.run(main())


def test_engine_while_it_restarts_refuses_with_the_reason() -> None:
    async def main() -> None:
        fake = FakeEngine()
        launcher = CountingLauncher(fake)
        async with await start(launcher, []) as engine:
            await engine.wait_ready()
            fake.load_gate.clear()
            launcher.handles[0].kill()
            await until(lambda: engine.state is EngineState.RESTARTING)
            with pytest.raises(EngineUnavailableError, match=r"lost|restarts"):
                engine.generate(make_request())
            assert engine.info is not None
            fake.load_gate.set()
            await engine.wait_ready()
            assert engine.reason == ""

    asyncio.run(main())


def test_reset_prefix_cache_when_the_engine_is_lost_meanwhile_raises() -> None:
    async def main() -> None:
        fake = FakeEngine()
        launcher = CountingLauncher(fake)
        async with await start(launcher, []) as engine:
            await engine.wait_ready()
            fake.gate.clear()
            generation = engine.generate(make_request())
            await hold_step(fake)
            generation.close()
            call = asyncio.create_task(engine.reset_prefix_cache())
            await asyncio.sleep(0)
            launcher.handles[0].kill()
            fake.gate.set()
            with pytest.raises(EngineUnavailableError, match="lost during the call"):
                await call

    asyncio.run(main())


# --- hang ----------------------------------------------------------------------------------------------------------


def test_engine_that_hangs_with_work_pending_is_killed_and_replaced() -> None:
    async def main() -> None:
        fake, events, clock = FakeEngine(), [], ManualClock()
        launcher = CountingLauncher(fake)
        async with await start(
            launcher, events, clock=clock, supervision=SupervisionConfig(check_s=0.01, first_delay_s=0.0, reap_s=0.1)
        ) as engine:
            await engine.wait_ready()
            fake.gate.clear()
            generation = engine.generate(make_request("a"))
            await hold_step(fake)
            clock.advance(59.0)
            await asyncio.sleep(0.05)
            assert engine.state is EngineState.READY
            clock.advance(2.0)
            assert engine.heartbeat_age() > 60.0
            with pytest.raises(RequestFailedError, match=r"silent for 61\.0 s \(limit 60 s, 1 requests pending\)"):
                await collect(generation)
            fake.gate.set()
            await until(lambda: engine.num_restarts == 1)
            await engine.wait_ready()
        assert_stream_is_whole(lives(events)[0])

    asyncio.run(main())


def test_engine_in_a_step_as_long_as_a_big_model_may_need_is_not_taken_for_hung() -> None:
    async def main() -> None:
        fake, clock = FakeEngine(num_parameters=7_000_000_000), ManualClock()
        async with started_engine(fake, clock=clock) as engine:
            fake.gate.clear()
            generation = engine.generate(make_request("a"))
            await hold_step(fake)
            clock.advance(1400.0)
            await asyncio.sleep(0.05)
            assert engine.state is EngineState.READY
            fake.gate.set()
            assert token_ids(await collect(generation)) == [0, 1, 2]

    asyncio.run(main())


def test_engine_idle_and_silent_is_not_taken_for_hung() -> None:
    async def main() -> None:
        fake, clock = FakeEngine(), ManualClock()
        async with started_engine(fake, clock=clock) as engine:
            fake.gate.clear()
            for _ in range(10):
                clock.advance(1000.0)
                await asyncio.sleep(0.02)
            assert (engine.state, engine.num_restarts) == (EngineState.READY, 0)
            fake.gate.set()

    asyncio.run(main())


# --- drain and close -----------------------------------------------------------------------------------------------


def test_drain_lets_running_requests_end_and_takes_no_new_ones() -> None:
    async def main() -> None:
        fake = FakeEngine()
        async with started_engine(fake) as engine:
            fake.gate.clear()
            generation = engine.generate(make_request("a", max_tokens=5))
            drain = asyncio.create_task(engine.drain(10.0))
            await asyncio.sleep(0)
            assert engine.state is EngineState.DRAINING
            with pytest.raises(EngineUnavailableError, match="shutting down"):
                engine.generate(make_request("b"))
            assert not drain.done()
            fake.gate.set()
            assert token_ids(await collect(generation)) == [0, 1, 2, 3, 4]
            assert await drain == 0

    asyncio.run(main())


def test_drain_past_its_grace_ends_the_rest_with_an_error_and_aborts_them() -> None:
    async def main() -> None:
        fake, events = FakeEngine(), []
        async with started_engine(fake, events=events) as engine:
            generations = [engine.generate(make_request(f"r{i}", max_tokens=1_000_000)) for i in range(3)]
            assert await engine.drain(0.02) == 3
            for generation in generations:
                with pytest.raises(EngineUnavailableError, match="shutting down"):
                    await collect(generation)
            await until(lambda: sum(isinstance(event, RequestAborted) for event in events) == 3)
        assert {e.reason for e in events if isinstance(e, RequestAborted)} == {"drain"}

    asyncio.run(main())


def test_close_in_order_ends_the_stream_with_engine_stopped() -> None:
    async def main() -> None:
        fake, events = FakeEngine(), []
        async with started_engine(fake, events=events) as engine:
            generation = engine.generate(make_request("a", max_tokens=1_000_000))
            await anext(generation)
        assert engine.state is EngineState.CLOSED
        with pytest.raises(EngineUnavailableError, match="shutting down"):
            await collect(generation)
        assert_stream_is_whole(events)
        assert isinstance(events[-1], EngineStopped)
        assert [e.request_id for e in events if isinstance(e, RequestAborted)] == ["a"]
        await engine.close()
        with pytest.raises(EngineUnavailableError, match="closed"):
            await engine.wait_ready()

    asyncio.run(main())


def test_close_with_the_engine_in_a_step_that_never_ends_is_bounded_and_closes_the_stream() -> None:
    async def main() -> None:
        fake, events = FakeEngine(), []
        limits = SupervisionConfig(check_s=0.01, shutdown_s=0.1, reap_s=0.1)
        launcher = CountingLauncher(fake)
        engine = await start(launcher, events, supervision=limits)
        await engine.wait_ready()
        fake.gate.clear()
        generation = engine.generate(make_request("a"))
        await hold_step(fake)
        started = asyncio.get_running_loop().time()
        await engine.close()
        assert asyncio.get_running_loop().time() - started < 1.0
        with pytest.raises(EngineUnavailableError):
            await collect(generation)
        fake.gate.set()
        assert launcher.handles[0].wait(5.0) is not None
        assert [type(event) for event in events[-2:]] == [RequestAborted, EngineFailed]
        assert_stream_is_whole(events)

    asyncio.run(main())


def test_close_before_the_first_start_ends_closed_and_starts_nothing() -> None:
    async def main() -> None:
        launcher = CountingLauncher(FakeEngine())
        engine = await start(launcher, [])
        await engine.close()
        assert (engine.state, launcher.handles) == (EngineState.CLOSED, [])
        with pytest.raises(EngineUnavailableError, match="closed"):
            await engine.wait_ready()

    asyncio.run(main())


@pytest.mark.parametrize("stage", ["at_once", "loading", "between_lives"])
def test_close_before_it_is_ready_ends_the_engine(stage: str) -> None:
    async def main() -> None:
        fake = FakeEngine()
        fake.load_gate.clear()
        launcher = CountingLauncher(fake)
        limits = SupervisionConfig(check_s=0.01, first_delay_s=1000.0, max_delay_s=1000.0, reap_s=0.2)
        engine = await start(launcher, [], supervision=limits)
        waiting = asyncio.create_task(engine.wait_ready())
        if stage != "at_once":
            await until(lambda: "fake weights" in engine.reason)
        if stage == "between_lives":
            launcher.handles[0].kill()
            fake.load_gate.set()
            await until(lambda: engine.state is EngineState.RESTARTING)
        await asyncio.gather(asyncio.to_thread(fake.load_gate.set), engine.close())
        assert engine.state is EngineState.CLOSED
        with pytest.raises(EngineUnavailableError):
            await waiting
        assert all(handle.wait(5.0) is not None for handle in launcher.handles)

    asyncio.run(main())


def test_close_cancelled_still_ends_the_engine() -> None:
    async def main() -> None:
        fake = FakeEngine()
        launcher = CountingLauncher(fake)
        engine = await start(launcher, [])
        await engine.wait_ready()
        fake.gate.clear()
        generation = engine.generate(make_request("a"))
        await hold_step(fake)
        generation.close()
        closing = asyncio.create_task(engine.close())
        await asyncio.sleep(0.01)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        fake.gate.set()
        await until(lambda: engine.state is EngineState.CLOSED)
        assert launcher.handles[0].wait(5.0) is not None

    asyncio.run(main())


# --- leaks ---------------------------------------------------------------------------------------------------------


def num_open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors in /proc")
def test_start_and_stop_100_times_leaks_no_descriptor_and_no_thread() -> None:
    async def once(i: int) -> None:
        async with started_engine(FakeEngine(), is_ready=i % 10 != 0) as engine:
            if i % 10:
                await collect(engine.generate(make_request("a")))
                engine.generate(make_request("b", max_tokens=1_000_000))

    async def main() -> None:
        for i in range(5):
            await once(i)
        gc.collect()
        before = num_open_descriptors()
        for i in range(100):
            await once(i)
        gc.collect()
        assert num_open_descriptors() <= before
        assert [thread.name for thread in threading.enumerate() if thread.name == "engine"] == []

    asyncio.run(main())
