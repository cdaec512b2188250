"""HostSampler: the sampler over NumPy logits, with the draw of our own kernels; no torch."""

from collections.abc import Sequence as Many
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from engine.sampling.row_sampler import RowSampler
from engine.sampling_params import SamplingParams

FloatRows = NDArray[np.float32]
HostSampler = RowSampler[FloatRows]


class HostDraw(Protocol):
    """Chooses a token for each of some rows of scores, each by its own settings and uniform number."""

    def __call__(
        self, scores: FloatRows, rows: Many[int], params: Many[SamplingParams], uniforms: NDArray[np.float64]
    ) -> list[int]: ...


class HostScores:
    """Logits in memory; see `ScoreArrays`."""

    def __init__(self, draw: HostDraw) -> None:
        self._draw = draw

    def best(self, scores: FloatRows) -> tuple[list[int], list[float]]:
        best = scores.argmax(axis=1)
        peaks: list[float] = scores[np.arange(len(scores)), best].tolist()
        tokens: list[int] = best.tolist()
        return tokens, peaks

    def on_host(self, scores: FloatRows, rows: Many[int]) -> FloatRows:
        return scores[np.array(rows, dtype=np.int64)]

    def from_host(self, rows: FloatRows, like: FloatRows) -> FloatRows:
        return rows

    def draw(
        self, scores: FloatRows, rows: Many[int], params: Many[SamplingParams], uniforms: NDArray[np.float64]
    ) -> list[int]:
        return self._draw(scores, rows, params, uniforms)


def host_sampler(vocab_size: int, eos_token_ids: Many[int], draw: HostDraw) -> HostSampler:
    """Return a sampler for logits float32 [num_logits, vocab_size] in memory."""
    return RowSampler(HostScores(draw), [token for token in eos_token_ids if token < vocab_size])
