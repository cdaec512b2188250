"""`GET /kernels`: what `pellucid kernels` prints, measured beside the running server."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from engine.errors import InvalidRequestError
from service.errors import clip
from service.json_response import json_response
from service.kernel_lab import KernelLab

RETRY_AFTER_S = "1"


class KernelRoutes:
    """Answered from memory at once."""

    def __init__(self, lab: KernelLab) -> None:
        self._lab = lab

    async def kernels(self, request: Request) -> Response:
        """200 with the report, or with the reason why there is none; 202 with `progress` while it is being measured.

        The last report, if any, comes with every answer. `refresh=1` measures again.
        """
        asked = request.query_params.get("refresh", "0")
        if asked not in ("0", "1"):
            raise InvalidRequestError(f"`refresh` must be 0 or 1, got {clip(asked)}", param="refresh")
        status = self._lab.ask(refresh=asked == "1")
        body: dict[str, Any] = {"state": status.state}
        if status.progress:
            body["progress"] = status.progress
        if status.reason:
            body["reason"] = status.reason
        if status.report is not None:
            body["report"] = msgspec.to_builtins(status.report)
        if status.state == "measuring":
            response = json_response(body, status=202)
            response.headers["retry-after"] = RETRY_AFTER_S
            return response
        return json_response(body)
