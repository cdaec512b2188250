"""What the standard OTEL_* variables say about export. They come in as a mapping; nothing here reads the environment.

Only http/protobuf is spoken. Durations are milliseconds, as the specification has them. Certificates, compression and
metric temporality are read by the exporter library itself; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES by its SDK.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from opentelemetry.sdk import environment_variables as names
from opentelemetry.util.re import parse_env_headers

from observability.trace_context import Sampling

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class OtlpSignal:
    """Where one signal goes; an empty endpoint is nowhere.

    Attributes:
        endpoint: full URL.
        headers: with each request; they may hold secrets.
        timeout_s: of one export, retries included.
    """

    endpoint: str = ""
    headers: Headers = field(default=(), repr=False)
    timeout_s: float = 10.0


@dataclass(frozen=True)
class OtlpSettings:
    """Export of spans and metrics.

    Attributes:
        traces, metrics: where they go.
        max_queued_spans: spans that wait for export; more are dropped and counted.
        max_batch_spans: spans of one export request.
        schedule_delay_s: how long a span waits for company.
        metric_interval_s: between two exports of metrics.
    """

    traces: OtlpSignal = OtlpSignal()
    metrics: OtlpSignal = OtlpSignal()
    max_queued_spans: int = 2048
    max_batch_spans: int = 256
    schedule_delay_s: float = 5.0
    metric_interval_s: float = 60.0


def otlp_settings(environment: Mapping[str, str]) -> OtlpSettings:
    """Read the variables. Raises ValueError naming the one that can't be used."""
    if environment.get(names.OTEL_SDK_DISABLED, "").strip().lower() == "true":
        return OtlpSettings()
    default = OtlpSettings()
    return OtlpSettings(
        traces=_signal(environment, "TRACES"),
        metrics=_signal(environment, "METRICS"),
        max_queued_spans=round(_number(environment, names.OTEL_BSP_MAX_QUEUE_SIZE, default.max_queued_spans)),
        max_batch_spans=round(_number(environment, names.OTEL_BSP_MAX_EXPORT_BATCH_SIZE, default.max_batch_spans)),
        schedule_delay_s=_number(environment, names.OTEL_BSP_SCHEDULE_DELAY, default.schedule_delay_s * 1e3) / 1e3,
        metric_interval_s=_number(environment, names.OTEL_METRIC_EXPORT_INTERVAL, default.metric_interval_s * 1e3)
        / 1e3,
    )


def sampling(environment: Mapping[str, str]) -> Sampling:
    """Read OTEL_TRACES_SAMPLER and its argument. Raises ValueError naming the one that can't be used."""
    name = environment.get(names.OTEL_TRACES_SAMPLER, "").strip() or "parentbased_always_on"
    kind = name.removeprefix("parentbased_")
    if kind not in ("always_on", "always_off", "traceidratio"):
        raise ValueError(f"{names.OTEL_TRACES_SAMPLER} must be [parentbased_]always_on, always_off or traceidratio, "
                         f"got {name}")  # fmt: skip
    ratio = {"always_on": 1.0, "always_off": 0.0}.get(kind)
    if ratio is None:
        ratio = _number(environment, names.OTEL_TRACES_SAMPLER_ARG, 1.0, least=0.0)
        if ratio > 1:
            raise ValueError(f"{names.OTEL_TRACES_SAMPLER_ARG} must lie in 0..1, got {ratio:g}")
    return Sampling(ratio, follows_parent=name != kind)


def _signal(environment: Mapping[str, str], signal: str) -> OtlpSignal:
    if environment.get(f"OTEL_{signal}_EXPORTER", "").strip().lower() == "none":
        return OtlpSignal()
    endpoint = environment.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT", "").strip()
    base = environment.get(names.OTEL_EXPORTER_OTLP_ENDPOINT, "").strip()
    if not endpoint and base:
        endpoint = f"{base.rstrip('/')}/v1/{signal.lower()}"
    if not endpoint:
        return OtlpSignal()
    if urlsplit(endpoint).scheme not in ("http", "https") or not urlsplit(endpoint).netloc:
        raise ValueError(f"the OTLP endpoint for {signal.lower()} must be an http or https URL, got {endpoint}")
    protocol = _either(environment, signal, "PROTOCOL") or "http/protobuf"
    if protocol != "http/protobuf":
        raise ValueError(f"{names.OTEL_EXPORTER_OTLP_PROTOCOL} must be http/protobuf, got {protocol}")
    headers = parse_env_headers(_either(environment, signal, "HEADERS"), liberal=True)
    variable = f"OTEL_EXPORTER_OTLP_{signal}_TIMEOUT"
    if variable not in environment:
        variable = names.OTEL_EXPORTER_OTLP_TIMEOUT
    return OtlpSignal(endpoint, tuple(headers.items()), _number(environment, variable, 10_000) / 1e3)


def _either(environment: Mapping[str, str], signal: str, what: str) -> str:
    own = environment.get(f"OTEL_EXPORTER_OTLP_{signal}_{what}", "").strip()
    return own or environment.get(f"OTEL_EXPORTER_OTLP_{what}", "").strip()


def _number(environment: Mapping[str, str], name: str, default: float, *, least: float = 1.0) -> float:
    text = environment.get(name, "").strip()
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value < float("inf"):
        raise ValueError(f"{name} must be a number of at least {least:g}, got {text}")
    return value
