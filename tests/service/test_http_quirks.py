"""What real clients put on the wire."""

import json
import socket
from contextlib import ExitStack
from typing import Any

import pytest

from service import http_protocol
from tests.support.http_calls import CHAT, chat
from tests.support.scripted_service import Served, emits, serve


@pytest.fixture(scope="module")
def served() -> Any:
    with serve(script=emits(b"ok")) as running:
        yield running


def exchange(served: Served, head: str, body: bytes) -> bytes:
    with served.connection() as connection:
        connection.sock.sendall(head.encode() + body)
        return connection.sock.makefile("rb").read()


def test_h2c_upgrade_offer_is_ignored_and_the_body_read(served: Served) -> None:
    """Java's HttpClient makes this offer with every plain-http request."""
    body = json.dumps(chat()).encode()
    chunked = b"%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n"
    head = (
        f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n"
        "connection: Upgrade, HTTP2-Settings, close\r\nupgrade: h2c\r\nhttp2-settings: AAEAAEAAAAIAAAABAAMAAABk\r\n\r\n"
    )
    answer = exchange(served, head, chunked)
    assert answer.startswith(b"HTTP/1.1 200")
    assert b'"content":"ok"' in answer


def test_expect_continue_is_answered(served: Served) -> None:
    body = json.dumps(chat()).encode()
    head = (
        f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        "expect: 100-continue\r\nconnection: close\r\n\r\n"
    )
    answer = exchange(served, head, body)
    assert answer.startswith(b"HTTP/1.1 100 Continue")
    assert b"HTTP/1.1 200" in answer


def test_refused_body_leaves_the_connection_usable(served: Served) -> None:
    body = json.dumps(chat()).encode()

    def post(kind: str, last: str) -> bytes:
        head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{last}\r\n"
        return head.encode() + body

    answer = exchange(served, "", post("text/plain", "") + post("application/json", "connection: close\r\n"))
    assert answer.count(b"HTTP/1.1 415") == 1
    assert answer.count(b"HTTP/1.1 200") == 1


def test_head_that_comes_in_pieces_is_read_whole(served: Served) -> None:
    body = json.dumps(chat()).encode()
    head = (
        f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        "connection: Upgrade, HTTP2-Settings, close\r\nupgrade: h2c\r\n\r\n"
    ).encode()
    with served.connection() as connection:
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for index in range(0, len(head), 7):
            connection.sock.sendall(head[index : index + 7])
        connection.sock.sendall(body)
        assert connection.sock.makefile("rb").read().startswith(b"HTTP/1.1 200")


def test_client_that_never_ends_its_head_is_cut_off(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_TIMEOUT_S", 0.1)
    with served.connection() as connection:
        connection.sock.sendall(b"GET /health HTTP/1.1\r\nx-slow: ")
        assert connection.sock.recv(1) == b""


def test_client_that_takes_long_over_its_body_is_not_cut_off(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_protocol, "HEAD_TIMEOUT_S", 0.1)
    body = json.dumps(chat()).encode()
    head = (
        f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        "expect: 100-continue\r\nconnection: close\r\n\r\n"
    )
    with served.connection() as connection:
        connection.sock.sendall(head.encode())
        assert connection.sock.recv(100).startswith(b"HTTP/1.1 100 Continue")
        connection.sock.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.sock.recv(1)
        connection.sock.settimeout(20.0)
        connection.sock.sendall(body)
        assert connection.sock.makefile("rb").read().startswith(b"HTTP/1.1 200")


def test_endless_head_of_a_later_request_ends_the_connection(served: Served) -> None:
    with served.connection() as connection:
        connection.sock.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        assert connection.sock.recv(1000).startswith(b"HTTP/1.1 200")
        connection.sock.sendall(b"GET /health HTTP/1.1\r\nx-long: " + b"x" * 60_000)
        try:
            for _ in range(100):
                connection.sock.sendall(b"x" * 60_000)
        except (ConnectionResetError, BrokenPipeError):
            return
        try:
            assert connection.sock.recv(1) == b""
        except ConnectionResetError:
            return


def test_endless_head_is_refused(served: Served) -> None:
    with served.connection() as connection:
        connection.sock.sendall(b"GET /health HTTP/1.1\r\nx-long: " + b"x" * 200_000)
        assert connection.sock.makefile("rb").readline().startswith(b"HTTP/1.1 400")


def test_connection_that_never_asks_does_not_hold_up_the_end() -> None:
    with ExitStack() as stack:
        with serve(script=emits(b"ok")) as running:
            connection = stack.enter_context(running.connection())
            assert running.get("/health").status_code == 200
        assert connection.sock.recv(1) == b""
