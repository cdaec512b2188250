"""The event stream as it happens, for one viewer among many.

A viewer is a place on the tape and nothing else. It is woken when something happens, but at most every `interval_s` and
behind the tokens of a step, and then gets all that came meanwhile, at most `MAX_EVENTS` at a time. One that reads too
slowly finds that the ring has gone on without it and is told how much it missed; nothing is queued for it.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final

from engine.events import Event
from observability.event_tape import EventTape, Life

MAX_EVENTS: Final = 2_048


@dataclass(frozen=True, slots=True)
class LifeBegins:
    """What follows is said by this engine process; comes first of all, and again after a restart."""

    life: Life


@dataclass(frozen=True, slots=True)
class Missed:
    """Events that were overwritten before the viewer came to them."""

    life: Life
    num_events: int


@dataclass(frozen=True, slots=True)
class Happened:
    """Events in order, without a gap."""

    life: Life
    events: list[Event]


FeedItem = LifeBegins | Missed | Happened


async def live_feed(tape: EventTape, place: int, *, interval_s: float) -> AsyncGenerator[FeedItem, None]:
    """Yield what stands on the tape from `place` on, as it comes, until the tape is closed.

    Args:
        tape: read only.
        place: where to begin; `tape.stop` for what is still to come.
        interval_s: shortest time from one wake-up to the next.
    """
    life: Life | None = None
    while not tape.is_closed:
        passage = tape.read(place, limit=MAX_EVENTS)
        if passage is None:
            if life is None and tape.lives and place == tape.stop:
                life = tape.lives[-1]
                yield LifeBegins(life)
            await tape.wait_beyond(place, within_s=interval_s)
            continue
        if passage.life is not life:
            life = passage.life
            yield LifeBegins(life)
        if passage.num_lost:
            yield Missed(life, passage.num_lost)
        place = passage.next
        yield Happened(life, passage.events)
        if len(passage.events) < MAX_EVENTS:  # nearly up to date: let some more happen before the next word
            await tape.rest(interval_s)
