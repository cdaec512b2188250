"""TorchSampler: the sampler for the executors whose logits are torch tensors, on any device."""

from collections.abc import Sequence as Many

import numpy as np
import torch
from numpy.typing import NDArray

from engine.sampling.draw import draw_rows
from engine.sampling.ordering import best_token
from engine.sampling.row_sampler import RowSampler
from engine.sampling_params import SamplingParams


class TorchScores:
    """Logits as a tensor; see `ScoreArrays`."""

    def best(self, scores: torch.Tensor) -> tuple[list[int], list[float]]:
        best = best_token(scores)
        return best.tolist(), scores.gather(1, best[:, None])[:, 0].tolist()

    def on_host(self, scores: torch.Tensor, rows: Many[int]) -> NDArray[np.float32]:
        picked: NDArray[np.float32] = scores[torch.tensor(rows, device=scores.device)].cpu().numpy()
        return picked

    def from_host(self, rows: NDArray[np.float32], like: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(rows).to(like.device)

    def draw(
        self, scores: torch.Tensor, rows: Many[int], params: Many[SamplingParams], uniforms: NDArray[np.float64]
    ) -> list[int]:
        return draw_rows(scores, rows, params, uniforms)


class TorchSampler(RowSampler[torch.Tensor]):
    """The sampler over tensors.

    Args:
        vocab_size: of the logits.
        eos_token_ids: see RowSampler.
    """

    def __init__(self, vocab_size: int, eos_token_ids: Many[int]) -> None:
        super().__init__(TorchScores(), [token for token in eos_token_ids if token < vocab_size])
