"""The dashboard's window to the service: a few named routes, nothing else."""

import asyncio
from collections.abc import AsyncGenerator

import httpx
import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dashboard.streaming import SSE_HEADERS, ClosingStream

GET_ROUTES = ("/health", "/ready", "/info", "/stats", "/metrics", "/v1/models")
STREAM_ROUTES = ("/v1/chat/completions",)
MAX_BODY_BYTES = 4 << 20

_REQUEST_HEADERS = ("accept", "content-type", "traceparent")
_RESPONSE_HEADERS = ("content-type", "retry-after", "traceresponse", "x-ignored-params", "x-request-id", "x-trace-id")


class Proxy:
    """Forwards to one service; the path and the method must be on the list.

    Args:
        client: bound to the service's base URL.
    """

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self._closing = asyncio.Event()

    def routes(self) -> list[Route]:
        return [
            *(Route(path, self.get, methods=["GET"]) for path in GET_ROUTES),
            *(Route(path, self.post, methods=["POST"]) for path in STREAM_ROUTES),
        ]

    def close(self) -> None:
        """End every stream now, with an error event."""
        self._closing.set()

    async def get(self, request: Request) -> Response:
        """Forward a GET with its query."""
        path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
        try:
            upstream = await self._client.get(path, params=request.query_params, headers=_only(request))
        except httpx.HTTPError as error:
            return _unreachable(error)
        return Response(upstream.content, upstream.status_code, headers=_kept(upstream))

    async def post(self, request: Request) -> Response:
        """Forward a JSON POST and stream the answer back as it comes, byte for byte."""
        if request.headers.get("content-type", "").split(";")[0].strip() != "application/json":
            return _error(415, "invalid_request_error", "content-type must be application/json")
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return _error(403, "permission_error", "requests from other sites are refused")
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                return _error(413, "request_too_large", f"the body must not exceed {MAX_BODY_BYTES} bytes")
        path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
        upstream_request = self._client.build_request(
            "POST", path, content=bytes(body), headers=_only(request), timeout=httpx.Timeout(5.0, read=None)
        )
        try:
            upstream = await self._client.send(upstream_request, stream=True)
        except httpx.HTTPError as error:
            return _unreachable(error)
        return ClosingStream(
            self._bytes_of(upstream), status_code=upstream.status_code, headers=_kept(upstream) | SSE_HEADERS
        )

    async def _bytes_of(self, upstream: httpx.Response) -> AsyncGenerator[bytes, None]:
        """Yield the upstream's bytes as they come; closing it closes the upstream request.

        A stream of events that breaks off in the middle ends with an error event: never a silent stop.
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
    """Return the event that ends a stream of events, nothing for any other body."""
    if not upstream.headers.get("content-type", "").startswith("text/event-stream"):
        return b""
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
