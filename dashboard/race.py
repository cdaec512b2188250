"""One prompt in N requests to a target, one after another or side by side, over one stream to the browser.

A browser holds back all but six requests to one host, so the dashboard's process sends them. The events, each a JSON
object as server-sent data:

    round {mode, lanes}   start {lane}   text {lane, text}
    end {lane, error, ttft_ms, total_ms, tokens, cached_tokens}   round_end {wall_ms}
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Annotated, Any, Literal

import httpx
import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from dashboard.json_post import error_response, read_json
from dashboard.streaming import SSE_HEADERS, ClosingStream
from dashboard.whole_answer import AnswerTooLargeError
from loadtest.sse_reader import SseReader

Mode = Literal["sequential", "concurrent"]
MAX_LANES = 16
MAX_ERROR_BYTES = 4096
MAX_ANSWER_BYTES = 8 << 20  # of one lane: a longer one is given up
_PATH = "/v1/chat/completions"
_SILENCE_S = 120.0

Events = asyncio.Queue[bytes | None]  # None: there are no more


class RaceOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the browser asks for; `request` is a chat request that every lane sends."""

    target: str
    request: dict[str, Any]
    lanes: Annotated[int, Meta(ge=1, le=MAX_LANES)]
    modes: Annotated[list[Mode], Meta(min_length=1, max_length=2)]


class Race:
    """Runs races against the targets of a dashboard.

    Args:
        clients: by name of the target.
    """

    def __init__(self, clients: Mapping[str, httpx.AsyncClient]) -> None:
        self._clients = clients
        self._running: set[Events] = set()
        self._is_closed = False

    def close(self) -> None:
        """End every race now; the streams end, and with them the requests upstream."""
        self._is_closed = True
        for events in self._running:
            events.put_nowait(None)

    async def start(self, request: Request) -> Response:
        """Answer POST /api/race."""
        order = await read_json(request, RaceOrder)
        if isinstance(order, Response):
            return order
        client = self._clients.get(order.target)
        if client is None:
            return error_response(404, "not_found_error", f"there is no target {order.target}")
        body = {**order.request, "stream": True, "stream_options": {"include_usage": True}}
        headers = {"content-type": "text/event-stream; charset=utf-8", **SSE_HEADERS}
        return ClosingStream(self._events(client, order, body), headers=headers)

    async def _events(
        self, client: httpx.AsyncClient, order: RaceOrder, body: dict[str, Any]
    ) -> AsyncGenerator[bytes, None]:
        for mode in order.modes:
            yield _event(type="round", mode=mode, lanes=order.lanes)
            async with aclosing(self._round(client, body, mode=mode, lanes=order.lanes)) as events:
                async for event in events:
                    yield event
            if self._is_closed:
                return

    async def _round(
        self, client: httpx.AsyncClient, body: dict[str, Any], *, mode: Mode, lanes: int
    ) -> AsyncGenerator[bytes, None]:
        """Yield the events of one round; closing it gives up the requests that still run."""
        events: Events = asyncio.Queue()
        loop = asyncio.get_running_loop()

        async def run() -> None:
            turns = asyncio.Semaphore(1 if mode == "sequential" else lanes)

            async def lane(number: int) -> None:
                async with turns:
                    await _run_lane(client, body, number, events)

            started = loop.time()
            try:
                await asyncio.gather(*(lane(number) for number in range(lanes)))
                events.put_nowait(_event(type="round_end", wall_ms=(loop.time() - started) * 1e3))
            finally:
                events.put_nowait(None)

        self._running.add(events)
        runner = asyncio.create_task(run())
        try:
            while (event := await events.get()) is not None:
                yield event
        finally:
            self._running.discard(events)
            runner.cancel()
            await asyncio.wait({runner})


async def _run_lane(client: httpx.AsyncClient, body: dict[str, Any], number: int, events: Events) -> None:
    """Send one request and put its events into the queue, the last one `end`, whatever becomes of it."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    answer = _Answer()
    events.put_nowait(_event(type="start", lane=number))
    try:
        async with client.stream("POST", _PATH, json=body, timeout=httpx.Timeout(5.0, read=_SILENCE_S)) as response:
            if response.status_code != httpx.codes.OK:
                answer.error = await _refusal(response)
            else:
                reader = SseReader()
                num_bytes = 0
                async for data in response.aiter_raw():
                    num_bytes += len(data)
                    if num_bytes > MAX_ANSWER_BYTES:
                        raise AnswerTooLargeError(f"the answer exceeds {MAX_ANSWER_BYTES} bytes")
                    for text in answer.take(reader.feed(data), (loop.time() - started) * 1e3):
                        events.put_nowait(_event(type="text", lane=number, text=text))
                answer.error = answer.error or ("" if answer.is_finished else "the stream ended without a finish")
    except httpx.HTTPError as error:
        answer.error = str(error) or type(error).__name__
    except msgspec.DecodeError as error:
        answer.error = f"the answer can't be read: {error}"
    total_ms = (loop.time() - started) * 1e3 if answer.ended_ms is None else answer.ended_ms
    events.put_nowait(
        _event(
            type="end",
            lane=number,
            error=answer.error,
            ttft_ms=answer.ttft_ms,
            total_ms=total_ms,
            tokens=answer.tokens,
            cached_tokens=answer.cached_tokens,
        )
    )


class _Delta(msgspec.Struct, frozen=True):
    content: str | None = None


class _Choice(msgspec.Struct, frozen=True):
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Details(msgspec.Struct, frozen=True):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct, frozen=True):
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Chunk(msgspec.Struct, frozen=True):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Any = None


_decoder = msgspec.json.Decoder(_Chunk)


class _Answer:
    """What has come of one answer; times are milliseconds since its request was sent."""

    def __init__(self) -> None:
        self.error = ""
        self.is_finished = False
        self.ttft_ms: float | None = None
        self.ended_ms: float | None = None
        self.tokens: int | None = None
        self.cached_tokens: int | None = None

    def take(self, payloads: list[bytes], now_ms: float) -> list[str]:
        """Take the events that just came and return their texts; a role, usage or empty chunk is no first token."""
        texts = []
        for payload in payloads:
            if payload == b"[DONE]":
                continue
            chunk = _decoder.decode(payload)
            if chunk.error is not None:
                self.error = f"the server failed: {chunk.error}"[:MAX_ERROR_BYTES]
            for choice in chunk.choices or ():
                if choice.delta is not None and choice.delta.content:
                    self.ttft_ms = now_ms if self.ttft_ms is None else self.ttft_ms
                    texts.append(choice.delta.content)
                if choice.finish_reason:
                    self.is_finished = True
                    self.ended_ms = now_ms
            if chunk.usage is not None:
                self.tokens = chunk.usage.completion_tokens
                details = chunk.usage.prompt_tokens_details
                self.cached_tokens = details.cached_tokens if details is not None else None
        return texts


async def _refusal(response: httpx.Response) -> str:
    body = b""
    async for data in response.aiter_bytes():
        body += data
        if len(body) > MAX_ERROR_BYTES:
            break
    return f"HTTP {response.status_code}: {body[:MAX_ERROR_BYTES].decode(errors='replace')}"


def _event(**fields: Any) -> bytes:
    return b"data: " + msgspec.json.encode(fields) + b"\n\n"
