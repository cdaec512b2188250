"""`/telemetry/kv/recording`: write the event stream to a file in the configured directory, until told to stop."""

from typing import Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from engine.errors import InvalidRequestError, RequestFailedError
from observability.recording import MIN_BYTES, Caps, RecordingBusyError, RecordingError
from service.errors import ConflictError
from service.json_body import read_json_object
from service.json_response import json_response
from service.protocol.fields import WireModel
from service.protocol.parse import parse_request
from service.services import Services


class RecordingRequest(WireModel):
    """What to do, and where to stop; the place and the name of the file are the server's."""

    action: Literal["start", "stop"]
    max_bytes: int | None = Field(default=None, ge=MIN_BYTES)
    max_events: int | None = Field(default=None, ge=1)
    max_seconds: float | None = Field(default=None, gt=0)
    gzip: bool = True


class KVRecordingRoutes:
    """One recording at a time."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def handle(self, request: Request) -> Response:
        """GET: how it is. POST: start or stop, and how it is then."""
        if request.method == "POST":
            return await self._change(request)
        return json_response(self._services.recordings.status())

    async def _change(self, request: Request) -> Response:
        settings, recordings = self._services.settings, self._services.recordings
        body = await read_json_object(
            request.scope,
            request.receive,
            max_bytes=settings.limits.body_bytes,
            max_depth=settings.limits.json_depth,
        )
        asked = parse_request(RecordingRequest, body, strict=True).request
        if asked.action == "stop":
            return json_response(await recordings.stop())
        max_bytes = recordings.max_bytes if asked.max_bytes is None else asked.max_bytes
        if max_bytes > recordings.max_bytes:
            raise InvalidRequestError(
                f"`max_bytes` must be at most {recordings.max_bytes} (--trace-max-bytes), got {max_bytes}",
                param="max_bytes",
            )
        caps = Caps(max_bytes, asked.max_events, asked.max_seconds)
        if not settings.trace_dir:
            raise InvalidRequestError("recording needs a directory: start the server with --trace-dir", param="action")
        try:
            return json_response(await recordings.start(caps, is_gzip=asked.gzip), status=201)
        except RecordingBusyError as error:
            raise ConflictError(str(error), param="action") from None
        except RecordingError as error:
            raise RequestFailedError(str(error)) from None
