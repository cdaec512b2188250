"""A server of completion streams that says what a script tells it to, when the script tells it to.

with timed_server(lambda number, body: [at(0.05, content("a")), at(0.10, finish(2))]) as server:
    ...
    assert server.most_at_once == 4
"""

import asyncio
import json
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

MODEL = "timed"
TIMEOUT_S = 20.0


@dataclass(frozen=True)
class At:
    """What to send so many seconds after the request was read; bytes as they are, anything else as an SSE event."""

    seconds: float
    what: Any


@dataclass(frozen=True)
class Refusal:
    """An answer with another status than 200."""

    status: int
    seconds: float = 0.0


Answer = Sequence[At] | Refusal
Script = Callable[[int, dict[str, Any]], Answer]


def at(seconds: float, what: Any) -> At:
    return At(seconds, what)


ROLE = {"choices": [{"delta": {"role": "assistant", "content": ""}}]}
COMMENT = b": still here\n\n"
DONE = b"data: [DONE]\n\n"


def content(text: str) -> dict[str, Any]:
    return {"choices": [{"delta": {"content": text}}]}


def finish(reason: str = "length") -> dict[str, Any]:
    return {"choices": [{"delta": {}, "finish_reason": reason}]}


def usage(num_tokens: int, *, prompt_tokens: int = 10, cached: int = 0) -> dict[str, Any]:
    counts = {"prompt_tokens": prompt_tokens, "completion_tokens": num_tokens}
    return {"choices": [], "usage": {**counts, "prompt_tokens_details": {"cached_tokens": cached}}}


def steady(num_tokens: int, *, first_s: float = 0.0, gap_s: float = 0.0) -> list[At]:
    """Return the script of a whole answer: tokens at first_s, first_s + gap_s, ..., its end with the last one."""
    moments = [first_s + gap_s * place for place in range(num_tokens)]
    events = [at(0.0, ROLE), *(at(moment, content("x")) for moment in moments)]
    return [*events, at(moments[-1], finish()), at(moments[-1], usage(num_tokens)), at(moments[-1], DONE)]


@dataclass
class TimedServer:
    """The test's hand on the server.

    Attributes:
        url: its base.
        bodies: of the requests, in order; the first one of a load is its probe.
        running: requests that are being answered now.
        most_at_once: the most of them ever.
        left: clients that went before the end.
    """

    script: Script
    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    running: int = 0
    most_at_once: int = 0
    left: int = 0
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition on the attributes holds."""
        with self._changed:
            assert self._changed.wait_for(condition, TIMEOUT_S), "the condition never held"

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"GET "):
                self._respond(writer, 200, json.dumps({"data": [{"id": MODEL}]}).encode())
                return
            lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            body = json.loads(await reader.readexactly(int(lengths[0].split(b":")[1])))
            await self._answer(body, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, body: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        started = time.perf_counter()
        number = len(self.bodies)
        with self._changed:
            self.bodies.append(body)
            self.running += 1
            self.most_at_once = max(self.most_at_once, self.running)
            self._changed.notify_all()
        gone = asyncio.create_task(reader.read())
        try:
            answer = self.script(number, body)
            if isinstance(answer, Refusal):
                await asyncio.sleep(answer.seconds)
                self._respond(writer, answer.status, b'{"error":{"message":"no"}}')
                return
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n")
            writer.write(f"connection: close\r\nx-request-id: req-{number}\r\n\r\n".encode())
            for each in answer:
                await asyncio.wait([gone], timeout=max(0.0, started + each.seconds - time.perf_counter()))
                if gone.done():
                    self.left += 1
                    return
                what = each.what if isinstance(each.what, bytes) else f"data: {json.dumps(each.what)}\n\n".encode()
                writer.write(b"%x\r\n%s\r\n" % (len(what), what))
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        finally:
            gone.cancel()
            with self._changed:
                self.running -= 1
                self._changed.notify_all()

    def _respond(self, writer: asyncio.StreamWriter, status: int, content: bytes) -> None:
        head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n"
        writer.write(f"{head}connection: close\r\n\r\n".encode() + content)


@asynccontextmanager
async def timed_server_here(script: Script, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[TimedServer]:
    """Yield a server that runs in the caller's event loop; with `tls` it is an https one called localhost."""
    server = TimedServer(script)
    listening = await asyncio.start_server(server.handle, "127.0.0.1", 0, backlog=1000, ssl=tls)
    port = listening.sockets[0].getsockname()[1]
    server.url = f"http://127.0.0.1:{port}" if tls is None else f"https://localhost:{port}"
    async with listening:
        yield server


@contextmanager
def timed_server(script: Script) -> Iterator[TimedServer]:
    """Yield a server that runs in a thread, which has ended afterwards."""
    running: list[tuple[TimedServer, asyncio.AbstractEventLoop, asyncio.Event]] = []
    started = threading.Event()

    async def serve() -> None:
        async with timed_server_here(script) as server:
            ending = asyncio.Event()
            running.append((server, asyncio.get_running_loop(), ending))
            started.set()
            await ending.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    assert started.wait(TIMEOUT_S)
    server, loop, ending = running[0]
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(ending.set)
        thread.join(TIMEOUT_S)
