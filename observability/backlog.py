"""What the instruments were told and have not worked up yet: calls in order, made later and many at once.

Taking in the events of a step takes 46 µs when it is done over and over (scripts/serving/recorder_cost.py), but 215 µs
in a service that runs beside its engine: it comes once a step, and by then the engine has taken every cache, so the
same instructions and objects are fetched from memory again each time. Ten steps taken in at once pay for that once.

Nothing else changes, for the order is kept and every reader settles first: what it sees is what it would have seen had
each call been made when it was told. Measured in docs/adr/0027.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol, TypeVarTuple, Unpack

Ts = TypeVarTuple("Ts")

DELAY_S: Final = 0.1
MAX_PENDING: Final = 4_096  # events and stamps: about 6 ms of work


class Timer(Protocol):
    """What is due later."""

    def cancel(self) -> None: ...


class Loop(Protocol):
    """The part of an asyncio event loop that a backlog needs; see there."""

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
        self._is_settling = False

    def put(self, call: Callable[[Unpack[Ts]], object], *args: *Ts, weight: int = 1) -> None:
        """Have `call(*args)` made after all that was put before: within `DELAY_S`, or when somebody settles.

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
        if self._num_pending >= MAX_PENDING:
            self.settle()
        elif self._timer is None and not self._is_settling:
            delay_s = min(self._delays)
            if delay_s > 0:
                self._timer = self._loop.call_later(delay_s, self.settle)
            else:
                self.settle()

    def settle(self) -> None:
        """Make every call that is pending; whoever reads what they change calls this first.

        Called by one of them, it does nothing: that one is not half done to those behind it.
        """
        if self._loop is None or self._is_settling or not self._calls:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._num_pending = 0
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

    @contextmanager
    def settling_within(self, seconds: float) -> Iterator[None]:
        """Let nothing that is put meanwhile wait for longer than this; 0 has everything done at once."""
        self._delays.append(seconds)
        try:
            yield
        finally:
            self._delays.remove(seconds)
