"""Tells when an open load asks for more than the server can do: all it measures from then on is for how long it has."""

import math
from collections import deque
from collections.abc import Sequence

MIN_SAMPLES = 10  # snapshots
T_95 = 1.833  # one-sided 95 % point of Student's t with 9 degrees of freedom; fewer would need more


class SaturationWatch:
    """Looks at the last `num_samples` snapshots: requests in flight and time to first token must both be growing.

    Growing means that the slope of a straight line through the samples is above 0 with 95 % confidence, and that the
    line rises by at least half of the mean, so that a small steady growth at the beginning of a load doesn't count.
    """

    def __init__(self, num_samples: int = 15) -> None:
        assert num_samples >= MIN_SAMPLES
        self._samples: deque[tuple[float, float, float]] = deque(maxlen=num_samples)

    def is_saturated(self, elapsed_s: float, in_flight: int, ttft_s: float | None) -> bool:
        """Take in one snapshot (without a time to first token it is left out) and return the verdict."""
        if ttft_s is not None:
            self._samples.append((elapsed_s, float(in_flight), ttft_s))
        if len(self._samples) < (self._samples.maxlen or 0):
            return False
        moments = [sample[0] for sample in self._samples]
        return all(is_growing(moments, [sample[place] for sample in self._samples]) for place in (1, 2))


def is_growing(moments: Sequence[float], values: Sequence[float]) -> bool:
    """Tell whether the values rise over the moments, by the rule of SaturationWatch."""
    n = len(moments)
    mean_x, mean_y = sum(moments) / n, sum(values) / n
    spread = sum((x - mean_x) ** 2 for x in moments)
    if not spread or mean_y <= 0:
        return False
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(moments, values, strict=True)) / spread
    residual = sum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in zip(moments, values, strict=True))
    error = math.sqrt(residual / (n - 2) / spread)
    return slope > T_95 * error and slope * (moments[-1] - moments[0]) >= 0.5 * mean_y
