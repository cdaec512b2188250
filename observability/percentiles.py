"""Percentiles with one stated definition, and nothing where there are too few samples.

Definition: nearest rank. The q-th percentile of n samples is the smallest sample that has at least q % of all samples
at or below it, i.e. number ceil(q / 100 * n) in ascending order, counted from 1. It is always one of the samples;
nothing is interpolated, and percentiles of parts are never averaged or added.

A percentile above the median is only given when at least one sample may lie beyond it: n >= 100 / (100 - q). So p90
needs 10 samples, p99 needs 100, p99.9 needs 1000; a "p99" of 16 samples would be the maximum under a false name. The
median claims nothing about a tail: of one sample it is that sample.
"""

from collections.abc import Sequence

_SCALE = 1000  # percentages are taken to a thousandth, in integers, so that 99.9 of 1000 samples is exactly rank 999


def min_samples(q: float) -> int:
    """Return how many samples the q-th percentile needs; raises ValueError unless 0 < q < 100."""
    q_scaled = _scaled(q)
    if q_scaled <= 50 * _SCALE:
        return 1
    return -(-100 * _SCALE // (100 * _SCALE - q_scaled))


def rank(num_samples: int, q: float) -> int:
    """Return the nearest rank, 1..num_samples, of the q-th percentile of `num_samples` >= 1 samples."""
    if num_samples < 1:
        raise ValueError(f"a rank needs at least one sample, got {num_samples}")
    return max(1, -(-_scaled(q) * num_samples // (100 * _SCALE)))


def percentile(ascending: Sequence[float], q: float) -> float | None:
    """Return the q-th percentile of samples in ascending order, or None where there are too few of them."""
    if len(ascending) < min_samples(q):
        return None
    return ascending[rank(len(ascending), q) - 1]


def percentiles(samples: Sequence[float], qs: Sequence[float]) -> dict[float, float | None]:
    """Sort once and return each q in `qs` with its percentile, None where there are too few samples."""
    ascending = sorted(samples)
    return {q: percentile(ascending, q) for q in qs}


def _scaled(q: float) -> int:
    if not 0 < q < 100:
        raise ValueError(f"`q` must be in 0..100, both excluded, got {q}")
    return round(q * _SCALE)
