"""The outermost layer: identity and headers for every response, HTTP metrics, server span, an answer to a crash."""

import logging
from collections.abc import Sequence

from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.clock import Clock
from engine.errors import RequestFailedError
from observability.span_facts import HttpExchange
from service.errors import error_response
from service.middleware.body_send import offer_body_send
from service.middleware.request_context import CONTEXT_KEY, RequestContext, new_context
from service.ports import Metrics, Tracing

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
        tracing: says which trace a request belongs to and is told when it is over.
        clock: for arrival and durations.
    """

    def __init__(
        self, app: ASGIApp, *, routes: Sequence[BaseRoute], metrics: Metrics, tracing: Tracing, clock: Clock
    ) -> None:
        self._app = app
        self._routes = routes
        self._metrics = metrics
        self._tracing = tracing
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        context = new_context(scope, self._tracing, route=self._template(scope), arrival=self._clock.now())
        scope[CONTEXT_KEY] = context
        offer_body_send(scope, send)
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
        now = self._clock.now()
        seconds = now - context.arrival
        self._metrics.http_observed(context.route, method, status, seconds)
        level = logging.DEBUG if context.route in PROBES else logging.INFO
        if logger.isEnabledFor(level):
            logger.log(
                level,
                "%s %s %d %.1f ms request=%s client=%s trace=%s",
                method, context.route, status, seconds * 1e3, context.request_id, context.client_request_id or "-",
                context.trace.trace_id,
                extra=_fields(context, method, status, seconds),
            )  # fmt: skip
        self._tracing.exchange_ended(_http_exchange(scope, context, exchange, now))

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
        self.is_whole = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": [*message.get("headers", ()), *self.context.response_headers()]}
        await self._send(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self.is_whole = True


def _fields(context: RequestContext, method: str, status: int, seconds: float) -> dict[str, str | int | float]:
    """Return what a structured log handler keeps of the line: attributes of the record."""
    return {
        "method": method,
        "route": context.route,
        "status": status,
        "duration_s": seconds,
        "request_id": context.request_id,
        "client_request_id": context.client_request_id,
        "trace_id": context.trace.trace_id,
        "span_id": context.trace.span_id,
    }


def _http_exchange(scope: Scope, context: RequestContext, exchange: _Exchange, now: float) -> HttpExchange:
    server, client = scope.get("server"), scope.get("client")
    agent = next((value for name, value in scope["headers"] if name == b"user-agent"), b"")
    is_matched = context.route != UNMATCHED
    return HttpExchange(
        trace=context.trace,
        request_id=context.request_id,
        method=scope["method"],
        route=context.route if is_matched else "",
        path=scope["path"],
        query=scope["query_string"].decode("latin-1") if is_matched else "",
        scheme=scope.get("scheme", "http"),
        http_version=scope["http_version"],
        server=(server[0], server[1]) if server else None,
        client=(client[0], client[1]) if client else None,
        user_agent=agent.decode("latin-1"),
        status=exchange.status,
        is_whole=exchange.is_whole,
        start=context.arrival,
        end=now,
    )
