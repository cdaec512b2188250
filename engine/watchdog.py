"""The watchdog: a step that schedules nothing while something waits is a bug, and it has a name."""

from engine.events import EventSink, Stalled


class Watchdog:
    """Counts empty steps in a row and says `stalled` when there are too many.

    Args:
        num_steps: empty steps in a row before it barks; it barks again after every so many further ones.
        events: where it says so.
    """

    def __init__(self, *, num_steps: int, events: EventSink) -> None:
        self._num_steps = num_steps
        self._events = events
        self._num_empty = 0

    def saw_progress(self) -> None:
        """Note a step that computes something, or one with nothing to do."""
        self._num_empty = 0

    def saw_empty_step(self, *, request_id: str, cause: str, num_waiting: int, num_running: int) -> None:
        """Note an empty step although `request_id` could not go on because of `cause`."""
        self._num_empty += 1
        if self._num_empty % self._num_steps == 0:
            self._events.emit(
                Stalled,
                request_id=request_id,
                cause=cause,
                num_steps=self._num_empty,
                num_waiting=num_waiting,
                num_running=num_running,
            )
