"""Has it become slower? A run is compared with the median of the good runs before it on the same machine and settings.

A run that regressed is never added, so a baseline can't creep downwards. What counts as a regression depends on how
much the good runs differ among themselves.
"""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

MAX_RUNS = 20
MIN_TOLERANCE = 0.10
FEW_RUNS = 3  # with fewer, the noise is not known
FEW_TOLERANCE = 0.25  # what a shared host drifts by in an hour
_SIGMAS = 3.0
_MAD_TO_SIGMA = 1.4826


class Run(msgspec.Struct, frozen=True):
    """One good run: figures of which more is better, by name, and what they were measured on."""

    fingerprint: dict[str, str]
    figures: dict[str, float]


@dataclass(frozen=True, slots=True)
class Regression:
    """A figure that fell further below the baseline than noise explains."""

    name: str
    value: float
    baseline: float
    tolerance: float

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.value:.4g} is {1 - self.value / self.baseline:.0%} below the baseline of "
            f"{self.baseline:.4g}, {self.tolerance:.0%} is tolerated"
        )


class Baseline:
    """The good runs of a file, oldest first; the file needn't exist.

    Raises:
        ValueError: the file is no baseline.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._runs = msgspec.json.decode(path.read_bytes(), type=list[Run]) if path.exists() else []
        except msgspec.DecodeError as error:
            raise ValueError(f"{path} is no baseline: {error}") from None

    def regressions(self, run: Run) -> list[Regression]:
        """Compare with the good runs of the same fingerprint; a figure that none of them has can't regress."""
        good = [each for each in self._runs if each.fingerprint == run.fingerprint]
        found = []
        for name, value in run.figures.items():
            before = [each.figures[name] for each in good if name in each.figures]
            if not before:
                continue
            median = statistics.median(before)
            tolerance = _tolerance(before, median)
            if value < median * (1 - tolerance):
                found.append(Regression(name, value, median, tolerance))
        return found

    def add(self, run: Run) -> None:
        """Keep a run that did not regress, and forget the oldest of too many with its fingerprint."""
        same = [each for each in self._runs if each.fingerprint == run.fingerprint]
        others = [each for each in self._runs if each.fingerprint != run.fingerprint]
        self._runs = [*others, *[*same, run][-MAX_RUNS:]]
        self._path.write_bytes(msgspec.json.format(msgspec.json.encode(self._runs)) + b"\n")


def fingerprint(facts: Mapping[str, object]) -> dict[str, str]:
    """Return the facts as text, so that equal ones compare equal after a file."""
    return {name: str(value) for name, value in facts.items()}


def _tolerance(before: list[float], median: float) -> float:
    if len(before) < FEW_RUNS:
        return FEW_TOLERANCE
    deviation = statistics.median(abs(value - median) for value in before)
    return max(MIN_TOLERANCE, _SIGMAS * _MAD_TO_SIGMA * deviation / median)
