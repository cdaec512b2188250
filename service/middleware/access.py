"""The outermost layer: identity and headers for every response, HTTP metrics, an answer for what nobody caught."""

import logging
from collections.abc import Sequence

from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.clock import Clock
from engine.errors import RequestFailedError
from service.errors import error_response
from service.middleware.request_context import CONTEXT_KEY, RequestContext, new_context
from service.ports import Metrics

UNMATCHED = "unmatched"
PROBES = frozenset({"/health", "/ready", "/metrics", "/stats"})  # asked every second by machines: not worth a line
KNOWN_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

logger = logging.getLogger("pellucid.access")


class AccessMiddleware:
    """Plain ASGI, so that disconnects reach the handler and streams aren't copied.

    Args:
        app: the next layer.
        routes: to find the template a path belongs to; a client's text never becomes a label.
        metrics: counts each exchange by template, method and status.
        clock: for arrival and durations.
    """

    def __init__(self, app: ASGIApp, *, routes: Sequence[BaseRoute], metrics: Metrics, clock: Clock) -> None:
        self._app = app
        self._routes = routes
        self._metrics = metrics
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        context = new_context(scope, route=self._template(scope), arrival=self._clock.now())
        scope[CONTEXT_KEY] = context
        exchange = _Exchange(send, context)
        try:
            await self._app(scope, receive, exchange.send)
        except ClientDisconnect:
            logger.debug("request %s: the client left", context.request_id)
        except Exception:
            logger.exception("request %s failed", context.request_id)
            if exchange.status:
                raise  # the head is out: the server cuts the connection, so that the client sees it is not whole
            failure = RequestFailedError("the server failed")
            await error_response(failure, request_id=context.request_id)(scope, receive, exchange.send)
        finally:
            self._observe(scope, context, exchange)

    def _observe(self, scope: Scope, context: RequestContext, exchange: "_Exchange") -> None:
        method = scope["method"] if scope["method"] in KNOWN_METHODS else "other"
        status = exchange.status or 499
        seconds = self._clock.now() - context.arrival
        self._metrics.http_observed(context.route, method, status, seconds)
        logger.log(
            logging.DEBUG if context.route in PROBES else logging.INFO,
            "%s %s %d %.1f ms request=%s client=%s trace=%s",
            method, context.route, status, seconds * 1e3, context.request_id, context.client_request_id or "-",
            context.trace_id,
        )  # fmt: skip

    def _template(self, scope: Scope) -> str:
        for route in self._routes:
            if isinstance(route, Route) and route.matches(scope)[0] is not Match.NONE:
                return route.path
        return UNMATCHED


class _Exchange:
    """Adds our headers to the head and remembers the status; 499 stands for a client that left before it."""

    def __init__(self, send: Send, context: RequestContext) -> None:
        self._send = send
        self.context = context
        self.status = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": [*message.get("headers", ()), *self.context.response_headers()]}
        await self._send(message)
