"""Bounds on what one request may ask for, checked before anything is allocated for it."""

from dataclasses import dataclass

from engine.errors import InvalidRequestError
from service.protocol.chat import ChatRequest
from service.protocol.completions import CompletionRequest
from service.protocol.fields import GenerationFields


@dataclass(frozen=True)
class RequestLimits:
    """All configurable; see service/settings.py for the flags.

    Attributes:
        body_bytes: size of a body.
        json_depth: nesting of a body.
        n: choices of one prompt.
        prompts: prompts of one completion call.
        stop_strings, stop_bytes: how many stop strings, and UTF-8 bytes of one.
        logprobs: alternatives per position.
        bias_entries: entries of `logit_bias`.
        token_ids: entries of `stop_token_ids` and of `bad_words`.
    """

    body_bytes: int = 4 << 20
    json_depth: int = 100
    n: int = 16
    prompts: int = 64
    stop_strings: int = 16
    stop_bytes: int = 512
    logprobs: int = 20
    bias_entries: int = 300
    token_ids: int = 256

    def check(self, request: GenerationFields) -> None:
        """Raise InvalidRequestError naming the first field of `request` that passes a bound."""
        _at_most("n", request.n, self.n)
        self._check_stop(request.stop_list)
        _count("logit_bias", len(request.logit_bias or ()), self.bias_entries)
        _count("stop_token_ids", len(request.stop_token_ids or ()), self.token_ids)
        _count("bad_words", len(request.bad_words or ()), self.token_ids)
        for index, word in enumerate(request.bad_words or ()):
            if not 1 <= len(word.encode()) <= self.stop_bytes:
                _refuse(f"bad_words[{index}]", f"must have 1..{self.stop_bytes} bytes, got {len(word.encode())}")
        if request.allowed_token_ids is not None and not request.allowed_token_ids:
            _refuse("allowed_token_ids", "must have at least one entry, got []")
        self._check_logprobs("prompt_logprobs", request.prompt_logprobs)
        if isinstance(request, ChatRequest):
            self._check_logprobs("top_logprobs", request.top_logprobs)
            if request.top_logprobs is not None and not request.logprobs:
                _refuse("top_logprobs", "needs `logprobs` to be true, got false")
        if isinstance(request, CompletionRequest):
            self._check_logprobs("logprobs", request.logprobs)
            if request.best_of is not None and request.best_of != request.n:
                _refuse("best_of", f"must equal `n` ({request.n}) on this server, got {request.best_of}")
            _count("prompt", len(request.prompts), self.prompts)

    def _check_stop(self, stop: tuple[str, ...]) -> None:
        _count("stop", len(stop), self.stop_strings)
        for index, text in enumerate(stop):
            if not 1 <= len(text.encode()) <= self.stop_bytes:
                _refuse(f"stop[{index}]", f"must have 1..{self.stop_bytes} bytes, got {len(text.encode())}")

    def _check_logprobs(self, param: str, asked: int | None) -> None:
        if asked is not None and not 0 <= asked <= self.logprobs:
            _refuse(param, f"must lie in 0..{self.logprobs}, got {asked}")


def _at_most(param: str, value: int, limit: int) -> None:
    if value > limit:
        _refuse(param, f"must be at most {limit}, got {value}")


def _count(param: str, count: int, limit: int) -> None:
    if count > limit:
        _refuse(param, f"must have at most {limit} entries, got {count}")


def _refuse(param: str, rule: str) -> None:
    raise InvalidRequestError(f"`{param}` {rule}", param=param)
