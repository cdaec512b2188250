"""One prompt in many requests: the events of a race, and that it leaves nothing running."""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from dashboard.server import create_app
from tests.support.loopback import serving

MESSAGES = [{"role": "user", "content": "hi"}]


@dataclass
class Barrier:
    """A server that answers only when `together` requests are with it; it counts how many there were at most."""

    together: int
    bodies: list[dict[str, Any]] = field(default_factory=list)
    inside: int = 0
    most: int = 0
    all_there: asyncio.Event = field(default_factory=asyncio.Event)

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/v1/chat/completions", self.chat, methods=["POST"])])

    async def chat(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        if body.get("max_tokens") == 0:
            return JSONResponse({"error": {"message": "`max_tokens` must be at least 1"}}, 400)
        return StreamingResponse(self.answer(), media_type="text/event-stream")

    async def answer(self) -> AsyncGenerator[str, None]:
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            yield chunk(choices=[{"delta": {"role": "assistant", "content": ""}}])
            if self.inside == self.together:
                self.all_there.set()
            await self.all_there.wait()
            yield ": keep-alive\n\n"
            yield chunk(choices=[{"delta": {"content": "one"}}])
            yield chunk(choices=[{"delta": {"content": " two"}, "finish_reason": "stop"}])
            usage = {"completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 16}}
            yield chunk(choices=[], usage=usage) + "data: [DONE]\n\n"
        finally:
            self.inside -= 1


def chunk(**fields: Any) -> str:
    return f"data: {json.dumps(fields)}\n\n"


@contextmanager
def racing(server: Barrier) -> Iterator[httpx.Client]:
    with (
        serving(server.app()) as service_url,
        serving(create_app(service_url)) as url,
        httpx.Client(base_url=url, timeout=10.0, trust_env=False) as client,
    ):
        yield client


def order(**fields: Any) -> dict[str, Any]:
    return {"target": "service", "request": {"messages": MESSAGES}, "lanes": 3, "modes": ["concurrent"], **fields}


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]


def test_race_side_by_side_has_all_requests_with_the_server_at_once_beyond_a_browsers_six() -> None:
    server = Barrier(together=16)
    with racing(server) as client:
        told = events(client.post("/api/race", json=order(lanes=16)).text)
    assert server.most == 16
    assert told[0] == {"type": "round", "mode": "concurrent", "lanes": 16}
    assert told[-1]["type"] == "round_end"
    ends = [event for event in told if event["type"] == "end"]
    assert {end["lane"] for end in ends} == set(range(16))
    assert all((end["error"], end["tokens"], end["cached_tokens"]) == ("", 2, 16) for end in ends)
    assert all(0 < end["ttft_ms"] <= end["total_ms"] <= told[-1]["wall_ms"] for end in ends)
    texts = [event["text"] for event in told if event["type"] == "text" and event["lane"] == 5]
    assert texts == ["one", " two"]


def test_race_one_after_another_has_one_request_with_the_server_at_a_time() -> None:
    server = Barrier(together=1)
    with racing(server) as client:
        told = events(client.post("/api/race", json=order(modes=["sequential", "concurrent"])).text)
    rounds = [event["mode"] for event in told if event["type"] == "round"]
    assert rounds == ["sequential", "concurrent"]
    sequential = told[: next(i for i, event in enumerate(told) if event["type"] == "round_end")]
    kinds = [event["type"] for event in sequential if event["type"] in ("start", "end")]
    assert kinds == ["start", "end"] * 3
    assert all(body["stream"] is True and body["stream_options"] == {"include_usage": True} for body in server.bodies)


def test_race_refused_by_the_server_says_why_in_every_lane() -> None:
    with racing(Barrier(together=1)) as client:
        told = events(client.post("/api/race", json=order(request={"messages": MESSAGES, "max_tokens": 0})).text)
    ends = [event for event in told if event["type"] == "end"]
    assert len(ends) == 3
    assert all("HTTP 400" in end["error"] and "`max_tokens`" in end["error"] for end in ends)


def test_race_against_a_server_that_is_down_ends_with_errors() -> None:
    app = create_app("http://127.0.0.1:9")
    with serving(app) as url:
        answer = httpx.post(f"{url}/api/race", json=order(), trust_env=False)
    assert [bool(event["error"]) for event in events(answer.text) if event["type"] == "end"] == [True] * 3


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"target": "unlisted"}, 404),
        ({"target": "http://127.0.0.1"}, 404),
        ({"lanes": 17}, 400),
        ({"lanes": 0}, 400),
        ({"modes": []}, 400),
        ({"modes": ["both"]}, 400),
        ({"path": "/secret"}, 400),
        ({"request": []}, 400),
    ],
)
def test_race_order_that_is_wrong_is_refused(change: dict[str, Any], status: int) -> None:
    server = Barrier(together=1)
    with racing(server) as client:
        answer = client.post("/api/race", json=order(**change))
        assert client.post("/api/race", json=order(), headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert answer.status_code == status
    assert answer.json()["error"]["message"]
    assert server.bodies == []


def wait_until_empty(server: Barrier) -> None:
    while server.inside:
        pass


def test_reader_that_leaves_ends_the_requests_upstream() -> None:
    server = Barrier(together=99)
    with racing(server) as client:
        with client.stream("POST", "/api/race", json=order()) as answer:
            lines = answer.iter_lines()
            next(lines)
            while server.inside < 3:
                pass
        wait_until_empty(server)
