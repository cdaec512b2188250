"""Time, injected. The only module of the engine that reads a clock."""

import time
from typing import Protocol


class Clock(Protocol):
    """A source of monotonic time in seconds."""

    def now(self) -> float:
        """Return monotonic seconds; comparable between processes of one machine (CLOCK_MONOTONIC)."""
        ...

    def wall(self) -> float:
        """Return seconds since the Unix epoch, for display and trace headers only, never for intervals."""
        ...


class SystemClock:
    """The machine's own clocks. Their functions themselves, for every event is stamped: a wrapper would double that."""

    now = staticmethod(time.monotonic)
    wall = staticmethod(time.time)


class ManualClock:
    """A clock that moves only when told to, for tests and simulation.

    Args:
        now: the first monotonic reading, in seconds.
    """

    def __init__(self, now: float = 0.0) -> None:
        self._now = now

    def now(self) -> float:
        return self._now

    def wall(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """Move time forward; raises ValueError on a negative step."""
        if seconds < 0:
            raise ValueError(f"a monotonic clock can't go back: {seconds}")
        self._now += seconds
