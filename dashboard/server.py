"""The dashboard's web application: one page, its live feed, and a narrow proxy to the service.

/            the page (jinja2), its modules and styles under /static
/live        server-sent events: the service's state once a second, polled once for all browsers
/api/...     the routes of dashboard.forwarded, passed on to the service
/api/targets/NAME/...   those of dashboard.targets, passed on to a server of the list
/api/race    one prompt in N requests, see dashboard.race
/api/load/runs...   loads, see dashboard.load_routes
/healthz     this process is alive (whether the service is, the page says)
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
import jinja2
import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from dashboard.host_guard import THIS_MACHINE, HostGuard, HostRule
from dashboard.live_feed import LiveFeed
from dashboard.load_routes import LoadRoutes
from dashboard.load_runs import LoadRuns
from dashboard.load_store import LoadStore
from dashboard.proxy import Proxy
from dashboard.race import Race
from dashboard.security_headers import SecurityHeaders
from dashboard.streaming import SSE_HEADERS, ClosingStream
from dashboard.tabs import built_tabs, stylesheets
from dashboard.targets import OWN, TARGET_ROUTES, Target

HERE = Path(__file__).resolve().parent
OWN_KEY_VARIABLE = "PELLUCID_API_KEY"  # in the curl lines that the page shows


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
    targets: Sequence[Target] = (),
    state_dir: Path | None = None,
    hosts: HostRule = THIS_MACHINE,
    poll_interval_s: float = 1.0,
    transport: httpx.AsyncBaseTransport | None = None,
) -> Starlette:
    """Build the application for one service.

    Args:
        service_url: base URL of the service, as the browser's user would type it too (it is shown in curl lines).
        api_key: sent to the service as a bearer token; never shown to the browser.
        targets: other servers that the Playground and the Load tab may talk to.
        state_dir: where loads are kept over a restart; None keeps them in memory.
        hosts: names that the page is asked for by; those of this machine always are.
        poll_interval_s: of the live feed.
        transport: httpx's, for tests.

    Returns:
        The application; `state.end_streams()` ends every open stream, so that a shutdown needn't wait for them.
    """
    own = Target(OWN, service_url.rstrip("/"), OWN_KEY_VARIABLE if api_key else "", api_key)
    all_targets = (own, *targets)
    clients = {target.name: target.client(transport=transport) for target in all_targets}
    feed = LiveFeed(clients[OWN], interval_s=poll_interval_s)
    proxy = Proxy(clients[OWN])
    target_proxies = {name: Proxy(client, TARGET_ROUTES) for name, client in clients.items()}
    race = Race(clients)
    loads = LoadRuns({target.name: target for target in all_targets}, LoadStore(state_dir))
    page = _render_page(all_targets)

    async def index(request: Request) -> Response:
        return HTMLResponse(page, headers={"cache-control": "no-cache"})

    async def live(request: Request) -> Response:
        return ClosingStream(feed.watch(), headers={"content-type": "text/event-stream; charset=utf-8", **SSE_HEADERS})

    async def healthz(request: Request) -> Response:
        return JSONResponse({"status": "ok", "watchers": feed.num_watchers})

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for client in clients.values():
                await stack.enter_async_context(client)
            stack.push_async_callback(loads.close)
            yield

    app = Starlette(
        routes=[
            Route("/", index),
            Route("/live", live),
            Route("/healthz", healthz),
            *(Mount(f"/api/targets/{name}", routes=each.routes()) for name, each in target_proxies.items()),
            Route("/api/race", race.start, methods=["POST"]),
            Mount("/api", routes=[*LoadRoutes(loads).routes(), *proxy.routes()]),
            Mount("/static", RevalidatedFiles(directory=HERE / "static")),
        ],
        middleware=[Middleware(SecurityHeaders), Middleware(HostGuard, rule=hosts)],
        lifespan=lifespan,
    )

    async def end_streams() -> None:
        for each in (proxy, *target_proxies.values()):
            each.close()
        race.close()
        await asyncio.gather(feed.close(), loads.close())

    app.state.end_streams = end_streams
    return app


def _render_page(targets: Sequence[Target]) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"), autoescape=True, undefined=jinja2.StrictUndefined
    )
    tabs = built_tabs(HERE / "templates")
    shown = [{"name": target.name, "url": target.url, "keyVariable": target.key_variable} for target in targets]
    return environment.get_template("page.html").render(
        service_url=targets[0].url,
        needs_key=bool(targets[0].key_variable),
        targets=msgspec.json.encode(shown).decode(),
        tabs=tabs,
        stylesheets=stylesheets(HERE / "static", tabs),
    )
