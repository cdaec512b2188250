"""loadtest/stream_client.py: what counts as a token, and what becomes of answers that aren't whole."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from loadtest.request_record import RequestRecord
from loadtest.sse_reader import SseReader
from loadtest.stream_client import StreamClient
from tests.support.loopback import serving

USAGE = {"completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}
CHAT = [
    {"choices": [{"delta": {"role": "assistant", "content": ""}}]},
    {"choices": [{"delta": {"content": "Ob"}}]},
    {"choices": [{"delta": {"content": "vious"}}]},
    {"choices": [{"delta": {}, "finish_reason": "stop"}]},
    {"choices": [], "usage": USAGE},
]


class Server:
    """Answers every request with the payloads given, and keeps the bodies."""

    def __init__(self, payloads: list[Any], *, status: int = 200, done: bool = True) -> None:
        self.bodies: list[dict[str, Any]] = []
        self._frames = [f"data: {json.dumps(payload)}\n\n".encode() for payload in payloads]
        self._frames += [b": keep-alive\n\n", *([b"data: [DONE]\n\n"] if done else [])]
        self._status = status

    async def answer(self, request: Request) -> Response:
        self.bodies.append(await request.json())
        if self._status != 200:
            return JSONResponse({"error": "full"}, self._status)
        return StreamingResponse(self._chopped(), media_type="text/event-stream")

    async def _chopped(self) -> AsyncGenerator[bytes, None]:
        """Send the stream in pieces that keep no event whole."""
        stream = b"".join(self._frames)
        for start in range(0, len(stream), 7):
            yield stream[start : start + 7]


def ask(server: Server, **extra: Any) -> RequestRecord:
    record = RequestRecord([5, 6], 0.0)
    with serving(Starlette(routes=[Route("/v1", server.answer, methods=["POST"])])) as url:
        asyncio.run(StreamClient(f"{url}/v1", {"max_tokens": 3}).run(record, **extra))
    return record


def test_client_role_and_usage_chunks_are_no_tokens() -> None:
    server = Server(CHAT)
    record = ask(server, cache_salt="x")
    assert (record.text, len(record.token_times), record.error) == ("Obvious", 2, "")
    assert (record.num_output_tokens, record.num_cached_tokens) == (3, 2)
    assert record.is_complete
    assert server.bodies == [{"max_tokens": 3, "cache_salt": "x", "prompt": [5, 6], "stream": True}]


def test_client_token_without_text_counts_when_ids_are_sent() -> None:
    record = ask(
        Server([{"choices": [{"text": "", "token_ids": [7]}]}, {"choices": [{"text": "a", "token_ids": [8]}]}])
    )
    assert (record.token_ids, len(record.token_times), record.num_output_tokens) == ([7, 8], 2, 2)


@pytest.mark.parametrize(
    ("server", "error"),
    [
        (Server([], status=429), 'HTTP 429: {"error":"full"}'),
        (Server(CHAT, done=False), "the stream ended without [DONE]"),
        (Server([*CHAT[:2], {"error": {"message": "lost"}}]), "error in the stream: {'message': 'lost'}"),
    ],
)
def test_client_answer_that_is_not_whole_is_an_error(server: Server, error: str) -> None:
    record = ask(server)
    assert record.error == error
    assert not record.is_complete


def test_client_nobody_listening_is_an_error() -> None:
    record = RequestRecord([5], 0.0)
    asyncio.run(StreamClient("http://127.0.0.1:1/v1", {}).run(record))
    assert record.error.startswith("no connection: ")


def test_client_other_schemes_are_refused() -> None:
    with pytest.raises(ValueError, match="http or https"):
        StreamClient("ftp://example.org", {})


def test_sse_reader_one_byte_at_a_time_gives_whole_payloads() -> None:
    reader = SseReader()
    stream = b": hello\ndata: a\r\n\r\nevent: x\ndata:b\n\ndata: unfinished"
    assert [payload for byte in stream for payload in reader.feed(bytes([byte]))] == [b"a", b"b"]
