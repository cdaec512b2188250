"""One mapping from errors to what a client sees: status, type, code and headers.

    PellucidError (engine/errors.py)
    └── HttpError                   refused by the service itself; carries its status and headers
        ├── AuthenticationError     401, `www-authenticate`
        ├── ForbiddenError          403
        ├── NotFoundError           404
        ├── ModelNotFoundError      404, code `model_not_found`
        ├── MethodNotAllowedError   405, `allow`
        ├── BodyTooLargeError       413
        ├── MediaTypeError          415
        ├── ConflictError           409: not in this state
        └── RequestCancelledError   409: cancelled through the telemetry route

The body is always `{"error": {"message", "type", "param", "code"}}`, and `type` is also the metric's label.
"""

import math
from typing import ClassVar

import msgspec
from starlette.responses import Response

from engine.errors import (
    EngineUnavailableError,
    InvalidRequestError,
    PellucidError,
    QueueFullError,
    RequestFailedError,
)

UNAVAILABLE_RETRY_AFTER_S = 2


class HttpError(PellucidError):
    """Refuse a request before it means anything to the engine."""

    status: ClassVar[int] = 400
    error_type: ClassVar[str] = "invalid_request_error"

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code

    @property
    def headers(self) -> dict[str, str]:
        """Headers that the status calls for."""
        return {}


class AuthenticationError(HttpError):
    """No key, or a wrong one."""

    status = 401
    error_type = "authentication_error"

    @property
    def headers(self) -> dict[str, str]:
        return {"www-authenticate": "Bearer"}


class ForbiddenError(HttpError):
    """Somebody we know, or a page in somebody's browser, may not do this."""

    status = 403
    error_type = "permission_error"


class NotFoundError(HttpError):
    """No such route, model or request."""

    status = 404
    error_type = "not_found_error"


class ModelNotFoundError(HttpError):
    """The body names a model that this server doesn't serve."""

    status = 404

    def __init__(self, model: str, served: tuple[str, ...]) -> None:
        super().__init__(
            f"`model` must be one of {', '.join(served)}, got {clip(model)}", param="model", code="model_not_found"
        )


class MethodNotAllowedError(HttpError):
    """The route exists, for other methods."""

    status = 405
    error_type = "method_not_allowed"

    def __init__(self, method: str, allowed: tuple[str, ...]) -> None:
        super().__init__(f"method {clip(method, 16)} is not allowed here, use {' or '.join(allowed)}")
        self.allowed = allowed

    @property
    def headers(self) -> dict[str, str]:
        return {"allow": ", ".join(self.allowed)}


class BodyTooLargeError(HttpError):
    """The body has more bytes than the limit."""

    status = 413
    error_type = "request_too_large"


class MediaTypeError(HttpError):
    """The body is not declared as JSON."""

    status = 415
    error_type = "unsupported_media_type"


class ConflictError(HttpError):
    """What is asked for can't be done in the present state of things."""

    status = 409
    error_type = "conflict_error"


class RequestCancelledError(HttpError):
    """Somebody other than its client cancelled the request."""

    status = 409
    error_type = "request_cancelled"


class ErrorBody(msgspec.Struct, frozen=True):
    """What stands under `error`; every key is always there."""

    message: str
    type: str
    param: str | None
    code: str | None


def clip(text: str, limit: int = 64) -> str:
    """Return client text short and printable enough to repeat in a message."""
    shown = text if len(text) <= limit else text[: limit - 1] + "…"
    return "".join(ch if ch.isprintable() else "?" for ch in shown)


def error_status(error: PellucidError) -> int:
    """Return the HTTP status of an error raised before the first byte."""
    if isinstance(error, HttpError):
        return error.status
    if isinstance(error, InvalidRequestError):
        return 400
    if isinstance(error, QueueFullError):
        return 429
    if isinstance(error, EngineUnavailableError):
        return 503
    return 500


def error_body(error: PellucidError, *, request_id: str = "") -> ErrorBody:
    """Return the body of an error; faults of ours name the request so that the log can be searched for it."""
    param, code = None, None
    message = error.message
    if isinstance(error, HttpError | InvalidRequestError):
        param, code = error.param, error.code
    elif isinstance(error, RequestFailedError) or error_status(error) == 500:
        code = "internal_error"
        if request_id:
            message = f"{message} (request {request_id})"
    return ErrorBody(message=message, type=error.error_type, param=param, code=code)


def error_headers(error: PellucidError) -> dict[str, str]:
    """Return the headers an error answer needs besides the content type."""
    if isinstance(error, HttpError):
        return error.headers
    if isinstance(error, QueueFullError):
        return {"retry-after": str(max(1, math.ceil(error.retry_after_s)))}
    if isinstance(error, EngineUnavailableError):
        return {"retry-after": str(UNAVAILABLE_RETRY_AFTER_S)}
    return {}


def encode_error(error: PellucidError, *, request_id: str = "") -> bytes:
    """Return `{"error": {...}}` as JSON bytes, for a body or for a frame inside a stream."""
    return msgspec.json.encode({"error": error_body(error, request_id=request_id)})


def error_response(error: PellucidError, *, request_id: str = "") -> Response:
    """Return the complete answer for an error raised before the first byte."""
    return Response(
        encode_error(error, request_id=request_id),
        status_code=error_status(error),
        headers=error_headers(error),
        media_type="application/json",
    )
