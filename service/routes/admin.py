"""What changes the server's state on an operator's word."""

from starlette.requests import Request
from starlette.responses import Response

from service.drain import Drain
from service.json_response import json_response
from service.services import Services


class AdminRoutes:
    """POST only; behind the API key like everything else."""

    def __init__(self, services: Services, drain: Drain) -> None:
        self._services = services
        self._drain = drain

    async def reset_prefix_cache(self, _: Request) -> Response:
        self._services.ready_info()
        return json_response({"dropped_blocks": await self._services.engine.reset_prefix_cache()})

    async def drain(self, _: Request) -> Response:
        """Take nothing new from now on; answers at once, /ready and /stats show how far it is."""
        self._drain.begin()
        return json_response({"status": "draining", "grace_s": self._services.settings.grace_s}, status=202)
