"""The dashboard's window to the service: the routes of `FORWARDED`, nothing else."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

import httpx
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dashboard.forwarded import FORWARDED, Forwarded, Kind, is_plain_id
from dashboard.json_post import error_body, error_response, read_body
from dashboard.streaming import SSE_HEADERS, BrokenOffError, ClosingStream
from dashboard.whole_answer import MAX_ANSWER_BYTES, AnswerTooLargeError, read_whole

_REQUEST_HEADERS = ("accept", "content-type", "last-event-id", "traceparent")
_RESPONSE_HEADERS = (
    "content-disposition", "content-type", "retry-after", "traceresponse", "x-ignored-params", "x-request-id",
    "x-trace-id",
)  # fmt: skip


class Proxy:
    """Forwards to one server; the path and the method must be on the list.

    Args:
        client: bound to the server's base URL; it must not follow redirects, which could lead anywhere.
        forwarded: the list.
        max_answer_bytes: of an answer that is passed on whole; streamed ones have no bound, as they aren't kept.
    """

    def __init__(
        self,
        client: httpx.AsyncClient,
        forwarded: Sequence[Forwarded] = FORWARDED,
        *,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
    ) -> None:
        self._client = client
        self._forwarded = forwarded
        self._max_answer_bytes = max_answer_bytes
        self._closing = asyncio.Event()

    def routes(self) -> list[Route]:
        return [Route(each.path, self._endpoint(each), methods=[each.method]) for each in self._forwarded]

    def close(self) -> None:
        """End every stream now: one of events with an error event, any other as a connection that broke."""
        self._closing.set()

    def _endpoint(self, forwarded: Forwarded) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            if not all(is_plain_id(value) for value in request.path_params.values()):
                return error_response(404, "not_found_error", "no such id")
            if forwarded.method == "GET":
                return await self._forward(forwarded, request, b"")
            return await self._post(forwarded, request)

        return endpoint

    async def _post(self, forwarded: Forwarded, request: Request) -> Response:
        """Forward a JSON POST of this very page."""
        body = await read_body(request)
        return body if isinstance(body, Response) else await self._forward(forwarded, request, body)

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
            if upstream.is_redirect:
                await upstream.aclose()
                return error_response(
                    502, "service_unavailable", "the server answers with a redirect, which isn't followed"
                )
            if forwarded.kind is Kind.WHOLE:
                body = await read_whole(upstream, max_bytes=self._max_answer_bytes)
                return Response(body, upstream.status_code, headers=_kept(upstream))
        except AnswerTooLargeError as error:
            return error_response(502, "service_unavailable", f"the server's answer isn't taken: {error}")
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
    return b"\n\ndata: " + error_body("service_unavailable", message) + b"\n\n"


def _only(request: Request) -> dict[str, str]:
    return {name: request.headers[name] for name in _REQUEST_HEADERS if name in request.headers} | {
        "accept-encoding": "identity"
    }


def _kept(upstream: httpx.Response) -> dict[str, str]:
    return {name: upstream.headers[name] for name in _RESPONSE_HEADERS if name in upstream.headers}


def _unreachable(error: httpx.HTTPError) -> Response:
    return error_response(
        502, "service_unavailable", f"the service can't be reached: {str(error) or type(error).__name__}"
    )
