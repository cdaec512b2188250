"""Chat completions over a scripted engine and a real socket: chunks, usage, finish, [DONE]."""

import json
from typing import Any

import httpx

from tests.support.scripted_service import Served, emits, serve


def chat(content: str = "hi", **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}], **fields}


def post(served: Served, path: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(served.url + path, json=body, timeout=20)


def events(response: httpx.Response) -> list[Any]:
    """Return the payloads of a stream, `[DONE]` as a string."""
    payloads = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: ")]
    return [payload if payload == "[DONE]" else json.loads(payload) for payload in payloads]


def test_chat_stream_sends_role_deltas_finish_and_done():
    with serve(script=emits(b"ok")) as served:
        response = post(served, "/v1/chat/completions", chat(stream=True))
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    *chunks, done = events(response)
    assert done == "[DONE]"
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(delta["content"] for delta in deltas[1:-1]) == "ok"
    assert deltas[-1] == {}
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + ["stop"]
    assert len({(chunk["id"], chunk["created"], chunk["model"], chunk["object"]) for chunk in chunks}) == 1
    assert all("usage" not in chunk for chunk in chunks)


def test_chat_whole_answer_has_message_usage_and_finish_reason():
    with serve(script=emits(b"ok")) as served:
        body = post(served, "/v1/chat/completions", chat()).json()
    assert body["object"] == "chat.completion"
    assert body["choices"][0]["message"]["content"] == "ok"
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"]["completion_tokens"] == 3
