"""Penalties on tokens that were seen before: repetition on prompt and output, presence and frequency on output only."""

from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from engine.execution.executor import SamplingRow

_MAX_CACHED_PROMPTS = 256
_LARGEST = float(np.finfo(np.float32).max)


class Penalties:
    """Apply the penalties of a batch's rows.

    A request's distinct prompt tokens are remembered between steps (bounded, least recently used goes first); they
    are a pure function of the request, so forgetting them changes nothing but time.
    """

    def __init__(self) -> None:
        self._prompt_tokens: OrderedDict[str, NDArray[np.int64]] = OrderedDict()

    def apply(self, scores: NDArray[np.float32], rows: list[SamplingRow]) -> None:
        """Change scores float32 [len(rows), vocab_size] in place.

        Repetition (CTRL, arXiv 1909.05858): positive scores are divided, negative ones multiplied. Then
        `presence` once and `frequency` per occurrence are subtracted (OpenAI's definition).
        """
        for i, row in enumerate(rows):
            params = row.seq.params
            if params.repetition_penalty != 1.0:
                self._repetition(scores[i], row, params.repetition_penalty)
            if params.presence_penalty or params.frequency_penalty:
                ids, counts = np.unique(np.array(_output(row), dtype=np.int64), return_counts=True)
                amount = params.presence_penalty + params.frequency_penalty * counts
                scores[i, ids] -= amount.astype(np.float32)

    def _repetition(self, scores: NDArray[np.float32], row: SamplingRow, penalty: float) -> None:
        seen = np.union1d(self._prompt(row), np.array(_output(row), dtype=np.int64))
        old = scores[seen].astype(np.float64)  # a penalty may be too small for float32
        with np.errstate(over="ignore"):  # what leaves float32's range downwards is -inf
            new = np.minimum(np.where(old > 0, old / penalty, old * penalty), _LARGEST)
            scores[seen] = new.astype(np.float32)

    def _prompt(self, row: SamplingRow) -> NDArray[np.int64]:
        key = row.seq.request_id
        known = self._prompt_tokens.get(key)
        if known is None:
            known = np.unique(np.array(row.seq.request.prompt_token_ids, dtype=np.int64))
            self._prompt_tokens[key] = known
            if len(self._prompt_tokens) > _MAX_CACHED_PROMPTS:
                self._prompt_tokens.popitem(last=False)
        self._prompt_tokens.move_to_end(key)
        return known


def _output(row: SamplingRow) -> list[int]:
    """Return the tokens generated before the one that is being chosen."""
    return row.seq.output_token_ids[: row.position - row.seq.num_prompt_tokens]
