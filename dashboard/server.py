"""The dashboard's web application: one page, its live feed, and a narrow proxy to the service.

/            the page (jinja2), its modules and styles under /static
/live        server-sent events: the service's state once a second, polled once for all browsers
/api/...     the routes of dashboard.forwarded, passed on to the service
/healthz     this process is alive (whether the service is, the page says)
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import jinja2
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from dashboard.live_feed import LiveFeed
from dashboard.proxy import Proxy
from dashboard.security_headers import SecurityHeaders
from dashboard.streaming import SSE_HEADERS, ClosingStream
from dashboard.tabs import built_tabs, stylesheets

HERE = Path(__file__).resolve().parent


class RevalidatedFiles(StaticFiles):
    """Static files that a browser keeps but asks about each time, so a new version is never mixed with an old one."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["cache-control"] = "no-cache"
        return response


def create_app(
    service_url: str,
    *,
    api_key: str = "",
    poll_interval_s: float = 1.0,
    transport: httpx.AsyncBaseTransport | None = None,
) -> Starlette:
    """Build the application for one service.

    Args:
        service_url: base URL of the service, as the browser's user would type it too (it is shown in curl lines).
        api_key: sent to the service as a bearer token; never shown to the browser.
        poll_interval_s: of the live feed.
        transport: httpx's, for tests.

    Returns:
        The application; `state.end_streams()` ends every open stream, so that a shutdown needn't wait for them.
    """
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    client = httpx.AsyncClient(base_url=service_url, headers=headers, timeout=5.0, transport=transport, trust_env=False)
    feed = LiveFeed(client, interval_s=poll_interval_s)
    proxy = Proxy(client)
    page = _render_page(service_url.rstrip("/"), needs_key=bool(api_key))

    async def index(request: Request) -> Response:
        return HTMLResponse(page, headers={"cache-control": "no-cache"})

    async def live(request: Request) -> Response:
        return ClosingStream(feed.watch(), headers={"content-type": "text/event-stream; charset=utf-8", **SSE_HEADERS})

    async def healthz(request: Request) -> Response:
        return JSONResponse({"status": "ok", "watchers": feed.num_watchers})

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with client:
            yield

    app = Starlette(
        routes=[
            Route("/", index),
            Route("/live", live),
            Route("/healthz", healthz),
            Mount("/api", routes=proxy.routes()),
            Mount("/static", RevalidatedFiles(directory=HERE / "static")),
        ],
        middleware=[Middleware(SecurityHeaders)],
        lifespan=lifespan,
    )

    async def end_streams() -> None:
        proxy.close()
        await feed.close()

    app.state.end_streams = end_streams
    return app


def _render_page(service_url: str, *, needs_key: bool) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"), autoescape=True, undefined=jinja2.StrictUndefined
    )
    tabs = built_tabs(HERE / "templates")
    return environment.get_template("page.html").render(
        service_url=service_url, needs_key=needs_key, tabs=tabs, stylesheets=stylesheets(HERE / "static", tabs)
    )
