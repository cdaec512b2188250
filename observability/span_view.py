"""The form of `/telemetry/traces` and `/telemetry/traces/{trace_id}`, and its JSON Schema.

A change of meaning or a removal raises VERSION. `python -m observability.span_view` prints the schema file.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.semconv.attributes import error_attributes, http_attributes
from opentelemetry.trace import SpanKind, StatusCode

from observability import genai
from observability.span_ring import KeptTrace, SpanRing

SCHEMA = "pellucid-traces"
VERSION = 1
MAX_LISTED = 500

Value = str | bool | int | float | list[str]


class SpanEvent(msgspec.Struct, frozen=True, kw_only=True):
    """`at_s` is seconds after the trace's start."""

    name: str
    at_s: float
    attributes: dict[str, Value]


class SpanView(msgspec.Struct, frozen=True, kw_only=True):
    """One span; `start_s` is seconds after the trace's start, `parent_span_id` "" for a root.

    A parent that is not among the trace's spans is the client's.
    """

    span_id: str
    parent_span_id: str
    name: str
    kind: str
    start_s: float
    duration_s: float
    status: str
    status_message: str
    attributes: dict[str, Value]
    events: list[SpanEvent]


class TraceSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the list.

    Attributes:
        started: Unix epoch seconds of its first span.
        duration_s: first start to last end.
        name, route, http_status: of its first server span; "" and 0 while that is not over.
        status: `error` if any span has that status, else `ok`.
        error_type: of the first span that has one.
        request_ids: of its generations.
        model, output_tokens: of its generations, the latter summed up.
    """

    trace_id: str
    started: float
    duration_s: float
    name: str
    route: str
    http_status: int
    status: str
    error_type: str
    num_spans: int
    request_ids: list[str]
    model: str
    output_tokens: int


class TraceList(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `/telemetry/traces`. `kept` is how many there are, `overwritten` how many gave way to them."""

    schema: str
    version: int
    kept: int
    overwritten: int
    traces: list[TraceSummary]


class TraceDetail(msgspec.Struct, frozen=True, kw_only=True):
    """The body of `/telemetry/traces/{trace_id}`: spans by start, parents first.

    Attributes:
        in_flight: generations that are not over; their spans are not there yet, nor is their server span.
        refused: spans beyond the bound of one trace.
    """

    schema: str
    version: int
    in_flight: list[str]
    trace: TraceSummary
    refused: int
    spans: list[SpanView]


@dataclass(frozen=True, slots=True)
class TraceFilter:
    """Which traces to list; "" takes any.

    Attributes:
        status: `ok` or `error`.
        route: template of the server span.
        limit: how many at most, 1..MAX_LISTED.
    """

    min_duration_s: float = 0.0
    status: str = ""
    route: str = ""
    limit: int = 100


def trace_list(ring: SpanRing, wanted: TraceFilter) -> dict[str, Any]:
    """Return the newest traces that pass, newest first."""
    summaries = [summary for kept in ring if _passes(summary := _summary(kept), wanted)]
    summaries.sort(key=lambda summary: -summary.started)
    body = TraceList(
        schema=SCHEMA,
        version=VERSION,
        kept=len(ring),
        overwritten=ring.num_overwritten,
        traces=summaries[: wanted.limit],
    )
    return cast(dict[str, Any], msgspec.to_builtins(body))


def trace_detail(kept: KeptTrace, *, in_flight: Sequence[str] = (), started_ns: int = 0) -> dict[str, Any]:
    """Return all spans of one trace; `started_ns` is Unix epoch nanoseconds, for one that has no span yet."""
    origin = _start_ns(kept.spans, started_ns)
    depth = _depths(kept.spans)
    spans = sorted(kept.spans, key=lambda span: (span.start_time or 0, depth[_id(span)]))
    body = TraceDetail(
        schema=SCHEMA,
        version=VERSION,
        in_flight=list(in_flight),
        trace=_summary(kept, started_ns),
        refused=kept.num_refused,
        spans=[_span_view(span, origin) for span in spans],
    )
    return cast(dict[str, Any], msgspec.to_builtins(body))


def traces_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of both bodies."""
    (listing, detail), components = msgspec.json.schema_components(
        [TraceList, TraceDetail], ref_template="#/$defs/{name}"
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"{SCHEMA} version {VERSION}",
        "anyOf": [listing, detail],
        "$defs": dict(sorted(components.items())),
    }


def _passes(summary: TraceSummary, wanted: TraceFilter) -> bool:
    return (
        summary.duration_s >= wanted.min_duration_s
        and wanted.status in ("", summary.status)
        and wanted.route in ("", summary.route)
    )


def _summary(kept: KeptTrace, started_ns: int = 0) -> TraceSummary:
    spans = kept.spans
    start = _start_ns(spans, started_ns)
    end = max((span.end_time or 0 for span in spans), default=start)
    server = next((span for span in spans if span.kind is SpanKind.SERVER), None)
    generations = [span for span in spans if genai.OPERATION_NAME in _attributes(span)]
    errors = [_attributes(span)[error_attributes.ERROR_TYPE] for span in spans
              if error_attributes.ERROR_TYPE in _attributes(span)]  # fmt: skip
    http = _attributes(server) if server is not None else {}
    return TraceSummary(
        trace_id=kept.trace_id,
        started=start / 1e9,
        duration_s=(end - start) / 1e9,
        name=server.name if server is not None else "",
        route=str(http.get(http_attributes.HTTP_ROUTE, "")),
        http_status=int(cast(int, http.get(http_attributes.HTTP_RESPONSE_STATUS_CODE, 0))),
        status="error" if any(span.status.status_code is StatusCode.ERROR for span in spans) else "ok",
        error_type=str(errors[0]) if errors else "",
        num_spans=len(spans),
        request_ids=[str(_attributes(span)["pellucid.request_id"]) for span in generations],
        model=str(_attributes(generations[0])[genai.RESPONSE_MODEL]) if generations else "",
        output_tokens=sum(int(cast(int, _attributes(span).get(genai.USAGE_OUTPUT_TOKENS, 0))) for span in generations),
    )


def _span_view(span: ReadableSpan, origin: int) -> SpanView:
    start, end = span.start_time or 0, span.end_time or 0
    return SpanView(
        span_id=_id(span),
        parent_span_id=trace.format_span_id(span.parent.span_id) if span.parent is not None else "",
        name=span.name,
        kind=span.kind.name.lower(),
        start_s=(start - origin) / 1e9,
        duration_s=(end - start) / 1e9,
        status=span.status.status_code.name.lower(),
        status_message=span.status.description or "",
        attributes=_json(_attributes(span)),
        events=[
            SpanEvent(name=event.name, at_s=(event.timestamp - origin) / 1e9, attributes=_json(event.attributes or {}))
            for event in span.events
        ],
    )


def _depths(spans: Sequence[ReadableSpan]) -> dict[str, int]:
    """Return how far below a root each span is, so that parents come before children that start with them."""
    parents = {_id(span): trace.format_span_id(span.parent.span_id) if span.parent else "" for span in spans}
    depths: dict[str, int] = {}
    for span_id in parents:
        depth, above = 0, parents[span_id]
        while above in parents and depth < len(parents):
            depth, above = depth + 1, parents[above]
        depths[span_id] = depth
    return depths


def _start_ns(spans: Sequence[ReadableSpan], otherwise: int) -> int:
    return min((span.start_time or 0 for span in spans), default=otherwise)


def _id(span: ReadableSpan) -> str:
    context = span.get_span_context()
    assert context is not None
    return trace.format_span_id(context.span_id)


def _attributes(span: ReadableSpan) -> Mapping[str, Any]:
    return span.attributes or {}


def _json(attributes: Mapping[str, Any]) -> dict[str, Value]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in attributes.items()}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(traces_schema(), indent=1) + "\n")
