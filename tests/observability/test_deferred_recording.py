"""A recorder and tracing that put their work off say, whenever they are asked, what those that don't would say."""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from engine.clock import ManualClock
from engine.events import RequestFailed, StepFinished
from observability.backlog import DELAY_S, Backlog
from observability.live_feed import Happened, live_feed
from observability.recorder import RingSizes
from observability.span_ring import SpanRingSizes
from observability.span_view import TraceFilter
from observability.trace_context import TraceContext
from observability.tracing import Tracing
from tests.support.manual_loop import ManualLoop
from tests.support.span_script import SpanScript

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
SIZES = RingSizes(events=200, steps=20, requests=12)


class Immediate(SpanScript):
    """A span script with memories so small that what comes when makes a difference."""

    def __init__(self, backlog: Backlog | None = None) -> None:
        tracing = Tracing(ManualClock(100.0), ring_sizes=SpanRingSizes(8, 2, 3), backlog=backlog)
        super().__init__(tracing=tracing, ring_sizes=SIZES, backlog=backlog)


class Deferred(Immediate):
    """The same with a backlog, shared by recorder and tracing, on a manual loop."""

    def __init__(self) -> None:
        self.loop = ManualLoop()
        super().__init__(Backlog(self.loop))


class Life:
    """One request of a random load: what may happen to it next, told to every script."""

    def __init__(self, name: str, scripts: Sequence[SpanScript], draw: random.Random) -> None:
        self.name = name
        self._scripts = scripts
        self._draw = draw
        self._by_service = draw.random() < 0.8
        self._stream = draw.random() < 0.6
        self._trace_id = f"{draw.getrandbits(128) | 1:032x}"
        self._contexts: list[TraceContext] = []
        self._num_tokens = 0
        self.is_over = False

    def begin(self) -> None:
        fate = self._draw.random()
        for script in self._scripts:
            if self._by_service:
                traceparent = f"00-{self._trace_id}-00f067aa0ba902b7-01"
                self._contexts.append(script.begin(self.name, traceparent=traceparent, stream=self._stream))
                if fate < 0.06:
                    script.recorder.request_refused(self.name, "invalid_request_error", "too long")
                    continue
                if fate < 0.12:
                    script.recorder.request_abandoned(self.name, "client_gone")
                    continue
                script.recorder.request_encoded(self.name, script.t)
            script.arrive(self.name, num_prompt_tokens=20)
            script.look_up(self.name, num_prompt_tokens=20, num_matched_tokens=4)
            script.schedule(self.name, num_cached_tokens=4)
            script.allocate(1, self.name)
        self.is_over = self._by_service and fate < 0.12

    def go_on(self) -> None:
        first = self._num_tokens == 0
        self._num_tokens += 1
        blocked, taken = self._draw.random() < 0.1, self._draw.random()
        for script in self._scripts:
            script.tokens(self.name, total=self._num_tokens)
            if first and self._by_service:
                script.recorder.sent_first(self.name, script.t + 0.001)
            if blocked and self._by_service:
                script.recorder.send_blocked([self.name], script.t, script.t + 0.01)
        if self._num_tokens > 3 and taken < 0.3:
            self._end()

    def _end(self) -> None:
        self.is_over = True
        how = self._draw.choice(("stop", "length", "abort", "left", "fail"))
        for at, script in enumerate(self._scripts):
            recorder, t = script.recorder, script.t
            if how == "left" and self._by_service:
                recorder.sent_last(self.name, t)
            if how in ("abort", "left"):
                script.abort(self.name)
            elif how == "fail":
                script.say(
                    RequestFailed, request_id=self.name, error_type="internal_error", message="x", num_output_tokens=1
                )
            else:
                super(SpanScript, script).finish(self.name, reason="length", num_output_tokens=self._num_tokens)
            script.release(1, self.name)
            if self._by_service:
                recorder.answer_taken(
                    self.name, t, t + 0.002, detokenize_s=0.001, finish_reason=how if how == "stop" else ""
                )
                script.answered(self.name, answer_id=f"chatcmpl-{self.name}")  # too late for one that was aborted
                recorder.sent_last(self.name, t + 0.003)
                script.exchange(self._contexts[at], t - 0.05)


def everything(script: SpanScript) -> dict[str, Any]:
    """Return what every reader says; the ids of spans are random."""
    recorder, tracing = script.recorder, script.tracing
    table = recorder.requests()
    traces = tracing.traces(TraceFilter())
    details = [tracing.trace(summary["trace_id"]) for summary in traces["traces"]]
    for detail in details:
        assert detail is not None
        for span in detail["spans"]:
            del span["span_id"], span["parent_span_id"]
    return {
        "stats": recorder.stats(),
        "requests": table,
        "each": [recorder.request(row["request_id"]) for row in [*table["in_flight"], *table["recent"]]],
        "steps": recorder.step_table(0, limit=100),
        "traces": traces,
        "spans": details,
        "tape": recorder.tape.read(recorder.tape.first, limit=1_000).events,  # type: ignore[union-attr]
        "snapshot": recorder.tape.snapshot()[1],
        "metrics": ours(script, ""),
        "openmetrics": ours(script, OPENMETRICS),
    }


def ours(script: SpanScript, accept: str) -> list[str]:
    body, _ = script.metrics.render(accept)
    return [line for line in body.decode().splitlines() if "process_" not in line]


@pytest.mark.parametrize("seed", range(6))
def test_deferred_work_gives_what_immediate_work_gives(seed: int) -> None:
    draw = random.Random(seed)
    at_once, deferred = Immediate(), Deferred()
    scripts = (at_once, deferred)
    lives: list[Life] = []
    num_compared = 0
    for number in range(150):
        pause = draw.random() * 0.08
        for script in scripts:
            script.at(script.t + pause)
        deferred.loop.pass_time(pause)
        if draw.random() < 0.4:
            lives.append(Life(f"r{number}", scripts, draw))
            lives[-1].begin()
        if draw.random() < 0.1:
            for script in scripts:
                script.recorder.rejected("invalid_request_error")
        for life in draw.sample(lives, min(3, len(lives))):
            if not life.is_over:
                life.go_on()
        lives = [life for life in lives if not life.is_over]
        for script in scripts:
            script.run_step(0.01, num_running=len(lives))
        if draw.random() < 0.08:
            assert everything(deferred) == everything(at_once)
            num_compared += 1
    assert everything(deferred) == everything(at_once)
    assert num_compared > 3
    assert deferred.loop.errors == []
    counters = at_once.recorder.stats()["counters"]
    assert min(counters[f"requests_{how}"] for how in ("finished", "aborted", "failed", "rejected")) > 0
    assert at_once.recorder.stats()["rings"]["events"]["overwritten"] > 0


READERS: dict[str, Callable[[Deferred], object]] = {
    "stats": lambda script: script.recorder.stats()["counters"]["engine_steps"],
    "steps": lambda script: len(script.recorder.steps()),
    "step_table": lambda script: len(script.recorder.step_table(0, limit=5)["steps"]),
    "requests": lambda script: len(script.recorder.requests()["recent"]),
    "request": lambda script: int(script.recorder.request("a") is not None),
    "metrics": lambda script: script.scrape()["pellucid_engine_steps_total"],
    "traces": lambda script: len(script.tracing.traces(TraceFilter())["traces"]),
    "trace": lambda script: int(script.tracing.trace("a" * 32) is not None),
    "knows": lambda script: int(script.tracing.knows("a" * 32)),
    "tracing stats": lambda script: script.tracing.stats().traces.size,
    "tape read": lambda script: int(isinstance(script.recorder.tape.read(0, limit=99).events[-1], StepFinished)),  # type: ignore[union-attr]
    "tape length": lambda script: int(len(script.recorder.tape) > 1),
    "tape stop": lambda script: int(script.recorder.tape.stop > 1),
    "tape life": lambda script: len(script.recorder.tape.lives),
    "tape start": lambda script: int(script.recorder.tape.settled_now(script.recorder.tape.lives[-1])[1] > 1),
    "snapshot": lambda script: script.recorder.tape.snapshot()[1].step,
}


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_sees_what_was_told_a_moment_ago(reader: str) -> None:
    script = Deferred()
    script.begin("a", traceparent=f"00-{'a' * 32}-00f067aa0ba902b7-01")
    script.arrive("a")
    script.schedule("a")
    script.tokens("a")
    script.run_step()
    script.finish("a")
    script.say(StepFinished, **STEP)
    assert script.loop.waits_s, "nothing is pending: the test proves nothing"
    expected = 2 if reader in ("stats", "steps", "step_table", "metrics") else 1
    assert READERS[reader](script) == expected


STEP = {
    "kind": "decode", "num_seqs": 1, "num_decode_seqs": 1, "num_prefill_tokens": 0, "num_decode_tokens": 1,
    "num_recomputed_tokens": 0, "num_generated_tokens": 1, "token_budget": 256, "num_running": 0, "num_waiting": 0,
    "blocked_on": "", "schedule_s": 0.0, "execute_s": 0.0, "sample_s": 0.0, "update_s": 0.0, "num_free_blocks": 64,
    "num_referenced_blocks": 0, "num_cached_blocks": 0, "num_tail_waste_tokens": 0,
}  # fmt: skip


def test_opening_an_id_in_flight_is_refused_at_once() -> None:
    script = Deferred()
    script.open("a")
    with pytest.raises(ValueError, match="opened before"):
        script.open("a")
    script.open("b")
    script.recorder.stats()
    with pytest.raises(ValueError, match="opened before"):
        script.open("b")
    assert script.loop.errors == []


def test_id_whose_end_is_still_pending_may_be_opened_again() -> None:
    script = Deferred()
    script.open("a")
    script.recorder.request_refused("a", "invalid_request_error")
    script.open("a")
    assert script.recorder.stats()["counters"]["requests_received"] == 2
    assert script.recorder.stats()["gauges"]["in_flight"] == 1


def test_refusals_are_stamped_when_they_are_told() -> None:
    script = Deferred()
    script.open("a")
    script.at(101.0).recorder.request_refused("a", "invalid_request_error")
    script.at(101.05)
    view = script.recorder.request("a")
    assert view is not None
    assert view["stamps"]["ended_s"] == 1.0


def test_events_that_cannot_be_taken_in_are_reported_and_the_next_ones_taken_in() -> None:
    script = Deferred()
    script.recorder.stats()
    script.tokens("nobody")
    script.recorder.consume([object()])  # type: ignore[list-item]
    script.run_step()
    script.loop.pass_time(DELAY_S)
    assert [type(error) for error in script.loop.errors] == [AttributeError] * 2  # the tape's and the recorder's
    assert script.recorder.stats()["counters"]["engine_steps"] == 1


@pytest.mark.parametrize(("interval_s", "settles_within_s"), [(0.0, 0.0), (0.02, 0.02), (10.0, DELAY_S)])
def test_waiting_viewer_hears_of_events_within_its_interval(interval_s: float, settles_within_s: float) -> None:
    async def body() -> None:
        script = Deferred()
        tape = script.recorder.tape
        feed = live_feed(tape, tape.stop, interval_s=interval_s)
        await anext(feed)  # the life
        waiting = asyncio.ensure_future(anext(feed))
        await asyncio.sleep(0)
        script.run_step()
        if settles_within_s:
            assert script.loop.waits_s == [settles_within_s, DELAY_S]  # the tape's, and the recorder's as ever
            script.loop.pass_time(settles_within_s)
            assert (script.loop.waits_s != []) == (settles_within_s < DELAY_S)
        item = await asyncio.wait_for(waiting, 5)
        assert isinstance(item, Happened)
        await feed.aclose()

    asyncio.run(body())
