"""The part of an event loop that a backlog needs, in a time that a test moves."""

from collections.abc import Callable
from typing import Any


class ManualTimer:
    """One call that is due, unless it is cancelled."""

    def __init__(self, due: float, callback: Callable[[], object]) -> None:
        self.due = due
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class ManualLoop:
    """Makes calls when `pass_time` reaches them.

    Attributes:
        errors: what was reported to its exception handler.
    """

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self._now = 0.0
        self._timers: list[ManualTimer] = []

    @property
    def waits_s(self) -> list[float]:
        """How long each timer that runs still has."""
        self._timers = [timer for timer in self._timers if not timer.is_cancelled]
        return sorted(timer.due - self._now for timer in self._timers)

    def time(self) -> float:
        return self._now

    def call_soon(self, callback: Callable[[], object], /) -> ManualTimer:
        return self.call_later(0.0, callback)

    def call_later(self, delay: float, callback: Callable[[], object], /) -> ManualTimer:
        timer = ManualTimer(self._now + delay, callback)
        self._timers.append(timer)
        return timer

    def call_exception_handler(self, context: dict[str, Any], /) -> None:
        self.errors.append(context["exception"])

    def pass_time(self, seconds: float) -> None:
        """Move time forward and make the calls that are due."""
        self._now += seconds
        due = [timer for timer in self._timers if timer.due <= self._now]
        self._timers = [timer for timer in self._timers if timer.due > self._now]
        for timer in sorted(due, key=lambda timer: timer.due):
            if not timer.is_cancelled:
                timer.callback()
