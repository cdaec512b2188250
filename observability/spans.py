"""Spans of one request, projected from its closed timeline and its HTTP exchange; nothing is measured here.

    SERVER  POST /v1/chat/completions                       head read ────────────────────────── response over
    INTERNAL  chat {model}                                       arrival ───────────────── last byte handed over
                pellucid.queue                                     queued ── scheduled
                pellucid.prefill      event per chunk                        scheduled ── first token
                pellucid.preempted                                                 preempted ── resumed
                pellucid.decode       event per N tokens                            first token ── last token

All stamps are explicit, so no span is ever current anywhere, and the engine pays nothing. A span lies within its
parent: what the engine still did after nobody listened any more is cut off at the parent's end.
"""

from collections.abc import Sequence

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.semconv.attributes import (
    client_attributes,
    error_attributes,
    http_attributes,
    network_attributes,
    server_attributes,
    url_attributes,
    user_agent_attributes,
)
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode

from observability import genai
from observability.span_facts import Answered, AttributeValue, GenerationFacts, HttpExchange
from observability.timeline import Chunk, Outcome, RequestTimeline

ERROR_TYPE = error_attributes.ERROR_TYPE
KNOWN_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"})
CANCELLED = "cancelled"
MAX_TEXT_CHARS = 256
MAX_CHUNK_EVENTS = 128

Attributes = dict[str, AttributeValue]

_UNSET = Status(StatusCode.UNSET)


class SpanProjection:
    """Makes finished spans; they go to a ring and to an exporter.

    Args:
        resource: what all spans come from.
        version: of the project.
        wall_offset_ns: Unix epoch nanoseconds minus monotonic ones.
        ids: where span ids come from.
    """

    def __init__(
        self, resource: Resource, *, version: str, wall_offset_ns: int, ids: IdGenerator | None = None
    ) -> None:
        self._resource = resource
        self._scope = InstrumentationScope("pellucid", version, genai.SCHEMA_URL)
        self._wall_offset_ns = wall_offset_ns
        self._ids = ids or RandomIdGenerator()

    def exchange(self, exchange: HttpExchange) -> ReadableSpan:
        """Return the server span."""
        method = exchange.method if exchange.method in KNOWN_METHODS else "_OTHER"
        shown = method if method != "_OTHER" else "HTTP"
        return self._span(
            f"{shown} {exchange.route}" if exchange.route else shown,
            exchange.trace.span,
            exchange.trace.parent,
            kind=SpanKind.SERVER,
            start=exchange.start,
            end=exchange.end,
            attributes=_exchange_attributes(exchange, method),
            status=_exchange_status(exchange),
        )

    def generation(self, timeline: RequestTimeline, facts: GenerationFacts, answered: Answered) -> list[ReadableSpan]:
        """Return the spans of one closed generation, the parent of the others first."""
        start = timeline.arrival
        end = start + (timeline.e2e_s or 0.0)
        operation = genai.operation_of(timeline.route)
        chat = self._span(
            f"{operation} {timeline.model}",
            self._child(facts.trace.span),
            facts.trace.span,
            start=start,
            end=end,
            attributes=_generation_attributes(timeline, facts, answered, operation),
            status=_generation_status(timeline),
        )
        phases = _Phases(self, chat, start, end)
        for wait in timeline.waits:
            if wait.cause == "queued":
                phases.add("pellucid.queue", wait.start, wait.end, {})
        if timeline.first_scheduled is not None:
            self._prefill(phases, timeline, timeline.first_scheduled)
        for preemption in timeline.preemptions:
            phases.add("pellucid.preempted", preemption.t, preemption.resumed, {
                "pellucid.choice.index": preemption.index,
                "pellucid.lost_tokens": preemption.num_lost_tokens,
                "pellucid.recompute_tokens": preemption.num_recompute_tokens,
                "pellucid.first_step": preemption.step,
                "pellucid.last_step": preemption.resumed_step or timeline.last_step,
            })  # fmt: skip
        if timeline.first_token is not None:
            self._decode(phases, timeline, timeline.first_token)
        return [chat, *phases.spans]

    def _prefill(self, phases: "_Phases", timeline: RequestTimeline, start: float) -> None:
        end = timeline.first_token
        chunks = [chunk for chunk in timeline.chunks if end is None or chunk.t <= end]
        phases.add(
            "pellucid.prefill",
            start,
            end,
            {
                "pellucid.prompt_tokens": timeline.num_prompt_tokens,
                "pellucid.cached_tokens": timeline.num_cached_tokens,
                "pellucid.computed_tokens": timeline.num_computed_tokens,
                "pellucid.chunks": len(chunks),
                "pellucid.prefix_miss": timeline.prefix_why,
                "pellucid.first_step": timeline.first_step,
            },
            [_chunk_event(chunk) for chunk in chunks[:MAX_CHUNK_EVENTS]],
        )

    def _decode(self, phases: "_Phases", timeline: RequestTimeline, start: float) -> None:
        events = [
            (mark.t, "pellucid.tokens", _mark_attributes(index, mark.num_tokens, mark.step))
            for index, choice in timeline.choices.items()
            for mark in choice.marks
        ]
        events += [_chunk_event(chunk) for chunk in timeline.chunks if chunk.t > start][:MAX_CHUNK_EVENTS]
        attributes: Attributes = {
            "pellucid.output_tokens": timeline.num_output_tokens,
            "pellucid.recomputed_tokens": timeline.num_recomputed_tokens,
            "pellucid.last_step": timeline.last_step,
        }
        if timeline.stall_s is not None:
            attributes["pellucid.stall_s"] = timeline.stall_s
        phases.add(
            "pellucid.decode", start, timeline.last_token, attributes, sorted(events, key=lambda event: event[0])
        )

    def _child(self, parent: SpanContext) -> SpanContext:
        return SpanContext(
            parent.trace_id,
            self._ids.generate_span_id(),
            is_remote=False,
            trace_flags=parent.trace_flags,
            trace_state=parent.trace_state,
        )

    def child_span(
        self,
        name: str,
        parent: ReadableSpan,
        *,
        start: float,
        end: float,
        attributes: Attributes,
        events: Sequence["TimedEvent"] = (),
    ) -> ReadableSpan:
        """Return an internal span below another one."""
        above = parent.get_span_context()
        assert above is not None
        return self._span(
            name, self._child(above), above, start=start, end=end, attributes=attributes, status=_UNSET, events=events
        )

    def _span(
        self,
        name: str,
        context: SpanContext,
        parent: SpanContext | None,
        *,
        start: float,
        end: float,
        attributes: Attributes,
        status: Status,
        kind: SpanKind = SpanKind.INTERNAL,
        events: Sequence["TimedEvent"] = (),
    ) -> ReadableSpan:
        return ReadableSpan(
            name,
            context=context,
            parent=parent,
            resource=self._resource,
            attributes=attributes,
            events=[Event(label, values, self._wall_ns(min(max(t, start), end))) for t, label, values in events],
            kind=kind,
            status=status,
            start_time=self._wall_ns(start),
            end_time=self._wall_ns(end),
            instrumentation_scope=self._scope,
        )

    def _wall_ns(self, t: float) -> int:
        return self._wall_offset_ns + round(t * 1e9)


TimedEvent = tuple[float, str, Attributes]


class _Phases:
    """Children of a generation's span, kept within it."""

    def __init__(self, projection: SpanProjection, chat: ReadableSpan, start: float, end: float) -> None:
        self.spans: list[ReadableSpan] = []
        self._projection = projection
        self._chat = chat
        self._start = start
        self._end = end

    def add(
        self, name: str, start: float, end: float | None, attributes: Attributes, events: Sequence[TimedEvent] = ()
    ) -> None:
        """Add a phase; one without an end lasted to the end of the request, and one that began after it isn't shown."""
        if start > self._end:
            return
        if end is None:
            attributes["pellucid.incomplete"] = True
        last = self._end if end is None else min(end, self._end)
        self.spans.append(
            self._projection.child_span(
                name, self._chat, start=max(start, self._start), end=last, attributes=attributes, events=events
            )
        )


def _chunk_event(chunk: Chunk) -> TimedEvent:
    attributes: Attributes = {
        "pellucid.choice.index": chunk.index,
        "pellucid.chunk.start": chunk.start,
        "pellucid.chunk.tokens": chunk.num_tokens,
        "pellucid.chunk.recomputed_tokens": chunk.num_recomputed,
        "pellucid.step": chunk.step,
    }
    return chunk.t, "pellucid.chunk", attributes


def _mark_attributes(index: int, num_tokens: int, step: int) -> Attributes:
    return {"pellucid.choice.index": index, "pellucid.output_tokens": num_tokens, "pellucid.step": step}


def _exchange_attributes(exchange: HttpExchange, method: str) -> Attributes:
    attributes: Attributes = {
        http_attributes.HTTP_REQUEST_METHOD: method,
        url_attributes.URL_PATH: exchange.path[:MAX_TEXT_CHARS],
        url_attributes.URL_SCHEME: exchange.scheme,
        network_attributes.NETWORK_PROTOCOL_VERSION: exchange.http_version,
        "pellucid.request_id": exchange.request_id,
    }
    if method == "_OTHER":
        attributes[http_attributes.HTTP_REQUEST_METHOD_ORIGINAL] = exchange.method[:MAX_TEXT_CHARS]
    if exchange.route:
        attributes[http_attributes.HTTP_ROUTE] = exchange.route
    if exchange.query:
        attributes[url_attributes.URL_QUERY] = exchange.query[:MAX_TEXT_CHARS]
    if exchange.server is not None:
        attributes[server_attributes.SERVER_ADDRESS] = exchange.server[0]
        if exchange.server[1] is not None:
            attributes[server_attributes.SERVER_PORT] = exchange.server[1]
    if exchange.client is not None:
        attributes[client_attributes.CLIENT_ADDRESS] = exchange.client[0]
    if exchange.user_agent:
        attributes[user_agent_attributes.USER_AGENT_ORIGINAL] = exchange.user_agent[:MAX_TEXT_CHARS]
    if exchange.status:
        attributes[http_attributes.HTTP_RESPONSE_STATUS_CODE] = exchange.status
    if exchange.status >= 500:
        attributes[ERROR_TYPE] = str(exchange.status)
    elif not exchange.is_whole:
        attributes[ERROR_TYPE] = CANCELLED
    return attributes


def _exchange_status(exchange: HttpExchange) -> Status:
    """A refusal is the client's fault and no error of this span; not to have answered in full is."""
    if exchange.status >= 500:
        return Status(StatusCode.ERROR)
    if not exchange.is_whole:
        return Status(StatusCode.ERROR, "the client left")
    return _UNSET


def _generation_attributes(
    timeline: RequestTimeline, facts: GenerationFacts, answered: Answered, operation: str
) -> Attributes:
    attributes: Attributes = {
        genai.OPERATION_NAME: operation,
        genai.PROVIDER_NAME: genai.PROVIDER,
        genai.REQUEST_MODEL: facts.request_model,
        genai.RESPONSE_MODEL: timeline.model,
        "pellucid.request_id": timeline.request_id,
        "pellucid.outcome": timeline.outcome.value if timeline.outcome is not None else "",
        "pellucid.preemptions": timeline.num_preemptions,
        "pellucid.first_seq": timeline.first_seq,
        "pellucid.last_seq": timeline.last_seq,
        "pellucid.first_step": timeline.first_step,
        "pellucid.last_step": timeline.last_step,
        **facts.attributes,
    }
    if timeline.in_engine:
        attributes[genai.USAGE_INPUT_TOKENS] = timeline.num_prompt_tokens
        attributes[genai.USAGE_OUTPUT_TOKENS] = timeline.num_output_tokens
        attributes[genai.USAGE_CACHE_READ_INPUT_TOKENS] = timeline.num_cached_tokens
    if answered.answer_id:
        attributes[genai.RESPONSE_ID] = answered.answer_id
    reasons = tuple(choice.finish_reason for _, choice in sorted(timeline.choices.items()) if choice.finish_reason)
    if reasons:
        attributes[genai.RESPONSE_FINISH_REASONS] = reasons
    if timeline.stream and timeline.sent_first is not None:
        attributes[genai.RESPONSE_TIME_TO_FIRST_CHUNK] = timeline.sent_first - timeline.arrival
    if timeline.outcome is not Outcome.FINISHED:
        attributes[ERROR_TYPE] = error_type_of(timeline)
    if facts.input_messages:
        attributes[genai.INPUT_MESSAGES] = facts.input_messages
    if answered.output_messages:
        attributes[genai.OUTPUT_MESSAGES] = answered.output_messages
    return attributes


def error_type_of(timeline: RequestTimeline) -> str:
    """Return `error.type` of a request that didn't finish: one of our error types, or `cancelled`."""
    return CANCELLED if timeline.outcome is Outcome.ABORTED else timeline.error_type or "internal_error"


def _generation_status(timeline: RequestTimeline) -> Status:
    """Say why it is not whole; a refusal's message may repeat what the client sent, so it stays out."""
    if timeline.outcome is Outcome.FINISHED:
        return _UNSET
    described = timeline.message if timeline.outcome in (Outcome.FAILED, Outcome.ABORTED) else ""
    return Status(StatusCode.ERROR, described or None)
