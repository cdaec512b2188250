"""Identity of one HTTP request: our id, the client's cleaned one, the trace; and the route it was matched to."""

import re
import secrets
from dataclasses import dataclass

from starlette.types import Scope

from observability.trace_context import TraceContext
from service.ports import Tracing

CONTEXT_KEY = "pellucid.request"
MAX_CLIENT_ID_CHARS = 128

_UNSAFE = re.compile(r"[^A-Za-z0-9._:/+=@-]")


@dataclass(frozen=True)
class RequestContext:
    """What every layer may know of the request it works for.

    Attributes:
        request_id: ours; unique, the only one used as a key.
        client_request_id: the client's `X-Request-Id`, cleaned; "" if none. Echoed and logged.
        trace: identity of the server's span.
        route: template of the matched route, or `unmatched`.
        arrival: monotonic seconds when the request's head was read.
    """

    request_id: str
    client_request_id: str
    trace: TraceContext
    route: str
    arrival: float

    def response_headers(self) -> list[tuple[bytes, bytes]]:
        """Headers that go on every response."""
        headers = [
            (b"x-request-id", self.request_id.encode()),
            (b"x-trace-id", self.trace.trace_id.encode()),
            (b"traceresponse", self.trace.traceresponse.encode()),
        ]
        if self.client_request_id:
            headers.append((b"x-client-request-id", self.client_request_id.encode()))
        return headers


def new_context(scope: Scope, tracing: Tracing, *, route: str, arrival: float) -> RequestContext:
    """Make the context of a request from its head."""
    client_id = ""
    traceparent: list[str] = []
    tracestate: list[str] = []
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            client_id = value.decode("latin-1")
        elif name == b"traceparent":
            traceparent.append(value.decode("latin-1"))
        elif name == b"tracestate":
            tracestate.append(value.decode("latin-1"))
    return RequestContext(
        request_id=f"req-{secrets.token_hex(12)}",
        client_request_id=_UNSAFE.sub("", client_id)[:MAX_CLIENT_ID_CHARS],
        trace=tracing.incoming(traceparent, tracestate),
        route=route,
        arrival=arrival,
    )


def context_of(scope: Scope) -> RequestContext:
    """Return the context that the outermost layer put into the scope."""
    context = scope[CONTEXT_KEY]
    assert isinstance(context, RequestContext)
    return context
