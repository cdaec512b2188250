"""Everything that leaves over OTLP (http/protobuf): spans through a queue of ours, metrics through the SDK's reader."""

import threading
from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan

from observability.genai_metrics import GenAiMetrics, otlp_metric_exporter
from observability.otlp_session import otlp_session
from observability.otlp_settings import OtlpSettings
from observability.span_queue import EXPORT_FAILED, QUEUE_FULL, SHUTDOWN, SpanQueue
from observability.timeline import RequestTimeline


class OtlpExport:
    """Sends what it is configured for; with no endpoint it does nothing and has no thread.

    Args:
        settings: where to, and bounds.
        resource: what everything comes from.
        version: of the project.
    """

    def __init__(self, settings: OtlpSettings, resource: Resource, *, version: str) -> None:
        traces, metrics = settings.traces, settings.metrics
        self.endpoint = traces.endpoint
        self._queue: SpanQueue | None = None
        self._metrics: GenAiMetrics | None = None
        if traces.endpoint:
            self._queue = SpanQueue(
                OTLPSpanExporter(
                    endpoint=traces.endpoint,
                    headers=dict(traces.headers),
                    timeout=traces.timeout_s,
                    session=otlp_session(),
                ),
                endpoint=traces.endpoint,
                max_spans=settings.max_queued_spans,
                max_batch=settings.max_batch_spans,
                delay_s=settings.schedule_delay_s,
            )
        if metrics.endpoint:
            self._metrics = GenAiMetrics(
                otlp_metric_exporter(metrics), resource, version=version, interval_s=settings.metric_interval_s
            )

    @property
    def num_exported(self) -> int:
        """Spans that the collector took."""
        return self._queue.num_exported if self._queue is not None else 0

    def dropped(self) -> dict[str, int]:
        """Return spans that did not reach the collector, by reason."""
        return self._queue.dropped() if self._queue is not None else {QUEUE_FULL: 0, EXPORT_FAILED: 0, SHUTDOWN: 0}

    def add(self, spans: Sequence[ReadableSpan]) -> None:
        """Queue finished spans."""
        if self._queue is not None:
            self._queue.add(spans)

    def observe(self, timeline: RequestTimeline) -> None:
        """Take a closed request into the metrics."""
        if self._metrics is not None:
            self._metrics.observe(timeline)

    def close(self, timeout_s: float) -> None:
        """Flush both signals side by side; returns in bounded time, whatever the collector does."""
        metrics = self._metrics
        closing: threading.Thread | None = None
        if metrics is not None:
            closing = threading.Thread(target=metrics.close, args=(timeout_s,), name="metric export", daemon=True)
            closing.start()
        if self._queue is not None:
            self._queue.close(timeout_s)
        if closing is not None:
            closing.join(timeout_s)
