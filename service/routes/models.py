"""`GET /v1/models` and `/v1/models/{id}`: what is really loaded, so 503 until something is."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from engine.messages import EngineInfo
from service.json_response import json_response
from service.services import Services


class ModelRoutes:
    """Both routes answer with the same object per served name."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def listing(self, _: Request) -> Response:
        info = self._services.ready_info()
        return json_response(
            {"object": "list", "data": [self._model(name, info) for name in self._services.models.names]}
        )

    async def one(self, request: Request) -> Response:
        info = self._services.ready_info()
        return json_response(self._model(self._services.models.resolve(request.path_params["model_id"]), info))

    def _model(self, name: str, info: EngineInfo) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": self._services.models.created,
            "owned_by": "pellucid",
            "root": info.model,
            "parent": None,
            "max_model_len": info.max_model_len,
        }
