"""loadtest/load_run.py against a server whose timings are known: what is sent, what is counted, what is left behind."""

import asyncio
import json
import time
from typing import Any

import msgspec
import pytest

from loadtest.arrivals import Arrivals, Closed, Constant, Sweep
from loadtest.errors import PlanError, TargetError
from loadtest.lengths import Fixed
from loadtest.load_result import LoadResult
from loadtest.load_run import run_load
from loadtest.plan import LoadPlan
from loadtest.slo import Slos
from loadtest.snapshot import LoadSnapshot
from loadtest.target import Target
from tests.support.timed_server import (
    COMMENT,
    DONE,
    ROLE,
    Refusal,
    Script,
    TimedServer,
    at,
    content,
    finish,
    steady,
    timed_server,
    usage,
)

LATE_S = 0.15  # how late this machine may be, with everything else that runs on it


def plan(arrivals: Arrivals, **fields: Any) -> LoadPlan:
    defaults: dict[str, Any] = {"prompt_tokens": Fixed(tokens=20), "output_tokens": Fixed(tokens=4)}
    return LoadPlan(arrivals=arrivals, **{**defaults, **fields})


def load(server: TimedServer, wanted: LoadPlan, **options: Any) -> LoadResult:
    return asyncio.run(run_load(Target(url=server.url), wanted, **options))


def ms(seconds: float) -> Any:
    return pytest.approx(seconds * 1e3, abs=LATE_S * 1e3)


def test_load_known_stream_is_measured_from_content_to_finish_with_tokens_from_usage() -> None:
    """A role chunk, a comment, two tokens in one chunk and a late usage chunk are none of them what they seem."""
    events = [at(0.01, ROLE), at(0.05, COMMENT), at(0.5, content("two tokens")), at(0.9, finish())]
    with timed_server(lambda number, body: [*events, at(1.5, usage(2, cached=7)), at(1.5, DONE)]) as server:
        result = load(server, plan(Closed(concurrency=1), num_requests=1))
    metrics = result.stages[0].metrics
    assert metrics["time_to_first_token"].avg == ms(0.5)
    assert metrics["request_latency"].avg == ms(0.9)
    assert metrics["inter_token_latency"].avg == ms(0.4)
    assert metrics["output_sequence_length"].avg == 2
    assert metrics["input_sequence_length"].avg == 10
    assert metrics["cached_prompt_tokens"].avg == 7
    assert metrics["inter_chunk_latency"].count == 0
    assert result.requests[0].request_id == "req-1"


def test_load_scripted_percentiles_are_measured() -> None:
    """Nine answers of ten start after 30 ms, one after 300; all have gaps of 20 ms."""
    script: Script = lambda number, body: steady(4, first_s=0.3 if number % 10 == 0 else 0.03, gap_s=0.02)  # noqa: E731
    with timed_server(script) as server:
        result = load(server, plan(Constant(rate=100), num_requests=100, slos=Slos(ttft_ms=200)))
    stage = result.stages[0]
    assert (stage.counts.ok, stage.counts.failed) == (100, 0)
    first = stage.metrics["time_to_first_token"]
    assert (first.p50, first.p90, first.p95, first.p99) == (ms(0.03), ms(0.03), ms(0.3), ms(0.3))
    assert first.p50 is not None
    assert 30 <= first.p50 < 60
    gaps = stage.metrics["inter_chunk_latency"]
    assert (gaps.count, gaps.p50) == (300, pytest.approx(20, abs=8))
    assert (stage.attainment.good, stage.attainment.total) == (90, 100)


def test_load_requests_are_the_same_for_equal_seeds_and_no_two_prompts_are_alike() -> None:
    seen: list[list[str]] = []
    for seed in (5, 5, 6):
        with timed_server(lambda number, body: steady(1)) as server:
            load(server, plan(Closed(concurrency=2), num_requests=8, seed=seed))
        seen.append(sorted(json.dumps(body, sort_keys=True) for body in server.bodies[1:]))
    assert seen[0] == seen[1] != seen[2]
    assert len(set(seen[0])) == 8
    assert server.bodies[1].keys() == {
        *("model", "messages", "max_tokens", "stream", "stream_options", "temperature", "ignore_eos")
    }


@pytest.mark.parametrize(
    ("script", "status", "error"),
    [
        (lambda number, body: Refusal(429) if number else steady(1), "rejected", "HTTP 429"),
        (lambda number, body: Refusal(500) if number else steady(1), "failed", "HTTP 500"),
        (lambda number, body: steady(3)[: -1 if number else None], "failed", "without [DONE]"),
        (lambda number, body: [at(0, content("x")), at(0, DONE)] if number else steady(1), "failed", "finish reason"),
        (
            lambda number, body: [at(0, content("x")), at(0, {"error": {"message": "lost"}})] if number else steady(1),
            "failed",
            "lost",
        ),
    ],
)
def test_load_answer_that_is_not_whole_is_never_a_success(script: Script, status: str, error: str) -> None:
    with timed_server(script) as server:
        result = load(server, plan(Constant(rate=200), num_requests=3))
    stage = result.stages[0]
    assert [request.status for request in result.requests] == [status] * 3
    assert (stage.attainment.good, stage.attainment.total) == (0, 3)
    assert stage.metrics["request_latency"].count == stage.metrics["time_to_first_token"].count == 0
    assert error in next(iter(stage.errors))
    assert stage.rates.output_tokens == stage.rates.requests_done == 0


def test_load_stalled_server_costs_every_request_that_was_due_meanwhile() -> None:
    """Coordinated omission: 100 requests/s over 4 connections meet a stall of 0.5 s, so 50 of them wait up to 0.5 s."""
    stalled: list[float] = []

    def script(number: int, body: Any) -> Any:
        now = time.perf_counter()
        if number == 51:
            stalled.append(now)
        return steady(1, first_s=max(0.0, stalled[0] + 0.5 - now) if stalled else 0.0)

    with timed_server(script) as server:
        result = load(server, plan(Constant(rate=100), num_requests=200, max_connections=4))
    metrics = result.stages[0].metrics
    assert server.most_at_once <= 4
    assert metrics["time_to_first_token"].p99 == ms(0.5)
    # About a fifth of the requests waited for more than 0.1 s; the server's own clock would say so of four.
    waited = [request for request in result.requests if request.ttft_s is not None and request.ttft_s > 0.1]
    assert 30 <= len(waited) <= 75
    after_send = [
        request for request in result.requests if request.sent_s and (request.first_token_s or 0) - request.sent_s > 0.1
    ]
    assert len(after_send) <= 8
    assert metrics["connection_wait"].max == ms(0.48)


def test_load_busy_generator_reports_its_own_lateness() -> None:
    blocked: list[float] = []

    def block_once(snapshot: LoadSnapshot) -> None:
        if snapshot.num_sent and not blocked:
            blocked.append(snapshot.elapsed_s)
            time.sleep(0.3)

    with timed_server(lambda number, body: steady(1)) as server:
        wanted = plan(Constant(rate=50), num_requests=50)
        result = load(server, wanted, on_progress=block_once, snapshot_every_s=0.1)
    assert result.stages[0].metrics["request_dispatch_delay"].max == ms(0.3)
    assert result.stages[0].metrics["time_to_first_token"].max == ms(0.3)
    assert max(snapshot.lateness_max_ms for snapshot in result.timeline) == ms(0.3)


def test_load_warm_up_is_sent_but_not_measured() -> None:
    script: Script = lambda number, body: steady(1, first_s=0.2 if number < 10 else 0.0)  # noqa: E731
    with timed_server(script) as server:
        result = load(server, plan(Constant(rate=50), duration_s=0.6, warm_up_s=0.3))
    stage = result.stages[0]
    assert len(server.bodies) == 1 + 30
    assert (stage.counts.warm_up, stage.counts.ok) == (15, 15)
    assert stage.metrics["time_to_first_token"].count == 15
    assert (stage.metrics["time_to_first_token"].max or 1e9) < 190
    assert stage.rates.requests_planned == pytest.approx(50)
    assert stage.window_s == pytest.approx(0.3, abs=LATE_S)


def test_load_what_is_not_over_in_time_is_a_failure() -> None:
    with timed_server(lambda number, body: steady(2, gap_s=9.0 if number else 0.0)) as server:
        result = load(server, plan(Constant(rate=100), num_requests=2, drain_s=0.1))
        server.until(lambda: not server.running)
    assert [request.status for request in result.requests] == ["failed"] * 2
    assert result.stages[0].errors == {"not over 0.1 s after sending ended": 2}
    assert server.left == 2


def test_load_stopped_and_started_again_leaves_no_old_streams() -> None:
    async def both(server: TimedServer) -> tuple[LoadResult, LoadResult]:
        stop = asyncio.Event()
        wanted = plan(Closed(concurrency=8), duration_s=60)
        first = asyncio.create_task(run_load(Target(url=server.url), wanted, stop=stop))
        await asyncio.to_thread(server.until, lambda: len(server.bodies) == 9)
        stop.set()
        stopped = await first
        await asyncio.to_thread(server.until, lambda: not server.running)
        server.most_at_once = 0
        return stopped, await run_load(Target(url=server.url), plan(Closed(concurrency=3), num_requests=12))

    with timed_server(lambda number, body: steady(2, gap_s=30.0 if 0 < number < 9 else 0.01)) as server:
        stopped, again = asyncio.run(both(server))
    assert stopped.stop_reason == "stopped"
    assert stopped.stages[0].counts.cut == 8
    assert stopped.stages[0].attainment.total == 0  # without SLOs they could all still have become good
    assert server.left == 8
    assert again.stages[0].counts.ok == 12
    assert server.most_at_once <= 3


def test_load_cancelled_leaves_nothing_running() -> None:
    async def cancel(server: TimedServer) -> None:
        task = asyncio.create_task(run_load(Target(url=server.url), plan(Closed(concurrency=4), duration_s=60)))
        await asyncio.to_thread(server.until, lambda: len(server.bodies) == 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with timed_server(lambda number, body: steady(2, gap_s=30.0 if number else 0.0)) as server:
        asyncio.run(cancel(server))
        server.until(lambda: not server.running)


def test_load_closed_loop_that_is_refused_pauses_instead_of_hammering() -> None:
    with timed_server(lambda number, body: Refusal(503) if number else steady(1)) as server:
        result = load(server, plan(Closed(concurrency=2), duration_s=0.9))
    assert {request.status for request in result.requests} == {"rejected"}
    assert len(server.bodies) <= 1 + 2 * 3  # at 0, 0.25 and 0.75 s


def test_load_snapshots_count_and_encode_to_json() -> None:
    seen: list[LoadSnapshot] = []
    with timed_server(lambda number, body: steady(2, gap_s=0.1)) as server:
        wanted = plan(Constant(rate=20), num_requests=10)
        result = load(server, wanted, on_progress=seen.append, snapshot_every_s=0.1)
    assert seen == list(result.timeline)
    assert result.stop_reason == "finished"
    assert seen[0].num_sent == 0
    assert {snapshot.phase for snapshot in seen} == {"running", "draining", "done"}
    last = seen[-1]
    assert (last.phase, last.num_sent, last.num_done, last.in_flight) == ("done", 10, 10, 0)
    assert (last.num_planned, last.ttft_p99_ms) == (10, None)
    assert last.itl_p50_ms == ms(0.1)
    for snapshot in seen:
        done = snapshot.num_done + snapshot.num_failed + snapshot.num_rejected + snapshot.num_cut
        assert snapshot.num_sent + snapshot.waiting == done + snapshot.in_flight
    decoded = msgspec.json.decode(msgspec.json.encode(result))
    assert decoded["schema"] == "pellucid-load"
    assert decoded["stages"][0]["metrics"]["time_to_first_token"]["unit"] == "ms"
    assert msgspec.json.decode(msgspec.json.encode(result.plan), type=LoadPlan) == wanted


def test_load_progress_callback_that_raises_ends_the_load_with_its_error() -> None:
    def fail(snapshot: LoadSnapshot) -> None:
        if snapshot.num_sent:
            raise ValueError("no more room")

    with timed_server(lambda number, body: steady(2, gap_s=60.0 if number else 0.0)) as server:
        with pytest.raises(ValueError, match="no more room"):
            load(server, plan(Closed(concurrency=2), duration_s=60), on_progress=fail, snapshot_every_s=0.05)
        server.until(lambda: not server.running)


def test_load_that_saturates_the_server_ends_early_when_told_to() -> None:
    """Twice as many requests as the server can do: its queue and the times to first token grow for ever."""
    free_at = [0.0]

    def script(number: int, body: Any) -> Any:
        now = time.perf_counter()
        free_at[0] = max(now, free_at[0]) + 0.02
        return steady(1, first_s=free_at[0] - now)

    with timed_server(script) as server:
        wanted = plan(Constant(rate=100), duration_s=60, stop_when_saturated=True)
        result = load(server, wanted, snapshot_every_s=0.05)
    assert result.stop_reason == "saturated"
    assert result.duration_s < 10
    assert result.stages[0].counts.cut > 5


def test_load_sweep_has_a_stage_for_each_level_and_the_knee() -> None:
    """The server gives 4 streams their tokens at full speed; more of them wait."""
    gate = {"free_at": [0.0] * 4}

    def script(number: int, body: Any) -> Any:
        now = time.perf_counter()
        place = min(range(4), key=gate["free_at"].__getitem__)
        starts = max(now, gate["free_at"][place])
        gate["free_at"][place] = starts + 0.04
        return steady(4, first_s=starts + 0.02 - now, gap_s=0.02 / 3)

    with timed_server(script) as server:
        result = load(server, plan(Sweep(levels=(1, 2, 4, 8, 12)), duration_s=0.4))
    assert [stage.concurrency for stage in result.stages] == [1, 2, 4, 8, 12]
    assert result.knee is not None
    assert result.knee.concurrency == 4
    assert result.timeline[-1].num_stages == 5


def test_load_target_that_does_not_answer_is_an_error_at_once() -> None:
    wanted = plan(Closed(concurrency=1), num_requests=1)
    with pytest.raises(TargetError, match="names no model"):
        asyncio.run(run_load(Target(url="http://127.0.0.1:1"), wanted))
    with pytest.raises(TargetError, match="no connection"):
        asyncio.run(run_load(Target(url="http://127.0.0.1:1", model="m"), wanted))
    with (
        timed_server(lambda number, body: Refusal(401)) as server,
        pytest.raises(TargetError, match="HTTP 401"),
    ):
        load(server, wanted)


def test_load_silent_server_is_given_up_after_the_idle_timeout() -> None:
    with timed_server(lambda number, body: steady(2, gap_s=9.0 if number else 0.0)) as server:
        target = Target(url=server.url, idle_timeout_s=0.2)
        result = asyncio.run(run_load(target, plan(Constant(rate=9), num_requests=1)))
    assert result.requests[0].error == "nothing came for 0.2 s"


def test_load_plan_out_of_bounds_is_refused() -> None:
    with pytest.raises(PlanError, match=r"arrivals\.rate"):
        asyncio.run(run_load(Target(url="http://x"), plan(Constant(rate=-1.0), num_requests=1)))
