"""Bodies: media type, size, depth and syntax, refused before anything is built from them."""

import asyncio
from typing import Any

import pytest
from starlette.requests import ClientDisconnect

from engine.errors import InvalidRequestError
from service.errors import BodyTooLargeError, MediaTypeError
from service.json_body import parse_json_object, read_json_object

JSON = [(b"content-type", b"application/json")]


def read(*chunks: bytes, headers: list[tuple[bytes, bytes]] = JSON, max_bytes: int = 100_000) -> dict[str, Any]:
    messages = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    messages.append({"type": "http.request", "body": b"", "more_body": False})

    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    return asyncio.run(read_json_object({"headers": headers}, receive, max_bytes=max_bytes, max_depth=100))


def test_body_in_chunks_is_joined() -> None:
    assert read(b'{"a": ', b"[1, ", b"2]}") == {"a": [1, 2]}


def test_body_too_large_for_the_loop_is_parsed_too() -> None:
    assert read(b'{"a": "' + b"x" * 90_000 + b'"}') == {"a": "x" * 90_000}


@pytest.mark.parametrize(
    "body",
    [
        b'{"temperature": NaN}',
        b'{"temperature": Infinity}',
        b'{"temperature": -Infinity}',
        b'{"temperature": 1e999}',
        b'{"temperature": -1e999}',
        b'{"a": 1',
        b'{"a": 1} {}',
        b"{'a': 1}",
        b'{"a": "\xff"}',
        b'{"a": "\\ud800"}',
        b"[1]",
        b'"text"',
        b"null",
        b"5",
        b"true",
        b"",
        b"  ",
    ],
)
def test_body_that_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequestError, match="the body must"):
        parse_json_object(body, max_depth=100)


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_body_nested_past_the_limit_is_refused_and_at_the_limit_parsed(opening: bytes) -> None:
    closing = b"]" if opening == b"[" else b"}"

    def nested(depth: int) -> bytes:
        return b'{"x":' + opening * (depth - 1) + b"1" + closing * (depth - 1) + b"}"

    assert parse_json_object(nested(100), max_depth=100)
    with pytest.raises(InvalidRequestError, match="deeper than 100"):
        parse_json_object(nested(101), max_depth=100)


def test_body_of_twenty_thousand_open_brackets_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="deeper than 100"):
        parse_json_object(b'{"x":' + b"[" * 20_000, max_depth=100)


def test_brackets_in_strings_are_no_depth() -> None:
    text = "[" * 500 + '\\"' + "{" * 500
    assert parse_json_object(b'{"a": "' + text.encode() + b'"}', max_depth=100) == {"a": text.replace('\\"', '"')}


def test_many_brackets_side_by_side_are_no_depth() -> None:
    assert len(parse_json_object(b'{"a": [' + b",".join([b"[1]"] * 500) + b"]}", max_depth=3)["a"]) == 500


def test_declared_size_past_the_limit_is_refused_unread() -> None:
    with pytest.raises(BodyTooLargeError, match="10 bytes, got 11"):
        read(headers=[*JSON, (b"content-length", b"11")], max_bytes=10)


def test_real_size_past_the_limit_is_refused_whatever_was_declared() -> None:
    with pytest.raises(BodyTooLargeError):
        read(b"x" * 6, b"x" * 6, headers=[*JSON, (b"content-length", b"6")], max_bytes=10)


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"content-type", b"text/plain")],
        [(b"content-type", b"application/x-www-form-urlencoded")],
        [(b"content-type", b"application/json; charset=latin-1")],
        [*JSON, (b"content-encoding", b"gzip")],
    ],
)
def test_body_not_declared_as_plain_json_is_refused(headers: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(MediaTypeError):
        read(b"{}", headers=headers)


@pytest.mark.parametrize("declared", [b"application/json; charset=UTF-8", b"Application/JSON", b"application/x+json"])
def test_other_spellings_of_json_are_taken(declared: bytes) -> None:
    assert read(b"{}", headers=[(b"content-type", declared)]) == {}


def test_client_that_leaves_in_the_middle_of_its_body_is_noticed() -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    with pytest.raises(ClientDisconnect):
        asyncio.run(read_json_object({"headers": JSON}, receive, max_bytes=10, max_depth=10))
