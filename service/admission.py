"""Permits with a lifetime: how many choices may be running or waiting at once; the next one is refused, not queued."""

from collections.abc import Iterator
from contextlib import contextmanager

from engine.errors import InvalidRequestError, QueueFullError


class Admission:
    """Counts choices from the parsed body to the last byte.

    Args:
        capacity: choices that may be in the service at once: those that can run plus those that may wait.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._taken = 0

    @property
    def taken(self) -> int:
        """Choices admitted and not yet over."""
        return self._taken

    @property
    def capacity(self) -> int:
        return self._capacity

    @contextmanager
    def permit(self, num_choices: int) -> Iterator[None]:
        """Hold room for `num_choices` while the block runs.

        Raises:
            InvalidRequestError: it could never fit.
            QueueFullError: it doesn't fit now.
        """
        if num_choices > self._capacity:
            raise InvalidRequestError(
                f"`n` times the number of prompts must be at most {self._capacity}, got {num_choices}", param="n"
            )
        if self._taken + num_choices > self._capacity:
            raise QueueFullError(
                f"the queue is full: {self._taken} of {self._capacity} places are taken, {num_choices} asked for"
            )
        self._taken += num_choices
        try:
            yield
        finally:
            self._taken -= num_choices
