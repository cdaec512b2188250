"""`POST /tokenize` and `/detokenize`: exactly what the generating routes do with text and ids."""

from typing import Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from engine.errors import InvalidRequestError
from service.json_body import read_json_object
from service.json_response import json_response
from service.prompts import check_token_ids
from service.protocol.chat import ChatMessage, ChatRequest
from service.protocol.fields import WireModel
from service.protocol.parameters import ignored_header
from service.protocol.parse import M, parse_request
from service.services import Services


class TokenizeRequest(WireModel):
    """A text, or a conversation."""

    model: str | None = None
    prompt: str | None = None
    messages: list[ChatMessage] | None = Field(default=None, min_length=1)
    add_special_tokens: bool = True
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    chat_template_kwargs: dict[str, Any] | None = None
    return_token_strs: bool = False


class DetokenizeRequest(WireModel):
    """Token ids; special tokens are shown unless they are to be skipped."""

    model: str | None = None
    tokens: list[int]
    skip_special_tokens: bool = False


class TokenRoutes:
    """Both need the model's vocabulary size, so they answer 503 until it is loaded."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def tokenize(self, request: Request) -> Response:
        services, info = self._services, self._services.ready_info()
        body, ignored = await self._parse(TokenizeRequest, request)
        services.models.resolve(body.model)
        if (body.prompt is None) == (body.messages is None):
            raise InvalidRequestError("give either `prompt` or `messages`", param="prompt")
        if body.prompt is not None:
            ids = await services.prompts.raw(body.prompt, add_special=body.add_special_tokens)
        else:
            ids = await services.prompts.chat(
                ChatRequest.model_construct(
                    messages=body.messages or [],
                    add_generation_prompt=body.add_generation_prompt,
                    continue_final_message=body.continue_final_message,
                    chat_template_kwargs=body.chat_template_kwargs,
                )
            )
        answer: dict[str, Any] = {"count": len(ids), "max_model_len": info.max_model_len, "tokens": ids}
        if body.return_token_strs:
            answer["token_strs"] = [services.prompts.tokenizer.token_text(token_id) for token_id in ids]
        return _answer(answer, ignored)

    async def detokenize(self, request: Request) -> Response:
        services, info = self._services, self._services.ready_info()
        body, ignored = await self._parse(DetokenizeRequest, request)
        services.models.resolve(body.model)
        check_token_ids(body.tokens, param="tokens", vocab_size=info.vocab_size)
        text = await services.prompts.decode(body.tokens, skip_special_tokens=body.skip_special_tokens)
        return _answer({"prompt": text}, ignored)

    async def _parse(self, model: type[M], request: Request) -> tuple[M, list[str]]:
        settings = self._services.settings
        limits = settings.limits
        body = await read_json_object(
            request.scope, request.receive, max_bytes=limits.body_bytes, max_depth=limits.json_depth
        )
        parsed = parse_request(model, body, strict=settings.strict_params)
        return parsed.request, parsed.ignored


def _answer(value: dict[str, Any], ignored: list[str]) -> Response:
    response = json_response(value)
    if ignored:
        response.headers["x-ignored-params"] = ignored_header(ignored)
    return response
