"""The real engine in a real process, on a small random model."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from engine.channel import FrameDecoder, FrameEncoder
from engine.client import AsyncEngine, EngineState
from engine.clock import SystemClock
from engine.config import EngineConfig
from engine.errors import ModelLoadError, RequestFailedError
from engine.events import EngineFailed, EngineStarted, EngineStopped, Event, RequestFailed, StepFinished
from engine.launch import EngineHandle, EngineProcess
from engine.messages import Configure
from engine.sampling_params import SamplingParams
from engine.sequence import EngineRequest
from engine.supervision import SupervisionConfig
from tests.support.async_engine import collect

TINY = EngineConfig(
    model="random:tiny",
    executor="torch",
    threads=1,
    num_kv_blocks=64,
    max_num_seqs=8,
    max_num_batched_tokens=16,
    heartbeat_s=0.1,
)
LIMITS = SupervisionConfig(first_delay_s=0.0, max_delay_s=0.0)


class Recorder:
    """Launches real processes and keeps their handles and events."""

    def __init__(self) -> None:
        self.processes: list[EngineProcess] = []
        self.events: list[Event] = []

    def launch(self) -> EngineHandle:
        self.processes.append(EngineProcess())
        return self.processes[-1]


@asynccontextmanager
async def process_engine(
    recorder: Recorder, config: EngineConfig = TINY, *, supervision: SupervisionConfig = LIMITS
) -> AsyncIterator[AsyncEngine]:
    engine = await AsyncEngine.start(
        config,
        clock=SystemClock(),
        on_events=recorder.events.extend,
        launcher=recorder.launch,
        supervision=supervision,
    )
    async with engine:
        yield engine


def make_request(request_id: str, *, num_prompt_tokens: int = 3, max_tokens: int = 4) -> EngineRequest:
    return EngineRequest(
        request_id=request_id,
        prompt_token_ids=[7 + i % 200 for i in range(num_prompt_tokens)],
        params=SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True),
        arrival=SystemClock().now(),
    )


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  the condition lives in another process
            await asyncio.sleep(0.005)


def num_output_tokens(outputs: list) -> int:
    return sum(len(output.token_ids) for output in outputs)


def test_process_serves_requests_and_ends_in_order() -> None:
    async def main() -> None:
        recorder = Recorder()
        async with process_engine(recorder) as engine:
            info = await engine.wait_ready()
            assert (info.model, info.executor, info.threads) == ("random:tiny", "torch", 1)
            results = await asyncio.gather(*(collect(engine.generate(make_request(f"r{i}"))) for i in range(3)))
            assert [num_output_tokens(outputs) for outputs in results] == [4, 4, 4]
            refused = await collect(engine.generate(make_request("big", num_prompt_tokens=100_000)))
            assert [(o.finish_reason, o.error_type) for o in refused] == [("error", "invalid_request_error")]
            assert await engine.reset_prefix_cache() >= 0
        assert recorder.processes[0].wait(5.0) == 0
        assert [event.seq for event in recorder.events] == list(range(1, len(recorder.events) + 1))
        assert isinstance(recorder.events[0], EngineStarted)
        assert isinstance(recorder.events[-1], EngineStopped)

    asyncio.run(main())


@pytest.mark.slow
def test_process_killed_idle_in_prefill_and_in_decode_fails_what_was_in_flight_and_comes_back() -> None:
    async def main() -> None:
        recorder = Recorder()
        async with process_engine(recorder) as engine:
            for num_restarts, stage in enumerate(["idle", "prefill", "decode"]):
                await until(lambda: engine.num_restarts == num_restarts)  # noqa: B023
                await engine.wait_ready()
                recorder.events.clear()
                generation = None
                if stage == "prefill":  # 56 chunks of 16 tokens
                    generation = engine.generate(make_request("a", num_prompt_tokens=900, max_tokens=50))
                    await until(lambda: any(isinstance(event, StepFinished) for event in recorder.events))
                elif stage == "decode":
                    generation = engine.generate(make_request("a", max_tokens=900))
                    await anext(generation)
                os.kill(recorder.processes[-1].pid, signal.SIGKILL)
                if generation is not None:
                    with pytest.raises(RequestFailedError, match=r"the engine was lost: .* SIGKILL|the channel broke"):
                        await collect(generation)
                await until(lambda: any(isinstance(event, EngineFailed) for event in recorder.events))
                lost = [type(event) for event in recorder.events if isinstance(event, EngineFailed | RequestFailed)]
                assert lost == ([EngineFailed] if stage == "idle" else [RequestFailed, EngineFailed])
            await until(lambda: engine.num_restarts == 3)
            await engine.wait_ready()
            assert num_output_tokens(await collect(engine.generate(make_request("a")))) == 4

    asyncio.run(main())


def test_process_started_and_stopped_several_times_leaks_no_descriptor_and_no_process() -> None:
    async def once(recorder: Recorder, *, is_ready: bool) -> None:
        num_started = len(recorder.processes)
        async with process_engine(recorder) as engine:
            await until(lambda: len(recorder.processes) == num_started + 1)
            if is_ready:
                await engine.wait_ready()

    async def main() -> None:
        recorder = Recorder()
        await once(recorder, is_ready=False)
        before = len(os.listdir("/proc/self/fd"))
        for i in range(4):
            await once(recorder, is_ready=i == 3)
        assert len(os.listdir("/proc/self/fd")) <= before
        assert [process.wait(0.0) for process in recorder.processes] == [-signal.SIGKILL] * 4 + [0]

    asyncio.run(main())


def test_process_killed_while_loading_is_started_again() -> None:
    async def main() -> None:
        recorder = Recorder()
        async with process_engine(recorder) as engine:
            await until(lambda: bool(recorder.processes))
            os.kill(recorder.processes[0].pid, signal.SIGKILL)
            await engine.wait_ready()
            assert engine.num_restarts == 1

    asyncio.run(main())


def test_process_stopped_with_work_pending_is_killed_as_hung_and_replaced() -> None:
    async def main() -> None:
        recorder = Recorder()
        limits = SupervisionConfig(first_delay_s=0.0, check_s=0.05, hang_timeout_s=2.0)
        async with process_engine(recorder, supervision=limits) as engine:
            await engine.wait_ready()
            os.kill(recorder.processes[0].pid, signal.SIGSTOP)
            with pytest.raises(RequestFailedError, match="silent for"):
                await collect(engine.generate(make_request("a")))
            await until(lambda: engine.num_restarts == 1)
            assert recorder.processes[0].wait(5.0) == -signal.SIGKILL

    asyncio.run(main())


def test_process_model_that_cannot_load_exits_2_with_one_line_and_no_traceback(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"NOPE" + bytes(64))

    async def main() -> None:
        recorder = Recorder()
        async with process_engine(recorder, EngineConfig(model=str(broken), threads=1)) as engine:
            with pytest.raises(ModelLoadError, match=r"magic"):
                await engine.wait_ready()
            assert engine.state is EngineState.FAILED
        assert [process.wait(5.0) for process in recorder.processes] == [2]

    asyncio.run(main())
    captured = capfd.readouterr()
    assert "Traceback" not in captured.err
    assert captured.out == ""


def test_process_ignores_sigint_and_sigterm() -> None:
    async def main() -> None:
        recorder = Recorder()
        async with process_engine(recorder) as engine:
            await engine.wait_ready()
            generation = engine.generate(make_request("a", max_tokens=50))
            await anext(generation)
            for number in (signal.SIGINT, signal.SIGTERM):
                os.kill(recorder.processes[0].pid, number)
            await collect(generation)
            assert num_output_tokens(await collect(engine.generate(make_request("b")))) == 4
            assert engine.num_restarts == 0

    asyncio.run(main())


def test_process_ends_by_itself_when_its_parent_is_gone() -> None:
    """A middle process starts an engine process and is killed; the engine must not outlive it."""
    code = (
        "import os, signal; from engine.launch import EngineProcess; "
        "p = EngineProcess(); print(p.pid, flush=True); signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        engine_pid = int(parent.stdout.readline())
        with open(f"/proc/{engine_pid}/stat") as stat:
            started = stat.read().split()[21]
        parent.kill()
        parent.wait()

        def is_alive() -> bool:
            try:
                with open(f"/proc/{engine_pid}/stat") as stat:
                    fields = stat.read().rpartition(")")[2].split()
            except OSError:
                return False
            return fields[0] != "Z" and fields[19] == started

        asyncio.run(until(lambda: not is_alive()))


def test_process_sent_something_else_than_configure_first_ends_with_an_error() -> None:
    handle = EngineProcess()
    with handle.sock as sock:
        sock.sendall(FrameEncoder().encode(Configure(config=TINY)) * 2)
        sock.settimeout(30)
        frames = FrameDecoder()
        received: list[bytes] = []
        while data := _receive(sock):
            received += frames.feed(data)
    assert handle.wait(30.0) == 1
    assert received == []


def _receive(sock: socket.socket) -> bytes:
    try:
        return sock.recv(65536)
    except ConnectionResetError:
        return b""


def test_loaded_model_is_out_of_the_garbage_collectors_sight() -> None:
    """In a process of its own: freezing is for good."""
    code = (
        "import gc\n"
        "from engine.clock import SystemClock\n"
        "from engine.config import EngineConfig\n"
        "from engine.process import build_real_core\n"
        "config = EngineConfig(model='random:tiny', executor='torch', threads=1, num_kv_blocks=64, max_num_seqs=8)\n"
        "build_real_core(config, SystemClock(), lambda stage: None)\n"
        "assert gc.get_freeze_count() > 50_000, gc.get_freeze_count()\n"
        "assert len(gc.get_objects()) < 5_000, len(gc.get_objects())\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
