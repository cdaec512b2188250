"""The composition root: everything the service is made of is made and joined here, and taken apart in order.

open the model's header ─ tokenizer, template ─ listen ─ start the engine ─ serve (503 while it loads)
SIGTERM or Ctrl-C: drain (new requests 503, running ones get the grace period, the rest an error) ─ close the
listener and the connections ─ end the engine ─ 0.  A second signal ends the process at once.
"""

import asyncio
import logging
import os
import secrets
import signal
import socket
from pathlib import Path

from engine.client import AsyncEngine
from engine.clock import Clock, SystemClock
from engine.config import EngineConfig
from engine.errors import EngineUnavailableError
from engine.garbage import settle_garbage_collector
from engine.launch import Launcher, launch_process
from engine.model.catalog import CATALOG
from engine.model.load import load_model
from engine.text.chat_template import ChatTemplate
from engine.text.tokenizer import build_tokenizer
from observability.backlog import Backlog
from observability.metrics import Metrics
from observability.recorder import Recorder, RingSizes
from observability.recording import Caps, RecordingError, Recordings
from observability.silent_recorder import SilentRecorder
from observability.tracing import Tracing
from observability.vllm_names import VllmNames
from service.admission import Admission
from service.app import ROUTE_TEMPLATES, create_app
from service.drain import Drain
from service.http_server import HttpServer, listening_socket, make_server
from service.kernel_lab import KernelLab
from service.prompt_log import PromptLog
from service.prompts import PromptEncoder
from service.served_models import ServedModels
from service.services import Services, make_recordings
from service.settings import ServiceSettings
from service.trace_dir import check_trace_dir
from service.version import VERSION

SEED_BITS = 63
STAGE_POLL_S = 0.25

log = logging.getLogger("pellucid")


def serve(config: EngineConfig, settings: ServiceSettings, *, launcher: Launcher = launch_process) -> int:
    """Serve until a signal; return the exit code.

    Args:
        config: of the engine.
        settings: of the service.
        launcher: starts the engine.

    Raises:
        ModelLoadError, ConfigError: the model or a setting can't be used.
        OSError: the address can't be listened on.
    """
    clock = SystemClock()
    if settings.trace_dir:
        check_trace_dir(Path(settings.trace_dir).expanduser())
    model = load_model(config.model)  # its header; the engine process opens it again for the weights
    tokenizer = build_tokenizer(model.tokenizer)
    prompts = PromptEncoder(
        tokenizer, ChatTemplate(model.tokenizer, tokenizer, clock=clock), num_threads=settings.text_threads
    )
    models = _served_models(config.model, model.name, settings, clock)
    with listening_socket(settings.host, settings.port) as sock, asyncio.Runner() as runner:
        _say_where(sock, settings)
        return runner.run(_Service(config, settings, prompts, models, clock, launcher).run(sock))


class _Service:
    """One run of the service, from a listening socket to an exit code."""

    def __init__(
        self,
        config: EngineConfig,
        settings: ServiceSettings,
        prompts: PromptEncoder,
        models: ServedModels,
        clock: Clock,
        launcher: Launcher,
    ) -> None:
        self._launcher = launcher
        self._config = config
        self._settings = settings
        self._prompts = prompts
        self._models = models
        self._clock = clock
        self._stop = asyncio.Event()

    async def run(self, sock: socket.socket) -> int:
        settings, clock = self._settings, self._clock
        metrics = Metrics(version=VERSION, routes=ROUTE_TEMPLATES)
        if "vllm" in settings.metrics_compat:
            metrics.also_expose(VllmNames(metrics, model_name=self._models.names[0]))
        backlog = Backlog(asyncio.get_running_loop())
        tracing = Tracing(clock, version=VERSION, sampling=settings.sampling, otlp=settings.otlp, backlog=backlog)
        metrics.before_render(lambda: tracing.refresh(metrics))
        kind = Recorder if settings.instruments else SilentRecorder
        recorder = kind(
            clock,
            metrics=metrics,
            ring_sizes=RingSizes(events=settings.ring_events),
            on_closed=tracing.request_closed,
            tracing_stats=tracing.stats,
            backlog=backlog,
        )
        try:
            return await self._run_engine(sock, metrics, tracing, recorder)
        finally:
            backlog.settle()
            await asyncio.to_thread(tracing.close, settings.telemetry_flush_s)

    async def _run_engine(self, sock: socket.socket, metrics: Metrics, tracing: Tracing, recorder: Recorder) -> int:
        """Serve with an engine of our own; when it returns, every request has ended and been recorded."""
        settings, clock = self._settings, self._clock
        recordings = make_recordings(recorder, settings, clock=clock)
        engine = await AsyncEngine.start(self._config, clock=clock, on_events=recorder.consume, launcher=self._launcher)
        recorder.follow_heartbeat(engine.heartbeat_age)
        async with engine, KernelLab() as kernel_lab:
            services = Services(
                engine=engine,
                prompts=self._prompts,
                recorder=recorder,
                recordings=recordings,
                metrics=metrics,
                tracing=tracing,
                settings=settings,
                clock=clock,
                admission=Admission(self._config.max_num_seqs + settings.max_queue),
                models=self._models,
                kernel_lab=kernel_lab,
                draw_seed=lambda: secrets.randbits(SEED_BITS),
                new_id=lambda: secrets.token_hex(12),
                engine_config=self._config,
                prompt_log=PromptLog(is_kept=settings.log_content),
            )
            drain = Drain(engine, grace_s=settings.grace_s)
            self._catch_signals()
            code = await self._serve(make_server(create_app(services, drain)), engine, services, drain, sock)
        await asyncio.sleep(0)  # the engine's last words are on their way to the recorder
        await recordings.stop("shutdown")
        return code

    async def _serve(
        self, server: HttpServer, engine: AsyncEngine, services: Services, drain: Drain, sock: socket.socket
    ) -> int:
        """Serve until told to stop, or until the model turns out not to load, which is raised."""
        serving = asyncio.create_task(server.serve(sockets=[sock]))
        loading = asyncio.create_task(self._load(engine, services.recordings))
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait((loading, stopping, serving), return_when=asyncio.FIRST_COMPLETED)
            if loading.done():
                loading.result()
            await asyncio.wait((stopping, serving), return_when=asyncio.FIRST_COMPLETED)
            if stopping.done():
                log.info("stopping: running answers get %g s", self._settings.grace_s)
                num_cut = await drain.finish()
                log.info("drained, %d answers were cut", num_cut)
        finally:
            loading.cancel()
            stopping.cancel()
            services.recorder.tape.close()  # viewers of the live feed leave at once
            server.should_exit = True
            await serving
        return 0

    async def _load(self, engine: AsyncEngine, recordings: Recordings) -> None:
        """Say how loading goes; raises what it ends with when it can't."""
        waiting = asyncio.create_task(engine.wait_ready())
        try:
            said = ""
            while not (await asyncio.wait((waiting,), timeout=STAGE_POLL_S))[0]:
                if engine.reason != said:
                    said = engine.reason
                    log.info("%s", said)
            info = waiting.result()
        except EngineUnavailableError as error:
            log.error("%s", error.message)  # /ready and /health say so too; whoever supervises the process decides
            return
        finally:
            waiting.cancel()
        settle_garbage_collector()
        log.info(
            "ready after %.1f s: %s, %.1fM parameters, %s %s on %s, %d KV blocks of %d tokens",
            info.load_s, self._models.names[0], info.num_parameters / 1e6, info.executor, info.dtype, info.device,
            info.num_kv_blocks, info.block_size,
        )  # fmt: skip
        if self._settings.record:
            await self._record(recordings)

    async def _record(self, recordings: Recordings) -> None:
        try:
            status = await recordings.start(Caps(recordings.max_bytes))
            log.info("recording events to %s/%s", status.directory, status.files[0].name)
        except RecordingError as error:
            log.error("nothing is recorded: %s", error)

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)

    def _on_signal(self, number: int) -> None:
        if self._stop.is_set():
            os._exit(128 + number)  # told twice: now; the engine process ends when its socket closes
        self._stop.set()


def _served_models(asked: str, found: str, settings: ServiceSettings, clock: Clock) -> ServedModels:
    names = settings.served_model_names or ((asked,) if asked in CATALOG else (found,))
    return ServedModels(names, created=int(clock.wall()))


def _say_where(sock: socket.socket, settings: ServiceSettings) -> None:
    host, port = sock.getsockname()[:2]
    log.info("listening on http://%s:%d", f"[{host}]" if ":" in host else host, port)
    if not settings.api_keys and host not in ("127.0.0.1", "::1"):
        log.warning("anyone who can reach %s can use this server; --api-key-file closes it", host)
