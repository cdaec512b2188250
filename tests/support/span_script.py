"""Spans of scripted timelines: an event script with tracing behind it."""

from typing import Any

from opentelemetry.sdk.trace import ReadableSpan

from engine.clock import ManualClock
from engine.events import RequestAborted, RequestFailed, RequestFinished, RequestPreempted, RequestResumed
from observability.backlog import Backlog
from observability.recorder import RingSizes
from observability.span_facts import Answered, GenerationFacts, HttpExchange
from observability.trace_context import TraceContext
from observability.tracing import Tracing
from tests.support.event_script import Script

ROUTE = "/v1/chat/completions"
PARENT = "00-0123456789abcdef0123456789abcdef-00f067aa0ba902b7-01"


class SpanScript(Script):
    """A script whose closed requests become spans.

    Attributes:
        tracing: on the same clock.
    """

    def __init__(
        self,
        *,
        start: float = 100.0,
        tracing: Tracing | None = None,
        ring_sizes: RingSizes | None = None,
        backlog: Backlog | None = None,
    ) -> None:
        self.tracing = tracing or Tracing(ManualClock(start), backlog=backlog)
        super().__init__(start=start, ring_sizes=ring_sizes, on_closed=self.tracing.request_closed, backlog=backlog)
        self.engine_started()

    def begin(self, request_id: str, *, traceparent: str = "", stream: bool = True, **facts: Any) -> TraceContext:
        """Open a request as the service does."""
        trace = self.tracing.incoming([traceparent] if traceparent else [], [])
        self.tracing.generation_opened(request_id, GenerationFacts(trace, self.t, "asked", **facts))
        self.open(request_id, stream=stream, trace_id=trace.trace_id if trace.is_sampled else "")
        return trace

    def answered(self, request_id: str, **answered: Any) -> None:
        self.tracing.generation_answered(request_id, Answered(**answered))

    def preempt(self, request_id: str, *, lost: int = 1, index: int = 0) -> None:
        self.say(RequestPreempted, request_id=request_id, index=index, num_lost_tokens=lost, num_preemptions=1)

    def resume(self, request_id: str, *, recompute: int = 1, index: int = 0) -> None:
        self.say(
            RequestResumed, request_id=request_id, index=index, num_cached_tokens=0, num_recompute_tokens=recompute
        )

    def finish(self, request_id: str, *, sent: float | None = None) -> None:
        """End a request; its last byte is out at `sent`, at once by default."""
        self.say(
            RequestFinished,
            request_id=request_id,
            finish_reason="stop",
            num_prompt_tokens=10,
            num_cached_tokens=0,
            num_output_tokens=1,
            num_preemptions=0,
        )
        self.recorder.sent_last(request_id, self.t if sent is None else sent)

    def fail(self, request_id: str, message: str = "the step failed") -> None:
        self.say(
            RequestFailed, request_id=request_id, error_type="internal_error", message=message, num_output_tokens=0
        )
        self.recorder.sent_last(request_id, self.t)

    def abort(self, request_id: str, reason: str = "client_gone") -> None:
        self.say(RequestAborted, request_id=request_id, reason=reason, num_output_tokens=0)

    def exchange(self, trace: TraceContext, start: float, **given: Any) -> None:
        """End an HTTP exchange now."""
        fields: dict[str, Any] = {
            "request_id": "req-1",
            "method": "POST",
            "route": ROUTE,
            "path": ROUTE,
            "query": "",
            "scheme": "http",
            "http_version": "1.1",
            "server": ("127.0.0.1", 8100),
            "client": ("127.0.0.1", 4711),
            "user_agent": "test",
            "status": 200,
            "is_whole": True,
            **given,
        }
        self.tracing.exchange_ended(HttpExchange(trace=trace, start=start, end=self.t, **fields))

    def spans(self, trace: TraceContext) -> list[dict[str, Any]]:
        """Return the spans of a trace as the dashboard gets them."""
        body = self.tracing.trace(trace.trace_id)
        assert body is not None
        found: list[dict[str, Any]] = body["spans"]
        return found


def by_name(spans: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """Return the one span of a name."""
    (span,) = [span for span in spans if span["name"] == name]
    return span


def end_s(span: dict[str, Any]) -> float:
    return float(span["start_s"] + span["duration_s"])


def otel_names(spans: list[ReadableSpan]) -> set[str]:
    """Return the names of all attributes of spans and their events."""
    return {name for span in spans for holder in (span, *span.events) for name in holder.attributes or {}}
