"""A bounded memory of events, addressed by how many came before: it never moves what it holds."""

from collections.abc import Sequence
from typing import cast

from engine.events import Event


class EventRing:
    """Keeps the newest `capacity` events.

    A place is the number of events ever appended before the one that stands there. `first..stop-1` are the places held.

    Args:
        capacity: at least 1.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"`capacity` must be at least 1, got {capacity}")
        self.capacity = capacity
        self.first = 0
        self.stop = 0
        self._slots: list[Event | None] = [None] * capacity

    def __len__(self) -> int:
        return self.stop - self.first

    def num_overwritten_by(self, num_events: int) -> int:
        """Return how many of the events held an append of so many will overwrite."""
        return min(len(self), max(0, len(self) + num_events - self.capacity))

    def extend(self, events: Sequence[Event]) -> None:
        """Append events; the oldest give way."""
        stop = self.stop + len(events)
        kept = events[-self.capacity :]
        at = (stop - len(kept)) % self.capacity
        num_before_wrap = min(len(kept), self.capacity - at)
        self._slots[at : at + num_before_wrap] = kept[:num_before_wrap]
        self._slots[: len(kept) - num_before_wrap] = kept[num_before_wrap:]
        self.stop = stop
        self.first = max(self.first, stop - self.capacity)

    def at(self, place: int) -> Event:
        """Return one event; raises IndexError outside `first..stop-1`."""
        if not self.first <= place < self.stop:
            raise IndexError(f"place {place} is not in {self.first}..{self.stop - 1}")
        event = self._slots[place % self.capacity]
        assert event is not None
        return event

    def between(self, start: int, stop: int) -> list[Event]:
        """Return the events of places start..stop-1, all of which must be held."""
        if start >= stop:
            return []
        if start < self.first or stop > self.stop:
            raise IndexError(f"places {start}..{stop - 1} are not in {self.first}..{self.stop - 1}")
        a, b = start % self.capacity, (stop - 1) % self.capacity + 1
        return cast(list[Event], self._slots[a:b] if a < b else self._slots[a:] + self._slots[:b])
