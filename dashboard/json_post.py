"""Reading the body of a POST that only this very page may send."""

from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

MAX_BODY_BYTES = 4 << 20

T = TypeVar("T")


async def read_body(request: Request, *, max_bytes: int = MAX_BODY_BYTES) -> bytes | Response:
    """Return the body, or the refusal: another type than JSON, another site, or too large."""
    if request.headers.get("content-type", "").split(";")[0].strip() != "application/json":
        return error_response(415, "invalid_request_error", "content-type must be application/json")
    if not is_of_this_page(request):
        return error_response(403, "permission_error", "requests from other sites are refused")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_bytes:
            return error_response(413, "request_too_large", f"the body must not exceed {max_bytes} bytes")
    return bytes(body)


async def read_json(request: Request, form: type[T], *, max_bytes: int = MAX_BODY_BYTES) -> T | Response:
    """Return the body in its form, or the refusal."""
    body = await read_body(request, max_bytes=max_bytes)
    if isinstance(body, Response):
        return body
    try:
        return msgspec.json.decode(body, type=form)
    except msgspec.DecodeError as error:
        return error_response(400, "invalid_request_error", str(error))


def is_of_this_page(request: Request) -> bool:
    """Return whether the browser says that the request comes from this origin, or who asks is no browser."""
    return request.headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")


def error_response(status: int, error_type: str, message: str) -> Response:
    """Return an answer in the error form of all our routes."""
    return Response(error_body(error_type, message), status, media_type="application/json")


def error_body(error_type: str, message: str) -> bytes:
    return msgspec.json.encode({"error": {"message": message, "type": error_type, "param": None, "code": None}})
