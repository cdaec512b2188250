"""LLM: the engine in-process, for scripts and tests; all prompts in, all answers out."""

from collections.abc import Sequence as Many
from dataclasses import dataclass, field

from engine.build import assemble_core
from engine.clock import Clock, SystemClock
from engine.config import EngineConfig
from engine.errors import InvalidRequestError, RequestFailedError
from engine.events import AnyEvent
from engine.messages import ChoiceOutput, TokenLogprobs
from engine.model.load import load_model
from engine.sampling_params import SamplingParams
from engine.sequence import EngineRequest
from engine.text.tokenizer import build_tokenizer

Prompt = str | list[int]


@dataclass(slots=True)
class Choice:
    """One answer.

    Attributes:
        token_ids: all generated tokens, the one that ended it included.
        text: decoded, without special tokens.
        logprobs: one per token when asked for.
    """

    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish_reason: str = ""


@dataclass(slots=True)
class Generation:
    """What became of one prompt.

    Attributes:
        prompt_logprobs: for positions 1..len(prompt_token_ids)-1, when asked for.
        num_cached_tokens: prompt tokens whose KV was found in the prefix cache.
    """

    prompt_token_ids: list[int]
    choices: list[Choice]
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)
    num_cached_tokens: int = 0

    @property
    def token_ids(self) -> list[int]:
        """The first choice's tokens."""
        return self.choices[0].token_ids

    @property
    def text(self) -> str:
        """The first choice's text."""
        return self.choices[0].text


class LLM:
    """A model that generates, offline.

    Args:
        model: as in EngineConfig.
        clock: the machine's if not given.
        settings: further fields of EngineConfig.

    Attributes:
        info: what runs.
        events: of the last `generate` call (of the first one also `engine_started`), in order.
    """

    def __init__(self, model: str, *, clock: Clock | None = None, **settings: object) -> None:
        self._clock = clock or SystemClock()
        started = self._clock.now()
        loaded = load_model(model)
        config = EngineConfig(model=model, **settings)  # type: ignore[arg-type]  # checked by EngineConfig itself
        self._core, self.info = assemble_core(
            loaded, config, clock=self._clock, progress=lambda stage: None, started=started
        )
        self.tokenizer = build_tokenizer(loaded.tokenizer)
        self.events: list[AnyEvent] = []
        self._num_requests = 0

    def generate(
        self, prompts: Many[Prompt], params: SamplingParams | Many[SamplingParams] | None = None
    ) -> list[Generation]:
        """Generate for all prompts at once, batched as the scheduler sees fit; answers come in the prompts' order.

        Args:
            prompts: texts, or token ids.
            params: for all prompts, or one for each.

        Raises:
            InvalidRequestError: a prompt or a setting can't be served; nothing is generated for any prompt.
            RequestFailedError: the engine failed on a request.
        """
        each = [params or SamplingParams()] * len(prompts) if not isinstance(params, Many) else list(params)
        if len(each) != len(prompts):
            raise InvalidRequestError(f"`params` must be one or one per prompt ({len(prompts)}), got {len(each)}")
        self.events = []
        generations: dict[str, Generation] = {}
        requests = [self._request(prompt, one) for prompt, one in zip(prompts, each, strict=True)]
        for request in requests:
            generations[request.request_id] = Generation(
                request.prompt_token_ids, [Choice() for _ in range(request.params.n)]
            )
            self._core.add(request)
        try:
            while self._core.has_work:
                step = self._core.step()
                self.events.extend(step.events)
                for output in step.outputs:
                    _collect(generations[output.request_id], output)
        finally:
            for request in requests:
                self._core.abort(request.request_id, "the call ended")
            self.events.extend(self._core.collect().events)
        for generation in generations.values():
            for choice in generation.choices:
                choice.text = self.tokenizer.decode(choice.token_ids)
        return list(generations.values())

    def reset_prefix_cache(self) -> int:
        """Empty the prefix tree; return how many blocks were in it."""
        return self._core.reset_prefix_cache()

    def _request(self, prompt: Prompt, params: SamplingParams) -> EngineRequest:
        params.validate(vocab_size=self.info.vocab_size)
        token_ids = self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
        for token_id in token_ids:
            if not 0 <= token_id < self.info.vocab_size:
                raise InvalidRequestError(
                    f"`prompt` token ids must lie in 0..{self.info.vocab_size - 1}, got {token_id}", param="prompt"
                )
        self._num_requests += 1
        return EngineRequest(
            request_id=f"llm-{self._num_requests}",
            prompt_token_ids=token_ids,
            params=params,
            arrival=self._clock.now(),
        )


def _collect(generation: Generation, output: ChoiceOutput) -> None:
    """Add one output to its generation; raise what an error output says."""
    if output.finish_reason == "error":
        if output.error_type == InvalidRequestError.error_type:
            raise InvalidRequestError(output.error)
        raise RequestFailedError(output.error)
    choice = generation.choices[output.index]
    choice.token_ids.extend(output.token_ids)
    choice.logprobs.extend(output.logprobs)
    choice.finish_reason = output.finish_reason or choice.finish_reason
    generation.prompt_logprobs.extend(output.prompt_logprobs)
    generation.num_cached_tokens = max(generation.num_cached_tokens, output.num_cached_tokens)
