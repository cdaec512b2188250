"""The last seconds of a running load: what a snapshot's rates and percentiles are made of."""

from collections import deque

from observability.percentiles import percentiles

QUANTILES = (50.0, 95.0, 99.0)


class LiveWindow:
    """Samples with their moments; those older than `length_s` are forgotten. Moments are monotonic seconds."""

    def __init__(self, length_s: float) -> None:
        self.length_s = length_s
        self._samples: deque[tuple[float, float]] = deque()

    def add(self, moment: float, value: float = 1.0) -> None:
        """Take a sample in; moments may come slightly out of order."""
        self._samples.append((moment, value))

    def forget_before(self, now: float) -> None:
        """Drop what is older than the window at `now`."""
        while self._samples and self._samples[0][0] < now - self.length_s:
            self._samples.popleft()

    def per_second(self, elapsed_s: float) -> float:
        """Return the sum of the values per second; a load younger than the window is divided by its own age."""
        span = min(self.length_s, elapsed_s)
        return sum(value for _, value in self._samples) / span if span > 0 else 0.0

    def quantiles_ms(self) -> tuple[float | None, float | None, float | None]:
        """Return p50, p95 and p99 of values in seconds, in milliseconds; None where samples are too few."""
        found = percentiles([value * 1e3 for _, value in self._samples], QUANTILES)
        return found[50.0], found[95.0], found[99.0]

    def max_ms(self) -> float:
        """Return the largest value in milliseconds, 0 without samples."""
        return max((value for _, value in self._samples), default=0.0) * 1e3
