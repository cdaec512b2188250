"""`/telemetry/...` and `/stats` over HTTP: every answer is of its schema, and says what happened."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from engine.config import SchedulerConfig
from observability.label_sets import CAUSES
from service.settings import ServiceSettings
from tests.support.http_calls import COMPLETIONS, completion
from tests.support.scripted_service import ScriptedCore, Served, StepGate, emits, serve

SCHEMAS = Path(__file__).parents[2] / "observability" / "schemas"
SCHEDULING = SchedulerConfig(block_size=4, num_kv_blocks=64, max_num_seqs=4, max_num_batched_tokens=16)


@pytest.fixture
def gate() -> StepGate:
    return StepGate()


@pytest.fixture
def served(gate: StepGate) -> Iterator[Served]:
    with serve(core=ScriptedCore(emits(b"abcdefgh"), SCHEDULING, cues=(gate,))) as served:
        yield served


def checked(served: Served, path: str, schema: str) -> Any:
    """GET a route and validate what it answers."""
    response = served.get(path)
    assert response.status_code == 200, response.text
    body = response.json()
    jsonschema.validate(body, json.loads((SCHEMAS / f"{schema}.schema.json").read_text(encoding="utf-8")))
    return body


def ask(served: Served, prompt: Any = "hello", **fields: Any) -> str:
    """Ask for a completion, wait until all of it is recorded, and return the request's id."""
    response = served.post(COMPLETIONS, json=completion(prompt, **{"max_tokens": 6, **fields}))
    assert response.status_code == 200, response.text
    served.until(lambda: served.services.recorder.requests()["in_flight"] == [])
    return str(response.headers["x-request-id"])


def test_every_answer_is_of_its_schema_before_during_and_after_a_request(served: Served, gate: StepGate) -> None:
    for path, schema in (("/telemetry/requests", "telemetry"), ("/telemetry/steps", "telemetry"), ("/stats", "stats")):
        checked(served, path, schema)
    checked(served, "/telemetry/config", "config")
    gate.close()
    with served.streaming(COMPLETIONS, completion("hello", max_tokens=6)) as answer:
        gate.waiting.wait(5)
        request_id = answer.response.headers["x-request-id"]
        table = checked(served, "/telemetry/requests", "telemetry")
        assert [(row["request_id"], row["phase"]) for row in table["in_flight"]] == [(request_id, "queue")]
        checked(served, f"/telemetry/requests/{request_id}", "telemetry")
        gate.open()
        answer.rest()
    served.until(lambda: served.services.recorder.requests()["in_flight"] == [])
    detail = checked(served, f"/telemetry/requests/{request_id}", "telemetry")
    assert (detail["phase"], detail["state"], detail["num_output_tokens"]) == ("ended", "finished", 6)
    assert len(checked(served, "/telemetry/steps", "telemetry")["steps"]) >= 6
    checked(served, "/stats?history_s=5", "stats")


def test_attribution_of_an_answer_sums_to_its_wall_time(served: Served) -> None:
    for stream in (False, True):
        detail = checked(served, f"/telemetry/requests/{ask(served, stream=stream)}", "telemetry")
        attribution = detail["attribution"]
        assert attribution["is_complete"]
        assert tuple(attribution["causes"]) == CAUSES
        assert sum(attribution["causes"].values()) == pytest.approx(attribution["wall_s"], abs=1e-9)
        assert attribution["wall_s"] == detail["e2e_s"]
        assert abs(attribution["causes"]["unattributed"]) < 1e-6
        for cause in ("tokenize", "queue_inbox", "prefill", "decode", "host", "detokenize", "send"):
            assert attribution["causes"][cause] > 0, cause
        assert attribution["beside"]["detokenize_s"] >= attribution["causes"]["detokenize"]


def test_answer_that_a_stop_string_ended_is_attributed_up_to_its_last_byte(served: Served) -> None:
    detail = checked(served, f"/telemetry/requests/{ask(served, stop=['cd'], stream=True)}", "telemetry")
    assert detail["state"] == "finished"
    causes = detail["attribution"]["causes"]
    assert detail["stamps"]["sent_last_s"] == detail["attribution"]["wall_s"]
    assert sum(causes.values()) == pytest.approx(detail["attribution"]["wall_s"], abs=1e-9)
    assert abs(causes["unattributed"]) < 1e-6


def test_each_prompt_of_a_call_has_a_timeline_of_its_own(served: Served) -> None:
    request_id = ask(served, ["first", "second one"])
    for index in range(2):
        detail = checked(served, f"/telemetry/requests/{request_id}-{index}", "telemetry")
        assert sum(detail["attribution"]["causes"].values()) == pytest.approx(detail["attribution"]["wall_s"])
        assert abs(detail["attribution"]["causes"]["unattributed"]) < 1e-6


def test_cache_explanation_says_how_much_matched_and_why_not_more(served: Served) -> None:
    cold = checked(served, f"/telemetry/requests/{ask(served, 'abcdefghijkl')}", "telemetry")["cache"]
    assert (cold["why"], cold["num_matched_tokens"], cold["divergence"]) == ("cold", 0, None)
    same = checked(served, f"/telemetry/requests/{ask(served, 'abcdefghijkl')}", "telemetry")["cache"]
    assert (same["why"], same["num_matched_tokens"]) == ("tail", 12)
    other = checked(served, f"/telemetry/requests/{ask(served, 'abcdefXhijkl')}", "telemetry")["cache"]
    assert (other["why"], other["num_matched_tokens"]) == ("diverged", 7)
    divergence = other["divergence"]
    assert (divergence["position"], divergence["block_number"]) == (7, 1)
    assert (divergence["expected_token"], divergence["actual_token"]) == (ord("g"), ord("X"))
    salted = checked(served, f"/telemetry/requests/{ask(served, 'abcdefghijkl', cache_salt='s')}", "telemetry")["cache"]
    assert salted["why"] == "salt"


def test_text_around_a_divergence_is_shown_with_log_content_only(served: Served) -> None:
    ask(served, "abcdefghijkl")
    request_id = ask(served, "abcdefXhijkl")
    hidden = checked(served, f"/telemetry/requests/{request_id}", "telemetry")["cache"]["divergence"]
    assert hidden["text"] is None
    settings = ServiceSettings(log_content=True)
    with serve(core=ScriptedCore(emits(b"abc"), SCHEDULING), settings=settings) as telling:
        ask(telling, "abcdefghijkl")
        request_id = ask(telling, "abcdefXhijkl")
        shown = checked(telling, f"/telemetry/requests/{request_id}", "telemetry")["cache"]["divergence"]
    assert shown["text"] == {"before": "<|bos|>abcdef", "expected": "g", "actual": "X", "after": "hijkl"}


def test_config_shows_effective_settings_and_no_secret() -> None:
    settings = ServiceSettings(api_keys=frozenset({"sk-very-secret"}), max_queue=17)
    with serve(core=ScriptedCore(emits(b"abc"), SCHEDULING), settings=settings) as served:
        response = served.get("/telemetry/config", headers={"authorization": "Bearer sk-very-secret"})
        assert served.get("/telemetry/config").status_code == 401
    body = response.json()
    jsonschema.validate(body, json.loads((SCHEMAS / "config.schema.json").read_text(encoding="utf-8")))
    assert "sk-very-secret" not in response.text
    assert body["service"]["api_keys"] == {"hidden": "hidden", "num_entries": 1}
    assert (body["service"]["max_queue"], body["running"]["block_size"]) == (17, 4)


def test_recent_and_limit_bound_the_answers(served: Served) -> None:
    for _ in range(3):
        ask(served)
    assert len(served.get("/telemetry/requests?recent=2").json()["recent"]) == 2
    assert len(served.get("/telemetry/steps?limit=1").json()["steps"]) == 1
    for path in ("/telemetry/requests?recent=-1", "/telemetry/steps?limit=x"):
        assert served.get(path).status_code == 400
