"""API keys: every route needs one unless it is on the allow list; decided on the matched route, not on the path."""

import hashlib
import hmac
from collections.abc import Iterable

from starlette.types import ASGIApp, Receive, Scope, Send

from service.errors import AuthenticationError
from service.middleware.request_context import context_of

PUBLIC_ROUTES = frozenset({"/health", "/ready"})


class AuthMiddleware:
    """Deny by default. Unmatched paths are refused too, so that routes can't be probed without a key.

    Args:
        app: the next layer.
        keys: accepted keys; digests of equal length are compared, all of them, in constant time.
    """

    def __init__(self, app: ASGIApp, *, keys: Iterable[str]) -> None:
        self._app = app
        self._digests = [_digest(key.encode()) for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] == "http" and context_of(scope).route not in PUBLIC_ROUTES:
            self._check(scope)
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        scheme, _, key = given.partition(b" ")
        if scheme.lower() != b"bearer" or not key.strip():
            raise AuthenticationError("an API key is required: `Authorization: Bearer KEY`", code="missing_api_key")
        digest = _digest(key.strip())
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        if not any(matches):
            raise AuthenticationError("the API key is not valid", code="invalid_api_key")


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
