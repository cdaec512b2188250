"""A closed loop: so many streams, each sends its next request when its last one ends."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass

from loadtest.request_record import RequestRecord
from loadtest.window import Window

Send = Callable[[RequestRecord], Coroutine[None, None, None]]


@dataclass(frozen=True, slots=True)
class LoopShape:
    """How a closed loop runs.

    Attributes:
        concurrency: streams.
        warm_up_s, window_s, min_requests: see Window.
        num_requests: the loop also ends when so many requests are done; 0 leaves that to the window.
    """

    concurrency: int
    warm_up_s: float = 0.0
    window_s: float = 0.0
    min_requests: int = 0
    num_requests: int = 0


@dataclass(frozen=True, slots=True)
class LoadRun:
    """What a loop saw; times are monotonic seconds.

    Attributes:
        records: of all requests that were begun, those cut off at the end included.
        opened, closed: the window; with `num_requests` it is the whole run.
        client_cpu_s: CPU time of this process over the run.
    """

    records: list[RequestRecord]
    opened: float
    closed: float
    client_cpu_s: float


async def run_closed_loop(send: Send, prompts: Iterable[list[int]], shape: LoopShape) -> LoadRun:
    """Run the loop until its window closes (what still runs is given up) or its requests are done.

    Raises:
        RuntimeError: a request failed; a figure that leaves failures out would be a better one.
    """
    started, cpu_started = time.perf_counter(), time.process_time()
    window = Window(started, warm_up_s=shape.warm_up_s, window_s=shape.window_s, min_requests=shape.min_requests)
    source = iter(prompts)
    records: list[RequestRecord] = []

    async def stream() -> None:
        while window.closed is None and (not shape.num_requests or len(records) < shape.num_requests):
            record = RequestRecord(next(source), time.perf_counter())
            records.append(record)
            await send(record)
            if record.error or record.ended is None:
                raise RuntimeError(f"a request failed: {record.error}")
            if not shape.num_requests:
                window.request_ended(record.ended)

    streams = [asyncio.create_task(stream()) for _ in range(shape.concurrency)]
    try:
        await asyncio.wait(
            streams, return_when=asyncio.ALL_COMPLETED if shape.num_requests else asyncio.FIRST_COMPLETED
        )
    finally:
        client_cpu_s = time.process_time() - cpu_started
        for task in streams:
            task.cancel()
        await asyncio.wait(streams)
    for task in streams:
        if not task.cancelled():
            task.result()
    if shape.num_requests:
        ends = [record.ended for record in records if record.ended is not None]
        return LoadRun(records, started, max(ends), client_cpu_s)
    assert window.opened is not None
    assert window.closed is not None
    return LoadRun(records, window.opened, window.closed, client_cpu_s)
