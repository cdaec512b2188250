"""The stream writer against hand-written receive and send: silence, leaving, failed writes, failures."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest

from engine.clock import SystemClock
from service.sse import KEEP_ALIVE, EventStream, Silence

FRAME = b"data: x\n\n"
FILLER = b"data: filler\n\n"
Message = dict[str, Any]


class Client:
    """The other end: what it got, and when it leaves."""

    def __init__(self) -> None:
        self.heads: list[Message] = []
        self.bodies: list[bytes] = []
        self.is_complete = False
        self.left = asyncio.Event()
        self.got = asyncio.Event()
        self.fail_after: int | None = None

    async def receive(self) -> Message:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.heads.append(message)
            self.got.set()
            return
        assert not self.is_complete, "sent after the end"
        if self.fail_after is not None and len(self.bodies) >= self.fail_after:
            raise OSError("the connection is gone")
        if message["body"]:
            self.bodies.append(message["body"])
        self.is_complete = not message["more_body"]
        self.got.set()

    async def has(self, num_bodies: int) -> None:
        while len(self.bodies) < num_bodies:
            self.got.clear()
            await self.got.wait()


class Source:
    """Yields frames; says whether it was closed."""

    def __init__(self, *steps: bytes | asyncio.Event | Exception) -> None:
        self._steps = steps
        self.is_closed = False

    async def frames(self) -> AsyncGenerator[bytes, None]:
        try:
            for step in self._steps:
                if isinstance(step, bytes):
                    yield step
                elif isinstance(step, Exception):
                    raise step
                else:
                    await step.wait()
        finally:
            self.is_closed = True


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 10))  # type: ignore[arg-type]


def stream_of(source: Source, *, keep_alive_s: float = 60.0, filler_s: float = 60.0) -> EventStream:
    silence = Silence(keep_alive_s, filler_s, lambda: FILLER)
    return EventStream(source.frames(), silence=silence, clock=SystemClock(), headers=[(b"x-extra", b"1")])


def test_stream_sends_head_frames_and_end() -> None:
    async def scenario() -> None:
        client, source = Client(), Source(FRAME, FRAME)
        await stream_of(source)({}, client.receive, client.send)
        headers = dict(client.heads[0]["headers"])
        assert headers[b"content-type"] == b"text/event-stream; charset=utf-8"
        assert headers[b"x-extra"] == b"1"
        assert client.bodies == [FRAME, FRAME]
        assert client.is_complete
        assert source.is_closed

    run(scenario)


def test_head_is_sent_before_the_first_frame_exists() -> None:
    async def scenario() -> None:
        client, hold = Client(), asyncio.Event()
        task = asyncio.create_task(stream_of(Source(hold, FRAME))({}, client.receive, client.send))
        await client.got.wait()
        assert client.bodies == []
        hold.set()
        await task

    run(scenario)


def test_silence_is_broken_by_comments_and_after_a_while_by_a_filler() -> None:
    async def scenario() -> None:
        client, hold = Client(), asyncio.Event()
        stream = stream_of(Source(FRAME, hold, FRAME), keep_alive_s=0.01, filler_s=0.035)
        task = asyncio.create_task(stream({}, client.receive, client.send))
        await client.has(8)
        hold.set()
        await task
        silent = client.bodies[1:-1]
        assert client.bodies[0] == client.bodies[-1] == FRAME
        assert silent[:2] == [KEEP_ALIVE, KEEP_ALIVE]
        assert FILLER in silent
        assert set(silent) == {KEEP_ALIVE, FILLER}

    run(scenario)


def test_client_that_leaves_closes_the_source() -> None:
    async def scenario() -> None:
        client, source = Client(), Source(FRAME, asyncio.Event(), FRAME)
        task = asyncio.create_task(stream_of(source)({}, client.receive, client.send))
        await client.has(1)
        client.left.set()
        await task
        assert source.is_closed
        assert not client.is_complete

    run(scenario)


def test_failed_write_of_a_frame_counts_as_leaving() -> None:
    async def scenario() -> None:
        client, source = Client(), Source(FRAME, FRAME, asyncio.Event())
        client.fail_after = 1
        await stream_of(source)({}, client.receive, client.send)
        assert source.is_closed

    run(scenario)


def test_failed_write_of_a_comment_counts_as_leaving() -> None:
    async def scenario() -> None:
        client, source = Client(), Source(FRAME, asyncio.Event())
        client.fail_after = 1
        await stream_of(source, keep_alive_s=0.01)({}, client.receive, client.send)
        assert source.is_closed

    run(scenario)


def test_failure_of_the_source_is_raised_and_does_not_end_the_body() -> None:
    async def scenario() -> None:
        client, source = Client(), Source(FRAME, ZeroDivisionError("broken"))
        with pytest.raises(ZeroDivisionError):
            await stream_of(source)({}, client.receive, client.send)
        assert not client.is_complete

    run(scenario)


def test_cancelled_stream_closes_its_source() -> None:
    async def scenario() -> None:
        client, source = Client(), Source(FRAME, asyncio.Event())
        task = asyncio.create_task(stream_of(source)({}, client.receive, client.send))
        await client.has(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert source.is_closed

    run(scenario)


def test_no_comment_is_sent_while_a_slow_reader_holds_up_a_frame() -> None:
    async def scenario() -> None:
        client, reading = Client(), asyncio.Event()
        whole_send, started = client.send, asyncio.Event()

        async def slow_send(message: Message) -> None:
            if message.get("body") == FRAME:
                started.set()
                await reading.wait()
            await whole_send(message)

        task = asyncio.create_task(stream_of(Source(FRAME), keep_alive_s=0.005)({}, client.receive, slow_send))
        await started.wait()
        await asyncio.sleep(0.03)  # several keep-alive periods
        assert client.bodies == []
        reading.set()
        await task
        assert client.bodies == [FRAME]

    run(scenario)
