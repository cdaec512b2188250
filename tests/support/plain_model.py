"""What a request must get, worked out without an engine: one sequence, alone, no blocks, no batch, no cache."""

from collections.abc import Collection

from engine.execution.shadow_kv import extend_history, history_of
from engine.execution.simulated_executor import hashed_token
from engine.sampling_params import SamplingParams

VOCAB_SIZE = 997
EOS = 7


def solo_output(
    prompt: list[int],
    params: SamplingParams,
    *,
    index: int = 0,
    eos_token_ids: Collection[int] = (EOS,),
    vocab_size: int = VOCAB_SIZE,
    max_total_tokens: int = 1 << 30,
) -> tuple[list[int], str]:
    """Return the output tokens and the finish reason of choice `index` under the hashed script.

    `max_total_tokens` is what context and pool hold: under overflow `truncate` the output ends there with `length`.
    """
    stops = set(params.stop_token_ids) | (set() if params.ignore_eos else set(eos_token_ids))
    history = history_of(prompt)
    outputs: list[int] = []
    while True:
        token = hashed_token(history, index, vocab_size)
        outputs.append(token)
        history = extend_history(history, token)
        if token in stops:
            return outputs, "stop"
        if len(outputs) == params.max_tokens or len(prompt) + len(outputs) >= max_total_tokens:
            return outputs, "length"


def distinct_tokens(count: int, *, salt: int) -> list[int]:
    """Return `count` tokens without end-of-sequence that differ from those of other salts from the first on."""
    tokens = [(salt * 31 + place * 17) % (VOCAB_SIZE - 8) + 8 for place in range(count)]
    assert EOS not in tokens
    return tokens
