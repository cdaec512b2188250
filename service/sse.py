"""Server-sent events on plain ASGI: one writer, a watcher for the client's leaving, comments while silent.

Written here and not taken from sse-starlette, which costs 27 microseconds more per frame and patches uvicorn's signal
handling on import (docs/adr/0010). Frames are bytes; what is known before the stream starts is encoded once.

    head ──── sent as soon as the request is valid, also while it is queued
    frames ── as the source yields them, one write each
    comment ─ after every `keep_alive_s` of silence; a real but empty frame after every `filler_s` of it
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

from starlette.types import Receive, Scope, Send

from engine.clock import Clock
from service.disconnect import wait_for_disconnect
from service.middleware.body_send import body_send

KEEP_ALIVE = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"

Headers = list[tuple[bytes, bytes]]

HEADERS: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]


@dataclass(frozen=True)
class Silence:
    """What to send while there is nothing to say.

    Attributes:
        keep_alive_s: seconds of silence before a comment line, which no client takes for data.
        filler_s: seconds without a frame before `filler` is sent: some clients time out on comments.
        filler: makes an empty frame of the stream's own kind; None sends comments only.
    """

    keep_alive_s: float
    filler_s: float
    filler: Callable[[], bytes] | None = None


class Transfer(Protocol):
    """Told of each write that is done."""

    def wrote(self, start: float, end: float, *, is_last: bool) -> None:
        """A frame was handed to the transport; monotonic seconds. With the last one the answer is complete."""
        ...


def data_frame(payload: bytes) -> bytes:
    """Return one event with a one-line payload (JSON escapes line ends)."""
    return b"data: " + payload + b"\n\n"


class EventStream:
    """An ASGI response that sends the frames of one source.

    Whatever ends the stream (its end, the client leaving, a failed write, cancellation), the source is closed before
    the call returns.

    Args:
        frames: the source; it turns its own failures into frames, so that the stream never just breaks off.
        silence: what to send when the source is silent.
        clock: measures silence.
        headers: on top of the usual ones.
        transfer: told of each write.
    """

    def __init__(
        self,
        frames: AsyncGenerator[bytes, None],
        *,
        silence: Silence,
        clock: Clock,
        headers: Headers | None = None,
        transfer: Transfer | None = None,
    ) -> None:
        self._frames = frames
        self._silence = silence
        self._clock = clock
        self._transfer = transfer
        self._headers = [*HEADERS, *(headers or ())]
        self._is_sending = False
        self._last_write = self._last_frame = clock.now()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._frames):
            await send({"type": "http.response.start", "status": 200, "headers": self._headers})
            writer = asyncio.create_task(self._write(send, body_send(scope, send)))
            watcher = asyncio.create_task(wait_for_disconnect(receive))
            keeper = asyncio.create_task(self._break_silence(send))
            tasks = (writer, watcher, keeper)
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
            for task in tasks:
                if not task.cancelled():
                    raise_unless_gone(task.exception())

    async def _write(self, send: Send, send_body: Send) -> None:
        async for frame in self._frames:
            self._is_sending = True
            begun = self._clock.now()
            await send_body({"type": "http.response.body", "body": frame, "more_body": True})
            self._is_sending = False
            self._last_write = self._last_frame = self._clock.now()
            if self._transfer is not None:
                self._transfer.wrote(begun, self._last_write, is_last=False)
        self._is_sending = True
        begun = self._clock.now()
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        if self._transfer is not None:
            self._transfer.wrote(begun, self._clock.now(), is_last=True)

    async def _break_silence(self, send: Send) -> None:
        """Write between the writer's frames, never inside one and never while it is held up by a slow reader."""
        silence = self._silence
        while True:
            await asyncio.sleep(max(0.001, self._last_write + silence.keep_alive_s - self._clock.now()))
            now = self._clock.now()
            if self._is_sending or now - self._last_write < silence.keep_alive_s:
                if self._is_sending:
                    self._last_write = now
                continue
            body = KEEP_ALIVE
            if silence.filler is not None and now - self._last_frame >= silence.filler_s:
                body, self._last_frame = silence.filler(), now
            self._last_write = now
            await send({"type": "http.response.body", "body": body, "more_body": True})


def raise_unless_gone(error: BaseException | None) -> None:
    """Let a failed write count as the client's leaving, as some servers raise where others say nothing."""
    if error is not None and not isinstance(error, OSError):
        raise error
