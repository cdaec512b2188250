"""Runs an event loop in virtual time: sockets are real, waiting takes no time, and every delay is exact.

Both ends of every connection must live in the loop. Whenever nothing is left to read or to run, the clock jumps to the
next timer. `time.perf_counter` tells the same time while it runs.
"""

import asyncio
import selectors
import time
from collections.abc import Coroutine
from typing import Any, TypeVar
from unittest import mock

Result = TypeVar("Result")


class VirtualClock(selectors.DefaultSelector):
    """A selector that never waits for a timer: it moves the clock instead.

    Attributes:
        now: virtual seconds.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready; waits for real only where no timer is set, for a thread."""
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            return super().select(None)
        self.now += timeout
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop over a VirtualClock, `clock`."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        super().__init__(self.clock)

    def time(self) -> float:
        return self.clock.now


def pass_time(seconds: float) -> None:
    """Let time pass as if the running loop had been busy for so long."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.clock.now += seconds


def run_in_virtual_time(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to its end and return its result."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop = runner.get_loop()
        with mock.patch.object(time, "perf_counter", loop.time):
            return runner.run(main)
