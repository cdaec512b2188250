"""Traces over HTTP: every route, every end of a request, and the way from an exemplar to its trace."""

import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest

from engine.config import SchedulerConfig
from engine.execution.simulated_executor import fail_on_call
from observability.trace_context import Sampling
from service.settings import ServiceSettings
from tests.support.http_calls import CHAT, COMPLETIONS, chat, completion, error_of, post
from tests.support.scripted_service import ScriptedCore, Served, StepGate, emits, serve
from tests.support.span_script import PARENT, by_name, end_s

TRACE_ID, CLIENT_SPAN = PARENT.split("-")[1:3]
SECRET = "the moon is a secret"


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serve(script=emits(b"hello")) as served:
        yield served


def trace_of(served: Served, trace_id: str) -> dict[str, Any]:
    """Return a trace once its server span is there: it ends after the client has its last byte."""
    served.until(lambda: has_server_span(served, trace_id))
    body: dict[str, Any] = served.get(f"/telemetry/traces/{trace_id}").json()
    return body


def has_server_span(served: Served, trace_id: str) -> bool:
    body = served.services.tracing.trace(trace_id)
    return body is not None and not body["in_flight"] and any(span["kind"] == "server" for span in body["spans"])


def generated_tokens(served: Served) -> int:
    counted = served.stats()["counters"]["generated_tokens"]
    assert isinstance(counted, int)
    return counted


def check_containment(spans: list[dict[str, Any]]) -> None:
    by_id = {span["span_id"]: span for span in spans}
    for span in spans:
        parent = by_id.get(span["parent_span_id"])
        if parent is not None:
            assert parent["start_s"] <= span["start_s"]
            assert end_s(span) <= end_s(parent) + 1e-9


def test_streamed_chat_is_one_trace_below_the_clients_span(served: Served) -> None:
    headers = {"traceparent": PARENT, "tracestate": "vendor=1"}
    body = chat(max_tokens=5, temperature=0.5, top_p=0.9, top_k=40, seed=7, stop=["zz"], stream=True, model="scripted")
    response = post(served.url, CHAT, body, headers=headers)
    assert response.headers["x-trace-id"] == TRACE_ID
    spans = trace_of(served, TRACE_ID)["spans"]
    check_containment(spans)
    server, generation = by_name(spans, f"POST {CHAT}"), by_name(spans, "chat scripted")
    assert server["parent_span_id"] == CLIENT_SPAN
    assert response.headers["traceresponse"] == f"00-{TRACE_ID}-{server['span_id']}-01"
    assert generation["parent_span_id"] == server["span_id"]
    assert {span["name"] for span in spans} - {server["name"], generation["name"]} == {
        "pellucid.queue",
        "pellucid.prefill",
        "pellucid.decode",
    }
    assert server["attributes"]["http.route"] == CHAT
    assert server["attributes"]["http.response.status_code"] == 200
    asked = generation["attributes"]
    answer_id = re.search(r'"id":"(chatcmpl-[^"]+)"', response.text)
    assert answer_id is not None
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "scripted",
        "gen_ai.request.max_tokens": 5,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 0.9,
        "gen_ai.request.top_k": 40,
        "gen_ai.request.seed": 7,
        "gen_ai.request.stop_sequences": ["zz"],
        "gen_ai.request.stream": True,
        "gen_ai.response.id": answer_id.group(1),
        "gen_ai.response.finish_reasons": ["length"],
        "gen_ai.usage.output_tokens": 5,
    }
    assert {name: asked.get(name) for name in expected} == expected


def test_sums_of_spans_are_the_timeline_of_the_request(served: Served) -> None:
    response = post(served.url, CHAT, chat(max_tokens=5))
    spans = trace_of(served, response.headers["x-trace-id"])["spans"]
    timeline = served.get(f"/telemetry/requests/{response.headers['x-request-id']}").json()
    for name, quantity in (
        ("chat scripted", "e2e_s"),
        ("pellucid.queue", "queue_s"),
        ("pellucid.prefill", "prefill_s"),
        ("pellucid.decode", "decode_s"),
    ):
        assert by_name(spans, name)["duration_s"] == pytest.approx(timeline[quantity], abs=0.001)
    usage = response.json()["usage"]
    attributes = by_name(spans, "chat scripted")["attributes"]
    assert attributes["gen_ai.usage.input_tokens"] == usage["prompt_tokens"]
    assert attributes["gen_ai.usage.output_tokens"] == usage["completion_tokens"]
    assert attributes["pellucid.request_id"] == response.headers["x-request-id"]


def test_call_with_several_prompts_has_a_generation_for_each(served: Served) -> None:
    response = post(served.url, COMPLETIONS, completion(["a", "b"], max_tokens=2, n=2))
    spans = trace_of(served, response.headers["x-trace-id"])["spans"]
    generations = [span for span in spans if span["name"] == "text_completion scripted"]
    assert [span["attributes"]["gen_ai.request.choice.count"] for span in generations] == [2, 2]
    assert {span["attributes"]["gen_ai.response.id"] for span in generations} == {response.json()["id"]}
    assert len({span["attributes"]["pellucid.request_id"] for span in generations}) == 2
    check_containment(spans)


@pytest.mark.parametrize(
    ("method", "path", "name", "status"),
    [
        ("GET", "/health", "GET /health", 200),
        ("GET", "/telemetry/requests/unknown", "GET /telemetry/requests/{request_id}", 404),
        ("GET", "/no/such/route", "GET", 404),
        ("GET", CHAT, f"GET {CHAT}", 405),
        ("POST", CHAT, f"POST {CHAT}", 400),
    ],
)
def test_every_route_and_refusal_has_a_server_span(
    served: Served, method: str, path: str, name: str, status: int
) -> None:
    response = served.post(path, json={"messages": 1}) if method == "POST" else served.get(path)
    assert response.status_code == status
    (server,) = trace_of(served, response.headers["x-trace-id"])["spans"]
    assert (server["name"], server["status"]) == (name, "unset")
    assert server["attributes"]["http.response.status_code"] == status
    assert server["parent_span_id"] == ""


def test_request_refused_after_it_was_opened_has_an_error_in_its_generation(served: Served) -> None:
    response = post(served.url, CHAT, chat("x" * 100_000))
    assert response.status_code == 400
    trace = trace_of(served, response.headers["x-trace-id"])
    assert trace["trace"]["status"] == "error"
    generation = by_name(trace["spans"], "chat scripted")
    assert generation["attributes"]["error.type"] == error_of(response)["type"]


def test_client_that_leaves_in_mid_stream_leaves_one_cancelled_trace_and_a_clean_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gate = StepGate()
    core = ScriptedCore(emits(b"abcdefgh" * 100), cues=[gate])
    with caplog.at_level(logging.WARNING), serve(core=core) as served:
        gate.close()
        with served.streaming(CHAT, chat(max_tokens=500)) as stream:
            trace_id = stream.response.headers["x-trace-id"]
            for _ in range(4):
                gate.step()
            served.until(lambda: generated_tokens(served) >= 2)
        served.until(lambda: served.engine.num_in_flight == 0)
        gate.open()
        trace = trace_of(served, trace_id)
        spans = trace["spans"]
        check_containment(spans)
        assert [span["kind"] for span in spans].count("server") == 1
        server, generation = by_name(spans, f"POST {CHAT}"), by_name(spans, "chat scripted")
        assert (server["status"], server["attributes"]["error.type"]) == ("error", "cancelled")
        assert (generation["status"], generation["attributes"]["error.type"]) == ("error", "cancelled")
        assert trace["trace"]["status"] == "error"
    assert caplog.records == []


def test_request_cancelled_by_somebody_else_still_says_which_answer_it_was() -> None:
    gate = StepGate()
    with serve(core=ScriptedCore(emits(b"x" * 99), cues=[gate])) as served:
        gate.close()
        with served.streaming(CHAT, chat(max_tokens=50)) as stream:
            headers = stream.response.headers
            assert gate.waiting.wait(10)
            served.post(f"/telemetry/requests/{headers['x-request-id']}/cancel")
            gate.open()
            first = stream.rest()[0]
        generation = by_name(trace_of(served, headers["x-trace-id"])["spans"], "chat scripted")
    assert generation["attributes"]["gen_ai.response.id"] == first["id"]
    assert (generation["status_message"], generation["attributes"]["error.type"]) == ("cancelled", "cancelled")


def test_failed_step_is_an_error_of_the_generation_and_of_the_trace() -> None:
    with serve(core=ScriptedCore(emits(b"abc"), cues=[fail_on_call(1)])) as served:
        response = post(served.url, CHAT, chat(max_tokens=3))
        assert response.status_code == 500
        trace = trace_of(served, response.headers["x-trace-id"])
    generation = by_name(trace["spans"], "chat scripted")
    assert (generation["status"], generation["attributes"]["pellucid.outcome"]) == ("error", "failed")
    assert by_name(trace["spans"], f"POST {CHAT}")["attributes"]["error.type"] == "500"


def test_preempted_requests_show_when_they_had_no_blocks() -> None:
    scheduling = SchedulerConfig(num_kv_blocks=8, block_size=16, prefix_cache=False)
    with serve(core=ScriptedCore(emits(b"x" * 200), scheduling=scheduling)) as served:
        response = post(served.url, COMPLETIONS, completion(["a" * 20, "b" * 20], max_tokens=60))
        assert response.status_code == 200, response.text
        spans = trace_of(served, response.headers["x-trace-id"])["spans"]
    check_containment(spans)
    preempted = [span for span in spans if span["name"] == "pellucid.preempted"]
    assert preempted
    assert all(span["attributes"]["pellucid.recompute_tokens"] > 0 for span in preempted)


def test_spans_sum_up_to_the_counters_after_a_mixed_load() -> None:
    with serve(script=emits(b"hello")) as served:
        answers = [post(served.url, CHAT, chat(max_tokens=n % 7 + 1, stream=n % 2 == 0)) for n in range(12)]
        answers += [post(served.url, COMPLETIONS, completion(["a", "b"], max_tokens=3, n=2, stop="l"))]
        refused = [post(served.url, CHAT, chat("x" * 100_000)), post(served.url, CHAT, {"messages": 1})]
        traces = [trace_of(served, answer.headers["x-trace-id"]) for answer in (*answers, *refused)]
        spans = [span for trace in traces for span in trace["spans"]]
        counters = served.get("/stats").json()["counters"]
    generations = [span["attributes"] for span in spans if "gen_ai.operation.name" in span["attributes"]]
    outcomes = [attributes["pellucid.outcome"] for attributes in generations]
    assert outcomes.count("finished") == counters["requests_finished"] == 14
    assert outcomes.count("rejected") == counters["requests_rejected"] - 1 == 1  # the other was refused unopened
    for name, total in (
        ("gen_ai.usage.output_tokens", counters["generated_tokens"]),
        ("gen_ai.usage.input_tokens", counters["prompt_tokens_computed"] + counters["prompt_tokens_cached"]),
        ("gen_ai.usage.cache_read.input_tokens", counters["prompt_tokens_cached"]),
    ):
        assert sum(attributes.get(name, 0) for attributes in generations) == total, name


def test_exemplars_of_the_metrics_lead_to_traces(served: Served) -> None:
    for _ in range(3):
        post(served.url, CHAT, chat(max_tokens=4))
    exposed = served.get("/metrics", headers={"accept": "application/openmetrics-text"}).text
    found = set(re.findall(r'# \{trace_id="([0-9a-f]{32})"\}', exposed))
    assert found
    assert {served.get(f"/telemetry/traces/{trace_id}").status_code for trace_id in found} == {200}


def test_unsampled_request_leaves_neither_span_nor_exemplar(served: Served) -> None:
    trace_id = "f" * 31 + "e"
    response = post(served.url, CHAT, chat(max_tokens=4), headers={"traceparent": f"00-{trace_id}-{CLIENT_SPAN}-00"})
    assert response.headers["x-trace-id"] == trace_id
    assert response.headers["traceresponse"].endswith("-00")
    served.get("/health")
    refusal = served.get(f"/telemetry/traces/{trace_id}")
    assert (refusal.status_code, error_of(refusal)["param"]) == (404, "trace_id")
    assert trace_id not in served.get("/metrics", headers={"accept": "application/openmetrics-text"}).text


def test_sampler_that_keeps_nothing_keeps_nothing_of_our_own_traces() -> None:
    with serve(script=emits(b"abc"), settings=ServiceSettings(sampling=Sampling(0.0))) as served:
        post(served.url, CHAT, chat(max_tokens=2))
        assert served.get("/telemetry/traces").json()["traces"] == []


def test_list_of_traces_is_filtered_over_http(served: Served) -> None:
    response = post(served.url, CHAT, chat(max_tokens=4))
    trace_of(served, response.headers["x-trace-id"])
    listing = served.get("/telemetry/traces", params={"route": CHAT, "limit": 1}).json()
    assert [trace["trace_id"] for trace in listing["traces"]] == [response.headers["x-trace-id"]]
    assert served.get("/telemetry/traces", params={"min_duration_ms": 60_000}).json()["traces"] == []
    assert served.get("/stats").json()["tracing"]["spans"] > 0


@pytest.mark.parametrize(
    ("name", "value"), [("limit", "0"), ("limit", "501"), ("limit", "x"), ("status", "slow"), ("min_duration_ms", "-1")]
)
def test_bad_filter_is_refused_by_name(served: Served, name: str, value: str) -> None:
    refusal = served.get("/telemetry/traces", params={name: value})
    assert (refusal.status_code, error_of(refusal)["param"]) == (400, name)


def test_content_is_in_spans_only_where_the_operator_allows_it() -> None:
    body = chat(SECRET, max_tokens=5)
    for allowed in (False, True):
        with serve(script=emits(b"hello"), settings=ServiceSettings(log_content=allowed)) as served:
            response = post(served.url, CHAT, body)
            streamed = post(served.url, COMPLETIONS, completion(SECRET, max_tokens=5, stream=True))
            traces = [trace_of(served, each.headers["x-trace-id"]) for each in (response, streamed)]
        assert [SECRET in str(trace) for trace in traces] == [allowed, allowed]
        for trace, role in zip(traces, ("user", "user"), strict=True):
            attributes = next(s["attributes"] for s in trace["spans"] if "gen_ai.operation.name" in s["attributes"])
            assert [name in attributes for name in ("gen_ai.input.messages", "gen_ai.output.messages")] == [allowed] * 2
            if allowed:
                assert attributes["gen_ai.input.messages"] == (
                    f'[{{"role":"{role}","parts":[{{"type":"text","content":"{SECRET}"}}]}}]'
                )
                assert attributes["gen_ai.output.messages"] == (
                    '[{"role":"assistant","parts":[{"type":"text","content":"hello"}],"finish_reason":"length"}]'
                )


def test_access_log_carries_the_trace_as_fields(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="pellucid.access"), serve(script=emits(b"abc")) as served:
        response = post(served.url, CHAT, chat(SECRET, max_tokens=2))
        trace_of(served, response.headers["x-trace-id"])
    record = next(record for record in caplog.records if getattr(record, "route", "") == CHAT)
    assert record.__dict__["trace_id"] == response.headers["x-trace-id"]
    assert record.__dict__["request_id"] == response.headers["x-request-id"]
    assert response.headers["x-trace-id"] in record.getMessage()
    assert SECRET not in record.getMessage()
