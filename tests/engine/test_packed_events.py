"""Events that stay packed until somebody looks at one."""

from collections.abc import Sequence

import msgspec
import pytest

from engine.clock import ManualClock
from engine.events import Event, EventLog, StepStarted
from engine.packed_events import PackedEvents


def some_events(num_events: int) -> Sequence[Event]:
    log = EventLog(ManualClock(2.0))
    for number in range(num_events):
        log.emit(StepStarted, num_waiting=number, num_running=1)
    return log.drain()


@pytest.mark.parametrize("num_events", [0, 1, 15, 16, 65_535, 65_536])
def test_packed_events_are_the_events_that_were_packed(num_events: int) -> None:
    events = some_events(num_events)
    packed = PackedEvents(msgspec.msgpack.encode(events))
    assert (len(packed), bool(packed)) == (num_events, num_events > 0)
    assert list(packed) == events
    assert (len(packed), list(packed)) == (num_events, events)
    assert list(reversed(packed[-2:])) == events[-2:][::-1]


def test_packed_events_are_unpacked_once_and_not_before_somebody_looks() -> None:
    packed = PackedEvents(b"\x91\xc0")  # nil is no event
    assert len(packed) == 1
    with pytest.raises(msgspec.ValidationError):
        packed[0]
    good = PackedEvents(msgspec.msgpack.encode(some_events(2)))
    assert good[0] is good[0]
    assert next(iter(good)) is good[0]
