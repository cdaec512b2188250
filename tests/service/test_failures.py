"""Faults after and before the first byte: never a quiet end, never `stop`, everything given back."""

from typing import Any

import pytest

from engine.execution.simulated_executor import fail_on_call
from tests.support.http_calls import CHAT, COMPLETIONS, chat, completion, error_of, finish_reasons, post, stream
from tests.support.scripted_service import ScriptedCore, StepGate, emits, serve

ROUTES = pytest.mark.parametrize(("path", "body"), [(CHAT, chat()), (COMPLETIONS, completion())], ids=["chat", "text"])


def failing(step: int, gate: StepGate | None = None) -> ScriptedCore:
    cues = [fail_on_call(step)] if gate is None else [gate, fail_on_call(step)]
    return ScriptedCore(emits(b"abcdefgh"), cues=cues)


@ROUTES
@pytest.mark.parametrize("step", [1, 4])
def test_engine_that_fails_ends_a_stream_with_an_error_frame(path: str, body: dict[str, Any], step: int) -> None:
    with serve(core=failing(step)) as served:
        payloads = stream(served.url, path, body)
        served.until(lambda: served.services.recorder.requests()["in_flight"] == [])
        counters = served.stats()["counters"]
    error = payloads[-1]["error"]
    assert error["type"] == "internal_error"
    assert set(error) == {"message", "type", "param", "code"}
    assert "[DONE]" not in payloads
    assert finish_reasons(payloads[:-1]) == {}
    assert counters["requests_failed"] == counters["requests_received"] == 1


@ROUTES
def test_engine_that_fails_answers_500_with_the_request_id_when_nothing_was_sent(
    path: str, body: dict[str, Any]
) -> None:
    with serve(core=failing(1)) as served:
        response = post(served.url, path, body)
    assert response.status_code == 500
    error = error_of(response)
    assert error["type"] == "internal_error"
    assert response.headers["x-request-id"] in error["message"]
    assert "Traceback" not in response.text


def test_lost_engine_is_told_in_ready_health_and_to_new_requests() -> None:
    with serve(core=failing(1)) as served:
        post(served.url, CHAT, chat())
        served.until(lambda: served.engine.state.value == "failed")
        ready, health, models, answer = (
            served.get("/ready"),
            served.get("/health"),
            served.get("/v1/models"),
            post(served.url, CHAT, chat()),
        )
    for response in (ready, health, models, answer):
        assert response.status_code == 503
        assert error_of(response)["type"] == "service_unavailable"
        assert int(response.headers["retry-after"]) >= 1


@ROUTES
def test_invalid_stream_is_refused_before_any_event(path: str, body: dict[str, Any]) -> None:
    with serve(script=emits(b"x")) as served:
        response = post(served.url, path, {**body, "stream": True, "n": 0})
    assert response.status_code == 400
    assert response.headers["content-type"] == "application/json"
    assert error_of(response)["param"] == "n"


@ROUTES
def test_cancelled_request_ends_its_stream_with_an_error_and_counts_as_aborted(path: str, body: dict[str, Any]) -> None:
    gate = StepGate()
    gate.close()
    with serve(core=ScriptedCore(emits(b"x" * 99), cues=[gate])) as served:
        with served.streaming(path, body) as answer:
            assert gate.waiting.wait(10)
            request_id = answer.response.headers["x-request-id"]
            assert served.post(f"/telemetry/requests/{request_id}/cancel").status_code == 202
            twice = served.post(f"/telemetry/requests/{request_id}/cancel")
            gate.open()
            payloads = answer.rest()
        again = served.post(f"/telemetry/requests/{request_id}/cancel")
        assert served.stats()["counters"]["requests_aborted"] == 1
    assert payloads[-1]["error"]["type"] == "request_cancelled"
    assert finish_reasons(payloads[:-1]) == {}
    assert (twice.status_code, error_of(twice)["type"]) == (409, "conflict_error")
    assert again.status_code == 404
    assert error_of(again)["type"] == "not_found_error"
