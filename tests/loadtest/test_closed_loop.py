"""loadtest/closed_loop.py and summary.py: who is asked how often, and what the figures mean."""

import asyncio
import time

import pytest

from loadtest.closed_loop import LoadRun, LoopShape, run_closed_loop
from loadtest.request_record import RequestRecord
from loadtest.summary import latencies, rates


def record(started: float, *times: float, prompt_tokens: int = 10, tokens: int = 0) -> RequestRecord:
    return RequestRecord([0] * prompt_tokens, started, list(times), num_output_tokens=tokens or len(times))


def test_loop_never_has_more_requests_running_than_streams() -> None:
    running, most = 0, 0

    async def send(record: RequestRecord) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        record.ended = time.perf_counter()

    run = asyncio.run(run_closed_loop(send, ([number] for number in range(99)), LoopShape(3, num_requests=10)))
    assert most == 3
    assert [record.prompt for record in run.records] == [[number] for number in range(10)]


def test_loop_window_closed_gives_up_what_still_runs() -> None:
    async def send(record: RequestRecord) -> None:
        if record.prompt == [1]:
            await asyncio.Event().wait()
        record.ended = float(len(record.prompt))
        await asyncio.sleep(0)

    prompts = [[0], [1], [0, 0], [0, 0, 0], [0, 0, 0, 0]]
    # Ends are at 1, 2, 3 ... s of a clock that the loop's own start has long passed.
    run = asyncio.run(run_closed_loop(send, prompts, LoopShape(2, warm_up_s=-1e12, window_s=2.0, min_requests=1)))
    assert (run.opened, run.closed) == (1.0, 3.0)
    assert [record.ended for record in run.records] == [1.0, None, 2.0, 3.0]


@pytest.mark.parametrize("shape", [LoopShape(2, num_requests=9), LoopShape(2, window_s=1e9)])
def test_loop_failed_request_ends_it(shape: LoopShape) -> None:
    async def send(record: RequestRecord) -> None:
        await asyncio.sleep(0)
        record.error = "HTTP 500"

    with pytest.raises(RuntimeError, match="HTTP 500"):
        asyncio.run(run_closed_loop(send, [[0]] * 9, shape))


def test_rates_count_tokens_of_the_window_whichever_request_they_belong_to() -> None:
    cut_off = record(8.0, 9.0, 11.0, 13.0)
    joined = record(11.0, 12.0, 14.0, tokens=4)  # two tokens in each piece
    run = LoadRun([cut_off, joined], 10.0, 14.0, 0.0)
    assert rates(run).output_tokens_per_s == (2 + 4) / 4
    assert rates(run).prompt_tokens_per_s == 10 / 4


def test_latencies_pool_runs_and_give_no_percentile_of_too_few() -> None:
    runs = [LoadRun([record(10.0, 10.1, 10.3)], 10.0, 20.0, 0.0), LoadRun([record(30.0, 30.2)], 30.0, 40.0, 0.0)]
    found = latencies(runs)
    assert found.ttft_p50_ms == pytest.approx(100)
    assert found.ttft_p99_ms is None
    assert (found.num_requests, found.num_gaps, found.itl_p99_ms) == (2, 1, None)


def test_latencies_request_begun_before_the_window_does_not_count() -> None:
    assert latencies([LoadRun([record(9.0, 12.0)], 10.0, 20.0, 0.0)]).num_requests == 0
