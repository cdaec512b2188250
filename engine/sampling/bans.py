"""What a request forbids or favours outright: logit bias, allowed ids, bad words, no end before min_tokens."""

import numpy as np
from numpy.typing import NDArray

from engine.execution.executor import SamplingRow
from engine.sampling_params import SamplingParams


def has_bans(params: SamplingParams) -> bool:
    """Tell whether any rule of this module can touch the request's scores."""
    return bool(params.logit_bias or params.allowed_token_ids or params.bad_words or params.min_tokens)


def apply_bans(scores: NDArray[np.float32], rows: list[SamplingRow], *, eos_token_ids: tuple[int, ...]) -> None:
    """Change scores float32 [len(rows), vocab_size] in place; a banned token's score becomes -inf."""
    for i, row in enumerate(rows):
        params = row.seq.params
        if params.logit_bias:
            ids, biases = zip(*params.logit_bias, strict=True)
            np.add.at(scores[i], np.array(ids, dtype=np.int64), np.array(biases, dtype=np.float32))
        if params.allowed_token_ids:
            allowed = np.array(params.allowed_token_ids, dtype=np.int64)
            kept = scores[i, allowed]
            scores[i] = -np.inf
            scores[i, allowed] = kept
        banned = _banned(row, eos_token_ids)
        if banned:
            scores[i, np.array(banned, dtype=np.int64)] = -np.inf


def _banned(row: SamplingRow, eos_token_ids: tuple[int, ...]) -> list[int]:
    params, seq = row.seq.params, row.seq
    banned = []
    for word in params.bad_words:
        start = row.position - (len(word) - 1)
        if word and start >= 0 and tuple(seq.token_ids(start, row.position)) == word[:-1]:
            banned.append(word[-1])
    if row.position - seq.num_prompt_tokens < params.min_tokens:
        banned.extend(params.stop_token_ids)
        if not params.ignore_eos:
            banned.extend(eos_token_ids)
    return banned
