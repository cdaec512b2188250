"""Log probabilities as reported to the client.

They are those of the model: the log-softmax of the logits before bias, bans, penalties and temperature, natural log
(what OpenAI documents and vLLM's `raw_logprobs` does). So a reported value doesn't depend on sampling settings, and a
chosen token may well be missing among the top alternatives.
"""

import numpy as np
from numpy.typing import NDArray

from engine.messages import LogprobEntry, TokenLogprobs

_ID_BITS = 32
_ID_MASK = np.int64((1 << _ID_BITS) - 1)


def report_logprobs(logits: NDArray[np.float32], tokens: list[int], num_top: list[int]) -> list[TokenLogprobs]:
    """Return the report of each row.

    Args:
        logits: float32 [num_rows, vocab_size], unprocessed, no NaN.
        tokens: the chosen (or given) token of each row.
        num_top: how many alternatives each row reports, 0 or more; clipped to vocab_size.
    """
    rows = np.arange(len(logits))
    peaks = logits.max(axis=1).astype(np.float64)
    sums = np.array([np.exp(row.astype(np.float64) - peak).sum() for row, peak in zip(logits, peaks, strict=True)])
    normaliser = peaks + np.log(sums)
    chosen_values = (logits[rows, tokens].astype(np.float64) - normaliser).tolist()
    most = min(max(num_top), logits.shape[1])
    ids = best_token_ids(logits, most)
    top_values = (np.take_along_axis(logits, ids, axis=1).astype(np.float64) - normaliser[:, None]).tolist()
    return [
        TokenLogprobs(
            chosen=LogprobEntry(token, value),
            top=[LogprobEntry(*entry) for entry in zip(row_ids[:count], row_values[:count], strict=True)],
        )
        for token, value, row_ids, row_values, count in zip(
            tokens, chosen_values, ids.tolist(), top_values, num_top, strict=True
        )
    ]


def best_token_ids(values: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Return int64 [num_rows, k]: ids of the k largest values of each row, best first, the lower id of a tie first.

    Value and id are folded into one 64-bit integer, so that the answer is unique; see `ordering.best_tokens`, which is
    the same for tensors. NaN is not allowed.
    """
    if k == 0:
        return np.empty((len(values), 0), dtype=np.int64)
    bits = (values + np.float32(0.0)).view(np.int32)  # + 0.0 turns -0.0 into 0.0
    rank = np.where(bits < 0, bits ^ np.int32(0x7FFFFFFF), bits).astype(np.int64)
    ids = np.arange(values.shape[1], dtype=np.int64)
    keys = (rank << _ID_BITS) | (_ID_MASK - ids)
    top = np.partition(keys, keys.shape[1] - k, axis=1)[:, -k:]
    return _ID_MASK - (np.sort(top, axis=1)[:, ::-1] & _ID_MASK)
