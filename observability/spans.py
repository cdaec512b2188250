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
from opentelemetry.trace import SpanContext, SpanKind, Status

from observability import genai
from observability.span_attributes import (
    OTHER_METHOD,
    UNSET,
    Attributes,
    exchange_attributes,
    exchange_status,
    generation_attributes,
    generation_status,
    shown_method,
)
from observability.span_facts import Answered, GenerationFacts, HttpExchange
from observability.timeline import Chunk, RequestTimeline

MAX_CHUNK_EVENTS = 128


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
        method = shown_method(exchange.method)
        shown = "HTTP" if method == OTHER_METHOD else method
        return self._span(
            f"{shown} {exchange.route}" if exchange.route else shown,
            exchange.trace.span,
            exchange.trace.parent,
            kind=SpanKind.SERVER,
            start=exchange.start,
            end=exchange.end,
            attributes=exchange_attributes(exchange),
            status=exchange_status(exchange),
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
            attributes=generation_attributes(timeline, facts, answered, operation),
            status=generation_status(timeline),
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
            name, self._child(above), above, start=start, end=end, attributes=attributes, status=UNSET, events=events
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
