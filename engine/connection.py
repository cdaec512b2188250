"""The service's end of the channel, on the event loop: never waits, neither for reading nor for writing."""

import asyncio
import socket
from collections.abc import Callable
from typing import cast

import msgspec

from engine.channel import FrameDecoder, FrameEncoder
from engine.clock import Clock
from engine.errors import PellucidError, QueueFullError
from engine.messages import AddRequest, AnyArrival, AnyToEngine

MAX_UNSENT_BYTES = 256 << 20


class EngineConnection(asyncio.Protocol):
    """Sends messages to one engine life and hands over what comes back, in the order it came.

    Writing puts bytes into the transport's buffer and returns. New requests are refused while `max_unsent_bytes` wait
    there (the engine is in a long step and doesn't read); aborts and the like are small and always taken.

    Args:
        on_message: called on the event loop for each message.
        clock: stamps `last_message_t`.
        max_unsent_bytes: see above.
    """

    def __init__(
        self, on_message: Callable[[AnyArrival], None], *, clock: Clock, max_unsent_bytes: int = MAX_UNSENT_BYTES
    ) -> None:
        self._on_message = on_message
        self._clock = clock
        self._max_unsent_bytes = max_unsent_bytes
        self._frames = FrameDecoder()
        self._encoder = FrameEncoder()
        self._decoder = msgspec.msgpack.Decoder(AnyArrival)
        self._transport: asyncio.Transport | None = None
        self.last_message_t = clock.now()
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Done, with the reason or "", once nothing more can come."""

    async def connect(self, sock: socket.socket) -> None:
        """Take over a connected socket."""
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=sock)

    def send(self, message: AnyToEngine) -> None:
        """Queue a message; dropped silently when the connection is lost, which `lost` tells.

        Raises:
            QueueFullError: `message` is a request and too much waits already.
            ChannelError: the message is too large for a frame.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if isinstance(message, AddRequest):
            num_unsent_bytes = transport.get_write_buffer_size()
            if num_unsent_bytes > self._max_unsent_bytes:
                raise QueueFullError(f"{num_unsent_bytes} bytes of requests wait for the engine to read them")
        transport.write(self._encoder.encode(message))

    def abort(self) -> None:
        """Close at once; what is unsent is dropped."""
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio.Protocol ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its base class

    def data_received(self, data: bytes) -> None:
        self.last_message_t = self._clock.now()
        try:
            for frame in self._frames.feed(data):
                self._on_message(self._decoder.decode(frame))
        except (PellucidError, msgspec.DecodeError) as error:
            self._end(f"the engine sent what can't be read: {error}")
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end("" if exc is None else f"the channel broke: {exc}")

    def _end(self, reason: str) -> None:
        if not self.lost.done():
            self.lost.set_result(reason)
