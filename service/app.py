"""The application: routes and layers. Everything it needs comes in; nothing is made at import.

access     identity, headers, metrics, the answer to what nobody caught
CORS       only with --cors-origin
errors     refusals become answers
origin     no cross-site requests that change something
auth       only with API keys
routes     one object per group
"""

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from service.drain import Drain
from service.errors import HttpError, MethodNotAllowedError, NotFoundError, clip
from service.middleware.access import AccessMiddleware
from service.middleware.auth import AuthMiddleware
from service.middleware.errors import ErrorMiddleware
from service.middleware.origin import OriginMiddleware
from service.routes.admin import AdminRoutes
from service.routes.chat import ChatApi
from service.routes.completions import CompletionApi
from service.routes.generating import GeneratingRoute
from service.routes.kernels import KernelRoutes
from service.routes.kv_recording import KVRecordingRoutes
from service.routes.kv_telemetry import KVTelemetryRoutes
from service.routes.models import ModelRoutes
from service.routes.operations import OperationRoutes
from service.routes.telemetry import TelemetryRoutes
from service.routes.tokens import TokenRoutes
from service.routes.trace_telemetry import TraceRoutes
from service.services import Services

ROUTE_TEMPLATES = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/models",
    "/v1/models/{model_id:path}",
    "/tokenize",
    "/detokenize",
    "/health",
    "/ready",
    "/metrics",
    "/stats",
    "/info",
    "/kernels",
    "/admin/reset_prefix_cache",
    "/admin/drain",
    "/telemetry/requests",
    "/telemetry/requests/{request_id}",
    "/telemetry/requests/{request_id}/cancel",
    "/telemetry/steps",
    "/telemetry/config",
    "/telemetry/traces",
    "/telemetry/traces/{trace_id}",
    "/telemetry/kv/events",
    "/telemetry/kv/live",
    "/telemetry/kv/snapshot",
    "/telemetry/kv/trace",
    "/telemetry/kv/recording",
)
EXPOSED_HEADERS = ("x-request-id", "x-client-request-id", "x-trace-id", "traceresponse", "x-ignored-params")


INSTRUMENT_PATHS = ("/metrics", "/stats", "/telemetry/")


def create_app(services: Services, drain: Drain) -> Starlette:
    """Return the ASGI application over these services."""
    settings = services.settings
    routes = _routes(services, drain)
    middleware = [
        Middleware(
            AccessMiddleware,
            routes=routes,
            metrics=services.metrics,
            tracing=services.tracing,
            clock=services.clock,
        )
    ]
    if settings.cors_origins:
        middleware.append(
            Middleware(
                CORSMiddleware,
                allow_origins=list(settings.cors_origins),
                allow_methods=["GET", "POST"],
                allow_headers=["*"],
                expose_headers=list(EXPOSED_HEADERS),
            )
        )
    middleware.append(Middleware(ErrorMiddleware))
    middleware.append(Middleware(OriginMiddleware, allowed=settings.cors_origins))
    if settings.api_keys:
        middleware.append(Middleware(AuthMiddleware, keys=settings.api_keys))
    app = Starlette(routes=routes, middleware=middleware, exception_handlers={HTTPException: _refuse})
    app.router.redirect_slashes = False
    return app


def _routes(services: Services, drain: Drain) -> Sequence[BaseRoute]:
    models, tokens = ModelRoutes(services), TokenRoutes(services)
    operations, telemetry = OperationRoutes(services), TelemetryRoutes(services)
    kv, recording = KVTelemetryRoutes(services), KVRecordingRoutes(services)
    traces = TraceRoutes(services)
    kernels, admin = KernelRoutes(services.kernel_lab), AdminRoutes(services, drain)
    routes = [
        Route("/v1/chat/completions", GeneratingRoute(services, ChatApi(services)), methods=["POST"]),
        Route("/v1/completions", GeneratingRoute(services, CompletionApi(services)), methods=["POST"]),
        Route("/v1/models", models.listing),
        Route("/v1/models/{model_id:path}", models.one),
        Route("/tokenize", tokens.tokenize, methods=["POST"]),
        Route("/detokenize", tokens.detokenize, methods=["POST"]),
        Route("/health", operations.health),
        Route("/ready", operations.ready),
        Route("/metrics", operations.metrics),
        Route("/stats", operations.stats),
        Route("/info", operations.info),
        Route("/kernels", kernels.kernels),
        Route("/admin/reset_prefix_cache", admin.reset_prefix_cache, methods=["POST"]),
        Route("/admin/drain", admin.drain, methods=["POST"]),
        Route("/telemetry/requests", telemetry.requests),
        Route("/telemetry/requests/{request_id}", telemetry.request),
        Route("/telemetry/requests/{request_id}/cancel", telemetry.cancel, methods=["POST"]),
        Route("/telemetry/steps", telemetry.steps),
        Route("/telemetry/config", telemetry.config),
        Route("/telemetry/traces", traces.listing),
        Route("/telemetry/traces/{trace_id}", traces.one),
        Route("/telemetry/kv/events", kv.events),
        Route("/telemetry/kv/live", kv.live),
        Route("/telemetry/kv/snapshot", kv.snapshot),
        Route("/telemetry/kv/trace", kv.trace),
        Route("/telemetry/kv/recording", recording.handle, methods=["GET", "POST"]),
    ]
    if services.settings.instruments:
        return routes
    return [
        Route(route.path, _instruments_are_off) if route.path.startswith(INSTRUMENT_PATHS) else route
        for route in routes
    ]


async def _instruments_are_off(_: Request) -> Response:
    raise NotFoundError("the instruments of this server are off (--no-instruments)")


async def _refuse(request: Request, error: Exception) -> Response:
    """Say in our own form what the router refuses: no such path, or another method."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        allowed = tuple(sorted(name.strip() for name in (error.headers or {}).get("Allow", "").split(",")))
        raise MethodNotAllowedError(request.method, allowed)
    if error.status_code == 404:
        raise NotFoundError(f"no route {clip(request.url.path)} here")
    raise HttpError(clip(error.detail, 200))
