"""A mergeable latency histogram of bounded relative error, for percentiles over a sliding window."""

import math
from collections.abc import Iterable

from observability.percentiles import min_samples, rank

# Bucket i holds values in (GAMMA**(i-1), GAMMA**i] microseconds and answers with the geometric middle, so an answer is
# off by at most half a percent. (The idea of DDSketch, arXiv 1908.10693, without its bound on the bucket count: a
# latency between 1 us and 1 h needs at most 2,200 of them, and a window in practice some dozens.)
GAMMA = 1.01
_PER_LOG = 1.0 / math.log(GAMMA)
_UNIT = 1e-6
_ZERO = -(1 << 30)  # the bucket of everything up to one unit: shown as 0


class Sketch:
    """Counts of values in seconds by logarithmic bucket.

    Attributes:
        n: how many values were added.
    """

    __slots__ = ("_counts", "n")

    def __init__(self) -> None:
        self.n = 0
        self._counts: dict[int, int] = {}

    def add(self, value: float, count: int = 1) -> None:
        """Add `value` seconds `count` times."""
        index = math.ceil(math.log(value / _UNIT) * _PER_LOG) if value > _UNIT else _ZERO
        counts = self._counts
        counts[index] = counts.get(index, 0) + count
        self.n += count

    @classmethod
    def merged(cls, parts: Iterable["Sketch"]) -> "Sketch":
        """Return the sketch of all values of all parts; exact in the counts."""
        whole = cls()
        counts = whole._counts
        for part in parts:
            whole.n += part.n
            for index, count in part._counts.items():
                counts[index] = counts.get(index, 0) + count
        return whole

    def percentile(self, q: float) -> float | None:
        """Return the q-th percentile (nearest rank, within 0.5 %) in seconds, None where n is too small for it."""
        if self.n < min_samples(q):
            return None
        remaining = rank(self.n, q)
        for index in sorted(self._counts):
            remaining -= self._counts[index]
            if remaining <= 0:
                return 0.0 if index == _ZERO else _UNIT * math.exp((index - 0.5) / _PER_LOG)
        raise AssertionError(f"{self.n} values but the counts sum to less")
