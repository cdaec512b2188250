"""What operators and their tools ask: health, readiness, metrics, statistics, what is running."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from engine.client import EngineState
from engine.errors import EngineUnavailableError
from service.json_response import json_response
from service.protocol.chat import ChatRequest
from service.query import query_number
from service.services import Services
from service.version import VERSION

DEFAULT_HISTORY_S, MAX_HISTORY_S = 60, 300


class OperationRoutes:
    """Answered from memory at once, whatever the engine does."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def health(self, _: Request) -> Response:
        """200 while the process lives and its engine may still answer; a supervisor restarts it on 503."""
        engine = self._services.engine
        silent_s = engine.heartbeat_age()
        if engine.state is EngineState.FAILED:
            raise EngineUnavailableError(f"the engine is down: {engine.reason}")
        if engine.state is EngineState.READY and silent_s > self._services.settings.live_heartbeat_s:
            raise EngineUnavailableError(f"the engine has been silent for {silent_s:.0f} s")
        return json_response(
            {"status": "ok", "engine": engine.state.value, "engine_heartbeat_age_s": round(silent_s, 3)}
        )

    async def ready(self, _: Request) -> Response:
        """200 when a request would be taken now, 503 with the reason when not."""
        reason = self._services.not_ready_reason()
        if reason:
            raise EngineUnavailableError(reason)
        return json_response({"status": "ready"})

    async def metrics(self, request: Request) -> Response:
        body, content_type = self._services.metrics.render(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    async def stats(self, request: Request) -> Response:
        services = self._services
        history_s = query_number(request, "history_s", default=DEFAULT_HISTORY_S, low=1, high=MAX_HISTORY_S)
        stats = services.recorder.stats(history_s=history_s)
        admission = services.admission
        stats["service"] = {
            "ready": not services.not_ready_reason(),
            "engine_state": services.engine.state.value,
            "choices_admitted": admission.taken,
            "choices_capacity": admission.capacity,
        }
        return json_response(stats)

    async def info(self, _: Request) -> Response:
        services = self._services
        tokenizer, settings = services.prompts.tokenizer, services.settings
        answer: dict[str, Any] = {
            "version": VERSION,
            "models": list(services.models.names),
            "state": services.engine.state.value,
            "reason": services.not_ready_reason(),
            "engine": None if services.engine.info is None else msgspec.to_builtins(services.engine.info),
            "tokenizer": {
                "description": tokenizer.description,
                "vocab_size": tokenizer.vocab_size,
                "bos_token_id": tokenizer.bos_token_id,
                "eos_token_ids": sorted(tokenizer.eos_token_ids),
            },
            "limits": settings.limits,
            "strict_params": settings.strict_params,
            "chat_fields": sorted(ChatRequest.model_fields),
            "max_choices": services.admission.capacity,
        }
        return json_response(answer)
