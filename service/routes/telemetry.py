"""`/telemetry/...`: what the recorder knows of requests and steps, and cancelling a request by id."""

from starlette.requests import Request
from starlette.responses import Response

from engine.errors import InvalidRequestError
from service.errors import NotFoundError, clip
from service.json_response import json_response
from service.services import Services


class TelemetryRoutes:
    """Ids are ours: the `x-request-id` of the answer, with `-0`, `-1` ... for the prompts of a call with several."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def requests(self, _: Request) -> Response:
        return json_response(self._services.recorder.requests())

    async def request(self, request: Request) -> Response:
        request_id = request.path_params["request_id"]
        timeline = self._services.recorder.request(request_id)
        if timeline is None:
            raise _unknown(request_id)
        return json_response(timeline)

    async def cancel(self, request: Request) -> Response:
        """End a request in flight; its client gets an error that says so."""
        request_id = request.path_params["request_id"]
        if not self._services.engine.abort(request_id, "cancelled"):
            raise _unknown(request_id)
        return json_response({"request_id": request_id, "status": "cancelling"}, status=202)

    async def steps(self, request: Request) -> Response:
        since = request.query_params.get("since", "0")
        if not (since.isascii() and since.isdigit() and len(since) <= 18):
            raise InvalidRequestError(f"`since` must be a step number, got {clip(since)}", param="since")
        return json_response({"steps": self._services.recorder.steps(int(since))})


def _unknown(request_id: str) -> NotFoundError:
    return NotFoundError(f"no request {clip(request_id)} is known here", param="request_id")
