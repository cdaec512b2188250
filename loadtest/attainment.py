"""The share of requests that were good, with the interval in which the true share probably lies."""

import math

import msgspec

Z_95 = 1.959963984540054


class Attainment(msgspec.Struct, frozen=True, kw_only=True):
    """Good requests of all that count.

    Attributes:
        good, total: failures and refusals count as not good; requests cut off while they could still become good don't
            count.
        ratio: None when nothing counts.
        low, high: Wilson's 95 % interval.
    """

    good: int
    total: int
    ratio: float | None
    low: float | None
    high: float | None


def attainment(good: int, total: int) -> Attainment:
    """Return the share of `good` in `total` with its interval."""
    if not total:
        return Attainment(good=0, total=0, ratio=None, low=None, high=None)
    low, high = wilson_interval(good, total)
    return Attainment(good=good, total=total, ratio=good / total, low=low, high=high)


def wilson_interval(successes: int, trials: int, z: float = Z_95) -> tuple[float, float]:
    """Return Wilson's score interval (1927), which stays within 0..1 and holds for shares near its ends."""
    share = successes / trials
    scale = 1 + z * z / trials
    centre = (share + z * z / (2 * trials)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return max(0.0, centre - half), min(1.0, centre + half)
