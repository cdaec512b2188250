"""The memory of traces: bounds, what goes first, and the form in which it is shown."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from engine.clock import ManualClock
from observability.span_ring import SpanRingSizes
from observability.span_view import TraceFilter, traces_schema
from observability.tracing import Tracing
from tests.support.span_script import ROUTE, SpanScript

SCHEMA_FILE = Path(__file__).parents[2] / "observability" / "schemas" / "traces.schema.json"


def small(generations: int = 2, others: int = 2, spans: int = 4) -> SpanScript:
    return SpanScript(tracing=Tracing(ManualClock(100.0), ring_sizes=SpanRingSizes(generations, others, spans)))


def generate(script: SpanScript, request_id: str, *, seconds: float = 1.0, fails: bool = False) -> str:
    start = script.t
    trace = script.begin(request_id)
    script.arrive(request_id)
    script.schedule(request_id)
    script.at(start + seconds).tokens(request_id)
    if fails:
        script.fail(request_id)
    else:
        script.finish(request_id)
    script.exchange(trace, start=start, request_id=request_id)
    return trace.trace_id


def poll(script: SpanScript, route: str = "/stats") -> str:
    trace = script.tracing.incoming([], [])
    script.exchange(trace, start=script.t, method="GET", route=route, path=route)
    return trace.trace_id


def listed(script: SpanScript, **wanted: Any) -> list[dict[str, Any]]:
    traces: list[dict[str, Any]] = script.tracing.traces(TraceFilter(**wanted))["traces"]
    return traces


def test_oldest_trace_gives_way_and_is_counted() -> None:
    script = small(generations=2)
    ids = [generate(script, f"r{i}") for i in range(3)]
    assert [script.tracing.knows(trace_id) for trace_id in ids] == [False, True, True]
    assert script.tracing.stats().traces.overwritten == 1
    assert [trace["trace_id"] for trace in listed(script)] == ids[:0:-1]


def test_polling_does_not_push_generations_out() -> None:
    script = small(generations=2, others=2)
    kept = generate(script, "a")
    for _ in range(100):
        poll(script)
    assert script.tracing.knows(kept)
    assert script.tracing.stats().traces.size == 3


def test_requests_of_one_trace_are_kept_together_up_to_the_bound() -> None:
    script = small(spans=4)
    trace = script.begin("a")
    for name in ("a", "b"):
        if name == "b":
            script.begin("b", traceparent=f"00-{trace.trace_id}-00f067aa0ba902b7-01")
        script.arrive(name)
        script.schedule(name)
        script.tokens(name)
        script.finish(name)
    body: Any = script.tracing.trace(trace.trace_id)
    assert (len(body["spans"]), body["refused"]) == (4, 4)
    assert script.tracing.stats().spans_dropped["trace_full"] == 4
    assert 'pellucid_spans_dropped_total{reason="trace_full"} 0.0' in script.metrics.render()[0].decode()
    script.tracing.refresh(script.metrics)
    assert 'pellucid_spans_dropped_total{reason="trace_full"} 4.0' in script.metrics.render()[0].decode()


def test_list_is_filtered_by_duration_status_route_and_limit() -> None:
    script = SpanScript()
    quick, slow = generate(script, "a", seconds=0.5), generate(script, "b", seconds=2.0)
    failed, polled = generate(script, "c", seconds=1.0, fails=True), poll(script)
    assert [trace["trace_id"] for trace in listed(script)] == [polled, failed, slow, quick]
    assert [trace["trace_id"] for trace in listed(script, limit=1)] == [polled]
    assert [trace["trace_id"] for trace in listed(script, min_duration_s=0.9)] == [failed, slow]
    assert [trace["trace_id"] for trace in listed(script, status="error")] == [failed]
    assert [trace["trace_id"] for trace in listed(script, status="ok", route=ROUTE)] == [slow, quick]


def test_line_of_the_list_says_what_the_trace_was() -> None:
    script = SpanScript()
    generate(script, "a", seconds=0.5, fails=True)
    (line,) = listed(script)
    del line["trace_id"]
    assert line == {
        "started": 100.0,
        "duration_s": 0.5,
        "name": f"POST {ROUTE}",
        "route": ROUTE,
        "http_status": 200,
        "status": "error",
        "error_type": "internal_error",
        "num_spans": 5,
        "request_ids": ["a"],
        "model": "smol",
        "output_tokens": 1,
    }


def test_trace_in_flight_is_known_and_says_so() -> None:
    script = SpanScript()
    trace = script.at(101.0).begin("a")
    body: Any = script.tracing.trace(trace.trace_id)
    assert (body["in_flight"], body["spans"], body["trace"]["started"]) == (["a"], [], 101.0)
    assert listed(script) == []
    script.arrive("a")
    script.finish("a")
    body = script.tracing.trace(trace.trace_id)
    assert (body["in_flight"], len(body["spans"])) == ([], 2)
    assert script.tracing.trace("0" * 32) is None


def test_exemplar_is_forgotten_with_its_trace() -> None:
    script = small(generations=1)
    first = generate(script, "a", seconds=1.0)
    script.tracing.refresh(script.metrics)
    assert first in script.metrics.render("application/openmetrics-text")[0].decode()
    second = generate(script, "b", seconds=5.0)
    script.tracing.refresh(script.metrics)
    exposed = script.metrics.render("application/openmetrics-text")[0].decode()
    assert (first in exposed, second in exposed) == (False, True)


def test_schema_file_agrees_with_the_types_and_the_answers_with_it() -> None:
    """After changing a type: python -m observability.span_view > observability/schemas/traces.schema.json."""
    schema = json.loads(SCHEMA_FILE.read_text())
    assert schema == traces_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    check = jsonschema.Draft202012Validator(schema)
    script = SpanScript()
    trace_id = generate(script, "a")
    listing = script.tracing.traces(TraceFilter())
    check.validate(listing)
    check.validate(script.tracing.trace(trace_id))
    assert (listing["schema"], listing["version"]) == ("pellucid-traces", 1)
    with pytest.raises(jsonschema.ValidationError):
        check.validate({**listing, "traces": [{}]})
