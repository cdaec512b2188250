"""Which trace a request belongs to: W3C `traceparent` and `tracestate` in, the identity of our server span out.

A header that isn't well formed, or comes twice, starts a new trace, as the specification says. The client's sampling
flag is honoured unless the sampler is told not to; a request that is not sampled has ids, answers with them, and leaves
no span and no exemplar.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from opentelemetry import trace
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased
from opentelemetry.trace import SpanContext, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

SAMPLED, NOT_SAMPLED = TraceFlags(TraceFlags.SAMPLED), TraceFlags(TraceFlags.DEFAULT)

_propagator = TraceContextTextMapPropagator()


@dataclass(frozen=True, slots=True)
class TraceContext:
    """Identity of one request's server span.

    Attributes:
        span: of the server span itself; carries the client's tracestate on.
        parent: the client's span; None for a new trace.
    """

    span: SpanContext
    parent: SpanContext | None

    @property
    def trace_id(self) -> str:
        """32 hex digits."""
        return trace.format_trace_id(self.span.trace_id)

    @property
    def span_id(self) -> str:
        """16 hex digits."""
        return trace.format_span_id(self.span.span_id)

    @property
    def is_sampled(self) -> bool:
        return self.span.trace_flags.sampled

    @property
    def traceresponse(self) -> str:
        """The value of the response header of that name."""
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.is_sampled else '00'}"


@dataclass(frozen=True, slots=True)
class Sampling:
    """Which traces are kept.

    Attributes:
        ratio: share of the traces that begin here, 0..1; decided by the trace id alone.
        follows_parent: whether a client's own decision counts instead.
    """

    ratio: float = 1.0
    follows_parent: bool = True


class TraceContexts:
    """Makes the identity of each request.

    Args:
        sampling: which traces are kept.
        ids: where ids come from.
    """

    def __init__(self, sampling: Sampling = Sampling(), *, ids: IdGenerator | None = None) -> None:
        self._follows_parent = sampling.follows_parent
        self._sampler = TraceIdRatioBased(sampling.ratio)
        self._ids = ids or RandomIdGenerator()

    def incoming(self, traceparent: Sequence[str], tracestate: Sequence[str]) -> TraceContext:
        """Return the identity for a request with these header values, each as often as it came."""
        parent = _parent(traceparent[0], tracestate) if len(traceparent) == 1 else None
        trace_id = self._ids.generate_trace_id() if parent is None else parent.trace_id
        if parent is not None and self._follows_parent:
            is_sampled = parent.trace_flags.sampled
        else:
            is_sampled = self._sampler.should_sample(None, trace_id, "").decision is Decision.RECORD_AND_SAMPLE
        span = SpanContext(
            trace_id,
            self._ids.generate_span_id(),
            is_remote=False,
            trace_flags=SAMPLED if is_sampled else NOT_SAMPLED,
            trace_state=None if parent is None else parent.trace_state,
        )
        return TraceContext(span, parent)


def _parent(traceparent: str, tracestate: Sequence[str]) -> SpanContext | None:
    carrier = {"traceparent": traceparent, "tracestate": ",".join(tracestate)}
    context = trace.get_current_span(_propagator.extract(carrier)).get_span_context()
    return context if context.is_valid else None
