"""The service's memory of the event stream: bounded, always on, and readable by any number of readers for nothing.

    lives     the stream of one engine process each, seq from 1; a new one begins when seq starts again
    ring      the newest events of all lives, one after another; the oldest give way and are counted
    oldest    what the engine held just before the first event of the ring, so that a trace can begin there
    newest    what it holds now; brought up to date only when somebody asks

A reader keeps nothing but a place (events ever appended before it). What was overwritten meanwhile is counted for it,
so a slow one costs neither memory nor time, and the ring is the only queue there is.

A life's id tells it from every other one, of this service and of others: seq alone means nothing after a restart.
"""

import asyncio
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from engine.clock import Clock
from engine.events import EngineStarted, Event, StepFinished
from observability.backlog import Backlog
from observability.engine_mirror import EngineMirror
from observability.event_ring import EventRing
from observability.snapshot import Snapshot, snapshot_of


@dataclass(slots=True, eq=False)
class Life:
    """One engine process, as far as its events came here.

    Attributes:
        id: unlike that of any other life.
        first: place of its first event.
        stop: place after its last event so far.
        has_ended: a later life has begun.
        started: what it said when it was ready; None if it was lost before.
    """

    id: str
    first: int
    stop: int
    has_ended: bool = False
    started: EngineStarted | None = None


@dataclass(frozen=True, slots=True)
class Passage:
    """What a reader gets: events of one life, in order.

    Attributes:
        life: whose events these are.
        events: without a gap, up to the limit asked for.
        num_lost: events between the reader's place and the first of these that were overwritten.
        next: where to read on.
    """

    life: Life
    events: list[Event]
    num_lost: int
    next: int


@dataclass(slots=True)
class _State:
    """A mirror and the place up to which it has followed."""

    mirror: EngineMirror
    place: int

    def copy(self) -> "_State":
        return _State(self.mirror.copy(), self.place)


class EventTape:
    """One per service, written and read on its event loop; events are immutable and may be passed to threads.

    Args:
        clock: makes the ids of lives.
        capacity: events kept.
        backlog: where what will be appended waits; settled before anything is read. Its own, so that a viewer has
            nothing else done.

    Attributes:
        is_closed: nothing more will come; readers should leave.
    """

    def __init__(self, clock: Clock, *, capacity: int, backlog: Backlog | None = None) -> None:
        self._clock = clock
        self._backlog = backlog if backlog is not None else Backlog()
        self._ring = EventRing(capacity)
        self._oldest = _State(EngineMirror(), 0)
        self._newest: _State | None = None
        self._num_lives = 0
        self._last_seq = 0
        self._num_overwritten = 0
        self._waiters: list[asyncio.Future[None]] = []
        self._lives: deque[Life] = deque()
        self.is_closed = False

    # --- writing ---

    def put(self, events: Sequence[Event]) -> None:
        """Have the events of one message appended before anybody reads."""
        self._backlog.put(self.append, events, weight=len(events))

    def append(self, events: Sequence[Event]) -> None:
        """Take in the events of one message, all of one life, in order."""
        if not events:
            return
        events = list(events)
        if not self._lives or events[0].seq <= self._last_seq:
            self._begin_life()
        self._last_seq = events[-1].seq
        num_overwritten = self._ring.num_overwritten_by(len(events))
        num_skipped = max(0, len(events) - self._ring.capacity)
        if num_overwritten or num_skipped:
            self._follow(self._oldest, self._ring.first + num_overwritten)
        life = self._lives[-1]
        self._ring.extend(events)
        life.stop = self._ring.stop
        if num_skipped:
            self._take_in(self._oldest, life, events[:num_skipped])
        if life.started is None:
            life.started = next((event for event in events if isinstance(event, EngineStarted)), None)
        while self._lives[0].stop <= self._ring.first:
            self._lives.popleft()
        self._num_overwritten += num_overwritten + num_skipped
        self._wake()

    def close(self) -> None:
        """Say that nothing more will come: everyone who waits is woken."""
        self.is_closed = True
        self._wake()

    def _begin_life(self) -> None:
        if self._lives:
            self._lives[-1].has_ended = True
        self._num_lives += 1
        stop = self._ring.stop
        self._lives.append(Life(id=f"{int(self._clock.wall() * 1e3):x}-{self._num_lives}", first=stop, stop=stop))

    # --- reading ---

    @property
    def lives(self) -> Sequence[Life]:
        """Those of which events are held, oldest first; the last one is the current one."""
        self._backlog.settle()
        return self._lives

    @property
    def first(self) -> int:
        """Place of the oldest event held."""
        self._backlog.settle()
        return self._ring.first

    @property
    def stop(self) -> int:
        """Place after the newest event: where a reader of what is still to come begins."""
        self._backlog.settle()
        return self._ring.stop

    @property
    def capacity(self) -> int:
        return self._ring.capacity

    @property
    def num_overwritten(self) -> int:
        """Events that gave way to newer ones."""
        self._backlog.settle()
        return self._num_overwritten

    def __len__(self) -> int:
        self._backlog.settle()
        return len(self._ring)

    def life(self, life_id: str) -> Life | None:
        """Return a life of which events are held; None if it is unknown or forgotten."""
        self._backlog.settle()
        return next((life for life in self._lives if life.id == life_id), None)

    def place_after(self, life: Life, seq: int) -> int:
        """Return the place of the life's first event past number `seq`; may lie before `first`."""
        self._backlog.settle()
        first_held = max(life.first, self._ring.first)
        if first_held >= life.stop:
            return life.stop
        first_seq = self._ring.at(first_held).seq
        if seq < first_seq - 1:
            return max(life.first, first_held - (first_seq - 1 - seq))
        low, high = first_held, life.stop  # by bisection, for a stream with a hole has less places than numbers
        while low < high:
            middle = (low + high) // 2
            if self._ring.at(middle).seq <= seq:
                low = middle + 1
            else:
                high = middle
        return low

    def read(self, place: int, *, limit: int) -> Passage | None:
        """Return what stands from `place` on, of one life and at most `limit` events; None if nothing is there yet."""
        self._backlog.settle()
        start = max(place, self._ring.first)
        if start >= self._ring.stop:
            return None
        life = next(life for life in self._lives if start < life.stop)
        stop = min(life.stop, start + limit)
        return Passage(life=life, events=self._ring.between(start, stop), num_lost=start - place, next=stop)

    async def wait_beyond(self, place: int, *, within_s: float = math.inf) -> None:
        """Return when an event stands at `place` or later, or when the tape is closed.

        Args:
            place: may be one that is still to come.
            within_s: how much later than the event this may return, if that is sooner than the backlog is settled.
        """
        with self._backlog.settling_within(within_s):
            while self.stop <= place and not self.is_closed:
                waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiters.append(waiter)
                try:
                    await waiter
                finally:
                    if waiter in self._waiters:
                        self._waiters.remove(waiter)

    async def rest(self, seconds: float) -> None:
        """Let some more happen; see Backlog.rest."""
        await self._backlog.rest(seconds)

    def _wake(self) -> None:
        if self._waiters:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    # --- states ---

    def catch_up(self, *, limit: int) -> bool:
        """Bring the newest state forward by at most `limit` events; return whether it is up to date."""
        self._backlog.settle()
        if self._newest is None or self._newest.place < self._oldest.place:
            self._newest = self._oldest.copy()
        self._follow(self._newest, min(self._ring.stop, self._newest.place + limit))
        return self._newest.place == self._ring.stop

    def snapshot(self) -> tuple[Life | None, Snapshot]:
        """Return what the engine holds now, and the life it belongs to; None before the first event of all."""
        self.catch_up(limit=self._ring.capacity)
        assert self._newest is not None
        return (self._lives[-1] if self._lives else None), snapshot_of(self._newest.mirror)

    def settled_start(self, life: Life) -> tuple[Snapshot | None, int]:
        """Return where a trace of a life can begin: a state between two steps, and the place of the event after it.

        The state is None at the life's first event, where nothing is held, and when no step ended among the events
        held: then the trace begins with the oldest of them.
        """
        self._backlog.settle()
        if life.first >= self._ring.first:
            return None, life.first
        for place in range(self._ring.first, life.stop):
            if isinstance(self._ring.at(place), StepFinished):
                state = self._oldest.copy()
                self._follow(state, place + 1)
                return snapshot_of(state.mirror), place + 1
        return None, self._ring.first

    def settled_now(self, life: Life) -> tuple[Snapshot | None, int]:
        """Return the latest such beginning, for a recording that starts now; the life must be the current one."""
        self._backlog.settle()
        first_held = max(life.first, self._ring.first)
        for place in range(life.stop - 1, first_held - 1, -1):
            if isinstance(self._ring.at(place), StepFinished):
                state = self._oldest.copy()
                self._follow(state, place + 1)
                return snapshot_of(state.mirror), place + 1
        return self.settled_start(life)

    def between(self, start: int, stop: int) -> list[Event]:
        """Return the events of places start..stop-1, all of which must be held."""
        return self._ring.between(start, stop)

    def _follow(self, state: _State, stop: int) -> None:
        """Let a state follow the ring up to place `stop`."""
        for life in self._lives:
            if state.place < min(life.stop, stop):
                end = min(life.stop, stop)
                self._take_in(state, life, self._ring.between(state.place, end))

    def _take_in(self, state: _State, life: Life, events: Sequence[Event]) -> None:
        if state.place == life.first:
            state.mirror = EngineMirror()
        state.mirror.apply(events)
        state.place += len(events)
