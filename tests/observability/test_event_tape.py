"""The tape against a plain list, with messages of every length, rings of every size and engines that restart."""

import asyncio
import random
from pathlib import Path

import pytest

from engine.clock import ManualClock
from engine.events import EngineFailed, Event, StepFinished
from observability.engine_mirror import EngineMirror
from observability.event_ring import EventRing
from observability.event_tape import EventTape
from observability.live_feed import Happened, LifeBegins, Missed, live_feed
from observability.snapshot import snapshot_of
from observability.trace_check import check_trace
from observability.trace_file import TraceWriter
from tests.support.trace_script import header, rounds
from tests.support.workload import run_engine

POOL = {"block_size": 4, "num_blocks": 24, "max_num_seqs": 6, "max_num_batched_tokens": 24}


@pytest.fixture(scope="module")
def lives() -> list[list[Event]]:
    """Three engine lives, the first two of them lost."""
    made = []
    for seed in range(3):
        events = run_engine(seed=seed, num_requests=15).events
        last = events[-1]
        if seed < 2:
            events = [*events, EngineFailed(seq=last.seq + 1, t=last.t, step=last.step, error="killed", lost=True)]
        made.append(events)
    return made


def cut(events: list[Event], draw: random.Random, longest: int) -> list[list[Event]]:
    """Cut a life into messages of random lengths."""
    messages, place = [], 0
    while place < len(events):
        size = draw.randint(1, longest)
        messages.append(events[place : place + size])
        place += size
    return messages


@pytest.mark.parametrize("seed", range(8))
def test_ring_holds_the_newest_events_at_their_places(seed: int) -> None:
    draw = random.Random(seed)
    events = rounds(20)
    ring, plain, place = EventRing(draw.choice([1, 2, 7, 64, 500])), [], 0
    while place < len(events):
        message = events[place : place + draw.randint(1, 90)]
        before = len(ring)
        assert ring.num_overwritten_by(len(message)) == min(before, max(0, before + len(message) - ring.capacity))
        ring.extend(message)
        plain += message
        place += len(message)
        assert (ring.stop, len(ring)) == (len(plain), min(len(plain), ring.capacity))
        assert ring.between(ring.first, ring.stop) == plain[-ring.capacity :]
        a = draw.randint(ring.first, ring.stop)
        b = draw.randint(a, ring.stop)
        assert ring.between(a, b) == plain[a:b]
        assert ring.at(ring.first) is plain[ring.first]
    for bad in (ring.first - 1, ring.stop):
        with pytest.raises(IndexError):
            ring.at(bad)
    with pytest.raises(IndexError):
        ring.between(ring.first - 1, ring.stop)


@pytest.mark.parametrize("seed", range(12))
def test_tape_says_what_a_plain_list_says_and_every_trace_cut_from_it_is_sound(
    seed: int, lives: list[list[Event]], tmp_path: Path
) -> None:
    draw = random.Random(seed)
    tape = EventTape(ManualClock(5.0), capacity=draw.choice([1, 30, 300, 1_000, 100_000]))
    plain: list[tuple[int, Event]] = []
    for number, life in enumerate(lives):
        mirror = EngineMirror()
        for message in cut(life, draw, draw.choice([3, 80, 700])):
            tape.append(message)
            plain += [(number, event) for event in message]
            mirror.apply(message)
            if draw.random() < 0.1:
                current, snapshot = tape.snapshot()
                assert current is tape.lives[-1]
                assert snapshot == snapshot_of(mirror)
        assert tape.num_overwritten == len(plain) - len(tape)
        held = plain[len(plain) - len(tape) :]
        assert [life.stop - max(life.first, tape.first) for life in tape.lives] == [
            sum(1 for n, _ in held if n == which) for which in sorted({n for n, _ in held})
        ]
        assert len({life.id for life in tape.lives}) == len(tape.lives)
        for one in tape.lives:
            beginning, start = tape.settled_start(one)
            events = tape.between(start, one.stop)
            path = tmp_path / "cut.jsonl"
            with TraceWriter(path, header(**POOL, num_dropped_events=start - one.first), beginning) as writer:
                writer.write(events)
            report = check_trace(path)
            assert report.ok, report.to_text()
            if any(isinstance(event, StepFinished) for event in tape.between(max(one.first, tape.first), one.stop)):
                assert report.from_start or report.from_snapshot


def test_place_after_a_number_is_where_reading_goes_on(lives: list[list[Event]]) -> None:
    tape = EventTape(ManualClock(), capacity=1_000)
    tape.append(lives[0][:5])
    tape.append(lives[1])
    life = tape.lives[-1]
    first_held = lives[1][max(0, tape.first - life.first)].seq
    for seq in (0, 3, first_held - 1, first_held, first_held + 7, lives[1][-1].seq, lives[1][-1].seq + 50):
        place = tape.place_after(life, seq)
        passage = tape.read(place, limit=10)
        if seq >= lives[1][-1].seq:
            assert passage is None
            continue
        assert passage is not None
        assert passage.events[0].seq == max(seq + 1, first_held)
        assert passage.num_lost == max(0, first_held - seq - 1)
        assert passage.next == place + passage.num_lost + 10 or passage.next == tape.stop


def test_feed_gives_a_slow_viewer_what_is_left_and_counts_the_rest(lives: list[list[Event]]) -> None:
    async def body() -> None:
        tape = EventTape(ManualClock(), capacity=100)
        feed = live_feed(tape, 0, interval_s=0.0)
        tape.append(lives[0][:60])
        first = await anext(feed)
        assert isinstance(first, LifeBegins)
        happened = await anext(feed)
        assert isinstance(happened, Happened)
        assert happened.events == lives[0][:60]
        tape.append(lives[0][60:300])
        missed = await anext(feed)
        assert missed == Missed(tape.lives[0], 140)
        rest = await anext(feed)
        assert isinstance(rest, Happened)
        assert rest.events == lives[0][200:300]
        tape.append(lives[1][:3])
        again = await anext(feed)
        assert isinstance(again, LifeBegins)
        assert again.life is tape.lives[-1]
        assert (await anext(feed)).life is tape.lives[-1]
        waiting = asyncio.ensure_future(anext(feed, None))
        await asyncio.sleep(0)
        assert not waiting.done()
        tape.close()
        assert await waiting is None

    asyncio.run(body())


def test_waiting_viewer_that_leaves_leaves_nothing_behind() -> None:
    async def body() -> None:
        tape = EventTape(ManualClock(), capacity=100)
        waiting = [asyncio.ensure_future(tape.wait_beyond(tape.stop)) for _ in range(50)]
        await asyncio.sleep(0)
        for task in waiting[:49]:
            task.cancel()
        await asyncio.wait(waiting[:49])
        tape.append(rounds(1))
        await asyncio.wait_for(waiting[49], 5)

    asyncio.run(body())
