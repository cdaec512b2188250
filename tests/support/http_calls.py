"""Bodies and answers of the generating routes, for tests of the service."""

import json
from collections.abc import Iterable
from typing import Any

import httpx

TIMEOUT_S = 20.0
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"


def chat(content: str = "hi", **fields: Any) -> dict[str, Any]:
    """A chat body with one user message."""
    return {"messages": [{"role": "user", "content": content}], **fields}


def completion(prompt: Any = "hi", **fields: Any) -> dict[str, Any]:
    return {"prompt": prompt, **fields}


def post(url: str, path: str, body: Any, **options: Any) -> httpx.Response:
    """POST a JSON body, or bytes as they are."""
    if isinstance(body, bytes):
        headers = {"content-type": "application/json", **options.pop("headers", {})}
        return httpx.post(url + path, content=body, headers=headers, timeout=TIMEOUT_S, **options)
    return httpx.post(url + path, json=body, timeout=TIMEOUT_S, **options)


def frames(text: str) -> list[Any]:
    """Return the payloads of a stream in order, `[DONE]` as a string; checks that the rest is comments."""
    payloads: list[Any] = []
    for event in text.split("\n\n"):
        if not event or event.startswith(":"):
            continue
        assert event.startswith("data: "), event
        assert "\n" not in event, event
        payload = event.removeprefix("data: ")
        payloads.append(payload if payload == "[DONE]" else json.loads(payload))
    return payloads


def stream(url: str, path: str, body: dict[str, Any]) -> list[Any]:
    """Stream an answer to its end and return its payloads."""
    response = post(url, path, {**body, "stream": True})
    assert response.status_code == 200, response.text
    return frames(response.text)


def texts(payloads: Iterable[Any]) -> dict[int, str]:
    """Return the joined text of each choice, of chat or completion chunks."""
    joined: dict[int, str] = {}
    for payload in payloads:
        if payload == "[DONE]":
            continue
        for choice in payload.get("choices", ()):
            piece = choice["text"] if "text" in choice else choice["delta"].get("content", "")
            joined[choice["index"]] = joined.get(choice["index"], "") + piece
    return joined


def finish_reasons(payloads: Iterable[Any]) -> dict[int, list[str]]:
    """Return the finish reasons that each choice got; one each is right."""
    reasons: dict[int, list[str]] = {}
    for payload in payloads:
        if payload == "[DONE]":
            continue
        for choice in payload.get("choices", ()):
            if choice["finish_reason"]:
                reasons.setdefault(choice["index"], []).append(choice["finish_reason"])
    return reasons


def whole_text(body: dict[str, Any], index: int = 0) -> str:
    """Return a choice's text of an answer that wasn't streamed."""
    choice = body["choices"][index]
    text = choice["text"] if "text" in choice else choice["message"]["content"]
    assert isinstance(text, str)
    return text


def error_of(response: httpx.Response) -> dict[str, Any]:
    """Return the error of a refusal after checking its form."""
    body = response.json()
    assert set(body) == {"error"}, body
    assert set(body["error"]) == {"message", "type", "param", "code"}, body
    assert response.headers["x-request-id"].startswith("req-")
    error = body["error"]
    assert isinstance(error, dict)
    return error
