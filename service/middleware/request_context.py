"""Identity of one HTTP request: our id, the client's cleaned one, the trace; and the route it was matched to."""

import re
import secrets
from dataclasses import dataclass

from starlette.types import Scope

CONTEXT_KEY = "pellucid.request"
MAX_CLIENT_ID_CHARS = 128

_TRACEPARENT = re.compile(r"^(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?$")
_UNSAFE = re.compile(r"[^A-Za-z0-9._:/+=@-]")


@dataclass(frozen=True)
class RequestContext:
    """What every layer may know of the request it works for.

    Attributes:
        request_id: ours; unique, the only one used as a key.
        client_request_id: the client's `X-Request-Id`, cleaned; "" if none. Echoed and logged.
        trace_id, span_id: of the server's span (hex); parent_span_id is "" for a root.
        sampled: the parent's sampling flag, true for a root.
        route: template of the matched route, or `unmatched`.
        arrival: monotonic seconds when the request's head was read.
    """

    request_id: str
    client_request_id: str
    trace_id: str
    span_id: str
    parent_span_id: str
    sampled: bool
    route: str
    arrival: float

    @property
    def traceresponse(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.sampled else '00'}"

    def response_headers(self) -> list[tuple[bytes, bytes]]:
        """Headers that go on every response."""
        headers = [
            (b"x-request-id", self.request_id.encode()),
            (b"x-trace-id", self.trace_id.encode()),
            (b"traceresponse", self.traceresponse.encode()),
        ]
        if self.client_request_id:
            headers.append((b"x-client-request-id", self.client_request_id.encode()))
        return headers


def new_context(scope: Scope, *, route: str, arrival: float) -> RequestContext:
    """Make the context of a request from its head."""
    client_id, parent = "", ""
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            client_id = value.decode("latin-1")
        elif name == b"traceparent":
            parent = value.decode("latin-1").strip()
    match = _TRACEPARENT.match(parent)
    if match and set(match.group(1)) != {"0"} and set(match.group(2)) != {"0"}:
        trace_id, parent_span_id, sampled = match.group(1), match.group(2), bool(int(match.group(3), 16) & 1)
    else:
        trace_id, parent_span_id, sampled = secrets.token_hex(16), "", True
    return RequestContext(
        request_id=f"req-{secrets.token_hex(12)}",
        client_request_id=_UNSAFE.sub("", client_id)[:MAX_CLIENT_ID_CHARS],
        trace_id=trace_id,
        span_id=secrets.token_hex(8),
        parent_span_id=parent_span_id,
        sampled=sampled,
        route=route,
        arrival=arrival,
    )


def context_of(scope: Scope) -> RequestContext:
    """Return the context that the outermost layer put into the scope."""
    context = scope[CONTEXT_KEY]
    assert isinstance(context, RequestContext)
    return context
