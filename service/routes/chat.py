"""`POST /v1/chat/completions`."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from engine.sequence import EngineRequest
from engine.text.output_text import TextAssembler
from service.fingerprint import fingerprint
from service.generation import Prompt
from service.generation_facts import Message, message
from service.protocol.answer import AnswerIdentity
from service.protocol.chat import ChatRequest
from service.protocol.chat_answer import ChatAnswer, ChatReporting
from service.protocol.logprobs import TokenSpelling
from service.protocol.parse import Parsed, parse_request
from service.routes.generating import Call, Opening
from service.sampling import ReportedLogprobs, TokenLimit, sampling_params
from service.services import Services


class ChatApi:
    """See `service.routes.generating.GeneratingApi`."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def parse(self, body: Mapping[str, Any]) -> Parsed[ChatRequest]:
        return parse_request(ChatRequest, body, strict=self._services.settings.strict_params)

    def num_prompts(self, request: ChatRequest) -> int:
        return 1

    def input_messages(self, request: ChatRequest, prompt: int) -> list[Message]:
        return [message(turn.role, turn.text) for turn in request.messages]

    async def prepare(self, request: ChatRequest, opening: Opening) -> Call:
        services, info = self._services, opening.info
        tokenizer = services.prompts.tokenizer
        ids = await services.prompts.chat(request)
        params = sampling_params(
            request,
            max_tokens=TokenLimit.of(info).output_tokens(
                num_prompt_tokens=len(ids), asked=request.asked_tokens, param="messages"
            ),
            logprobs=ReportedLogprobs(
                output=(request.top_logprobs or 0) if request.logprobs else -1,
                prompt=-1 if request.prompt_logprobs is None else request.prompt_logprobs,
            ),
            bad_words=await services.prompts.bad_words(request.bad_words or ()),
            default_seed=services.draw_seed(),
            vocab_size=info.vocab_size,
        )
        engine_request = EngineRequest(
            request_id=opening.request_ids[0],
            prompt_token_ids=ids,
            params=params,
            arrival=opening.arrival,
            priority=request.priority,
            cache_salt=request.cache_salt,
        )
        assembler = partial(
            TextAssembler,
            tokenizer,
            stop=request.stop_list,
            include_stop=request.include_stop_str_in_output,
            skip_special_tokens=request.skip_special_tokens,
            is_continuation=request.continue_final_message,
            min_tokens=request.min_tokens,
        )
        answer_id = f"chatcmpl-{services.new_id()}"
        answer = ChatAnswer(
            AnswerIdentity(answer_id, int(services.clock.wall()), opening.model, fingerprint(info)),
            TokenSpelling(tokenizer, request.skip_special_tokens),
            ChatReporting(
                num_choices=request.n,
                logprobs=request.logprobs,
                token_ids=request.return_token_ids,
                prompt_token_ids=ids,
                prefix=_echoed(request),
                usage=request.include_usage,
            ),
        )
        return Call([Prompt(engine_request, assembler)], answer, answer_id)


def _echoed(request: ChatRequest) -> str:
    """Return the text that `echo` puts first: that of a last message which the answer goes on with."""
    last = request.messages[-1]
    return last.text if request.echo and last.role == "assistant" else ""
