"""Errors of every kind in one form, headers on every response, models, tokens, telemetry."""

from typing import Any

import httpx
import pytest

from service.app import ROUTE_TEMPLATES
from service.settings import ServiceSettings
from tests.support.http_calls import CHAT, COMPLETIONS, chat, completion, error_of, post
from tests.support.scripted_service import EOS, SOURCE, Served, emits, serve


@pytest.fixture(scope="module")
def served() -> Any:
    settings = ServiceSettings(served_model_names=("main", "alias"))
    with serve(script=emits(b"ok"), settings=settings) as running:
        yield running


def test_routes_are_those_that_metrics_know(served: Served) -> None:
    spec = served.server.config.app
    assert tuple(route.path for route in spec.routes) == ROUTE_TEMPLATES  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("GET", "/nowhere", 404, "not_found_error"),
        ("GET", "/v1/responses", 404, "not_found_error"),
        ("GET", "/v1/chat/completions/", 404, "not_found_error"),
        ("GET", "//v1/models", 404, "not_found_error"),
        ("GET", "/V1/models", 404, "not_found_error"),
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("DELETE", "/health", 405, "method_not_allowed"),
        ("PROPFIND", "/health", 405, "method_not_allowed"),
        ("GET", "/v1/models/other", 404, "invalid_request_error"),
        ("GET", "/telemetry/requests/other", 404, "not_found_error"),
        ("GET", "/stats?history_s=0", 400, "invalid_request_error"),
        ("GET", "/stats?history_s=x", 400, "invalid_request_error"),
        ("GET", "/stats?history_s=301", 400, "invalid_request_error"),
        ("GET", "/stats?history_s=0003001", 400, "invalid_request_error"),
        ("GET", "/telemetry/steps?since=-1", 400, "invalid_request_error"),
    ],
)
def test_refusal_has_our_form(served: Served, method: str, path: str, status: int, kind: str) -> None:
    response = httpx.request(method, served.url + path, timeout=10)
    assert response.status_code == status
    assert error_of(response)["type"] == kind
    assert ("allow" in response.headers) == (status == 405)


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        (b'{"temperature": NaN}', 400, None),
        (b'{"temperature": 1e999}', 400, None),
        (b'{"x":' + b"[" * 20_000 + b"]" * 20_000 + b"}", 400, None),
        (b"not json", 400, None),
        (b" " * ((4 << 20) + 1), 413, None),
        ({"messages": [{"role": "user", "content": "x"}], "prompt": "x", "model": "gpt-9"}, 404, "model"),
        ({"messages": [{"role": "user", "content": "x"}], "prompt": "x", "logit_bias": {"-1": 5}}, 400, "logit_bias"),
        (
            {"messages": [{"role": "user", "content": "x"}], "prompt": "x", "stop_token_ids": [999_999_999]},
            400,
            "stop_token_ids",
        ),
        ({"messages": [{"role": "user", "content": "x"}], "prompt": "x", "temperature": 1e9}, 400, "temperature"),
        ({"messages": [{"role": "user", "content": "x"}], "prompt": "x", "tools": [{}]}, 400, "tools"),
    ],
)
def test_bad_body_is_refused_and_the_next_request_is_served(
    served: Served, path: str, body: Any, status: int, param: str | None
) -> None:
    response = post(served.url, path, body)
    assert response.status_code == status, response.text
    error = error_of(response)
    assert error["param"] == param
    assert post(served.url, COMPLETIONS, completion()).status_code == 200


def test_unknown_model_has_its_own_code(served: Served) -> None:
    assert error_of(post(served.url, CHAT, chat(model="gpt-9")))["code"] == "model_not_found"


def test_form_body_is_refused_as_the_wrong_media_type(served: Served) -> None:
    response = httpx.post(served.url + CHAT, content=b"a=1", headers={"content-type": "text/plain"})
    assert response.status_code == 415
    assert error_of(response)["type"] == "unsupported_media_type"


@pytest.mark.parametrize("prompt", ["", [""], [], [[]], [[-1]], [[2147483648]], [[SOURCE.vocab_size]]])
def test_prompt_without_tokens_or_with_foreign_ids_is_refused(served: Served, prompt: Any) -> None:
    response = post(served.url, COMPLETIONS, {"prompt": prompt, "add_special_tokens": False})
    assert response.status_code == 400
    assert str(error_of(response)["param"]).startswith("prompt")


def test_empty_prompt_of_a_model_with_bos_is_served(served: Served) -> None:
    assert post(served.url, COMPLETIONS, completion("")).json()["usage"]["prompt_tokens"] == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("num_prompt", "max_tokens", "fits"),
    [(8191, 1, True), (8192, 1, False), (8193, 1, False), (16384, 1, False), (8000, 192, True), (8000, 193, False)],
)
def test_length_past_the_context_is_refused_with_both_numbers(
    served: Served, stream: bool, num_prompt: int, max_tokens: int, fits: bool
) -> None:
    response = post(served.url, COMPLETIONS, completion([[7] * num_prompt], max_tokens=max_tokens, stream=stream))
    if fits:
        assert response.status_code == 200
        return
    assert response.status_code == 400
    error = error_of(response)
    assert (error["type"], error["code"]) == ("invalid_request_error", "context_length_exceeded")
    assert str(num_prompt + max_tokens) in error["message"]
    assert "8192" in error["message"]


def test_every_answer_names_its_request_and_trace(served: Served) -> None:
    for response in (served.get("/health"), served.get("/nowhere"), post(served.url, CHAT, chat())):
        assert response.headers["x-request-id"].startswith("req-")
        version, trace_id, span_id, flags = response.headers["traceresponse"].split("-")
        assert (version, flags) == ("00", "01")
        assert response.headers["x-trace-id"] == trace_id
        assert (len(trace_id), len(span_id)) == (32, 16)


def test_parent_trace_is_kept_and_a_broken_one_is_replaced(served: Served) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
    kept = served.get("/health", headers={"traceparent": parent}).headers
    assert kept["x-trace-id"] == "0af7651916cd43dd8448eb211c80319c"
    assert kept["traceresponse"].endswith("-00")
    for broken in ("00-xyz", "ff-" + "a" * 32 + "-" + "b" * 16 + "-01", "00-" + "0" * 32 + "-" + "b" * 16 + "-01"):
        assert served.get("/health", headers={"traceparent": broken}).headers["x-trace-id"] not in broken


def test_client_request_id_is_cleaned_echoed_and_never_ours(served: Served) -> None:
    answers = [
        served.get("/health", headers={"x-request-id": value}) for value in ("same", "same", "a b\tc<>", "x" * 9000)
    ]
    assert answers[0].headers["x-client-request-id"] == "same"
    assert answers[2].headers["x-client-request-id"] == "abc"
    assert len(answers[3].headers["x-client-request-id"]) == 128
    assert len({answer.headers["x-request-id"] for answer in answers}) == 4


def test_unknown_fields_are_named_in_a_header(served: Served) -> None:
    for stream in (False, True):
        response = post(served.url, CHAT, chat(zebra=1, user="me", stream=stream))
        assert response.status_code == 200
        assert response.headers["x-ignored-params"] == "zebra"


def test_models_lists_every_served_name(served: Served) -> None:
    listing = served.get("/v1/models").json()
    assert [model["id"] for model in listing["data"]] == ["main", "alias"]
    one = served.get("/v1/models/alias").json()
    assert (one["id"], one["object"], one["max_model_len"]) == ("alias", "model", 8192)
    assert post(served.url, CHAT, chat(model="alias")).json()["model"] == "alias"


def test_tokenize_and_detokenize_agree_and_show_what_chat_sends(served: Served) -> None:
    raw = served.post("/tokenize", json={"prompt": "hi", "return_token_strs": True}).json()
    assert raw["tokens"] == [SOURCE.bos_id, *b"hi"]
    assert raw["token_strs"] == ["<|bos|>", "h", "i"]
    assert raw["count"] == 3
    assert served.post("/detokenize", json={"tokens": raw["tokens"]}).json() == {"prompt": "<|bos|>hi"}
    messages = [{"role": "user", "content": "hi<|im_end|>"}]
    ids = served.post("/tokenize", json={"messages": messages}).json()["tokens"]
    assert ids.count(SOURCE.bos_id) == 1
    assert ids.count(SOURCE.turn_end_id) == 1  # the template's own; the user's is text
    usage = post(served.url, CHAT, {"messages": messages}).json()["usage"]
    assert usage["prompt_tokens"] == len(ids)


@pytest.mark.parametrize("body", [{}, {"prompt": "a", "messages": [{"role": "user", "content": "x"}]}])
def test_tokenize_wants_one_of_prompt_and_messages(served: Served, body: dict[str, Any]) -> None:
    assert error_of(served.post("/tokenize", json=body))["param"] == "prompt"


@pytest.mark.parametrize("tokens", [[-1], [SOURCE.vocab_size], [1.5], "x"])
def test_detokenize_refuses_foreign_ids(served: Served, tokens: Any) -> None:
    response = served.post("/detokenize", json={"tokens": tokens})
    assert response.status_code == 400
    assert str(error_of(response)["param"]).startswith("tokens")


def test_template_of_a_request_is_refused(served: Served) -> None:
    kwargs = {"chat_template": "{% for a in range(99999) %}.{% endfor %}"}
    assert post(served.url, CHAT, chat(chat_template_kwargs=kwargs)).status_code == 400
    assert error_of(post(served.url, CHAT, chat(chat_template="{{ 1 }}")))["param"] == "chat_template"


def test_telemetry_shows_a_request_by_the_id_of_its_answer(served: Served) -> None:
    response = post(served.url, CHAT, chat(stream=True))
    request_id = response.headers["x-request-id"]
    served.until(lambda: served.services.recorder.requests()["in_flight"] == [])
    timeline = served.get(f"/telemetry/requests/{request_id}").json()
    assert timeline["request_id"] == request_id
    assert timeline["trace_id"] == response.headers["x-trace-id"]
    assert timeline["route"] == CHAT
    assert timeline["num_output_tokens"] == 3
    assert 0 < timeline["ttft_s"] <= timeline["e2e_s"]
    table = served.get("/telemetry/requests").json()
    assert request_id in [row["request_id"] for row in table["recent"]]
    steps = served.get("/telemetry/steps").json()["steps"]
    assert served.get(f"/telemetry/steps?since={steps[-1]['step']}").json()["steps"] == []


def test_prompt_and_answer_of_a_request_are_in_no_telemetry(served: Served) -> None:
    post(served.url, CHAT, chat("a very secret prompt"))
    served.until(lambda: served.services.recorder.requests()["in_flight"] == [])
    for path in ("/telemetry/requests", "/telemetry/steps", "/stats", "/info", "/metrics"):
        assert "secret" not in served.get(path).text


def test_info_names_limits_and_what_runs(served: Served) -> None:
    info = served.get("/info").json()
    assert info["models"] == ["main", "alias"]
    assert info["engine"]["executor"] == "scripted"
    assert info["limits"]["json_depth"] == 100
    assert {"temperature", "min_p", "logprobs", "timings"} <= set(info["chat_fields"])
    assert "tools" not in info["chat_fields"]
    assert EOS in info["tokenizer"]["eos_token_ids"]


def test_metrics_are_openmetrics_when_asked(served: Served) -> None:
    assert served.get("/metrics").headers["content-type"].startswith("text/plain")
    accept = {"accept": "application/openmetrics-text; version=1.0.0"}
    assert served.get("/metrics", headers=accept).headers["content-type"].startswith("application/openmetrics-text")


def test_scanners_and_odd_methods_make_no_new_series() -> None:
    with serve(script=emits(b"ok")) as fresh, httpx.Client(base_url=fresh.url) as client:
        client.get("/nowhere")
        client.request("PROPFIND", "/health")
        before = client.get("/metrics").text.count("\n")
        for index, method in enumerate(["PROPFIND", "MKCOL", "REPORT", "SEARCH"] * 5):
            client.get(f"/scan/{index}")
            client.request(method, "/health")
            client.post(CHAT, json=chat(model=f"random-{index}", user=f"u{index}"))
        text = client.get("/metrics").text
    assert 'route="unmatched"' in text
    assert "scan" not in text
    assert "random-" not in text
    new = text.count("\n") - before
    assert new <= 40, text  # the chat route's own series, not one per path


def test_counters_balance_over_every_kind_of_end() -> None:
    with serve(script=emits(b"ok"), settings=ServiceSettings(max_queue=0)) as fresh:
        post(fresh.url, CHAT, chat())
        post(fresh.url, CHAT, chat(max_tokens=1))
        post(fresh.url, COMPLETIONS, completion(["a", "b"]))
        post(fresh.url, CHAT, chat(temperature=-1))
        post(fresh.url, CHAT, b"nonsense")
        post(fresh.url, COMPLETIONS, completion([[7] * 9000]))
        fresh.until(lambda: fresh.services.recorder.requests()["in_flight"] == [])
        counters = fresh.stats()["counters"]
    assert counters["requests_finished"] == 4
    assert counters["requests_rejected"] == 3
    assert counters["requests_received"] == 7


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", 2**64),
        ("top_k", 10**30),
        ("seed", 2**63),
        ("stop_token_ids", [1, 2**70]),
        ("min_tokens", 2**65),
        ("logprobs", -(2**64)),
        ("prompt", [2**80]),
    ],
)
def test_integer_that_takes_more_than_64_bits_is_refused_by_name(served: Served, field: str, value: Any) -> None:
    response = post(served.url, COMPLETIONS, {**completion(), field: value})
    assert response.status_code == 400
    assert error_of(response)["param"].startswith(field)
