"""The three `gen_ai.server.*` histograms, for a collector; fed from the same closed timelines as everything else.

Definitions are those of observability/timeline.py. Bounds are the convention's.
"""

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.semconv.attributes import error_attributes

from observability import genai
from observability.metrics import DURATION_BOUNDS, TPOT_BOUNDS, TTFT_BOUNDS
from observability.otlp_session import otlp_session
from observability.otlp_settings import OtlpSignal
from observability.span_attributes import error_type_of
from observability.span_facts import AttributeValue
from observability.timeline import Outcome, RequestTimeline


def otlp_metric_exporter(signal: OtlpSignal) -> MetricExporter:
    """Return an exporter to a collector."""
    return OTLPMetricExporter(
        endpoint=signal.endpoint, headers=dict(signal.headers), timeout=signal.timeout_s, session=otlp_session()
    )


class GenAiMetrics:
    """Observes closed requests and exports them periodically from a thread of the SDK's.

    Args:
        exporter: where to.
        resource: what they come from.
        version: of the project.
        interval_s: between two exports.
    """

    def __init__(self, exporter: MetricExporter, resource: Resource, *, version: str, interval_s: float) -> None:
        reader = PeriodicExportingMetricReader(exporter, export_interval_millis=interval_s * 1e3)
        self._provider = MeterProvider([reader], resource, shutdown_on_exit=False)
        meter = self._provider.get_meter("pellucid", version, genai.SCHEMA_URL)
        self._duration = meter.create_histogram(
            genai.SERVER_REQUEST_DURATION,
            "s",
            "Arrival to the last byte handed to the transport.",
            explicit_bucket_boundaries_advisory=DURATION_BOUNDS,
        )
        self._per_token = meter.create_histogram(
            genai.SERVER_TIME_PER_OUTPUT_TOKEN,
            "s",
            "(Request duration - time to first token) / (output tokens - 1) of finished requests.",
            explicit_bucket_boundaries_advisory=TPOT_BOUNDS,
        )
        self._first_token = meter.create_histogram(
            genai.SERVER_TIME_TO_FIRST_TOKEN,
            "s",
            "Arrival to the first token handed to the transport, of finished requests.",
            explicit_bucket_boundaries_advisory=TTFT_BOUNDS,
        )

    def observe(self, timeline: RequestTimeline) -> None:
        """Count one closed request; only finished ones have token latencies."""
        if timeline.e2e_s is None:
            return
        attributes: dict[str, AttributeValue] = {
            genai.OPERATION_NAME: genai.operation_of(timeline.route),
            genai.PROVIDER_NAME: genai.PROVIDER,
            genai.REQUEST_MODEL: timeline.model,
            genai.RESPONSE_MODEL: timeline.model,
        }
        if timeline.outcome is not Outcome.FINISHED:
            self._duration.record(timeline.e2e_s, {**attributes, error_attributes.ERROR_TYPE: error_type_of(timeline)})
            return
        self._duration.record(timeline.e2e_s, attributes)
        if timeline.ttft_s is not None:
            self._first_token.record(timeline.ttft_s, attributes)
        if timeline.tpot_s is not None:
            self._per_token.record(timeline.tpot_s, attributes)

    def close(self, timeout_s: float) -> None:
        """Export once more and stop, in bounded time."""
        self._provider.shutdown(timeout_s * 1e3)
