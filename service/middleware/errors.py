"""Turns refusals into answers, inside the layers that add headers and count."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.errors import PellucidError
from service.errors import error_response
from service.middleware.request_context import context_of


class ErrorMiddleware:
    """Plain ASGI. An error of ours raised before the head becomes the answer; after it, it goes on to the log."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        has_started = False

        async def watch(message: Message) -> None:
            nonlocal has_started
            has_started = True
            await send(message)

        try:
            await self._app(scope, receive, watch)
        except PellucidError as error:
            if has_started:
                raise
            await error_response(error, request_id=context_of(scope).request_id)(scope, receive, send)
