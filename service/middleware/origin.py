"""Refuses what a foreign web page makes a browser send to a server on the same machine."""

from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from service.errors import ForbiddenError, clip

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class OriginMiddleware:
    """A request that changes something and names another origin than ours needs that origin on the CORS list.

    Browsers send `Origin` with every cross-site POST, even with those that need no preflight; other clients send none.
    """

    def __init__(self, app: ASGIApp, *, allowed: Iterable[str]) -> None:
        self._app = app
        self._allowed = frozenset(allowed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] not in SAFE_METHODS:
            self._check(scope)
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        headers = {name: value for name, value in scope["headers"] if name in (b"origin", b"host")}
        origin = headers.get(b"origin", b"").decode("latin-1")
        if not origin or "*" in self._allowed or origin in self._allowed:
            return
        if urlsplit(origin).netloc != headers.get(b"host", b"").decode("latin-1"):
            raise ForbiddenError(f"`origin` {clip(origin)} may not call this server; see --cors-origin")
