"""Log probabilities as reported to the client.

They are those of the model: the log-softmax of the logits before bias, bans, penalties and temperature, natural log
(what OpenAI documents and vLLM's `raw_logprobs` does). So a reported value doesn't depend on sampling settings, and a
chosen token may well be missing among the top alternatives.
"""

import torch

from engine.messages import LogprobEntry, TokenLogprobs
from engine.sampling.ordering import best_tokens


def report_logprobs(logits: torch.Tensor, tokens: list[int], num_top: list[int]) -> list[TokenLogprobs]:
    """Return the report of each row.

    Args:
        logits: float32 [num_rows, vocab_size], unprocessed, no NaN.
        tokens: the chosen (or given) token of each row.
        num_top: how many alternatives each row reports, 0 or more; clipped to vocab_size.
    """
    chosen = torch.tensor(tokens, dtype=torch.int64, device=logits.device)[:, None]
    normaliser = torch.logsumexp(logits.double(), dim=-1, keepdim=True)
    chosen_values = (logits.gather(1, chosen).double() - normaliser)[:, 0].tolist()
    most = min(max(num_top), logits.shape[1])
    ids = best_tokens(logits, most) if most else chosen[:, :0]
    top_values = (logits.gather(1, ids).double() - normaliser).tolist()
    return [
        TokenLogprobs(
            chosen=LogprobEntry(token, value),
            top=[LogprobEntry(*entry) for entry in zip(row_ids[:count], row_values[:count], strict=True)],
        )
        for token, value, row_ids, row_values, count in zip(
            tokens, chosen_values, ids.tolist(), top_values, num_top, strict=True
        )
    ]
