"""Answers of other servers that don't end: given up at a size, before they fill this process."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from dashboard import race
from dashboard.live_feed import LiveFeed
from dashboard.proxy import Proxy
from dashboard.server import create_app
from dashboard.whole_answer import MAX_ANSWER_BYTES, AnswerTooLargeError, read_whole
from tests.support.loopback import serving

PIECE = b"x" * 65_536


class Endless:
    """Bytes without an end; counts what was taken of them."""

    def __init__(self, piece: bytes = PIECE) -> None:
        self.piece = piece
        self.num_bytes = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            self.num_bytes += len(self.piece)
            yield self.piece
            await asyncio.sleep(0)  # who reads it can leave


def client_of(source: Endless, **headers: str) -> httpx.AsyncClient:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=source, headers=headers)

    return httpx.AsyncClient(base_url="http://endless", transport=httpx.MockTransport(answer))


def test_answer_is_read_up_to_its_bound_and_no_further() -> None:
    async def scenario() -> None:
        source = Endless()
        async with client_of(source) as client, client.stream("GET", "/") as answer:
            with pytest.raises(AnswerTooLargeError, match="exceeds 100000 bytes"):
                await read_whole(answer, max_bytes=100_000)
            assert answer.is_closed
        assert source.num_bytes == 2 * len(PIECE)

    asyncio.run(asyncio.wait_for(scenario(), 10))


def test_answer_that_says_it_is_too_large_is_not_read_at_all() -> None:
    async def scenario() -> None:
        source = Endless()
        headers = {"content-length": "100001"}
        async with client_of(source, **headers) as client, client.stream("GET", "/") as answer:
            with pytest.raises(AnswerTooLargeError):
                await read_whole(answer, max_bytes=100_000)
        assert source.num_bytes == 0

    asyncio.run(asyncio.wait_for(scenario(), 10))


def test_live_feed_of_a_service_that_never_stops_talking_is_down_and_says_why() -> None:
    async def scenario() -> None:
        source = Endless()
        async with client_of(source) as client:
            feed = LiveFeed(client, interval_s=60.0)
            watching = feed.watch()
            assert await anext(watching) == b"retry: 1000\n\n"
            frame = json.loads((await anext(watching)).removeprefix(b"data: "))
            await watching.aclose()
        assert (frame["connected"], frame["error"]) == (False, f"the answer exceeds {MAX_ANSWER_BYTES} bytes")
        assert source.num_bytes < 2 * MAX_ANSWER_BYTES + 4 * len(PIECE)

    asyncio.run(asyncio.wait_for(scenario(), 10))


def test_proxied_answer_without_an_end_becomes_a_502() -> None:
    async def scenario() -> None:
        source = Endless()
        async with client_of(source) as upstream:
            app = Starlette(routes=Proxy(upstream, max_answer_bytes=1_000_000).routes())
            async with httpx.AsyncClient(base_url="http://here", transport=httpx.ASGITransport(app)) as client:
                answer = await client.get("/metrics")
        assert answer.status_code == 502
        assert "exceeds 1000000 bytes" in answer.json()["error"]["message"]

    asyncio.run(asyncio.wait_for(scenario(), 10))


def test_race_gives_up_a_lane_whose_answer_has_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race, "MAX_ANSWER_BYTES", 200_000)
    source = Endless(b"data: " + b" " * 50_000)

    async def chat(request: Request) -> Response:
        await request.body()
        return StreamingResponse(source, media_type="text/event-stream")

    server = Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])
    order: dict[str, Any] = {"target": "service", "request": {"messages": []}, "lanes": 1, "modes": ["sequential"]}
    with serving(server) as service_url, serving(create_app(service_url)) as url:
        told = httpx.post(f"{url}/api/race", json=order, trust_env=False).text
    ends = [json.loads(line[6:]) for line in told.splitlines() if '"end"' in line]
    assert [end["error"] for end in ends] == ["the answer exceeds 200000 bytes"]
