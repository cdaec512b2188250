"""How one request wants its tokens chosen: checked at the edge, trusted inside."""

import math

import msgspec

from engine.errors import InvalidRequestError

MAX_SEED = 2**63 - 1
GREEDY_BELOW = 1e-5  # a temperature under this is greedy: scores / temperature would leave float32's exact range


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Sampling settings of one request, resolved: nothing here is optional in meaning.

    Attributes:
        max_tokens: output tokens at most, >= 1.
        min_tokens: end-of-sequence and `stop_token_ids` are banned before so many output tokens.
        temperature: 0 is greedy (argmax of the processed logits; lowest id wins a tie).
        top_p: nucleus mass in (0, 1]; 1 is off.
        top_k: the k largest logits; 0 is off.
        min_p: least probability relative to the most likely token, in [0, 1]; 0 is off.
        presence_penalty: subtracted once from logits of *generated* tokens, in [-2, 2].
        frequency_penalty: subtracted per occurrence among *generated* tokens, in [-2, 2].
        repetition_penalty: divides positive and multiplies negative logits of tokens in prompt *and* output; > 0.
        seed: of the counter-based randomness. The edge draws one for a request that names none.
        n: choices; they share the prompt's KV.
        stop_token_ids: token ids that end the output besides the model's own end-of-sequence ids.
        ignore_eos: the model's end-of-sequence ids don't end the output.
        logprobs: how many top alternatives to report per output token; -1 is off, 0 reports the chosen token alone.
        prompt_logprobs: the same for prompt tokens; such a request computes its whole prompt (no prefix reuse).
        logit_bias: added to the logits, (token id, bias) pairs.
        allowed_token_ids: when not empty, only these can be chosen.
        bad_words: token sequences that can't be completed.
    """

    max_tokens: int = 16
    min_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0
    n: int = 1
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int = -1
    prompt_logprobs: int = -1
    logit_bias: tuple[tuple[int, float], ...] = ()
    allowed_token_ids: tuple[int, ...] = ()
    bad_words: tuple[tuple[int, ...], ...] = ()

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0.0

    def validate(self, *, vocab_size: int) -> None:
        """Check every range; raise InvalidRequestError naming the first field that breaks its rule."""
        _require(self.max_tokens >= 1, "max_tokens", "must be at least 1", self.max_tokens)
        _require(0 <= self.min_tokens <= self.max_tokens, "min_tokens", "must lie in 0..max_tokens", self.min_tokens)
        _require(_in(self.temperature, 0.0, 1e6), "temperature", "must lie in 0..1e6", self.temperature)
        _require(_in(self.top_p, 0.0, 1.0) and self.top_p > 0, "top_p", "must lie in (0, 1]", self.top_p)
        _require(self.top_k >= 0, "top_k", "must be at least 0 (0 is off)", self.top_k)
        _require(_in(self.min_p, 0.0, 1.0), "min_p", "must lie in 0..1", self.min_p)
        _require(_in(self.presence_penalty, -2.0, 2.0), "presence_penalty", "must lie in -2..2", self.presence_penalty)
        _require(
            _in(self.frequency_penalty, -2.0, 2.0), "frequency_penalty", "must lie in -2..2", self.frequency_penalty
        )
        _require(
            _in(self.repetition_penalty, 0.0, 1e3) and self.repetition_penalty > 0,
            "repetition_penalty",
            "must lie in (0, 1000]",
            self.repetition_penalty,
        )
        _require(0 <= self.seed <= MAX_SEED, "seed", "must lie in 0..2^63-1", self.seed)
        _require(self.n >= 1, "n", "must be at least 1", self.n)
        for token_id in self.stop_token_ids:
            _require_token("stop_token_ids", token_id, vocab_size)
        for token_id, bias in self.logit_bias:
            _require_token("logit_bias", token_id, vocab_size)
            _require(_in(bias, -100.0, 100.0), "logit_bias", "values must lie in -100..100", bias)
        for token_id in self.allowed_token_ids:
            _require_token("allowed_token_ids", token_id, vocab_size)
        for word in self.bad_words:
            for token_id in word:
                _require_token("bad_words", token_id, vocab_size)


def _in(value: float, low: float, high: float) -> bool:
    return math.isfinite(value) and low <= value <= high


def _require(holds: bool, param: str, rule: str, value: object) -> None:
    if not holds:
        raise InvalidRequestError(f"`{param}` {rule}, got {value}", param=param)


def _require_token(param: str, token_id: int, vocab_size: int) -> None:
    _require(0 <= token_id < vocab_size, param, f"token ids must lie in 0..{vocab_size - 1}", token_id)
