"""`/telemetry/traces`: the last traces, and all spans of one, from memory; no collector is needed."""

from starlette.requests import Request
from starlette.responses import Response

from engine.errors import InvalidRequestError
from observability.span_view import MAX_LISTED, TraceFilter
from service.errors import NotFoundError, clip
from service.json_response import json_response
from service.query import query_number
from service.services import Services

STATUSES = ("ok", "error")
DEFAULT_LIMIT = 100


class TraceRoutes:
    """A trace id is the answer's `x-trace-id`, or the exemplar of a histogram in `/metrics`."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def listing(self, request: Request) -> Response:
        """Newest first; `min_duration_ms`, `status`, `route` (a template) and `limit` narrow it down."""
        return json_response(self._services.tracing.traces(_filter(request)))

    async def one(self, request: Request) -> Response:
        trace_id = request.path_params["trace_id"]
        found = self._services.tracing.trace(trace_id)
        if found is None:
            raise NotFoundError(
                f"no trace {clip(trace_id)} is kept here; it is unknown, too old, not sampled, or not over yet",
                param="trace_id",
            )
        return json_response(found)


def _filter(request: Request) -> TraceFilter:
    params = request.query_params
    status = params.get("status", "")
    if status not in ("", *STATUSES):
        raise InvalidRequestError(f"`status` must be ok or error, got {clip(status)}", param="status")
    return TraceFilter(
        min_duration_s=query_number(request, "min_duration_ms", default=0) / 1e3,
        status=status,
        route=params.get("route", ""),
        limit=query_number(request, "limit", default=DEFAULT_LIMIT, low=1, high=MAX_LISTED),
    )
