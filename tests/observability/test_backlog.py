"""Work that is put off: in order, bounded, due within a moment, and never lost."""

import asyncio

import pytest

from observability.backlog import DELAY_S, MAX_PENDING, RIPE, Backlog
from tests.support.manual_loop import ManualLoop


class Told:
    """A backlog on a manual loop, and what it did."""

    def __init__(self) -> None:
        self.loop = ManualLoop()
        self.backlog = Backlog(self.loop)
        self.done: list[object] = []

    def put(self, *names: object, weight: int = 1) -> None:
        for name in names:
            self.backlog.put(self.done.append, name, weight=weight)


@pytest.fixture
def told() -> Told:
    return Told()


def refuse(what: str) -> None:
    raise LookupError(what)


def test_backlog_without_a_loop_does_everything_at_once_and_raises() -> None:
    done: list[int] = []
    backlog = Backlog()
    backlog.put(done.append, 1)
    assert done == [1]
    with pytest.raises(LookupError):
        backlog.put(refuse, "x")
    backlog.settle()


def test_backlog_does_everything_in_order_a_fixed_time_after_the_first(told: Told) -> None:
    told.put("a")
    told.loop.pass_time(DELAY_S / 4)
    told.put("b", "c")
    told.loop.pass_time(DELAY_S / 2)
    assert told.done == []
    told.loop.pass_time(DELAY_S / 4)
    assert told.done == ["a", "b", "c"]
    told.put("d")
    assert told.loop.waits_s == [DELAY_S]


def test_backlog_that_has_waited_is_settled_after_the_turn_in_which_it_is_told_more(told: Told) -> None:
    told.put("a")
    told.loop.pass_time(RIPE * DELAY_S)
    told.put("b", "c")
    assert (told.done, told.loop.waits_s[0]) == ([], 0.0)
    told.loop.pass_time(0.0)
    assert (told.done, told.loop.waits_s) == (["a", "b", "c"], [])


def test_settled_backlog_has_no_timer_left(told: Told) -> None:
    told.put("a")
    told.backlog.settle()
    assert (told.done, told.loop.waits_s) == (["a"], [])
    told.backlog.settle()
    assert told.loop.waits_s == []


def test_backlog_never_holds_more_than_its_bound(told: Told) -> None:
    def turn() -> int:
        told.loop.pass_time(0.0)
        return len(told.done)

    told.put("a", weight=MAX_PENDING - 1)
    assert turn() == 0
    told.put("b")
    assert turn() == 2
    told.put(*range(MAX_PENDING - 1))
    assert turn() == 2
    told.put("last")
    assert turn() == MAX_PENDING + 2
    told.put("large", weight=MAX_PENDING)
    assert turn() == MAX_PENDING + 3
    assert told.loop.waits_s == []


def test_call_that_raises_is_reported_and_the_rest_is_done(told: Told) -> None:
    told.put("a")
    told.backlog.put(refuse, "no")
    told.put("b")
    told.backlog.settle()  # a reader; the failure isn't its own
    assert told.done == ["a", "b"]
    assert [str(error) for error in told.loop.errors] == ["no"]


def test_interrupt_in_a_call_leaves_the_rest_for_later(told: Told) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    told.backlog.put(interrupt)
    told.put("b")
    with pytest.raises(KeyboardInterrupt):
        told.backlog.settle()
    told.backlog.settle()
    assert told.done == ["b"]


def test_call_that_settles_or_puts_sees_only_what_was_before_it(told: Told) -> None:
    def read() -> None:
        told.backlog.put(told.done.append, "put by it")
        told.backlog.settle()
        told.done.append("read")

    told.put("before")
    told.backlog.put(read)
    told.put("behind")
    told.backlog.settle()
    assert told.done == ["before", "read", "behind", "put by it"]
    assert told.loop.waits_s == []


@pytest.mark.parametrize(("asked_s", "expected_s"), [(DELAY_S / 4, DELAY_S / 4), (10 * DELAY_S, DELAY_S)])
def test_whoever_waits_has_it_settled_within_its_time(told: Told, asked_s: float, expected_s: float) -> None:
    with told.backlog.settling_within(asked_s):
        told.put("a")
        assert told.loop.waits_s == [expected_s]
        told.backlog.settle()
    told.put("b")
    assert told.loop.waits_s == [DELAY_S]


def test_whoever_waits_for_no_time_has_everything_done_at_once(told: Told) -> None:
    with told.backlog.settling_within(0.0):
        told.put("a")
        assert told.done == ["a"]


@pytest.mark.parametrize("is_told_more", [True, False])
def test_rest_ends_behind_what_is_put_after_its_time_or_a_quarter_later(told: Told, *, is_told_more: bool) -> None:
    async def body() -> None:
        resting = asyncio.create_task(told.backlog.rest(0.4))

        async def is_over(seconds: float) -> bool:
            told.loop.pass_time(seconds)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            return resting.done()

        await asyncio.sleep(0)
        told.put("early")
        assert not await is_over(0.39)
        told.put("still early")
        assert not await is_over(0.02)
        if is_told_more:
            told.put("a")
            assert await is_over(0.0)
        else:
            assert not await is_over(0.08)
            assert await is_over(0.02)
        told.backlog.settle()
        assert told.loop.waits_s == []

    asyncio.run(body())


def test_rest_that_is_cancelled_leaves_nothing_behind(told: Told) -> None:
    async def body() -> None:
        resting = asyncio.create_task(told.backlog.rest(0.4))
        await asyncio.sleep(0)
        resting.cancel()
        await asyncio.wait({resting})
        assert told.loop.waits_s == []

    asyncio.run(body())


def test_backlog_runs_on_a_real_event_loop() -> None:
    async def body() -> list[dict[str, object]]:
        loop = asyncio.get_running_loop()
        reports: list[dict[str, object]] = []
        loop.set_exception_handler(lambda _, context: reports.append(context))
        done = asyncio.Event()
        backlog = Backlog(loop)
        backlog.put(refuse, "no")
        backlog.put(done.set)
        await asyncio.wait_for(done.wait(), 10)
        return reports

    (report,) = asyncio.run(body())
    assert isinstance(report["exception"], LookupError)
