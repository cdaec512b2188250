"""The service's settings: flags over environment variables over defaults. The only reader of the environment here."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.errors import ConfigError
from observability.otlp_settings import OtlpSettings
from observability.trace_context import Sampling
from service.flag_view import FlagView
from service.limits import RequestLimits

METRICS_COMPAT = ("vllm",)


@dataclass(frozen=True)
class ServiceSettings:
    """Everything of the HTTP side.

    Attributes:
        host, port: where to listen; port 0 takes a free one.
        served_model_names: names a request may give; the first is the default and the one in answers' lists.
        api_keys: when there are any, every route but /health and /ready needs one.
        cors_origins: origins whose pages may call; none by default.
        max_queue: choices that may wait beyond those that run.
        limits: bounds of one request.
        strict_params: refuse unknown fields instead of naming them in a header.
        timings: every answer carries `timings` and `metrics`, asked for or not.
        keep_alive_s: seconds of silence before a comment line in a stream.
        filler_s: seconds without a chunk before an empty one is sent.
        grace_s: seconds that running answers get when the server is told to stop.
        ready_heartbeat_s: /ready turns 503 when the engine was silent for longer.
        live_heartbeat_s: /health turns 503 when the engine was silent for longer.
        text_threads: threads for templates and tokenizers.
        trace_dir: where recordings of the event stream go; "" refuses them.
        trace_max_bytes: the most that one recording may take.
        record: record from the start.
        ring_events: events kept in memory.
        log_content: prompts and answers may appear in logs and traces.
        otlp: where spans and GenAI metrics are sent; nowhere by default.
        sampling: which traces are kept.
        telemetry_flush_s: seconds that what is queued for a collector gets when the server stops.
        metrics_compat: other projects' metric names to expose as well.
        instruments: record what happens; without, /metrics, /stats and /telemetry/... say that they are off.
        flags: every flag with its source, for readers; empty when the settings came from elsewhere.
    """

    host: str = "127.0.0.1"
    port: int = 8100
    served_model_names: tuple[str, ...] = ()
    api_keys: frozenset[str] = field(default=frozenset(), repr=False)
    cors_origins: tuple[str, ...] = ()
    max_queue: int = 256
    limits: RequestLimits = field(default_factory=RequestLimits)
    strict_params: bool = False
    timings: bool = False
    keep_alive_s: float = 5.0
    filler_s: float = 30.0
    grace_s: float = 30.0
    ready_heartbeat_s: float = 10.0
    live_heartbeat_s: float = 60.0
    text_threads: int = 2
    trace_dir: str = ""
    trace_max_bytes: int = 1 << 30
    record: bool = False
    ring_events: int = 65_536
    log_content: bool = False
    otlp: OtlpSettings = field(default_factory=OtlpSettings)
    sampling: Sampling = field(default_factory=Sampling)
    telemetry_flush_s: float = 3.0
    metrics_compat: tuple[str, ...] = ()
    instruments: bool = True
    flags: tuple[FlagView, ...] = ()

    def __post_init__(self) -> None:
        _require(0 <= self.port <= 65535, "--port must lie in 0..65535", self.port)
        _require(self.max_queue >= 0, "--max-queue must be at least 0", self.max_queue)
        _require(self.grace_s >= 0, "--grace must be at least 0", self.grace_s)
        _require(self.telemetry_flush_s >= 0, "--telemetry-flush must be at least 0", self.telemetry_flush_s)
        _require(self.text_threads >= 1, "--text-threads must be at least 1", self.text_threads)
        unknown = set(self.metrics_compat) - set(METRICS_COMPAT)
        _require(not unknown, f"--metrics-compat knows {', '.join(METRICS_COMPAT)}", ", ".join(sorted(unknown)))
        _require(self.ring_events >= 1024, "--ring-events must be at least 1024", self.ring_events)
        _require(self.trace_max_bytes >= 1 << 16, "--trace-max-bytes must be at least 64k", self.trace_max_bytes)
        _require(bool(self.trace_dir) or not self.record, "--record needs --trace-dir", "none")
        for name in ("keep_alive", "filler", "ready_heartbeat", "live_heartbeat"):
            seconds = getattr(self, f"{name}_s")
            _require(seconds > 0, f"--{name.replace('_', '-')} must be greater than 0", seconds)


def _require(holds: bool, rule: str, value: object) -> None:
    if not holds:
        raise ConfigError(f"{rule}, got {value}")


def environment() -> Mapping[str, str]:
    """Return the process's environment; the only place of the service that reads it."""
    return os.environ
