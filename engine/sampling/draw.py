"""Temperature, top-k, top-p, min-p and the draw: scores in, one token a row out, each row by itself.

A row is drawn by inverting its cumulative distribution with one uniform number. Probabilities are exp((score - max) /
temperature) in float32; sums are float64. Which algorithm a row takes depends on its own settings only, and both
results and sums are the same whatever rows come with it.
"""

from collections.abc import Sequence as Many
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  (torch's own convention)
from numpy.typing import NDArray

from engine.sampling.ordering import best_tokens
from engine.sampling_params import SamplingParams

_FIRST_CANDIDATES = 256  # enough for most nuclei; a row that needs more is done again with sixteen times as many
_SPAN = 128


@dataclass(frozen=True, slots=True)
class Filters:
    """Column vectors [num_rows, 1] of what limits each row's choice; "off" is vocab_size, 1 and 0."""

    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor

    @staticmethod
    def of(params: list[SamplingParams], *, vocab_size: int, device: torch.device) -> "Filters":
        def column(values: list[float], dtype: torch.dtype) -> torch.Tensor:
            return torch.tensor(values, dtype=dtype, device=device)[:, None]

        return Filters(
            temperature=column([p.temperature for p in params], torch.float32),
            top_k=column([min(p.top_k, vocab_size) or vocab_size for p in params], torch.int64),
            top_p=column([p.top_p for p in params], torch.float64),
            min_p=column([p.min_p for p in params], torch.float32),
        )

    def take(self, rows: torch.Tensor) -> "Filters":
        return Filters(self.temperature[rows], self.top_k[rows], self.top_p[rows], self.min_p[rows])


def draw_rows(
    scores: torch.Tensor, rows: Many[int], params: Many[SamplingParams], uniforms: NDArray[np.float64]
) -> list[int]:
    """Draw among some rows of scores; see `ScoreArrays.draw`."""
    picked = scores[torch.tensor(rows, device=scores.device)]
    tokens: list[int] = draw(picked, list(params), torch.from_numpy(uniforms).to(scores.device)).tolist()
    return tokens


def draw(scores: torch.Tensor, params: list[SamplingParams], uniforms: torch.Tensor) -> torch.Tensor:
    """Choose a token for every row.

    Args:
        scores: float32 [num_rows, vocab_size]; no NaN, each row's maximum finite.
        params: of each row; temperature at least GREEDY_BELOW.
        uniforms: float64 [num_rows] in [0, 1).

    Returns: int64 [num_rows].
    """
    filters = Filters.of(params, vocab_size=scores.shape[1], device=scores.device)
    probs = (scores - scores.amax(dim=-1, keepdim=True)).div_(filters.temperature).exp_()
    tokens = torch.empty(len(params), dtype=torch.int64, device=scores.device)
    is_ranked = [0 < p.top_k < scores.shape[1] or p.top_p < 1.0 for p in params]
    ranked = [i for i, ranks in enumerate(is_ranked) if ranks]
    plain = [i for i, ranks in enumerate(is_ranked) if not ranks]
    if plain:
        rows = torch.tensor(plain, device=scores.device)
        kept = probs[rows]
        kept = kept.masked_fill_(kept < filters.min_p[rows], 0.0)
        tokens[rows] = _invert(kept, uniforms[rows])
    if ranked:
        rows = torch.tensor(ranked, device=scores.device)
        most = max(min(params[i].top_k, scores.shape[1]) or _FIRST_CANDIDATES for i in ranked)
        tokens[rows] = _draw_ranked(scores[rows], probs[rows], filters.take(rows), uniforms[rows], most)
    return tokens


def _draw_ranked(
    scores: torch.Tensor, probs: torch.Tensor, filters: Filters, uniforms: torch.Tensor, num_candidates: int
) -> torch.Tensor:
    """Draw among the best tokens, best first; rows whose nucleus is wider than the candidates are done again."""
    num_candidates = min(num_candidates, scores.shape[1])
    ids = best_tokens(scores, num_candidates)
    weights = probs.gather(1, ids).double()
    weights.masked_fill_(torch.arange(num_candidates, device=ids.device) >= filters.top_k, 0.0)
    running = weights.cumsum(dim=-1)
    total = torch.where(filters.top_k <= num_candidates, running[:, -1:], probs.sum(dim=-1, keepdim=True).double())
    limit = filters.top_p * total
    kept = weights.masked_fill_(running - weights >= limit, 0.0).float()
    tokens = ids.gather(1, _invert(kept.masked_fill_(kept < filters.min_p, 0.0), uniforms)[:, None])[:, 0]
    if num_candidates < scores.shape[1]:
        wide = ((running[:, -1:] < limit) & (filters.top_k > num_candidates))[:, 0].nonzero()[:, 0]
        if len(wide):
            tokens[wide] = _draw_ranked(
                scores[wide], probs[wide], filters.take(wide), uniforms[wide], 16 * num_candidates
            )
    return tokens


def _invert(weights: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Return the first column at which each row's running sum exceeds uniform * total; never one of weight zero.

    Sums go span by span, then token by token within the span that was hit: a running sum over a whole vocabulary
    costs ten times as much.
    """
    spans = F.pad(weights, (0, -weights.shape[1] % _SPAN)).view(len(weights), -1, _SPAN)
    running = spans.sum(dim=-1, dtype=torch.float64).cumsum(dim=-1)
    total = running[:, -1:].contiguous()
    target = uniforms[:, None] * total
    span = _first_above(running, target, total)
    before = running.gather(1, (span - 1).clamp(min=0)).masked_fill_(span == 0, 0.0)
    within = spans.gather(1, span[:, :, None].expand(-1, 1, _SPAN))[:, 0].cumsum(dim=-1, dtype=torch.float64) + before
    return (span * _SPAN + _first_above(within, target, within[:, -1:].contiguous()))[:, 0]


def _first_above(running: torch.Tensor, target: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
    """Return the first place whose running sum exceeds the target; rounding can lift the target to the total itself."""
    return torch.minimum(torch.searchsorted(running, target, right=True), torch.searchsorted(running, total))
