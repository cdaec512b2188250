"""What real clients put on the wire."""

import json
from typing import Any

import pytest

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
