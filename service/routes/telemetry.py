"""`/telemetry/...`: what the recorder knows of requests and steps, cancelling a request by id, effective settings."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from observability.cache_explanation import DivergenceText
from service.config_view import config_answer
from service.errors import ConflictError, NotFoundError, clip
from service.json_response import json_response
from service.query import query_number
from service.services import Services

DEFAULT_RECENT: Final = 200
DEFAULT_STEPS: Final = 1_000
WINDOW_TOKENS: Final = 12  # of a prompt, on either side of where it left the cached one


class TelemetryRoutes:
    """Ids are ours: the `x-request-id` of the answer, with `-0`, `-1` ... for the prompts of a call with several."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def requests(self, request: Request) -> Response:
        """In flight, and up to `recent` of those that ended."""
        num_recent = query_number(request, "recent", default=DEFAULT_RECENT)
        return json_response(self._services.recorder.requests(num_recent=num_recent))

    async def request(self, request: Request) -> Response:
        """The timeline, attribution and cache explanation of one request."""
        request_id = request.path_params["request_id"]
        detail = self._services.recorder.request(request_id)
        if detail is None:
            raise _unknown(request_id)
        prompt = self._services.prompt_log.get(request_id)
        divergence = (detail["cache"] or {}).get("divergence")
        if prompt is not None and divergence is not None:
            divergence["text"] = msgspec.to_builtins(self._text_of(divergence, prompt))
        return json_response(detail)

    def _text_of(self, divergence: Mapping[str, Any], prompt: Sequence[int]) -> DivergenceText:
        position = divergence["position"]
        decode = partial(self._services.prompts.tokenizer.decode, skip_special_tokens=False)
        return DivergenceText(
            before=decode(prompt[max(0, position - WINDOW_TOKENS) : position]),
            expected=decode([divergence["expected_token"]]),
            actual=decode([divergence["actual_token"]]),
            after=decode(prompt[position + 1 : position + 1 + WINDOW_TOKENS]),
        )

    async def config(self, _: Request) -> Response:
        """Effective settings, secrets hidden."""
        services = self._services
        return json_response(
            config_answer(
                services.engine_config, services.settings, running=services.engine.info, models=services.models.names
            )
        )

    async def cancel(self, request: Request) -> Response:
        """End a request in flight; its client gets an error that says so."""
        services, request_id = self._services, request.path_params["request_id"]
        if not services.engine.abort(request_id, "cancelled"):
            if services.engine.is_in_flight(request_id):
                raise ConflictError(f"the request {clip(request_id)} is being cancelled already")
            raise _unknown(request_id)
        return json_response({"request_id": request_id, "status": "cancelling"}, status=202)

    async def steps(self, request: Request) -> Response:
        """The records of the steps after `since`, at most the newest `limit` of them."""
        since = query_number(request, "since", default=0)
        limit = query_number(request, "limit", default=DEFAULT_STEPS)
        return json_response(self._services.recorder.step_table(since, limit=limit))


def _unknown(request_id: str) -> NotFoundError:
    return NotFoundError(f"no request {clip(request_id)} is known here", param="request_id")
