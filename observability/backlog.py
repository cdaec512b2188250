"""What the instruments were told and have not worked up yet: calls in order, made later and many at once.

Taking in the events of a step takes 46 µs when it is done over and over (scripts/serving/recorder_cost.py), but 215 µs
in a service that runs beside its engine: it comes once a step, and by then the engine has taken every cache, so the
same instructions and objects are fetched from memory again each time. Forty steps taken in at once pay for that once.

Nothing else changes, for the order is kept and every reader settles first: what it sees is what it would have seen had
each call been made when it was told. Measured in docs/adr/0027.

A backlog that has waited for a while is worked up the next time it is told something: the loop is awake then anyway,
and the tokens of that step are on their way first. Only when nothing more comes does a timer have to wake it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol, TypeVarTuple, Unpack

Ts = TypeVarTuple("Ts")

DELAY_S: Final = 2.0
RIPE: Final = 0.8  # of the delay
MAX_PENDING: Final = 1_024  # events and stamps: about 3 ms of work, for which tokens wait


class Timer(Protocol):
    """What is due later."""

    def cancel(self) -> None: ...


class Loop(Protocol):
    """The part of an asyncio event loop that a backlog needs; see there."""

    def time(self) -> float: ...

    def call_soon(self, callback: Callable[[], object], /) -> object: ...

    def call_later(self, delay: float, callback: Callable[[], object], /) -> Timer: ...

    def call_exception_handler(self, context: dict[str, Any], /) -> None: ...


class Backlog:
    """One per service, used on its event loop; shared by whatever must be told things in one order.

    A call that raises is reported to the loop's exception handler, as it would be had the loop made it; the calls
    behind it are made all the same.

    Args:
        loop: makes the calls when they are due. Without one, everything is done at once and raises where it is told.
    """

    def __init__(self, loop: Loop | None = None) -> None:
        self._loop = loop
        self._calls: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._num_pending = 0
        self._timer: Timer | None = None
        self._delays = [DELAY_S]
        self._ripe_at = 0.0
        self._is_due = False
        self._is_settling = False
        self._rests: list[tuple[float, asyncio.Event]] = []

    def beside(self) -> "Backlog":
        """Return another one on the same loop, for what needs no order with this one."""
        return Backlog(self._loop)

    def put(self, call: Callable[[Unpack[Ts]], object], *args: *Ts, weight: int = 1) -> None:
        """Have `call(*args)` made after all that was put before: when somebody settles, or within `DELAY_S`.

        With `MAX_PENDING` it is made in the next turn of the loop, and so it is when `RIPE` of the delay is over and
        something else is put.

        Args:
            call: its result is dropped.
            args: must not change any more.
            weight: how much of `MAX_PENDING` it takes.
        """
        if self._loop is None:
            call(*args)
            return
        self._calls.append((call, args))
        self._num_pending += weight
        if self._rests:
            self._end_rests()
        if self._is_settling or self._is_due:
            return
        if self._timer is None:
            delay_s = min(self._delays)
            if delay_s <= 0:
                self.settle()
                return
            self._ripe_at = self._loop.time() + RIPE * delay_s
            self._timer = self._loop.call_later(delay_s, self.settle)
        if self._num_pending >= MAX_PENDING or self._loop.time() >= self._ripe_at:
            self._is_due = True
            self._loop.call_soon(self.settle)

    def settle(self) -> None:
        """Make every call that is pending; whoever reads what they change calls this first.

        Called by one of them, it does nothing: that one is not half done to those behind it.
        """
        if self._loop is None or self._is_settling or not self._calls:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._is_due = False
        self._is_settling = True
        try:
            while self._calls:
                call, args = self._calls.popleft()
                try:
                    call(*args)
                except Exception as error:  # noqa: BLE001 - the loop would have made this call; it would hear of it too
                    self._loop.call_exception_handler({"message": f"Exception in {call!r}", "exception": error})
        finally:
            self._is_settling = False
            self._num_pending = len(self._calls)

    async def rest(self, seconds: float) -> None:
        """Return when so many seconds are over: once something is put then, or a quarter of them later at most.

        While steps go on a reader is so woken behind the tokens of one, and not in the middle by a timer of its own.
        """
        if self._loop is None:
            await asyncio.sleep(seconds)
            return
        is_over = asyncio.Event()
        rest = (self._loop.time() + seconds, is_over)
        timer = self._loop.call_later(seconds / RIPE, is_over.set)
        self._rests.append(rest)
        try:
            await is_over.wait()
        finally:
            timer.cancel()
            self._rests.remove(rest)

    def _end_rests(self) -> None:
        assert self._loop is not None
        now = self._loop.time()
        for ripe_at, is_over in self._rests:
            if now >= ripe_at:
                is_over.set()

    @contextmanager
    def settling_within(self, seconds: float) -> Iterator[None]:
        """Let nothing that is put meanwhile wait for longer than this; 0 has everything done at once."""
        self._delays.append(seconds)
        try:
            yield
        finally:
            self._delays.remove(seconds)
