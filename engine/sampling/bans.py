"""What a request forbids or favours outright: logit bias, allowed ids, bad words, no end before min_tokens."""

import torch

from engine.execution.executor import SamplingRow
from engine.sampling_params import SamplingParams


def has_bans(params: SamplingParams) -> bool:
    """Tell whether any rule of this module can touch the request's scores."""
    return bool(params.logit_bias or params.allowed_token_ids or params.bad_words or params.min_tokens)


def apply_bans(scores: torch.Tensor, rows: list[SamplingRow], *, eos_token_ids: tuple[int, ...]) -> None:
    """Change scores float32 [len(rows), vocab_size] in place; a banned token's score becomes -inf."""
    for i, row in enumerate(rows):
        params = row.seq.params
        if params.logit_bias:
            ids, biases = zip(*params.logit_bias, strict=True)
            bias = torch.tensor(biases, dtype=torch.float32, device=scores.device)
            scores[i].index_add_(0, torch.tensor(ids, device=scores.device), bias)
        if params.allowed_token_ids:
            allowed = torch.tensor(params.allowed_token_ids, device=scores.device)
            kept = scores[i, allowed]
            scores[i].fill_(-torch.inf)
            scores[i, allowed] = kept
        banned = _banned(row, eos_token_ids)
        if banned:
            scores[i, torch.tensor(banned, device=scores.device)] = -torch.inf


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
