"""What routes work with, put together once by the composition root (service/main.py) or by a test."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine.client import EngineState
from engine.clock import Clock
from engine.config import EngineConfig
from engine.errors import EngineUnavailableError
from engine.messages import EngineInfo
from observability.recording import Recordings
from service.admission import Admission
from service.kernel_lab import KernelLab
from service.ports import Engine, Metrics, Recorder, Tracing
from service.prompt_log import PromptLog
from service.prompts import PromptEncoder
from service.served_models import ServedModels
from service.settings import ServiceSettings


@dataclass(frozen=True)
class Services:
    """One per application; routes hold no state of their own.

    Attributes:
        engine, recorder, metrics, tracing, settings, clock: see their types.
        prompts: template and tokenizer.
        recordings: of the event stream, to files.
        admission: the bounded queue.
        models: names a request may give.
        kernel_lab: measures the kernels when asked.
        draw_seed: makes the seed of a request that gives none.
        new_id: makes the unique part of an answer's id.
        engine_config: what the engine was started with, to be shown.
        prompt_log: prompts of the last requests, with `--log-content`.
    """

    engine: Engine
    prompts: PromptEncoder
    recorder: Recorder
    recordings: Recordings
    metrics: Metrics
    tracing: Tracing
    settings: ServiceSettings
    clock: Clock
    admission: Admission
    models: ServedModels
    kernel_lab: KernelLab
    draw_seed: Callable[[], int]
    new_id: Callable[[], str]
    engine_config: EngineConfig
    prompt_log: PromptLog

    def ready_info(self) -> EngineInfo:
        """Return what is loaded; raises EngineUnavailableError, with the reason, while it can't serve."""
        reason = self.not_ready_reason()
        info = self.engine.info
        if reason or info is None:
            raise EngineUnavailableError(reason or "the model is not loaded")
        return info

    def not_ready_reason(self) -> str:
        """Return why requests can't be taken now, "" when they can."""
        engine = self.engine
        if engine.state is not EngineState.READY:
            return engine.reason or f"the engine is {engine.state.value}"
        silent_s = engine.heartbeat_age()
        if silent_s > self.settings.ready_heartbeat_s:
            return f"the engine has been silent for {silent_s:.0f} s"
        return ""


def make_recordings(recorder: Recorder, settings: ServiceSettings, *, clock: Clock) -> Recordings:
    """Return what records the stream that the recorder hears."""
    return Recordings(
        recorder.tape,
        lambda life, num_dropped: recorder.header(life, num_dropped_events=num_dropped),
        clock=clock,
        directory=Path(settings.trace_dir).expanduser() if settings.trace_dir else None,
        max_bytes=settings.trace_max_bytes,
    )
