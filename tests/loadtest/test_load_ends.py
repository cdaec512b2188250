"""How loads end before their time, in real time against a server in a thread: nothing of them is left behind."""

import asyncio
import time
from typing import Any

import pytest

from loadtest.arrivals import Closed, Constant
from loadtest.lengths import Fixed
from loadtest.load_result import LoadResult
from loadtest.load_run import run_load
from loadtest.plan import LoadPlan
from loadtest.snapshot import LoadSnapshot
from loadtest.target import Target
from tests.support.timed_server import TimedServer, steady, timed_server

SHORT = {"prompt_tokens": Fixed(tokens=20), "output_tokens": Fixed(tokens=4)}


def streams(concurrency: int, **fields: Any) -> LoadPlan:
    return LoadPlan(arrivals=Closed(concurrency=concurrency), **{"duration_s": 60, **SHORT, **fields})


def test_load_stopped_and_started_again_leaves_no_old_streams() -> None:
    async def both(server: TimedServer) -> tuple[LoadResult, LoadResult]:
        stop = asyncio.Event()
        first = asyncio.create_task(run_load(Target(url=server.url), streams(8), stop=stop))
        await asyncio.to_thread(server.until, lambda: len(server.bodies) == 9)
        stop.set()
        stopped = await first
        await asyncio.to_thread(server.until, lambda: not server.running)
        server.most_at_once = 0
        return stopped, await run_load(Target(url=server.url), streams(3, duration_s=0, num_requests=12))

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
        task = asyncio.create_task(run_load(Target(url=server.url), streams(4)))
        await asyncio.to_thread(server.until, lambda: len(server.bodies) == 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with timed_server(lambda number, body: steady(2, gap_s=30.0 if number else 0.0)) as server:
        asyncio.run(cancel(server))
        server.until(lambda: not server.running)


def test_load_progress_callback_that_raises_ends_the_load_with_its_error() -> None:
    def fail(snapshot: LoadSnapshot) -> None:
        if snapshot.num_sent:
            raise ValueError("no more room")

    with timed_server(lambda number, body: steady(2, gap_s=60.0 if number else 0.0)) as server:
        with pytest.raises(ValueError, match="no more room"):
            asyncio.run(run_load(Target(url=server.url), streams(2), fail, snapshot_every_s=0.05))
        server.until(lambda: not server.running)


def test_load_stall_of_half_a_second_in_real_time_costs_what_was_due_meanwhile() -> None:
    """As in test_load_run.py, a tenth as long, and with the patience that a busy machine needs."""
    stalled: list[float] = []

    def script(number: int, body: Any) -> Any:
        now = time.perf_counter()
        if number == 51:
            stalled.append(now)
        return steady(1, first_s=max(0.0, stalled[0] + 0.5 - now) if stalled else 0.0)

    wanted = LoadPlan(arrivals=Constant(rate=100), num_requests=200, max_connections=4, **SHORT)
    with timed_server(script) as server:
        result = asyncio.run(run_load(Target(url=server.url), wanted))
    assert server.most_at_once <= 4
    assert 450 <= (result.stages[0].metrics["time_to_first_token"].p99 or 0) <= 1500
    waited = [request for request in result.requests if request.ttft_s is not None and request.ttft_s > 0.1]
    assert len(waited) >= 30


def test_load_under_uvloop_runs_as_under_asyncio() -> None:
    """The dashboard's server may run on uvloop, and a load runs in its process."""
    uvloop = pytest.importorskip("uvloop")
    wanted = LoadPlan(arrivals=Constant(rate=50), num_requests=10, **SHORT)
    with (
        timed_server(lambda number, body: steady(3, first_s=0.02, gap_s=0.01)) as server,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        result = runner.run(run_load(Target(url=server.url), wanted))
    assert result.stages[0].counts.ok == 10
    assert (result.stages[0].metrics["time_to_first_token"].min or 0) >= 20
    assert result.stages[0].metrics["inter_chunk_latency"].count == 20
