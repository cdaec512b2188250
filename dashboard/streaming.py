"""Streamed responses that always close their source."""

from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

SSE_HEADERS = {"cache-control": "no-cache, no-transform", "x-accel-buffering": "no"}


class BrokenOffError(Exception):
    """A source ended before its body was complete."""


class ClosingStream(StreamingResponse):
    """A StreamingResponse whose generator is closed before the response is over, however it ends.

    Starlette leaves a generator that is cancelled between two items to the garbage collector; here a client that leaves
    must end the upstream request now, because the engine computes until it does. A source that raises BrokenOffError
    leaves the response without its end, so that the server cuts the connection and the reader knows.
    """

    def __init__(
        self, source: AsyncGenerator[bytes, None], *, status_code: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(source, status_code=status_code, headers=headers)
        self._source = source

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._source):
            with suppress(BrokenOffError):
                await super().__call__(scope, receive, send)
