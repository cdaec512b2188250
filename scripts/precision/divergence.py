"""How far one next-token distribution is from another."""

from dataclasses import dataclass

import torch

from observability.percentiles import percentile

_ROWS = 64  # at a time, for the memory of float64 copies


@dataclass(frozen=True, slots=True)
class Divergence:
    """KL divergence in nats over the positions of a text, and how often the likeliest token is the same."""

    mean: float
    p99_9: float | None
    largest: float
    same_top: float
    num_tokens: int


def kl_rows(exact: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return KL(exact || other) of each row of logits [rows, vocab_size], float64 [rows], in nats."""
    rows = []
    for start in range(0, len(exact), _ROWS):
        p = torch.log_softmax(exact[start : start + _ROWS].double(), dim=1)
        q = torch.log_softmax(other[start : start + _ROWS].double(), dim=1)
        rows.append((p.exp() * (p - q)).sum(dim=1))
    return torch.cat(rows)


def same_top(exact: torch.Tensor, other: torch.Tensor) -> int:
    """Return in how many rows both have the same likeliest token."""
    return int((exact.argmax(dim=1) == other.argmax(dim=1)).sum())


def summarize(divergences: torch.Tensor, num_same: int) -> Divergence:
    """Describe all rows of a text."""
    ascending = sorted(divergences.tolist())
    count = len(ascending)
    return Divergence(sum(ascending) / count, percentile(ascending, 99.9), ascending[-1], num_same / count, count)
