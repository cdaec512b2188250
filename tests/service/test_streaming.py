"""Streams of both generating routes over a scripted engine and a real socket."""

from typing import Any

import pytest

from tests.support.http_calls import (
    CHAT,
    COMPLETIONS,
    chat,
    completion,
    finish_reasons,
    post,
    stream,
    texts,
    whole_text,
)
from tests.support.scripted_service import EOS, ScriptedCore, Served, StepGate, emits, serve

ROUTES = pytest.mark.parametrize(("path", "body"), [(CHAT, chat()), (COMPLETIONS, completion())], ids=["chat", "text"])
BIRD = "🫠".encode()  # one character of four byte tokens


@pytest.fixture(scope="module")
def ok() -> Any:
    with serve(script=emits(b"ok")) as served:
        yield served


def test_chat_stream_sends_role_deltas_finish_and_done(ok: Served) -> None:
    *chunks, done = stream(ok.url, CHAT, chat())
    assert done == "[DONE]"
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(delta["content"] for delta in deltas[1:-1]) == "ok"
    assert deltas[-1] == {}
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + ["stop"]


@ROUTES
def test_stream_keeps_one_id_created_model_and_object(ok: Served, path: str, body: dict[str, Any]) -> None:
    *chunks, _ = stream(ok.url, path, body)
    assert len({(chunk["id"], chunk["created"], chunk["model"], chunk["object"]) for chunk in chunks}) == 1
    assert chunks[0]["model"] == "scripted"


@ROUTES
def test_stream_without_stream_options_has_no_usage_and_no_empty_choices(
    ok: Served, path: str, body: dict[str, Any]
) -> None:
    *chunks, _ = stream(ok.url, path, body)
    assert all(chunk["choices"] and "usage" not in chunk for chunk in chunks)


@ROUTES
def test_stream_usage_comes_once_after_the_last_finish_and_counts_all_choices(
    ok: Served, path: str, body: dict[str, Any]
) -> None:
    asked = {"n": 2, "max_tokens": 5, "ignore_eos": True, "stream_options": {"include_usage": True}}
    *chunks, usage_chunk, done = stream(ok.url, path, {**body, **asked})
    assert done == "[DONE]"
    assert usage_chunk["choices"] == []
    usage = usage_chunk["usage"]
    assert usage["completion_tokens"] == 10
    assert usage["total_tokens"] == usage["prompt_tokens"] + 10
    assert finish_reasons(chunks) == {0: ["length"], 1: ["length"]}
    assert all("usage" not in chunk for chunk in chunks)
    one = post(ok.url, path, {**body, "max_tokens": 1}).json()["usage"]
    assert usage["prompt_tokens"] == one["prompt_tokens"]


@ROUTES
@pytest.mark.parametrize(
    ("fields", "reason", "text"),
    [
        ({}, "stop", "ok"),
        ({"stop": "k"}, "stop", "o"),
        ({"max_tokens": 1}, "length", "o"),
        ({"stop_token_ids": [ord("k")]}, "stop", "o"),
    ],
    ids=["eos", "stop string", "length", "stop token"],
)
def test_stream_ends_in_order_on_every_finish_path(
    ok: Served, path: str, body: dict[str, Any], fields: dict[str, Any], reason: str, text: str
) -> None:
    payloads = stream(ok.url, path, {**body, **fields})
    assert payloads[-1] == "[DONE]"
    assert finish_reasons(payloads) == {0: [reason]}
    assert texts(payloads) == {0: text}
    whole = post(ok.url, path, {**body, **fields}).json()
    assert (whole_text(whole), whole["choices"][0]["finish_reason"]) == (text, reason)


@ROUTES
def test_stop_string_over_several_tokens_never_reaches_the_client(path: str, body: dict[str, Any]) -> None:
    with serve(script=emits(b"ok\nQ:: hi")) as served:
        payloads = stream(served.url, path, {**body, "stop": ["\nQ::"]})
        whole = post(served.url, path, {**body, "stop": ["\nQ::"]}).json()
    assert texts(payloads) == {0: "ok"}
    assert finish_reasons(payloads) == {0: ["stop"]}
    assert whole_text(whole) == "ok"
    assert whole["choices"][0]["stop_reason"] == "\nQ::"
    assert whole["usage"]["completion_tokens"] == len("ok\nQ::")


@ROUTES
def test_text_that_only_began_a_stop_string_is_sent_after_all(path: str, body: dict[str, Any]) -> None:
    with serve(script=emits(b"a\nQ: b")) as served:
        payloads = stream(served.url, path, {**body, "stop": ["\nQ::"]})
    assert texts(payloads) == {0: "a\nQ: b"}


@ROUTES
def test_included_stop_string_is_part_of_the_text(ok: Served, path: str, body: dict[str, Any]) -> None:
    fields = {"stop": ["k"], "include_stop_str_in_output": True}
    assert texts(stream(ok.url, path, {**body, **fields})) == {0: "ok"}


@ROUTES
def test_character_of_four_tokens_is_never_sent_in_parts(path: str, body: dict[str, Any]) -> None:
    with serve(script=emits(BIRD)) as served:
        payloads = stream(served.url, path, {**body, "n": 2})
    assert texts(payloads) == {0: "🫠", 1: "🫠"}


@ROUTES
@pytest.mark.parametrize(
    ("script", "fields"),
    [(BIRD, {"max_tokens": 2}), (BIRD[:2], {}), (BIRD[:3], {"ignore_eos": True, "max_tokens": 4})],
    ids=["cut by length", "cut by EOS", "cut by another token"],
)
def test_unfinished_character_at_the_end_is_the_same_streamed_and_whole(
    path: str, body: dict[str, Any], script: bytes, fields: dict[str, Any]
) -> None:
    with serve(script=emits(script)) as served:
        streamed = texts(stream(served.url, path, {**body, **fields}))
        whole = whole_text(post(served.url, path, {**body, **fields}).json())
    assert streamed == {0: whole}
    assert whole == "�"


def test_several_prompts_give_choices_in_prompt_order() -> None:
    def script(row: Any, history: int) -> int:
        """Answer with the prompt's last token, twice."""
        place = row.position - row.seq.num_prompt_tokens
        return int(row.seq.request.prompt_token_ids[-1]) if place < 2 else EOS

    with serve(script=script) as served:
        body = completion(["a", "b"], n=2)
        whole = post(served.url, COMPLETIONS, body).json()
        payloads = stream(served.url, COMPLETIONS, {**body, "stream_options": {"include_usage": True}})
    assert [(choice["index"], choice["text"]) for choice in whole["choices"]] == [
        (0, "aa"),
        (1, "aa"),
        (2, "bb"),
        (3, "bb"),
    ]
    assert texts(payloads) == {0: "aa", 1: "aa", 2: "bb", 3: "bb"}
    assert payloads[-2]["usage"]["completion_tokens"] == 12
    assert whole["usage"]["prompt_tokens"] == 4  # BOS and one byte each


def test_token_id_prompt_gets_no_bos() -> None:
    with serve(script=emits(b"x")) as served:
        whole = post(served.url, COMPLETIONS, completion([[104, 105]], return_token_ids=True)).json()
    assert whole["choices"][0]["prompt_token_ids"] == [104, 105]
    assert whole["choices"][0]["token_ids"] == [ord("x"), EOS]
    assert whole["usage"] == {
        "prompt_tokens": 2,
        "completion_tokens": 2,
        "total_tokens": 4,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def test_return_token_ids_of_a_chat_stream_join_to_those_of_the_whole_answer(ok: Served) -> None:
    *chunks, _ = stream(ok.url, CHAT, chat(return_token_ids=True))
    joined = [token_id for chunk in chunks for choice in chunk["choices"] for token_id in choice.get("token_ids", ())]
    whole = post(ok.url, CHAT, chat(return_token_ids=True)).json()
    assert joined == whole["choices"][0]["token_ids"] == [*b"ok", EOS]
    assert chunks[0]["prompt_token_ids"] == whole["prompt_token_ids"]


def test_second_request_reports_the_cached_part_of_its_prompt(ok: Served) -> None:
    body = completion("a prompt of more than sixteen tokens that is sent twice", max_tokens=1)
    first, second = (post(ok.url, COMPLETIONS, body).json()["usage"] for _ in range(2))
    assert first["prompt_tokens_details"]["cached_tokens"] <= 1  # the BOS that every prompt shares
    assert 16 <= second["prompt_tokens_details"]["cached_tokens"] < second["prompt_tokens"]


@ROUTES
def test_timings_come_when_asked_and_are_absent_when_not(ok: Served, path: str, body: dict[str, Any]) -> None:
    plain = post(ok.url, path, body).json()
    assert "timings" not in plain
    assert "metrics" not in plain
    whole = post(ok.url, path, {**body, "timings": True}).json()
    *_, last, _ = stream(ok.url, path, {**body, "timings": True, "stream_options": {"include_usage": True}})
    for answer in (whole, last):
        timings = answer["timings"]
        assert timings["predicted_n"] == 3
        assert timings["prompt_n"] + timings["cache_n"] == answer["usage"]["prompt_tokens"]
        assert timings["prompt_ms"] > 0
        assert answer["metrics"]["time_to_first_token_ms"] > 0
        assert None not in timings.values()
        assert None not in answer["metrics"].values()


@ROUTES
@pytest.mark.parametrize("include_usage", [True, False])
@pytest.mark.parametrize("num_tokens", [1, 2])
def test_streamed_time_to_first_token_is_the_recorders_also_when_all_text_comes_at_once(
    ok: Served, path: str, body: dict[str, Any], num_tokens: int, include_usage: bool
) -> None:
    asked = {**body, "timings": True, "max_tokens": num_tokens, "stream_options": {"include_usage": include_usage}}
    with ok.streaming(path, asked) as answer:
        *chunks, _ = answer.rest()
        told = ok.get(f"/telemetry/requests/{answer.response.headers['x-request-id']}").json()
    assert texts(chunks) == {0: "ok"[:num_tokens]}
    assert chunks[-1]["metrics"]["time_to_first_token_ms"] == pytest.approx(1e3 * told["ttft_s"], abs=6e-4)
    assert told["ttft_s"] == told["stamps"]["sent_first_s"]


@ROUTES
def test_streamed_time_to_first_token_of_an_answer_without_text_is_absent(path: str, body: dict[str, Any]) -> None:
    with serve(script=emits(b"")) as served:
        *_, last, _ = stream(served.url, path, {**body, "timings": True})
    assert "queue_time_ms" in last["metrics"]
    assert "time_to_first_token_ms" not in last["metrics"]


def test_echo_puts_the_prompt_first_streamed_and_whole(ok: Served) -> None:
    body = completion("Say: ", echo=True)
    assert whole_text(post(ok.url, COMPLETIONS, body).json()) == "Say: ok"
    assert texts(stream(ok.url, COMPLETIONS, body)) == {0: "Say: ok"}


def test_chat_echo_puts_the_continued_message_first(ok: Served) -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Well, "}]
    body = {"messages": messages, "echo": True, "continue_final_message": True}
    assert whole_text(post(ok.url, CHAT, body).json()) == "Well, ok"
    assert texts(stream(ok.url, CHAT, body)) == {0: "Well, ok"}


@ROUTES
def test_timings_without_usage_stand_in_the_last_finish_chunk(ok: Served, path: str, body: dict[str, Any]) -> None:
    *chunks, _ = stream(ok.url, path, {**body, "n": 2, "timings": True})
    assert all(chunk["choices"] for chunk in chunks)
    assert [("timings" in chunk) for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


def test_first_token_counts_as_sent_only_with_the_text_that_shows_it() -> None:
    gate = StepGate()
    gate.close()
    with serve(core=ScriptedCore(emits(BIRD), cues=[gate])) as served, served.streaming(CHAT, chat()) as answer:
        request_id = answer.response.headers["x-request-id"]

        def sent_first() -> Any:
            timeline = served.services.recorder.request(request_id)
            assert timeline is not None
            return timeline["stamps"]["sent_first_s"]  # type: ignore[index]

        for num_tokens in (1, 2, 3):
            gate.step()
            served.until(lambda expected=num_tokens: served.stats()["counters"]["generated_tokens"] == expected)
        assert served.call(sent_first) is None
        gate.open()
        assert texts(answer.rest()) == {0: "🫠"}
        assert served.call(sent_first) is not None


@ROUTES
@pytest.mark.parametrize("streamed", [True, False])
def test_stop_string_of_the_last_token_counts_as_the_client_is_told(
    path: str, body: dict[str, Any], streamed: bool
) -> None:
    with serve(script=emits(b"abXY")) as served:
        asked = {**body, "stop": "XY", "max_tokens": 4}
        if streamed:
            reasons = finish_reasons(stream(served.url, path, asked))
        else:
            reasons = {0: [post(served.url, path, asked).json()["choices"][0]["finish_reason"]]}
        served.until(lambda: served.services.recorder.requests()["recent"] != [])
        counted = served.get("/metrics").text
        shown = served.services.recorder.requests()["recent"][0]["finish_reason"]
    assert reasons == {0: ["stop"]}
    assert shown == "stop"
    assert 'pellucid_requests_total{finish_reason="stop"} 1.0' in counted
    assert 'pellucid_requests_total{finish_reason="length"} 0.0' in counted
