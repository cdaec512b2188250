"""Tracing as the service sees it: identities out, facts in; spans go to the ring and, where configured, to a collector.

Called from one thread, the service's event loop; nothing here waits for anybody.
"""

from dataclasses import dataclass
from typing import Any

from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan

from engine.clock import Clock
from observability.backlog import Backlog
from observability.metrics import Metrics
from observability.otlp_export import OtlpExport
from observability.otlp_settings import OtlpSettings
from observability.span_facts import Answered, GenerationFacts, HttpExchange
from observability.span_ring import KeptTrace, SpanRing, SpanRingSizes
from observability.span_view import TraceFilter, trace_detail, trace_list
from observability.spans import SpanProjection
from observability.stats import RingStats, TracingStats
from observability.timeline import RequestTimeline
from observability.trace_context import Sampling, TraceContext, TraceContexts

UNKNOWN_SERVICE = "unknown_service"


@dataclass(slots=True)
class _Open:
    facts: GenerationFacts
    answered: Answered = Answered()  # noqa: RUF009 - frozen


class Tracing:
    """One per service.

    Args:
        clock: relates monotonic stamps to the wall clock, once: spans never run backwards when the wall clock is set.
        version: of the project.
        sampling: which traces are kept.
        otlp: where spans and GenAI metrics go; nowhere by default.
        ring_sizes: bounds of the memory.
        backlog: where what happens waits; the recorder's own, for an answer is told of before its request is closed.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        version: str = "0.1.0",
        sampling: Sampling = Sampling(),  # noqa: B008 - frozen
        otlp: OtlpSettings = OtlpSettings(),  # noqa: B008 - frozen
        ring_sizes: SpanRingSizes | None = None,
        backlog: Backlog | None = None,
    ) -> None:
        self._backlog = backlog if backlog is not None else Backlog()
        resource = _resource(version)
        self._wall_offset_ns = round((clock.wall() - clock.now()) * 1e9)
        self._contexts = TraceContexts(sampling)
        self._projection = SpanProjection(resource, version=version, wall_offset_ns=self._wall_offset_ns)
        self._ring = SpanRing(ring_sizes)
        self._export = OtlpExport(otlp, resource, version=version)
        self._open: dict[str, _Open] = {}
        self._open_of: dict[str, list[str]] = {}  # by trace id
        self._num_spans = 0

    # --- what happens ---

    def incoming(self, traceparent: list[str], tracestate: list[str]) -> TraceContext:
        """Return the identity of a request with these header values; see TraceContexts."""
        return self._contexts.incoming(traceparent, tracestate)

    def exchange_ended(self, exchange: HttpExchange) -> None:
        """An HTTP request is over."""
        if exchange.trace.is_sampled:
            self._backlog.put(self._exchange_ended, exchange)

    def generation_opened(self, request_id: str, facts: GenerationFacts) -> None:
        """The recorder is about to be told of a request; it will close it whatever happens."""
        if facts.trace.is_sampled:
            self._backlog.put(self._generation_opened, request_id, facts)

    def generation_answered(self, request_id: str, answered: Answered) -> None:
        """Say what the answer was; a request that is closed already is left alone."""
        self._backlog.put(self._generation_answered, request_id, answered)

    def request_closed(self, timeline: RequestTimeline) -> None:
        """Nothing more will be known of a request: make its spans and count it, now."""
        self._export.observe(timeline)
        generation = self._open.pop(timeline.request_id, None)
        if generation is not None:
            trace_id = generation.facts.trace.trace_id
            self._open_of[trace_id].remove(timeline.request_id)
            if not self._open_of[trace_id]:
                del self._open_of[trace_id]
            spans = self._projection.generation(timeline, generation.facts, generation.answered)
            self._keep(trace_id, spans, is_generation=True)

    def close(self, timeout_s: float) -> None:
        """Send what is queued, for at most so long; blocks, so call it from a thread of its own.

        What is still in the backlog isn't sent: settle it first.
        """
        self._export.close(timeout_s)

    # --- answers ---

    def knows(self, trace_id: str) -> bool:
        """Return whether `trace` has an answer now; an exemplar that doesn't is not worth showing."""
        self._backlog.settle()
        return self._is_known(trace_id)

    def traces(self, wanted: TraceFilter) -> dict[str, Any]:
        """Return the body of `/telemetry/traces`."""
        self._backlog.settle()
        return trace_list(self._ring, wanted)

    def trace(self, trace_id: str) -> dict[str, Any] | None:
        """Return the body of `/telemetry/traces/{trace_id}`; None if it is unknown or forgotten."""
        self._backlog.settle()
        in_flight = self._open_of.get(trace_id, [])
        kept = self._ring.get(trace_id)
        if kept is None and not in_flight:
            return None
        arrivals = [self._open[request_id].facts.arrival for request_id in in_flight]
        return trace_detail(
            kept or KeptTrace(trace_id),
            in_flight=in_flight,
            started_ns=self._wall_offset_ns + round(min(arrivals, default=0.0) * 1e9),
        )

    def stats(self) -> TracingStats:
        """Return the tracing part of `GET /stats`."""
        self._backlog.settle()
        ring, sizes = self._ring, self._ring.sizes
        return TracingStats(
            spans=self._num_spans,
            exporting=self._export.endpoint != "",
            spans_exported=self._export.num_exported,
            spans_dropped=self._dropped(),
            traces=RingStats(
                size=len(ring), capacity=sizes.generations + sizes.others, overwritten=ring.num_overwritten
            ),
        )

    def refresh(self, metrics: Metrics) -> None:
        """Bring a registry up to date with what was dropped, and its exemplars with what is known."""
        self._backlog.settle()
        for reason, num_spans in self._dropped().items():
            metrics.spans_dropped.at(reason).value = num_spans
        metrics.forget_exemplars(self._is_known)

    # --- inside ---

    def _is_known(self, trace_id: str) -> bool:
        return trace_id in self._ring or trace_id in self._open_of

    def _exchange_ended(self, exchange: HttpExchange) -> None:
        self._keep(exchange.trace.trace_id, [self._projection.exchange(exchange)], is_generation=False)

    def _generation_opened(self, request_id: str, facts: GenerationFacts) -> None:
        self._open[request_id] = _Open(facts)
        self._open_of.setdefault(facts.trace.trace_id, []).append(request_id)

    def _generation_answered(self, request_id: str, answered: Answered) -> None:
        generation = self._open.get(request_id)
        if generation is not None:
            generation.answered = answered

    def _dropped(self) -> dict[str, int]:
        return {**self._export.dropped(), "trace_full": self._ring.num_refused}

    def _keep(self, trace_id: str, spans: list[ReadableSpan], *, is_generation: bool) -> None:
        self._num_spans += len(spans)
        self._ring.add(trace_id, spans, is_generation=is_generation)
        self._export.add(spans)


def _resource(version: str) -> Resource:
    """Return who we are; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES, which the SDK reads, win."""
    given = Resource.create()
    ours = {SERVICE_NAME: "pellucid", SERVICE_VERSION: version}
    if not str(given.attributes.get(SERVICE_NAME, "")).startswith(UNKNOWN_SERVICE):
        ours.pop(SERVICE_NAME)
    if SERVICE_VERSION in given.attributes:
        ours.pop(SERVICE_VERSION)
    return given.merge(Resource(ours))
