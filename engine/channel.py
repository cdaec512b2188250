"""Frames on a socket: how messages cross between the service's process and the engine's.

A frame is a 4-byte big-endian length and one MessagePack message. The engine's side is blocking on purpose: it writes
with `sendall` (a service that doesn't read slows the engine down, it never loses a message) and reads what is there
without waiting. The service's side lives on an event loop and never blocks: see engine/connection.py. Since the
service always reads, the two can't wait for each other.
"""

import select
import socket
import struct

import msgspec

from engine.errors import PellucidError
from engine.messages import AnyFromEngine, AnyToEngine

MAX_FRAME_BYTES = 256 << 20
SEND_BUFFER_BYTES = 4 << 20
RECEIVE_BYTES = 1 << 20

_HEADER = struct.Struct(">I")
HEADER_BYTES = _HEADER.size


class ChannelError(PellucidError):
    """What came over the channel is not what the other side can have meant to send."""


class ChannelClosedError(PellucidError):
    """The other side is gone."""


class FrameDecoder:
    """Cuts a byte stream into frames, however the stream is chopped.

    Args:
        max_frame_bytes: a longer frame raises ChannelError before anything is allocated for it.
    """

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes and return the payloads that are complete now, oldest first."""
        buffer = self._buffer
        buffer += data
        frames: list[bytes] = []
        start = 0
        while len(buffer) - start >= HEADER_BYTES:
            (num_bytes,) = _HEADER.unpack_from(buffer, start)
            if num_bytes > self._max_frame_bytes:
                raise ChannelError(f"a frame of {num_bytes} bytes is over the limit of {self._max_frame_bytes} bytes")
            stop = start + HEADER_BYTES + num_bytes
            if stop > len(buffer):
                break
            frames.append(bytes(memoryview(buffer)[start + HEADER_BYTES : stop]))
            start = stop
        if start:
            del buffer[:start]
        return frames

    @property
    def num_pending_bytes(self) -> int:
        """Bytes of a frame that is not complete yet."""
        return len(self._buffer)


class FrameEncoder:
    """Turns messages into frames.

    Args:
        max_frame_bytes: a message that encodes to more raises ChannelError.
    """

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._encoder = msgspec.msgpack.Encoder()
        self._buffer = bytearray()

    def encode(self, message: AnyToEngine | AnyFromEngine) -> bytes:
        """Return the frame of a message."""
        buffer = self._buffer
        self._encoder.encode_into(message, buffer, HEADER_BYTES)
        num_bytes = len(buffer) - HEADER_BYTES
        if num_bytes > self._max_frame_bytes:
            self._buffer = bytearray()
            raise ChannelError(f"a message of {num_bytes} bytes is over the limit of {self._max_frame_bytes} bytes")
        _HEADER.pack_into(buffer, 0, num_bytes)
        return bytes(buffer)


class EngineChannel:
    """The engine's end: synchronous, used by one thread.

    Args:
        sock: a connected stream socket; used by nobody else until its owner closes it.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(True)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        self._sock = sock
        self._poll = select.poll()  # not select(): descriptors past 1023 are ordinary in a server
        self._poll.register(sock, select.POLLIN)
        self._frames = FrameDecoder()
        self._encoder = FrameEncoder()
        self._decoder = msgspec.msgpack.Decoder(AnyToEngine)

    def send(self, message: AnyFromEngine) -> None:
        """Write one message, waiting while the service doesn't read; raise ChannelClosedError when it is gone."""
        try:
            self._sock.sendall(self._encoder.encode(message))
        except OSError as error:
            raise ChannelClosedError(f"the service is gone: {error}") from error

    def receive(self, timeout_s: float | None = 0.0) -> list[AnyToEngine]:
        """Return the messages that are there, after waiting up to `timeout_s` for the first (None: for ever).

        Raises:
            ChannelClosedError: the service closed its end and everything it sent before has been returned.
            ChannelError: a frame is over the limit or doesn't decode.
        """
        if timeout_s != 0.0:
            self._poll.poll(None if timeout_s is None else timeout_s * 1000)
        messages: list[AnyToEngine] = []
        while True:
            try:
                data = self._sock.recv(RECEIVE_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return messages
            except OSError as error:
                raise ChannelClosedError(f"the service is gone: {error}") from error
            if not data:
                if messages:
                    return messages
                raise ChannelClosedError("the service closed the channel")
            messages += [self._decode(frame) for frame in self._frames.feed(data)]

    def _decode(self, frame: bytes) -> AnyToEngine:
        try:
            return self._decoder.decode(frame)
        except msgspec.DecodeError as error:
            raise ChannelError(f"a message from the service doesn't decode: {error}") from error
