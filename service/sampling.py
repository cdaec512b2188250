"""From checked fields to the engine's SamplingParams: defaults, off-values, lengths against the context."""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.errors import ContextLengthError, InvalidRequestError
from engine.messages import EngineInfo
from engine.sampling_params import SamplingParams
from service.errors import clip
from service.protocol.fields import GenerationFields

TOP_K_OFF = (0, -1)
MAX_TOKEN_ID_DIGITS = 9


@dataclass(frozen=True)
class ReportedLogprobs:
    """How many alternatives to report per position; -1 is none at all, 0 the token alone."""

    output: int = -1
    prompt: int = -1


@dataclass(frozen=True)
class TokenLimit:
    """Tokens that prompt + output of one choice may have, and what sets the limit."""

    num_tokens: int
    what: str
    truncates: bool

    @classmethod
    def of(cls, info: EngineInfo) -> "TokenLimit":
        pool = info.num_kv_blocks * info.block_size
        truncates = info.overflow == "truncate"
        if pool < info.max_model_len:
            return cls(pool, "the KV cache", truncates)
        return cls(info.max_model_len, "this model's context", truncates)

    def output_tokens(self, *, num_prompt_tokens: int, asked: int | None, param: str) -> int:
        """Return how many output tokens to allow: what was asked for, or all that fit.

        Raises:
            ContextLengthError: the prompt leaves no room, or prompt + asked can't fit and the server doesn't truncate.
        """
        room = self.num_tokens - num_prompt_tokens
        needed = 1 if asked is None or self.truncates else asked
        if needed > room:
            raise ContextLengthError(
                num_requested_tokens=num_prompt_tokens + needed,
                max_tokens=self.num_tokens,
                what=self.what,
                param=param,
            )
        return room if asked is None else min(asked, room)


def sampling_params(
    fields: GenerationFields,
    *,
    max_tokens: int,
    logprobs: ReportedLogprobs,
    bad_words: Sequence[Sequence[int]],
    default_seed: int,
    vocab_size: int,
) -> SamplingParams:
    """Build and check the engine's settings of one prompt.

    Raises:
        InvalidRequestError: a value out of range, by name.
    """
    params = SamplingParams(
        max_tokens=max_tokens,
        min_tokens=fields.min_tokens,
        temperature=_given(fields.temperature, 1.0),
        top_p=_given(fields.top_p, 1.0),
        top_k=_top_k(fields.top_k, vocab_size),
        min_p=_given(fields.min_p, 0.0),
        presence_penalty=_given(fields.presence_penalty, 0.0),
        frequency_penalty=_given(fields.frequency_penalty, 0.0),
        repetition_penalty=_given(fields.repetition_penalty, 1.0),
        seed=default_seed if fields.seed is None else fields.seed,
        n=fields.n,
        stop_token_ids=tuple(dict.fromkeys(fields.stop_token_ids or ())),
        ignore_eos=fields.ignore_eos,
        logprobs=logprobs.output,
        prompt_logprobs=logprobs.prompt,
        logit_bias=_logit_bias(fields.logit_bias or {}),
        allowed_token_ids=tuple(dict.fromkeys(fields.allowed_token_ids or ())),
        bad_words=tuple(tuple(word) for word in bad_words),
    )
    params.validate(vocab_size=vocab_size)
    return params


def _given(value: float | None, default: float) -> float:
    return default if value is None else float(value)


def _top_k(value: int | None, vocab_size: int) -> int:
    if value is None or value in TOP_K_OFF:
        return 0
    if value < 0:
        raise InvalidRequestError(f"`top_k` must be at least 1, or 0 or -1 for off, got {value}", param="top_k")
    return min(value, vocab_size)


def _logit_bias(bias: dict[str, float]) -> tuple[tuple[int, float], ...]:
    pairs = []
    for key, value in bias.items():
        digits = key.removeprefix("-")
        if not (digits.isascii() and digits.isdigit()):
            raise InvalidRequestError(f"`logit_bias` keys must be token ids, got {clip(key)!r}", param="logit_bias")
        if len(digits) > MAX_TOKEN_ID_DIGITS:
            raise InvalidRequestError(f"`logit_bias` has no such token id, got {clip(key)}", param="logit_bias")
        pairs.append((int(key), float(value)))
    return tuple(pairs)
