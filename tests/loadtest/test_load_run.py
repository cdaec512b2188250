"""loadtest/load_run.py against a server with known timings, in virtual time, so that figures are exact."""

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
    MODEL,
    ROLE,
    Refusal,
    Script,
    TimedServer,
    at,
    content,
    finish,
    steady,
    timed_server_here,
    usage,
)
from tests.support.virtual_time import pass_time, run_in_virtual_time

STALL_S = 5.0


def plan(arrivals: Arrivals, **fields: Any) -> LoadPlan:
    defaults: dict[str, Any] = {"prompt_tokens": Fixed(tokens=20), "output_tokens": Fixed(tokens=4)}
    return LoadPlan(arrivals=arrivals, **{**defaults, **fields})


def load(
    script: Script, wanted: LoadPlan, *, idle_timeout_s: float = 120.0, **options: Any
) -> tuple[LoadResult, TimedServer]:
    """Run the load against the script; the server's first request is the probe."""

    async def run() -> tuple[LoadResult, TimedServer]:
        async with timed_server_here(script) as server:
            target = Target(url=server.url, model=MODEL, idle_timeout_s=idle_timeout_s)
            return await run_load(target, wanted, **options), server

    return run_in_virtual_time(run())


def ms(seconds: float) -> Any:
    return pytest.approx(seconds * 1e3, abs=1.0)


def after_probe(answer: Any) -> Script:
    """Return a script that gives the probe a whole answer and everything else this one."""
    return lambda number, body: answer if number else steady(1)


def test_load_known_stream_is_measured_from_content_to_finish_with_tokens_from_usage() -> None:
    """A role chunk, a comment, two tokens in one chunk and a late usage chunk are none of them what they seem."""
    events = [at(0.01, ROLE), at(0.05, COMMENT), at(0.5, content("two tokens")), at(0.9, finish())]
    events += [at(1.5, usage(2, cached=7)), at(1.5, DONE)]
    result, _ = load(lambda number, body: events, plan(Closed(concurrency=1), num_requests=1))
    metrics = result.stages[0].metrics
    assert metrics["time_to_first_token"].avg == ms(0.5)
    assert metrics["request_latency"].avg == ms(0.9)
    assert metrics["inter_token_latency"].avg == ms(0.4)
    assert metrics["output_sequence_length"].avg == 2
    assert metrics["input_sequence_length"].avg == 10
    assert metrics["cached_prompt_tokens"].avg == 7
    assert metrics["inter_chunk_latency"].count == 0
    assert result.requests[0].request_id == "req-1"


def test_load_scripted_percentiles_are_the_measured_ones() -> None:
    """Of a hundred answers the n-th starts after n ms and has gaps of 20 ms, one of them of 50."""

    def script(number: int, body: Any) -> Any:
        first = number / 1e3
        moments = [first, first + 0.02, first + 0.07, first + 0.09]
        ends = [at(moments[-1], finish()), at(moments[-1], usage(4)), at(moments[-1], DONE)]
        return [at(0.0, ROLE), *(at(moment, content("x")) for moment in moments), *ends]

    slos = Slos(ttft_ms=90.5, itl_ms=1000)
    result, _ = load(script, plan(Constant(rate=40), num_requests=100, slos=slos))
    stage = result.stages[0]
    first = stage.metrics["time_to_first_token"]
    assert (first.p1, first.p50, first.p90) == (ms(0.001), ms(0.05), ms(0.09))
    assert (first.p95, first.p99, first.max) == (ms(0.095), ms(0.099), ms(0.1))
    gaps = stage.metrics["inter_chunk_latency"]
    assert (gaps.count, gaps.p50, gaps.p75, gaps.p99) == (300, ms(0.02), ms(0.05), ms(0.05))
    assert stage.metrics["inter_token_latency"].p50 == ms(0.03)
    assert stage.metrics["longest_gap"].min == ms(0.05)
    assert stage.metrics["request_latency"].p50 == ms(0.14)
    assert (stage.attainment.good, stage.attainment.total) == (90, 100)
    assert stage.rates.requests_done == pytest.approx(100 / stage.window_s)
    assert stage.rates.output_tokens == pytest.approx(400 / stage.window_s)
    assert stage.window_s == pytest.approx(99 / 40 + 0.19, abs=0.002)


def test_load_requests_are_the_same_for_equal_seeds_and_no_two_prompts_are_alike() -> None:
    seen: list[list[str]] = []
    for seed in (5, 5, 6):
        _, server = load(lambda number, body: steady(1), plan(Closed(concurrency=2), num_requests=8, seed=seed))
        seen.append(sorted(json.dumps(body, sort_keys=True) for body in server.bodies[1:]))
    assert seen[0] == seen[1] != seen[2]
    assert len(set(seen[0])) == 8
    assert server.bodies[1].keys() == {
        *("model", "messages", "max_tokens", "stream", "stream_options", "temperature", "ignore_eos")
    }


@pytest.mark.parametrize(
    ("answer", "status", "error"),
    [
        (Refusal(429), "rejected", "HTTP 429"),
        (Refusal(503), "rejected", "HTTP 503"),
        (Refusal(500), "failed", "HTTP 500"),
        (steady(3)[:-1], "failed", "without [DONE]"),
        ([at(0, content("x")), at(0, DONE)], "failed", "without a finish reason"),
        ([at(0, content("x")), at(0, {"error": {"message": "lost"}})], "failed", "lost"),
        ([at(0, content("x")), at(0, b"data: {nonsense\n\n")], "failed", "can't be read"),
    ],
)
def test_load_answer_that_is_not_whole_is_never_a_success(answer: Any, status: str, error: str) -> None:
    result, _ = load(after_probe(answer), plan(Constant(rate=200), num_requests=3))
    stage = result.stages[0]
    assert [request.status for request in result.requests] == [status] * 3
    assert (stage.attainment.good, stage.attainment.total) == (0, 3)
    assert stage.metrics["request_latency"].count == stage.metrics["time_to_first_token"].count == 0
    assert error in next(iter(stage.errors))
    assert stage.rates.output_tokens == stage.rates.requests_done == 0


def test_load_stalled_server_costs_every_request_that_was_due_meanwhile() -> None:
    """Coordinated omission: 20 requests/s over 4 connections meet a stall of 5 s, so 100 of 400 wait up to 5 s."""
    stalled: list[float] = []

    def script(number: int, body: Any) -> Any:
        now = time.perf_counter()
        if number == 101:
            stalled.append(now)
        return steady(1, first_s=max(0.0, stalled[0] + STALL_S - now) if stalled else 0.0)

    result, server = load(script, plan(Constant(rate=20), num_requests=400, max_connections=4, slos=Slos(ttft_ms=110)))
    metrics = result.stages[0].metrics
    assert server.most_at_once == 4
    assert metrics["time_to_first_token"].p99 == ms(4.8)
    assert metrics["time_to_first_token"].max == ms(5.0)
    assert metrics["time_to_first_token"].avg == ms(sum(n / 20 for n in range(1, 101)) / 400)
    assert result.stages[0].attainment.good == 400 - 98
    # Counted from sending, only the four that held the connections would have been slow.
    slow = [request for request in result.requests if request.first_token_s and request.sent_s]
    assert sum((request.first_token_s or 0) - (request.sent_s or 0) > 0.001 for request in slow) == 4
    assert metrics["connection_wait"].max == ms(4.8)
    assert max(snapshot.waiting for snapshot in result.timeline) == 96


def test_load_busy_generator_reports_its_own_lateness() -> None:
    blocked: list[float] = []

    def block_once(snapshot: LoadSnapshot) -> None:
        if snapshot.num_sent and not blocked:
            blocked.append(snapshot.elapsed_s)
            pass_time(0.3)

    wanted = plan(Constant(rate=50), num_requests=50)
    result, _ = load(lambda number, body: steady(1), wanted, on_progress=block_once, snapshot_every_s=0.11)
    metrics = result.stages[0].metrics
    assert metrics["request_dispatch_delay"].max == ms(0.29)  # due at 0.12 s, reached at 0.41
    assert metrics["time_to_first_token"].max == ms(0.29)
    assert metrics["time_to_first_token"].p50 == ms(0.0)
    assert max(snapshot.lateness_max_ms for snapshot in result.timeline) == ms(0.29)


def test_load_warm_up_is_sent_but_not_measured() -> None:
    script: Script = lambda number, body: steady(1, first_s=0.2 if number < 10 else 0.0)  # noqa: E731
    result, server = load(script, plan(Constant(rate=50), duration_s=0.6, warm_up_s=0.29))
    stage = result.stages[0]
    assert len(server.bodies) == 1 + 30
    assert (stage.counts.warm_up, stage.counts.ok) == (15, 15)
    assert stage.metrics["time_to_first_token"].count == 15
    assert stage.metrics["time_to_first_token"].max == ms(0.0)
    assert stage.window_s == pytest.approx(0.31)
    assert stage.rates.requests_planned == pytest.approx(15 / 0.31)
    assert result.timeline[0].phase == "warm_up"


def test_load_what_is_not_over_in_time_is_a_failure() -> None:
    result, _ = load(after_probe(steady(2, gap_s=9.0)), plan(Constant(rate=100), num_requests=2, drain_s=3.0))
    assert [request.status for request in result.requests] == ["failed"] * 2
    assert result.stages[0].errors == {"not over 3 s after sending ended": 2}
    assert result.duration_s == pytest.approx(3.01, abs=0.01)


def test_load_closed_loop_that_is_refused_pauses_instead_of_hammering() -> None:
    result, server = load(after_probe(Refusal(503)), plan(Closed(concurrency=2), duration_s=30))
    assert {request.status for request in result.requests} == {"rejected"}
    moments = sorted({round(request.due_s, 2) for request in result.requests})
    assert moments == [0, 0.25, 0.75, 1.75, 3.75, 7.75, 12.75, 17.75, 22.75, 27.75]
    assert len(server.bodies) == 1 + 2 * len(moments)


def test_load_snapshots_count_and_encode_to_json() -> None:
    seen: list[LoadSnapshot] = []
    wanted = plan(Constant(rate=20), num_requests=10)
    result, _ = load(lambda number, body: steady(2, gap_s=0.1), wanted, on_progress=seen.append, snapshot_every_s=0.09)
    assert seen == list(result.timeline)
    assert result.stop_reason == "finished"
    assert seen[0].num_sent == 0
    assert {snapshot.phase for snapshot in seen} == {"running", "draining", "done"}
    last = seen[-1]
    assert (last.phase, last.num_sent, last.num_done, last.in_flight) == ("done", 10, 10, 0)
    assert (last.num_planned, last.ttft_p99_ms) == (10, None)
    assert (last.ttft_p50_ms, last.itl_p50_ms, last.e2e_p50_ms) == (ms(0.0), ms(0.1), ms(0.1))
    assert last.rate_done == pytest.approx(10 / 0.55, rel=0.01)
    assert max(snapshot.in_flight for snapshot in seen) == 3
    for snapshot in seen:
        done = snapshot.num_done + snapshot.num_failed + snapshot.num_rejected + snapshot.num_cut
        assert snapshot.num_sent + snapshot.waiting == done + snapshot.in_flight
    decoded = msgspec.json.decode(msgspec.json.encode(result))
    assert decoded["schema"] == "pellucid-load"
    assert decoded["stages"][0]["metrics"]["time_to_first_token"]["unit"] == "ms"
    assert msgspec.json.decode(msgspec.json.encode(result.plan), type=LoadPlan) == wanted


def test_load_that_saturates_the_server_ends_early_when_told_to() -> None:
    """Twice as many requests as the server can do: its queue and the times to first token grow for ever."""

    def half_speed() -> Script:
        free_at = [0.0]

        def script(number: int, body: Any) -> Any:
            now = time.perf_counter()
            free_at[0] = max(now, free_at[0]) + 0.1
            return steady(1, first_s=free_at[0] - now)

        return script

    result, _ = load(half_speed(), plan(Constant(rate=20), duration_s=60, stop_when_saturated=True))
    assert result.stop_reason == "saturated"
    assert 14 <= result.duration_s <= 20
    assert result.stages[0].counts.cut > 100
    calm, _ = load(half_speed(), plan(Constant(rate=8), duration_s=60, stop_when_saturated=True))
    assert calm.stop_reason == "finished"


def test_load_sweep_has_a_stage_for_each_level_and_the_knee() -> None:
    """The server gives 4 streams their tokens at full speed; more of them wait."""
    free_at = [0.0] * 4

    def script(number: int, body: Any) -> Any:
        now = time.perf_counter()
        place = min(range(4), key=free_at.__getitem__)
        starts = max(now, free_at[place])
        free_at[place] = starts + 0.04
        return steady(4, first_s=starts + 0.01 - now, gap_s=0.01)

    result, _ = load(script, plan(Sweep(levels=(1, 2, 4, 8, 12)), duration_s=4))
    assert [stage.concurrency for stage in result.stages] == [1, 2, 4, 8, 12]
    assert [stage.rates.requests_done for stage in result.stages] == pytest.approx([25, 50, 100, 100, 100], rel=0.02)
    assert result.knee is not None
    assert result.knee.concurrency == 4
    assert result.timeline[-1].num_stages == 5
    assert {request.stage for request in result.requests} == set(range(5))


def test_load_silent_server_is_given_up_after_the_idle_timeout() -> None:
    wanted = plan(Constant(rate=9), num_requests=1, drain_s=60)
    result, _ = load(after_probe(steady(3, gap_s=30.0)), wanted, idle_timeout_s=20.0)
    assert result.requests[0].error == "nothing came for 20 s"
    assert result.requests[0].ended_s == pytest.approx(20, abs=0.01)
    talking, _ = load(after_probe(steady(3, gap_s=15.0)), wanted, idle_timeout_s=20.0)
    assert talking.requests[0].status == "ok"


def test_load_target_that_does_not_answer_is_an_error_at_once() -> None:
    wanted = plan(Closed(concurrency=1), num_requests=1)
    with pytest.raises(TargetError, match="names no model"):
        run_in_virtual_time(run_load(Target(url="http://127.0.0.1:1"), wanted))
    with pytest.raises(TargetError, match="no connection"):
        run_in_virtual_time(run_load(Target(url="http://127.0.0.1:1", model="m"), wanted))
    with pytest.raises(TargetError, match="HTTP 401"):
        load(lambda number, body: Refusal(401), wanted)


def test_load_plan_out_of_bounds_is_refused() -> None:
    with pytest.raises(PlanError, match=r"arrivals\.rate"):
        run_in_virtual_time(run_load(Target(url="http://x"), plan(Constant(rate=-1.0), num_requests=1)))
