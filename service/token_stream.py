"""A streamed answer that is written the moment its tokens arrive.

The engine's client calls us with each message (`Frames.listen`), in the event loop and outside of any task; frames are
made and handed to the transport there and then. So a token costs no task switch, no future and no queue. The request's
own task sleeps meanwhile: it is woken when the stream is over, when the client leaves, or when a slow reader holds up a
write, whose rest it then waits for; what comes in between is joined and goes out with the next write.

    head ──── sent as soon as the request is valid, also while it is queued
    frames ── one write for what one message brought
    comment ─ after every `keep_alive_s` of silence; a real but empty frame after every `filler_s` of it
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from starlette.types import Receive, Scope, Send

from engine.clock import Clock
from service.disconnect import wait_for_disconnect
from service.eager_call import RestOfCall, call_now
from service.middleware.body_send import body_send
from service.sse import HEADERS, KEEP_ALIVE, Headers, Silence, Transfer, raise_unless_gone


class Frames(Protocol):
    """Where the bytes of a stream come from; it turns its own failures into frames."""

    @property
    def is_over(self) -> bool:
        """Whether everything has been taken."""
        ...

    def listen(self, on_ready: Callable[[], None]) -> None:
        """Have `on_ready` called whenever there may be something to take."""
        ...

    def take(self) -> bytes | None:
        """Return the frames of what came next: b"" when it shows nothing yet, None when nothing came."""
        ...

    def sent(self, t: float) -> None:
        """Hear that what was taken last was handed to the transport, at `t` in monotonic seconds."""
        ...


class TokenStream:
    """An ASGI response that sends the frames of one source; it is used once.

    Args:
        frames: the source.
        silence: what to send when the source is silent.
        clock: measures silence.
        headers: on top of the usual ones.
        transfer: told of writes that were held up, and of the last one.
    """

    def __init__(self, frames: Frames, *, silence: Silence, clock: Clock, headers: Headers, transfer: Transfer) -> None:
        self._frames = frames
        self._silence = silence
        self._now = clock.now
        self._headers = [*HEADERS, *headers]
        self._transfer = transfer
        self._loop = asyncio.get_running_loop()
        self._stirred = asyncio.Event()
        self._send_body: Send
        self._is_done = False
        self._last_body = b""
        self._held_up: RestOfCall | None = None
        self._held_up_since = 0.0
        self._failure: Exception | None = None
        self._last_write = self._last_frame = clock.now()
        self._timer: asyncio.TimerHandle | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self._headers})
        self._send_body = body_send(scope, send)
        watcher = asyncio.create_task(wait_for_disconnect(receive))
        watcher.add_done_callback(lambda _: self._stirred.set())
        self._timer = self._loop.call_later(self._silence.keep_alive_s, self._break_silence)
        try:
            self._frames.listen(self._pump)
            self._pump()
            while not (watcher.done() or self._is_done):
                await self._stirred.wait()
                self._stirred.clear()
                if self._held_up is not None:
                    await self._wait_for_reader(watcher)
                    self._pump()
            if not watcher.done() and self._failure is None:
                await self._end(send, watcher)
        finally:
            self._is_done = True
            self._frames.listen(_nobody)
            self._timer.cancel()
            if self._held_up is not None:
                self._held_up.close()
            watcher.cancel()
            await asyncio.wait((watcher,))
        raise_unless_gone(self._failure)
        raise_unless_gone(None if watcher.cancelled() else watcher.exception())

    def _pump(self) -> None:
        """Write what there is; called by the engine's client with each message, so it never raises."""
        frames = self._frames
        while self._held_up is None and not self._is_done:
            body = frames.take()
            if body is None:
                return
            if frames.is_over:  # goes out with the end of the body
                self._last_body = body
                self._finish()
            elif body and self._put(self._send_body, body, more_body=True):
                self._last_frame = self._last_write
                frames.sent(self._last_write)

    def _put(self, send: Send, body: bytes, *, more_body: bool) -> bool:
        """Hand bytes to the transport; return False if a slow reader holds them up, or the write failed."""
        self._last_write = begun = self._now()
        try:
            rest = call_now(send({"type": "http.response.body", "body": body, "more_body": more_body}))
        except Exception as error:  # noqa: BLE001 - raised by the request's own task; other requests' outputs come after us
            self._failure = error
            self._finish()
            return False
        if rest is None:
            return True
        self._held_up, self._held_up_since = rest, begun
        self._stirred.set()
        return False

    def _finish(self) -> None:
        self._is_done = True
        self._stirred.set()

    async def _wait_for_reader(self, watcher: asyncio.Task[None]) -> None:
        """Wait until the write that is held up is out, or the client has left."""
        assert self._held_up is not None
        writing = asyncio.ensure_future(self._held_up)
        try:
            await asyncio.wait((writing, watcher), return_when=asyncio.FIRST_COMPLETED)
            if not writing.done():
                return
            self._held_up = None
            self._last_write = self._last_frame = self._now()
            writing.result()
            self._transfer.wrote(self._held_up_since, self._last_write, is_last=False)
            self._frames.sent(self._last_write)
        except OSError as error:
            self._failure = error
            self._is_done = True
        finally:
            writing.cancel()

    async def _end(self, send: Send, watcher: asyncio.Task[None]) -> None:
        """Send what is last, and the end of the body; now all layers may know of it."""
        begun = self._now()
        if not self._put(send, self._last_body, more_body=False) and self._held_up is not None:
            await self._wait_for_reader(watcher)
        if self._failure is None and not watcher.done():
            self._frames.sent(self._now())
            self._transfer.wrote(begun, self._now(), is_last=True)

    def _break_silence(self) -> None:
        """Write between the frames, but not while a write is held up by a slow reader."""
        silence, now = self._silence, self._now()
        if self._is_done:
            return
        if self._held_up is not None:
            self._last_write = now
        elif now - self._last_write >= silence.keep_alive_s:
            body = KEEP_ALIVE
            if silence.filler is not None and now - self._last_frame >= silence.filler_s:
                body, self._last_frame = silence.filler(), now
            self._put(self._send_body, body, more_body=True)
        wait_s = max(0.001, self._last_write + silence.keep_alive_s - now)
        self._timer = self._loop.call_later(wait_s, self._break_silence)


def _nobody() -> None:
    """Stand in for a listener that has left."""
