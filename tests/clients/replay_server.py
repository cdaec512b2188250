"""A server that answers with recorded bytes, in the pieces that a test asks for."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

TIMEOUT_S = 20.0
END_OF_HEAD = (b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")


@dataclass(frozen=True)
class Answer:
    """What one request gets.

    Attributes:
        pieces: written one by one, each in a segment of its own.
        then: "close" the connection, "keep" it for another request unless that one wants it closed, "keep anyway" even
            then, or "hang" until the client gives up.
        before_last: called before the last piece is written.
    """

    pieces: tuple[bytes, ...]
    then: str = "close"
    before_last: Callable[[], object] = lambda: None


@dataclass(frozen=True)
class Request:
    """What a client sent; `connection` counts its connections from 0, `received_at` is on the monotonic clock."""

    head: str
    body: bytes
    connection: int
    received_at: float = field(default_factory=time.monotonic)

    def header(self, name: str) -> str:
        """Return a header's value, "" when it is absent."""
        for line in self.head.split("\r\n")[1:]:
            key, _, value = line.partition(":")
            if key.lower() == name:
                return value.strip()
        return ""


class ReplayServer:
    """Listens on a loopback port; the n-th request gets the n-th answer, later ones the last.

    Args:
        answers: at least one.
        family: AF_INET or AF_INET6.
        by_connection: the n-th request of each connection gets the n-th answer.
    """

    def __init__(
        self, *answers: Answer, family: socket.AddressFamily = socket.AF_INET, by_connection: bool = False
    ) -> None:
        self.requests: list[Request] = []
        self.num_given_up = 0
        self._answers = answers
        self._by_connection = by_connection
        self._lock = threading.Lock()
        self._listener = socket.socket(family)
        self._listener.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
        self._listener.listen(64)
        host = "[::1]" if family == socket.AF_INET6 else "127.0.0.1"
        self.url = f"http://{host}:{self._listener.getsockname()[1]}"
        self._threads: list[threading.Thread] = []
        self._connections: list[socket.socket] = []
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def close(self) -> None:
        for open_one in (self._listener, *self._connections):  # clients may keep theirs for long
            with contextlib.suppress(OSError):
                open_one.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in (self._accepting, *self._threads):
            thread.join(TIMEOUT_S)

    def _accept(self) -> None:
        number = 0
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection, number))
            self._threads.append(thread)
            thread.start()
            number += 1

    def _serve(self, connection: socket.socket, number: int) -> None:
        with connection, contextlib.suppress(ConnectionError, TimeoutError):
            connection.settimeout(TIMEOUT_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while request := _read_request(connection, number):
                with self._lock:
                    before = [each for each in self.requests if not self._by_connection or each.connection == number]
                    answer = self._answers[min(len(before), len(self._answers) - 1)]
                    self.requests.append(request)
                wants_close = request.header("connection").lower() == "close"
                is_last = not (answer.then == "keep anyway" or (answer.then == "keep" and not wants_close))
                for at, piece in enumerate(answer.pieces):
                    if at == len(answer.pieces) - 1:
                        answer.before_last()
                    says_close = at == 0 and answer.then == "keep" and is_last
                    connection.sendall(piece.replace(*END_OF_HEAD, 1) if says_close else piece)
                if answer.then == "hang":
                    connection.recv(1)
                    self.num_given_up += 1
                if is_last:
                    return


def _read_request(connection: socket.socket, number: int) -> Request | None:
    data = b""
    while b"\r\n\r\n" not in data:
        block = connection.recv(65536)
        if not block:
            return None
        data += block
    head, _, body = data.partition(b"\r\n\r\n")
    request = Request(head.decode(), b"", number)
    while len(body) < int(request.header("content-length") or 0):
        body += connection.recv(65536)
    return Request(head.decode(), body, number)


@contextlib.contextmanager
def replaying(
    *answers: Answer, family: socket.AddressFamily = socket.AF_INET, by_connection: bool = False
) -> Iterator[ReplayServer]:
    """Yield a server with these answers."""
    server = ReplayServer(*answers, family=family, by_connection=by_connection)
    try:
        yield server
    finally:
        server.close()
