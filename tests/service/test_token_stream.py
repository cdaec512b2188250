"""Streams that are written where tokens arrive: against hand-written receive and send."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from engine.clock import SystemClock
from service.eager_call import call_now
from service.sse import KEEP_ALIVE, Silence
from service.token_stream import TokenStream

FILLER = b"data: filler\n\n"
Message = dict[str, Any]


class Client:
    """The other end: what it got, when it leaves, and whether it holds up what is sent.

    Attributes:
        messages: bodies and ends, in order.
        tasks: the task in which each body was sent; None is outside of any.
    """

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.tasks: list[asyncio.Task[Any] | None] = []
        self.left = asyncio.Event()
        self.reads = asyncio.Event()
        self.reads.set()
        self.error: OSError | None = None
        self._got = asyncio.Event()

    async def receive(self) -> Message:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            return
        if self.error is not None:
            raise self.error
        self.tasks.append(asyncio.current_task())
        if not self.reads.is_set():
            await self.reads.wait()
        self.messages.append(message)
        self._got.set()

    async def has(self, *bodies: bytes) -> None:
        while [message["body"] for message in self.messages] != list(bodies):
            self._got.clear()
            await self._got.wait()

    async def next(self) -> None:
        self._got.clear()
        await self._got.wait()

    @property
    def ends(self) -> list[bool]:
        return [not message["more_body"] for message in self.messages]


class Source:
    """Frames that a test puts in; the last one is b"end"."""

    def __init__(self) -> None:
        self._frames: list[bytes] = []
        self._on_ready: Callable[[], None] = lambda: None
        self.is_over = False
        self.num_sent = 0

    def listen(self, on_ready: Callable[[], None]) -> None:
        self._on_ready = on_ready

    def take(self) -> bytes | None:
        if not self._frames:
            return None
        joined, self._frames = b"".join(self._frames), []
        self.is_over = joined.endswith(b"end")
        return joined

    def sent(self, t: float) -> None:
        self.num_sent += 1

    def put(self, *frames: bytes) -> None:
        self._frames += frames
        self._on_ready()


class Transfers:
    """Writes that were told of: (longer than a moment, is last)."""

    def __init__(self) -> None:
        self.told: list[tuple[float, bool]] = []

    def wrote(self, start: float, end: float, *, is_last: bool) -> None:
        self.told.append((end - start, is_last))


class Run:
    """A stream under test."""

    def __init__(self, *, keep_alive_s: float = 60.0, filler_s: float = 60.0) -> None:
        self.client, self.source, self.transfers = Client(), Source(), Transfers()
        self._stream = TokenStream(
            self.source,
            silence=Silence(keep_alive_s, filler_s, lambda: FILLER),
            clock=SystemClock(),
            headers=[],
            transfer=self.transfers,
        )
        self.task = asyncio.ensure_future(self._stream({}, self.client.receive, self.client.send))  # type: ignore[arg-type]

    async def started(self) -> None:
        self.source.put(b"first")
        await self.client.has(b"first")


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 10))  # type: ignore[arg-type]


def test_frame_is_written_before_put_returns_and_outside_of_any_task() -> None:
    async def scenario() -> None:
        stream = Run()
        await stream.started()
        stream.client.tasks.clear()
        asyncio.get_running_loop().call_soon(lambda: (stream.source.put(b"a"), stream.source.put(b"b")))
        await stream.client.has(b"first", b"a", b"b")
        assert stream.client.tasks == [None, None]
        stream.source.put(b"end")
        await stream.task
        assert stream.client.ends == [False, False, False, True]
        assert stream.transfers.told[-1][1]

    run(scenario)


def test_frame_that_shows_nothing_yet_is_not_written() -> None:
    async def scenario() -> None:
        stream = Run()
        await stream.started()
        stream.source.put(b"")
        stream.source.put(b"end")
        await stream.task
        assert [message["body"] for message in stream.client.messages] == [b"first", b"end"]
        assert stream.source.num_sent == 2

    run(scenario)


def test_what_comes_while_a_reader_is_slow_is_joined_and_the_wait_is_told() -> None:
    async def scenario() -> None:
        stream = Run()
        await stream.started()
        stream.client.reads.clear()
        for frame in (b"a", b"b", b"c"):
            stream.source.put(frame)
            await asyncio.sleep(0)
        assert len(stream.client.messages) == 1
        stream.client.reads.set()
        await stream.client.has(b"first", b"a", b"bc")
        assert [is_last for _, is_last in stream.transfers.told] == [False]
        stream.source.put(b"end")
        await stream.task

    run(scenario)


def test_slow_reader_holds_up_the_end_too() -> None:
    async def scenario() -> None:
        stream = Run()
        await stream.started()
        stream.client.reads.clear()
        stream.source.put(b"end")
        await asyncio.sleep(0.01)
        assert not stream.task.done()
        stream.client.reads.set()
        await stream.task
        assert stream.client.ends == [False, True]
        assert stream.transfers.told[-1][1]

    run(scenario)


@pytest.mark.parametrize("is_held_up", [False, True])
def test_client_that_leaves_ends_the_stream(is_held_up: bool) -> None:
    async def scenario() -> None:
        stream = Run()
        await stream.started()
        if is_held_up:
            stream.client.reads.clear()
            stream.source.put(b"held")
            await asyncio.sleep(0.01)
        stream.client.left.set()
        await stream.task
        stream.source.put(b"later")
        assert stream.client.ends == [False]

    run(scenario)


def test_failed_write_counts_as_leaving_and_is_not_raised_where_tokens_arrive() -> None:
    async def scenario() -> None:
        stream = Run()
        await stream.started()
        stream.client.error = OSError("the connection is gone")
        stream.source.put(b"a")
        await stream.task

    run(scenario)


def test_silence_is_broken_by_comments_and_after_a_while_by_a_filler() -> None:
    async def scenario() -> None:
        stream = Run(keep_alive_s=0.02, filler_s=0.05)
        await stream.started()
        while FILLER not in [message["body"] for message in stream.client.messages]:
            await stream.client.next()
        assert stream.client.messages[1]["body"] == KEEP_ALIVE
        stream.source.put(b"end")
        await stream.task

    run(scenario)


def test_no_comment_is_sent_while_a_slow_reader_holds_up_a_frame() -> None:
    async def scenario() -> None:
        stream = Run(keep_alive_s=0.01)
        await stream.started()
        stream.client.messages.clear()
        stream.client.reads.clear()
        stream.source.put(b"held")
        await asyncio.sleep(0.05)
        stream.client.reads.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert stream.client.messages[0]["body"] == b"held"
        stream.source.put(b"end")
        await stream.task

    run(scenario)


def test_call_that_waits_goes_on_in_the_task_that_awaits_its_rest() -> None:
    async def scenario() -> None:
        gate, done = asyncio.Event(), []

        async def call() -> None:
            await gate.wait()
            await asyncio.sleep(0)
            done.append(True)

        rest = call_now(call())
        assert rest is not None
        asyncio.get_running_loop().call_soon(gate.set)
        await rest
        assert done == [True]

    run(scenario)


def test_call_that_waits_is_cleaned_up_when_its_rest_is_cancelled() -> None:
    async def scenario() -> None:
        left = []

        async def call() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                left.append(True)

        rest = call_now(call())
        assert rest is not None
        task = asyncio.ensure_future(rest)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert left == [True]

    run(scenario)
