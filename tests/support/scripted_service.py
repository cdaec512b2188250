"""The whole service over a real engine core whose model is a script, on a real socket, in a thread.

    with serve(script=emits(b"ok")) as served:
        answer = httpx.post(served.url + "/v1/completions", json={"prompt": "x"})

Everything between the socket and the executor is the real thing; one step yields one scripted token per choice, and a
`StepGate` holds the steps where a test wants to act in between.
"""

import asyncio
import itertools
import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import httpx

from engine.client import AsyncEngine
from engine.clock import SystemClock
from engine.config import EngineConfig, SchedulerConfig
from engine.core import EngineCore
from engine.events import EngineStarted, EventLog
from engine.execution.executor import SamplingRow
from engine.execution.forward_batch import ForwardBatch
from engine.execution.simulated_executor import Cue, TokenScript, scripted_runner
from engine.kv.block_manager import BlockManager
from engine.launch import thread_launcher
from engine.messages import EngineInfo
from engine.model.tokenizer_source import ByteTokenizerSource, TokenizerSource
from engine.scheduler import Scheduler
from engine.supervision import SupervisionConfig
from engine.text.chat_template import ChatTemplate
from engine.text.tokenizer import Tokenizer, build_tokenizer
from observability.backlog import Backlog
from observability.metrics import Metrics
from observability.recorder import Recorder, RingSizes
from observability.tracing import Tracing
from service.admission import Admission
from service.app import ROUTE_TEMPLATES, create_app
from service.drain import Drain
from service.http_server import HttpServer, make_server
from service.kernel_lab import KernelLab
from service.prompt_log import PromptLog
from service.prompts import PromptEncoder
from service.served_models import ServedModels
from service.services import Services, make_recordings
from service.settings import ServiceSettings
from tests.support.http_calls import frames

TIMEOUT_S = 20.0
THREAD_NAME = "service under test"
SOURCE = ByteTokenizerSource(vocab_size=264)
EOS = SOURCE.eos_id
SUPERVISION = SupervisionConfig(check_s=0.02, max_restarts=0, shutdown_s=2.0)


def emits(tokens: Sequence[int], *, then: int = EOS) -> TokenScript:
    """Every choice emits these tokens, then the same one for ever. Bytes are tokens of the byte tokenizer."""

    def script(row: SamplingRow, history: int) -> int:
        place = row.position - row.seq.num_prompt_tokens
        return tokens[place] if place < len(tokens) else then

    return script


class StepGate:
    """A cue that holds every step until the test lets it go; open until `close`."""

    def __init__(self) -> None:
        self._steps = threading.Semaphore(0)
        self._is_open = threading.Event()
        self._is_open.set()
        self.waiting = threading.Event()

    def close(self) -> None:
        self._is_open.clear()

    def open(self) -> None:
        self._is_open.set()
        self._steps.release()

    def step(self) -> None:
        """Let one step go."""
        self._steps.release()

    def __call__(self, call: int, batch: ForwardBatch) -> None:
        if self._is_open.is_set():
            return
        self.waiting.set()
        if not self._steps.acquire(timeout=TIMEOUT_S):
            raise TimeoutError("nobody let the step go")
        self.waiting.clear()


class Streaming:
    """A stream that is being read.

    Attributes:
        response: its head.
    """

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._text = response.iter_text()

    def read(self) -> str:
        """Return what comes next, as it came over the socket."""
        return next(self._text)

    def rest(self) -> list[Any]:
        """Read to the end and return the payloads."""
        return frames("".join(self._text))


class Connection:
    """A bare socket that sends requests and may be closed at any moment."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    def send(self, path: str, body: Any) -> None:
        """Send a whole POST; nothing is read."""
        content = json.dumps(body).encode()
        lines = [
            f"POST {path} HTTP/1.1",
            "host: x",
            "content-type: application/json",
            f"content-length: {len(content)}",
        ]
        self.sock.sendall("\r\n".join([*lines, "", ""]).encode() + content)


@dataclass
class Served:
    """The test's hand on a running service."""

    url: str
    services: Services
    engine: AsyncEngine
    core: "ScriptedCore"
    drain: Drain
    loop: asyncio.AbstractEventLoop
    server: HttpServer

    def call(self, function: Callable[[], object]) -> object:
        """Run a function on the service's event loop and return its result; at once when called there."""
        if threading.current_thread().name == THREAD_NAME:
            return function()

        async def run() -> object:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(TIMEOUT_S)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds, looked at on the service's loop."""

        deadline = threading.Event()
        timer = threading.Timer(TIMEOUT_S, deadline.set)
        timer.start()
        try:
            while not self.call(condition):
                assert not deadline.wait(0.002), "the condition never held"
        finally:
            timer.cancel()

    def get(self, path: str, **options: Any) -> httpx.Response:
        return httpx.get(self.url + path, timeout=TIMEOUT_S, **options)

    def post(self, path: str, **options: Any) -> httpx.Response:
        return httpx.post(self.url + path, timeout=TIMEOUT_S, **options)

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Yield a connection; leaving the block closes it."""
        port = int(self.url.rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as sock:
            yield Connection(sock)

    @contextmanager
    def streaming(self, path: str, body: dict[str, Any]) -> "Iterator[Streaming]":
        """Start a stream and yield it after its head; leaving the block closes the connection."""
        with (
            httpx.Client(timeout=TIMEOUT_S) as client,
            client.stream("POST", self.url + path, json={**body, "stream": True}) as response,
        ):
            yield Streaming(response)

    def stats(self) -> dict[str, dict[str, object]]:
        result = self.call(self.services.recorder.stats)
        assert isinstance(result, dict)
        return result


@dataclass
class ScriptedCore:
    """Builds the engine for the thread launcher."""

    script: TokenScript
    scheduling: SchedulerConfig = field(default_factory=SchedulerConfig)
    cues: Sequence[Cue] = ()
    vocab_size: int = SOURCE.vocab_size
    eos_token_ids: tuple[int, ...] = SOURCE.eos_ids
    load_gate: threading.Event | None = None
    load_error: Exception | None = None
    core: EngineCore[object] | None = None

    def build(self, config: EngineConfig, clock: SystemClock, progress: Callable[[str], None]) -> tuple[object, object]:
        progress("opening the script")
        if self.load_gate is not None:
            self.load_gate.wait(TIMEOUT_S)
        if self.load_error is not None:
            raise self.load_error
        scheduling, events = self.scheduling, EventLog(clock)
        runner = scripted_runner(
            num_blocks=scheduling.num_kv_blocks,
            block_size=scheduling.block_size,
            script=self.script,
            cues=self.cues,
        )
        scheduler = Scheduler(scheduling, BlockManager(scheduling, events), events, self.eos_token_ids)
        core = EngineCore(scheduler, runner, events, clock)
        self.core = core  # type: ignore[assignment]
        events.emit(
            EngineStarted,
            model="scripted",
            executor="scripted",
            block_size=scheduling.block_size,
            num_blocks=scheduling.num_kv_blocks,
            max_num_seqs=scheduling.max_num_seqs,
            max_num_batched_tokens=scheduling.max_num_batched_tokens,
            max_model_len=scheduling.max_request_tokens,
            prefix_cache=scheduling.prefix_cache,
        )
        return core, scripted_info(scheduling, self.vocab_size, self.eos_token_ids)


def scripted_info(scheduling: SchedulerConfig, vocab_size: int, eos_token_ids: tuple[int, ...]) -> EngineInfo:
    return EngineInfo(
        model="scripted",
        architecture="script",
        num_parameters=0,
        dtype="float32",
        executor="scripted",
        device="cpu",
        threads=1,
        vocab_size=vocab_size,
        max_model_len=scheduling.max_model_len,
        block_size=scheduling.block_size,
        num_kv_blocks=scheduling.num_kv_blocks,
        kv_dtype="float32",
        kv_cache_bytes=0,
        max_num_seqs=scheduling.max_num_seqs,
        max_num_batched_tokens=scheduling.max_num_batched_tokens,
        prefix_cache=scheduling.prefix_cache,
        overflow=scheduling.overflow,
        eos_token_ids=eos_token_ids,
        load_s=0.0,
    )


async def make_services(
    core: ScriptedCore,
    settings: ServiceSettings,
    *,
    source: TokenizerSource = SOURCE,
    tokenizer: Tokenizer | None = None,
    supervision: SupervisionConfig = SUPERVISION,
    ring_sizes: RingSizes | None = None,
    kernel_lab_command: list[str] | None = None,
) -> tuple[Services, AsyncEngine]:
    """Start the engine on the running loop and put the services around it."""
    clock = SystemClock()
    metrics = Metrics(routes=ROUTE_TEMPLATES)
    backlog = Backlog(asyncio.get_running_loop())
    tracing = Tracing(clock, sampling=settings.sampling, otlp=settings.otlp, backlog=backlog)
    metrics.before_render(lambda: tracing.refresh(metrics))
    recorder = Recorder(
        clock,
        metrics=metrics,
        ring_sizes=ring_sizes,
        on_closed=tracing.request_closed,
        tracing_stats=tracing.stats,
        backlog=backlog,
    )
    config = EngineConfig(model="scripted", heartbeat_s=0.05)
    engine = await AsyncEngine.start(
        config,
        clock=clock,
        on_events=recorder.consume,
        launcher=thread_launcher(core.build, clock=clock),
        supervision=supervision,
    )
    recorder.follow_heartbeat(engine.heartbeat_age)
    tokenizer = tokenizer or build_tokenizer(source)
    seeds, ids = itertools.count(1), itertools.count(1)
    services = Services(
        engine=engine,
        prompts=PromptEncoder(
            tokenizer, ChatTemplate(source, tokenizer, clock=clock), num_threads=settings.text_threads
        ),
        recorder=recorder,
        recordings=make_recordings(recorder, settings, clock=clock),
        metrics=metrics,
        tracing=tracing,
        settings=settings,
        clock=clock,
        admission=Admission(core.scheduling.max_num_seqs + settings.max_queue),
        models=ServedModels(settings.served_model_names or ("scripted",), created=1),
        kernel_lab=KernelLab(kernel_lab_command),
        draw_seed=lambda: next(seeds),
        new_id=lambda: f"{next(ids):08x}",
        engine_config=config,
        prompt_log=PromptLog(is_kept=settings.log_content),
    )
    return services, engine


@contextmanager
def serve(
    *,
    script: TokenScript | None = None,
    core: ScriptedCore | None = None,
    settings: ServiceSettings | None = None,
    tokenizer: Tokenizer | None = None,
    supervision: SupervisionConfig = SUPERVISION,
    ring_sizes: RingSizes | None = None,
    kernel_lab_command: list[str] | None = None,
    wait_ready: bool = True,
) -> Iterator[Served]:
    """Yield a running service; everything is stopped and joined at the end."""
    assert (script is None) != (core is None), "give a script or a core"
    core = core or ScriptedCore(script or emits(b""))
    settings = replace(settings or ServiceSettings(), port=0)
    started = threading.Event()
    box: list[Served] = []
    failures: list[BaseException] = []

    async def run() -> None:
        services, engine = await make_services(
            core,
            settings,
            tokenizer=tokenizer,
            supervision=supervision,
            ring_sizes=ring_sizes,
            kernel_lab_command=kernel_lab_command,
        )
        async with engine, services.kernel_lab:
            if wait_ready:
                await engine.wait_ready()
            drain = Drain(engine, grace_s=settings.grace_s)
            server = make_server(create_app(services, drain))
            sock = socket.create_server(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{sock.getsockname()[1]}"
            box.append(Served(url, services, engine, core, drain, asyncio.get_running_loop(), server))
            started.set()
            await server.serve(sockets=[sock])

    def main() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:  # noqa: BLE001 - handed to the test below
            failures.append(error)
        finally:
            started.set()

    thread = threading.Thread(target=main, name=THREAD_NAME)
    thread.start()
    started.wait(TIMEOUT_S)
    try:
        if box:
            yield box[0]
    finally:
        if box:
            box[0].loop.call_soon_threadsafe(box[0].services.recorder.tape.close)
            box[0].server.should_exit = True
        thread.join(TIMEOUT_S)
    if failures:
        raise failures[0]
    assert box, "the service did not start"
