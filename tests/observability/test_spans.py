"""Spans are a projection of the closed timeline: structure, containment, sums, and what each says."""

from typing import Any

import pytest

from engine.events import RequestArrived, RequestFinished
from observability import genai
from tests.support.span_script import PARENT, ROUTE, SpanScript, by_name, end_s

TOLERANCE_S = 0.001


@pytest.fixture
def script() -> SpanScript:
    return SpanScript()


def whole_request(script: SpanScript, *, traceparent: str = "") -> Any:
    """One streamed request that is queued, prefilled in two chunks, preempted, resumed and finished."""
    trace = script.at(101.0).begin("a", traceparent=traceparent)
    script.answered("a", answer_id="chatcmpl-1")
    script.at(101.1).arrive("a", num_prompt_tokens=40)
    script.step = 7
    script.at(101.5).schedule("a", num_cached_tokens=16)
    script.chunk("a", 16, 16)
    script.step = 8
    script.at(101.6).chunk("a", 32, 8)
    script.at(101.75).tokens("a")
    script.at(101.76).recorder.sent_first("a", script.t)
    for i in range(40):
        script.step = 9 + i
        script.at(102.0 + i / 100).tokens("a", total=i + 2)
    script.at(102.5).preempt("a", lost=80)
    script.step = 60
    script.at(102.75).resume("a", recompute=80)
    script.chunk("a", 0, 81, num_recomputed=80)
    script.at(103.0).tokens("a", total=42)
    script.at(103.0).finish("a", sent=103.25)
    script.at(103.5).exchange(trace, start=100.5)
    return trace


def test_request_has_one_server_span_one_generation_and_its_phases(script: SpanScript) -> None:
    trace = whole_request(script, traceparent=PARENT)
    spans = script.spans(trace)
    server, chat = by_name(spans, f"POST {ROUTE}"), by_name(spans, "chat smol")
    assert (server["kind"], chat["kind"]) == ("server", "internal")
    assert server["parent_span_id"] == PARENT.split("-")[2]
    assert server["span_id"] == trace.span_id
    assert chat["parent_span_id"] == server["span_id"]
    phases = [span for span in spans if span["parent_span_id"] == chat["span_id"]]
    assert sorted(span["name"] for span in phases) == [
        "pellucid.decode",
        "pellucid.preempted",
        "pellucid.prefill",
        "pellucid.queue",
    ]
    assert len(spans) == 6
    assert len({span["span_id"] for span in spans}) == 6


def test_spans_lie_within_their_parents_and_come_after_them(script: SpanScript) -> None:
    spans = script.spans(whole_request(script))
    by_id = {span["span_id"]: span for span in spans}
    seen: set[str] = set()
    for span in spans:
        seen.add(span["span_id"])
        if parent := by_id.get(span["parent_span_id"]):
            assert parent["span_id"] in seen
            assert parent["start_s"] <= span["start_s"] <= end_s(span) <= end_s(parent)
        assert all(span["start_s"] <= event["at_s"] <= end_s(span) for event in span["events"])


def test_durations_are_those_of_the_timeline(script: SpanScript) -> None:
    spans = script.spans(whole_request(script))
    timeline: Any = script.recorder.request("a")
    found = {name: by_name(spans, name)["duration_s"] for name in ("pellucid.prefill", "pellucid.decode", "chat smol")}
    waiting = sum(by_name(spans, name)["duration_s"] for name in ("pellucid.queue", "pellucid.preempted"))
    assert found["pellucid.prefill"] == pytest.approx(timeline["prefill_s"], abs=TOLERANCE_S)
    assert found["pellucid.decode"] == pytest.approx(timeline["decode_s"], abs=TOLERANCE_S)
    assert found["chat smol"] == pytest.approx(timeline["e2e_s"], abs=TOLERANCE_S)
    assert waiting == pytest.approx(timeline["queue_s"], abs=TOLERANCE_S)
    assert by_name(spans, f"POST {ROUTE}")["duration_s"] == pytest.approx(3.0, abs=TOLERANCE_S)


def test_generation_says_what_was_asked_and_answered_and_where_to_replay_it(script: SpanScript) -> None:
    chat = by_name(script.spans(whole_request(script)), "chat smol")
    assert {name: value for name, value in chat["attributes"].items() if name.startswith("gen_ai.")} == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "pellucid",
        "gen_ai.request.model": "asked",
        "gen_ai.response.model": "smol",
        "gen_ai.response.id": "chatcmpl-1",
        "gen_ai.response.time_to_first_chunk": pytest.approx(0.76),
        "gen_ai.usage.input_tokens": 40,
        "gen_ai.usage.output_tokens": 42,
        "gen_ai.usage.cache_read.input_tokens": 16,
    }
    ours = chat["attributes"]
    assert (ours["pellucid.first_step"], ours["pellucid.last_step"]) == (7, 60)
    tape = script.recorder.tape
    events = {event.seq: type(event) for event in tape.between(tape.first, tape.stop)}
    assert events[ours["pellucid.first_seq"]] is RequestArrived
    assert events[ours["pellucid.last_seq"]] is RequestFinished
    assert (chat["status"], ours["pellucid.outcome"]) == ("unset", "finished")


def test_prefill_has_an_event_per_chunk_and_decode_one_per_many_tokens(script: SpanScript) -> None:
    spans = script.spans(whole_request(script))
    prefill, decode = by_name(spans, "pellucid.prefill"), by_name(spans, "pellucid.decode")
    assert [
        (event["name"], event["attributes"]["pellucid.chunk.start"], event["attributes"]["pellucid.chunk.tokens"])
        for event in prefill["events"]
    ] == [("pellucid.chunk", 16, 16), ("pellucid.chunk", 32, 8)]
    assert [event["name"] for event in decode["events"]] == ["pellucid.tokens", "pellucid.chunk"]
    assert decode["events"][0]["attributes"]["pellucid.output_tokens"] == 32
    assert decode["events"][1]["attributes"]["pellucid.chunk.recomputed_tokens"] == 80


def test_failed_request_has_an_error_with_its_type_and_an_unfinished_phase(script: SpanScript) -> None:
    trace = script.begin("a")
    script.arrive("a")
    script.at(101.0).schedule("a")
    script.at(102.0).fail("a", "the step failed")
    spans = script.spans(trace)
    chat, prefill = by_name(spans, "chat smol"), by_name(spans, "pellucid.prefill")
    assert (chat["status"], chat["status_message"]) == ("error", "the step failed")
    assert chat["attributes"]["error.type"] == "internal_error"
    assert prefill["attributes"]["pellucid.incomplete"] is True
    assert prefill["duration_s"] == pytest.approx(1.0)
    assert [span["name"] for span in spans] == ["chat smol", "pellucid.queue", "pellucid.prefill"]


def test_cancelled_request_is_cut_off_where_its_client_left(script: SpanScript) -> None:
    trace = script.begin("a")
    script.arrive("a")
    script.at(101.0).schedule("a")
    script.at(102.0).tokens("a")
    script.at(103.0).recorder.sent_last("a", script.t)
    script.exchange(trace, start=100.0, is_whole=False)
    script.at(103.5).tokens("a")
    script.at(104.0).abort("a")
    spans = script.spans(trace)
    chat, server = by_name(spans, "chat smol"), by_name(spans, f"POST {ROUTE}")
    assert (chat["status"], chat["attributes"]["error.type"], chat["status_message"]) == (
        "error", "cancelled", "client_gone",
    )  # fmt: skip
    assert (server["status"], server["attributes"]["error.type"]) == ("error", "cancelled")
    assert end_s(by_name(spans, "pellucid.decode")) == end_s(chat) == end_s(server) == pytest.approx(3.0)


def test_refused_request_has_a_generation_without_phases_and_no_message_of_the_client(script: SpanScript) -> None:
    trace = script.begin("a")
    script.at(100.2).recorder.request_refused("a", "invalid_request_error", "`stop` must not be 'secret'")
    (chat,) = script.spans(trace)
    assert (chat["status"], chat["status_message"]) == ("error", "")
    assert chat["attributes"]["error.type"] == "invalid_request_error"
    assert genai.USAGE_INPUT_TOKENS not in chat["attributes"]


def test_request_that_waits_to_its_end_has_only_a_queue(script: SpanScript) -> None:
    trace = script.begin("a")
    script.arrive("a")
    script.at(105.0).abort("a", "shutdown")
    spans = script.spans(trace)
    assert [span["name"] for span in spans] == ["chat smol", "pellucid.queue"]
    assert by_name(spans, "pellucid.queue")["duration_s"] == pytest.approx(5.0)


def test_each_preempted_choice_has_its_own_span(script: SpanScript) -> None:
    trace = script.begin("a")
    script.arrive("a", n=2)
    script.schedule("a")
    for index in (0, 1):
        script.tokens("a", index=index)
    script.at(101.0).preempt("a", index=1, lost=5)
    script.at(102.0).tokens("a", index=0, total=2)
    script.at(103.0).finish("a")
    (preempted,) = [span for span in script.spans(trace) if span["name"] == "pellucid.preempted"]
    assert preempted["attributes"]["pellucid.choice.index"] == 1
    assert preempted["attributes"]["pellucid.incomplete"] is True
    assert preempted["duration_s"] == pytest.approx(2.0)


def test_long_answer_has_bounded_events(script: SpanScript) -> None:
    trace = script.begin("a")
    script.arrive("a")
    script.schedule("a")
    for i in range(6000):
        script.tokens("a", total=i + 1)
    script.finish("a")
    assert len(by_name(script.spans(trace), "pellucid.decode")["events"]) < 128


@pytest.mark.parametrize(("traceparent", "is_kept"), [(PARENT, True), (PARENT[:-1] + "0", False)])
def test_unsampled_request_leaves_no_span_and_no_exemplar(script: SpanScript, traceparent: str, is_kept: bool) -> None:
    trace = script.begin("a", traceparent=traceparent)
    script.arrive("a")
    script.schedule("a")
    script.tokens("a")
    script.finish("a")
    script.exchange(trace, start=100.0)
    assert (script.tracing.trace(trace.trace_id) is not None) is is_kept
    assert (script.tracing.stats().spans > 0) is is_kept
    exposed = script.metrics.render("application/openmetrics-text")[0].decode()
    assert (trace.trace_id in exposed) is is_kept


@pytest.mark.parametrize(
    ("status", "is_whole", "span_status", "error_type"),
    [
        (200, True, "unset", None),
        (404, True, "unset", None),
        (503, True, "error", "503"),
        (0, False, "error", "cancelled"),
    ],
)
def test_server_span_is_an_error_for_our_faults_and_broken_off_answers_only(
    script: SpanScript, status: int, is_whole: bool, span_status: str, error_type: str | None
) -> None:
    trace = script.tracing.incoming([], [])
    script.exchange(trace, start=99.0, status=status, is_whole=is_whole)
    (server,) = script.spans(trace)
    assert (server["status"], server["attributes"].get("error.type")) == (span_status, error_type)
    assert server["attributes"].get("http.response.status_code", 0) == status


def test_server_span_of_an_unmatched_path_and_odd_method_is_named_without_them(script: SpanScript) -> None:
    trace = script.tracing.incoming([], [])
    script.exchange(trace, start=99.0, method="BREW", route="", path="/" + "x" * 1000)
    (server,) = script.spans(trace)
    assert server["name"] == "HTTP"
    assert server["attributes"]["http.request.method"] == "_OTHER"
    assert server["attributes"]["http.request.method_original"] == "BREW"
    assert "http.route" not in server["attributes"]
    assert len(server["attributes"]["url.path"]) == 256
