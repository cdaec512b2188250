"""`POST /v1/completions`."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from engine.errors import InvalidRequestError
from engine.sequence import EngineRequest
from engine.text.output_text import TextAssembler
from service.fingerprint import fingerprint
from service.generation import Prompt
from service.generation_facts import Message, message
from service.protocol.answer import AnswerIdentity
from service.protocol.completion_answer import CompletionAnswer, CompletionReporting
from service.protocol.completions import CompletionRequest
from service.protocol.logprobs import TokenSpelling
from service.protocol.parse import Parsed, parse_request
from service.routes.generating import Call, Opening
from service.sampling import ReportedLogprobs, TokenLimit, sampling_params
from service.services import Services

DEFAULT_MAX_TOKENS = 16


class CompletionApi:
    """See `service.routes.generating.GeneratingApi`."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def parse(self, body: Mapping[str, Any]) -> Parsed[CompletionRequest]:
        parsed = parse_request(CompletionRequest, body, strict=self._services.settings.strict_params)
        if not parsed.request.prompts:
            raise InvalidRequestError("`prompt` must not be empty, got []", param="prompt")
        return parsed

    def num_prompts(self, request: CompletionRequest) -> int:
        return len(request.prompts)

    def input_messages(self, request: CompletionRequest, prompt: int) -> list[Message]:
        """Token ids are shown as they came: their text is the model's business."""
        given = request.prompts[prompt]
        return [message("user", given if isinstance(given, str) else str(given))]

    async def prepare(self, request: CompletionRequest, opening: Opening) -> Call:
        services, info = self._services, opening.info
        tokenizer = services.prompts.tokenizer
        prompts = await services.prompts.texts(
            request.prompts,
            add_special=request.add_special_tokens,
            vocab_size=info.vocab_size,
            echo=request.echo,
        )
        bad_words = await services.prompts.bad_words(request.bad_words or ())
        assembler = partial(
            TextAssembler,
            tokenizer,
            stop=request.stop_list,
            include_stop=request.include_stop_str_in_output,
            skip_special_tokens=request.skip_special_tokens,
            is_continuation=True,
            min_tokens=request.min_tokens,
        )
        requests = [
            self._engine_request(request, prompt.token_ids, opening, index, bad_words)
            for index, prompt in enumerate(prompts)
        ]
        answer_id = f"cmpl-{services.new_id()}"
        answer = CompletionAnswer(
            AnswerIdentity(answer_id, int(services.clock.wall()), opening.model, fingerprint(info)),
            TokenSpelling(tokenizer, request.skip_special_tokens),
            CompletionReporting(
                n=request.n,
                prompts=prompts,
                echo=request.echo,
                logprobs=request.logprobs is not None,
                prompt_logprobs=request.prompt_logprobs is not None,
                token_ids=request.return_token_ids,
                usage=request.include_usage,
            ),
        )
        return Call([Prompt(engine_request, assembler) for engine_request in requests], answer, answer_id)

    def _engine_request(
        self,
        request: CompletionRequest,
        token_ids: Sequence[int],
        opening: Opening,
        index: int,
        bad_words: Sequence[Sequence[int]],
    ) -> EngineRequest:
        asked = DEFAULT_MAX_TOKENS if request.asked_tokens is None else request.asked_tokens
        max_tokens = TokenLimit.of(opening.info).output_tokens(
            num_prompt_tokens=len(token_ids), asked=asked, param="prompt"
        )
        params = sampling_params(
            request,
            max_tokens=max_tokens,
            logprobs=_reported(request),
            bad_words=bad_words,
            default_seed=self._services.draw_seed(),
            vocab_size=opening.info.vocab_size,
        )
        return EngineRequest(
            request_id=opening.request_ids[index],
            prompt_token_ids=list(token_ids),
            params=params,
            arrival=opening.arrival,
            priority=request.priority,
            cache_salt=request.cache_salt,
        )


def _reported(request: CompletionRequest) -> ReportedLogprobs:
    """An echo with log probabilities needs those of the prompt as well."""
    output = -1 if request.logprobs is None else request.logprobs
    prompt = -1 if request.prompt_logprobs is None else request.prompt_logprobs
    return ReportedLogprobs(output=output, prompt=max(prompt, output) if request.echo else prompt)
