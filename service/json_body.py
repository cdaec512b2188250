"""Read and parse a JSON body within limits: media type, bytes, depth; nothing is built before it passed them."""

import re
from functools import partial
from typing import Any

import anyio.to_thread
import msgspec
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from engine.errors import InvalidRequestError
from service.errors import BodyTooLargeError, MediaTypeError, clip

PARSED_ON_THE_LOOP_BYTES = 65_536  # larger bodies are parsed in a thread: megabytes of brackets take a second

_STRINGS_AND_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{}]', re.DOTALL)


async def read_json_object(scope: Scope, receive: Receive, *, max_bytes: int, max_depth: int) -> dict[str, Any]:
    """Return the request's JSON object.

    Raises:
        MediaTypeError: the body isn't declared as JSON (a form or `text/plain` could come from any web page).
        BodyTooLargeError: more than `max_bytes`, declared or real.
        InvalidRequestError: not JSON, too deep, not an object, or with NaN, Infinity or a number out of range.
        ClientDisconnect: the client left before the end of the body.
    """
    headers = {name: value for name, value in scope["headers"] if name.startswith(b"content-")}
    _check_media_type(headers)
    body = await _read(headers, receive, max_bytes)
    if len(body) <= PARSED_ON_THE_LOOP_BYTES:
        return parse_json_object(body, max_depth=max_depth)
    return await anyio.to_thread.run_sync(partial(parse_json_object, body, max_depth=max_depth))


def parse_json_object(body: bytes, *, max_depth: int) -> dict[str, Any]:
    """Parse bytes as a JSON object of limited depth; raises InvalidRequestError."""
    if not body.strip():
        raise InvalidRequestError("the body must be a JSON object, got nothing")
    if _is_deeper(body, max_depth):
        raise InvalidRequestError(f"the body must not nest deeper than {max_depth} levels")
    try:
        value = msgspec.json.decode(body)
    except msgspec.MsgspecError as error:
        raise InvalidRequestError(f"the body must be valid JSON: {clip(str(error), 200)}") from None
    if not isinstance(value, dict):
        raise InvalidRequestError(f"the body must be a JSON object, got {_json_type(value)}")
    return value


def _check_media_type(headers: dict[bytes, bytes]) -> None:
    declared = headers.get(b"content-type", b"").decode("latin-1")
    media_type, _, parameters = declared.partition(";")
    name = media_type.strip().lower()
    if not (name == "application/json" or (name.startswith("application/") and name.endswith("+json"))):
        raise MediaTypeError(f"`content-type` must be application/json, got {clip(declared) or 'nothing'}")
    match = re.search(r"charset\s*=\s*\"?([\w-]+)", parameters.lower())
    if match and match.group(1) not in ("utf-8", "utf8"):
        raise MediaTypeError(f"`content-type` charset must be utf-8, got {clip(match.group(1))}")
    coding = headers.get(b"content-encoding", b"identity").decode("latin-1").strip().lower()
    if coding not in ("", "identity"):
        raise MediaTypeError(f"`content-encoding` must be identity, got {clip(coding)}")


async def _read(headers: dict[bytes, bytes], receive: Receive, max_bytes: int) -> bytes:
    declared = headers.get(b"content-length", b"")
    if declared.isdigit() and int(declared) > max_bytes:
        raise BodyTooLargeError(f"the body must not exceed {max_bytes} bytes, got {int(declared)}")
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect()
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > max_bytes:
            raise BodyTooLargeError(f"the body must not exceed {max_bytes} bytes, got more")
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


def _is_deeper(body: bytes, max_depth: int) -> bool:
    """Whether brackets outside strings nest deeper than `max_depth`; a body with few brackets isn't scanned."""
    if body.count(b"[") + body.count(b"{") <= max_depth:
        return False
    depth = 0
    for match in _STRINGS_AND_BRACKETS.finditer(body):
        first = match.group()[0]
        if first in b"[{":
            depth += 1
            if depth > max_depth:
                return True
        elif first in b"]}":
            depth -= 1
    return False


def _json_type(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    return "a string" if isinstance(value, str) else "an array"
