"""One streamed completion over its own connection: cheap enough that the client doesn't slow what it measures."""

import asyncio
import time
from typing import Any
from urllib.parse import urlsplit

import httptools
import msgspec

from loadtest.request_record import RequestRecord
from loadtest.sse_reader import SseReader
from loadtest.tls import tls_context

MAX_ERROR_BYTES = 300
PORTS = {"http": 80, "https": 443}


class _Delta(msgspec.Struct, frozen=True):
    content: str | None = None


class _Choice(msgspec.Struct, frozen=True):
    text: str | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None
    token_ids: list[int] | None = None


class _PromptDetails(msgspec.Struct, frozen=True):
    cached_tokens: int | None = 0


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _PromptDetails | None = None


class _Chunk(msgspec.Struct, frozen=True):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


_decoder = msgspec.json.Decoder(_Chunk)


class StreamClient:
    """Sends completions to one server.

    Args:
        url: of the endpoint, e.g. `http://127.0.0.1:8100/v1/completions`; http or https.
        body: of every request; `prompt` is put in as token ids.
        api_key: sent as a bearer token unless empty.
        connect_timeout_s, idle_timeout_s: for the connection, and between two pieces of an answer; None waits for ever.
    """

    def __init__(
        self,
        url: str,
        body: dict[str, Any],
        *,
        api_key: str = "",
        connect_timeout_s: float | None = None,
        idle_timeout_s: float | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in PORTS or not parts.hostname:
            raise ValueError(f"`url` must be an http or https address, got {url}")
        self._host, self._port = parts.hostname, parts.port or PORTS[parts.scheme]
        self._tls = tls_context(url)
        self._body = body
        self._connect_timeout_s, self._idle_timeout_s = connect_timeout_s, idle_timeout_s
        authorization = f"authorization: Bearer {api_key}\r\n" if api_key else ""
        self._head = (
            f"POST {parts.path or '/'} HTTP/1.1\r\nhost: {parts.netloc}\r\ncontent-type: application/json\r\n"
            f"accept: text/event-stream\r\nconnection: close\r\n{authorization}"
        )

    async def run(self, record: RequestRecord, **extra: Any) -> None:
        """Send the record's prompt and fill the record in; `extra` goes into the body.

        A refusal, a failure in the stream and a broken connection become `record.error`. Cancelling closes the
        connection and leaves the record as it is.
        """
        await self.send(record, {**self._body, **extra, "prompt": record.prompt})

    async def send(self, record: RequestRecord, body: dict[str, Any]) -> None:
        """Send a whole body, made a streaming one, and fill the record in as `run` does."""
        content = msgspec.json.encode({**body, "stream": True})
        request = f"{self._head}content-length: {len(content)}\r\n\r\n".encode() + content
        loop = asyncio.get_running_loop()
        exchange = _Exchange(request, record, loop.create_future())
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                transport, _ = await loop.create_connection(lambda: exchange, self._host, self._port, ssl=self._tls)
        except TimeoutError:
            record.error = f"no connection: none within {self._connect_timeout_s:g} s"
            return
        except OSError as error:
            record.error = f"no connection: {error}"
            return
        try:
            if self._idle_timeout_s is not None:
                await exchange.wait_while_heard(self._idle_timeout_s)
            await exchange.over
        finally:
            transport.abort()


class _Exchange(asyncio.Protocol):
    """Writes the request, reads the response; `over` is done at its end. httptools calls the on_... methods."""

    def __init__(self, request: bytes, record: RequestRecord, over: asyncio.Future[None]) -> None:
        self.over = over
        self._request = request
        self._record = record
        self._parser = httptools.HttpResponseParser(self)
        self._events = SseReader()
        self._now = time.perf_counter()
        self._refusal = b""
        self._is_done = False
        self._texts: list[str] = []

    async def wait_while_heard(self, idle_timeout_s: float) -> None:
        """Return when it is over; ends it when nothing has come for so long."""
        while not self.over.done():
            quiet_until = self._now + idle_timeout_s
            await asyncio.wait([self.over], timeout=quiet_until - time.perf_counter())
            if time.perf_counter() >= self._now + idle_timeout_s:
                self._end(f"nothing came for {idle_timeout_s:g} s")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport) or hasattr(transport, "write")
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._now = time.perf_counter()
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, msgspec.DecodeError) as error:
            self._end(f"the answer can't be read: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        self._end("" if self._is_done else f"the connection broke: {exc or 'closed early'}")

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"x-request-id":
            self._record.request_id = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._record.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        if self._parser.get_status_code() != 200:
            self._refusal = (self._refusal + body)[:MAX_ERROR_BYTES]
            return
        for payload in self._events.feed(body):
            if payload == b"[DONE]":
                self._is_done = True
            else:
                self._take(_decoder.decode(payload))

    def on_message_complete(self) -> None:
        if self._refusal:
            self._end(f"HTTP {self._parser.get_status_code()}: {self._refusal.decode(errors='replace')}")
        else:
            self._end("" if self._is_done else "the stream ended without [DONE]")

    def _take(self, chunk: _Chunk) -> None:
        record = self._record
        if chunk.error is not None:
            record.error = f"error in the stream: {chunk.error}"
        for choice in chunk.choices:
            text = choice.text or (choice.delta.content if choice.delta is not None else "") or ""
            if text or choice.token_ids:
                record.token_times.append(self._now)
                self._texts.append(text)
                record.token_ids += choice.token_ids or ()
            if choice.finish_reason:
                record.finished, record.finish_reason = self._now, choice.finish_reason
        if chunk.usage is not None:
            record.num_prompt_tokens = chunk.usage.prompt_tokens
            record.num_output_tokens = chunk.usage.completion_tokens
            details = chunk.usage.prompt_tokens_details
            record.num_cached_tokens = (details.cached_tokens or 0) if details is not None else 0

    def _end(self, error: str) -> None:
        if self.over.done():
            return
        record = self._record
        record.text = "".join(self._texts)
        record.num_output_tokens = record.num_output_tokens or len(record.token_times)
        record.error = record.error or error
        if not record.error:
            record.ended = self._now
        self.over.set_result(None)
