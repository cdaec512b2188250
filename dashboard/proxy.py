"""The dashboard's window to the service: the routes of `FORWARDED`, nothing else."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

import httpx
import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dashboard.forwarded import FORWARDED, Forwarded, Kind, is_plain_id
from dashboard.streaming import SSE_HEADERS, BrokenOffError, ClosingStream

MAX_BODY_BYTES = 4 << 20

_REQUEST_HEADERS = ("accept", "content-type", "last-event-id", "traceparent")
_RESPONSE_HEADERS = (
    "content-disposition", "content-type", "retry-after", "traceresponse", "x-ignored-params", "x-request-id",
    "x-trace-id",
)  # fmt: skip


class Proxy:
    """Forwards to one service; the path and the method must be on the list.

    Args:
        client: bound to the service's base URL.
    """

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self._closing = asyncio.Event()

    def routes(self) -> list[Route]:
        return [Route(each.path, self._endpoint(each), methods=[each.method]) for each in FORWARDED]

    def close(self) -> None:
        """End every stream now: one of events with an error event, any other as a connection that broke."""
        self._closing.set()

    def _endpoint(self, forwarded: Forwarded) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            if not all(is_plain_id(value) for value in request.path_params.values()):
                return _error(404, "not_found_error", "no such id")
            if forwarded.method == "GET":
                return await self._forward(forwarded, request, b"")
            return await self._post(forwarded, request)

        return endpoint

    async def _post(self, forwarded: Forwarded, request: Request) -> Response:
        """Forward a JSON POST of this very page."""
        if request.headers.get("content-type", "").split(";")[0].strip() != "application/json":
            return _error(415, "invalid_request_error", "content-type must be application/json")
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return _error(403, "permission_error", "requests from other sites are refused")
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                return _error(413, "request_too_large", f"the body must not exceed {MAX_BODY_BYTES} bytes")
        return await self._forward(forwarded, request, bytes(body))

    async def _forward(self, forwarded: Forwarded, request: Request, body: bytes) -> Response:
        """Send the request on with its query, and the answer back, whole or byte for byte as it comes."""
        upstream_request = self._client.build_request(
            request.method,
            forwarded.path.format_map(request.path_params),
            params=request.query_params,
            content=body or None,
            headers=_only(request),
            timeout=httpx.Timeout(5.0, read=forwarded.silence_s),
        )
        try:
            upstream = await self._client.send(upstream_request, stream=True)
            if forwarded.kind is Kind.WHOLE:
                await upstream.aread()
                return Response(upstream.content, upstream.status_code, headers=_kept(upstream))
        except httpx.HTTPError as error:
            return _unreachable(error)
        return ClosingStream(
            self._bytes_of(upstream), status_code=upstream.status_code, headers=_kept(upstream) | SSE_HEADERS
        )

    async def _bytes_of(self, upstream: httpx.Response) -> AsyncGenerator[bytes, None]:
        """Yield the upstream's bytes as they come; closing it closes the upstream request.

        A body that breaks off in the middle never looks complete: a stream of events ends with an error event, any
        other raises BrokenOffError.
        """
        chunks = upstream.aiter_raw()
        closing = asyncio.create_task(self._closing.wait())
        try:
            while True:
                chunk = asyncio.ensure_future(anext(chunks, b""))
                try:
                    await asyncio.wait({chunk, closing}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    if not chunk.done():
                        chunk.cancel()
                if not chunk.done() or chunk.cancelled():
                    yield _broken_off(upstream, "the dashboard is shutting down")
                    return
                if not chunk.result():
                    return
                yield chunk.result()
        except httpx.HTTPError as error:
            yield _broken_off(upstream, f"the service broke off: {error}")
        finally:
            closing.cancel()
            await upstream.aclose()


def _broken_off(upstream: httpx.Response, message: str) -> bytes:
    """Return the event that ends a stream of events; raises BrokenOffError for any other body."""
    if not upstream.headers.get("content-type", "").startswith("text/event-stream"):
        raise BrokenOffError(message)
    return b"\n\ndata: " + _error_body("service_unavailable", message) + b"\n\n"


def _only(request: Request) -> dict[str, str]:
    return {name: request.headers[name] for name in _REQUEST_HEADERS if name in request.headers} | {
        "accept-encoding": "identity"
    }


def _kept(upstream: httpx.Response) -> dict[str, str]:
    return {name: upstream.headers[name] for name in _RESPONSE_HEADERS if name in upstream.headers}


def _unreachable(error: httpx.HTTPError) -> Response:
    return _error(502, "service_unavailable", f"the service can't be reached: {str(error) or type(error).__name__}")


def _error(status: int, error_type: str, message: str) -> Response:
    return Response(_error_body(error_type, message), status, media_type="application/json")


def _error_body(error_type: str, message: str) -> bytes:
    return msgspec.json.encode({"error": {"message": message, "type": error_type, "param": None, "code": None}})
