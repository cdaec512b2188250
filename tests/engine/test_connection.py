"""The service's end of the channel against a peer that doesn't read, closes or sends nonsense."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from engine.channel import FrameDecoder, FrameEncoder
from engine.clock import ManualClock
from engine.connection import EngineConnection
from engine.errors import QueueFullError
from engine.messages import Abort, AddRequest, AnyArrival, AnyToEngine, Heartbeat
from tests.support.async_engine import make_request, until

Body = Callable[[EngineConnection, socket.socket, list[AnyArrival]], Awaitable[None]]


def with_connection(body: Body, *, clock: ManualClock | None = None, max_unsent_bytes: int = 1 << 20) -> None:
    async def main() -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            received: list[AnyArrival] = []
            connection = EngineConnection(
                received.append, clock=clock or ManualClock(), max_unsent_bytes=max_unsent_bytes
            )
            await connection.connect(ours)
            await body(connection, theirs, received)
            connection.abort()
            await connection.lost

    asyncio.run(main())


def test_connection_peer_that_does_not_read_refuses_requests_but_takes_aborts() -> None:
    async def body(connection: EngineConnection, theirs: socket.socket, received: list[AnyArrival]) -> None:
        request = AddRequest(request=make_request("a", prompt=[70_000] * 100_000))
        for _ in range(3):  # 500 kB each, with a limit of 1 MiB behind the socket's own buffer
            connection.send(request)
        with pytest.raises(QueueFullError, match=r"\d+ bytes of requests wait"):
            connection.send(request)
        connection.send(Abort(request_id="a", reason="gone"))
        decoder, messages = FrameDecoder(), list[AnyToEngine]()
        theirs.setblocking(False)
        while not messages or not isinstance(messages[-1], Abort):
            await asyncio.sleep(0)
            try:
                frames = decoder.feed(theirs.recv(1 << 20))
            except BlockingIOError:
                continue
            messages += [msgspec.msgpack.decode(frame, type=AnyToEngine) for frame in frames]
        assert messages[:-1] == [request] * (len(messages) - 1)

    with_connection(body)


def test_connection_messages_come_in_order_and_stamp_the_last_sign_of_life() -> None:
    clock = ManualClock(1.0)

    async def body(connection: EngineConnection, theirs: socket.socket, received: list[AnyArrival]) -> None:
        assert connection.last_message_t == 1.0
        clock.advance(5.0)
        beats = [Heartbeat(t=float(i), step=i) for i in range(3)]
        theirs.sendall(b"".join(FrameEncoder().encode(beat) for beat in beats))
        await until(lambda: len(received) == 3)
        assert received == beats
        assert connection.last_message_t == 6.0

    with_connection(body, clock=clock)


@pytest.mark.parametrize("nonsense", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x01\xc1", b"\x00\x00\x00\x02\x81\xa1"])
def test_connection_nonsense_from_the_engine_ends_it_with_the_reason(nonsense: bytes) -> None:
    async def body(connection: EngineConnection, theirs: socket.socket, received: list[AnyArrival]) -> None:
        theirs.sendall(nonsense)
        assert "the engine sent what can't be read" in await connection.lost
        assert received == []
        connection.send(Abort(request_id="a", reason="after the end"))

    with_connection(body)


def test_connection_closed_by_the_engine_is_lost_without_a_reason() -> None:
    async def body(connection: EngineConnection, theirs: socket.socket, received: list[AnyArrival]) -> None:
        theirs.close()
        assert await connection.lost == ""

    with_connection(body)
