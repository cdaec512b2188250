"""When the measured part of a closed loop opens and closes.

Both happen at the end of a request, so that streams which run in waves are measured over whole waves. Standard library
only: engines that are measured in their own process import it there.
"""


class Window:
    """Opens at the first end of a request after the warm-up, closes at the first end after it is long enough.

    Args:
        started: monotonic seconds when the loop began.
        warm_up_s: seconds before it may open.
        window_s: least length in seconds.
        min_requests: ends it must have seen, the one that closes it included.
    """

    def __init__(self, started: float, *, warm_up_s: float, window_s: float, min_requests: int) -> None:
        self._started = started
        self._warm_up_s = warm_up_s
        self._window_s = window_s
        self._min_requests = min_requests
        self._num_ended = 0
        self.opened: float | None = None
        self.closed: float | None = None

    def request_ended(self, now: float) -> None:
        """Tell it of the end of a request at `now`, in monotonic seconds."""
        if self.opened is None:
            if now - self._started >= self._warm_up_s:
                self.opened = now
        elif self.closed is None:
            self._num_ended += 1
            if self._num_ended >= self._min_requests and now - self.opened >= self._window_s:
                self.closed = now
