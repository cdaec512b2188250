"""Sends the requests of one stage at their moments and sees each of them to its end.

Every task that is started here has ended when `StageRun.run` returns or raises, whatever the reason; a load that is
started again never meets the streams of the one before.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from loadtest.ledger import Ledger
from loadtest.load_request import LoadRequest
from loadtest.planned_request import PlannedRequest
from loadtest.request_record import RequestRecord

FIRST_PAUSE_S, MAX_PAUSE_S = 0.25, 5.0  # of a stream whose requests fail

Ask = Callable[[PlannedRequest, RequestRecord], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class StageShape:
    """How a stage runs.

    Attributes:
        concurrency: of a closed loop; None sends at planned moments.
        duration_s: after which sending ends; 0 when the requests themselves end.
        warm_up_s, drain_s: see LoadPlan.
    """

    concurrency: int | None
    duration_s: float
    warm_up_s: float
    drain_s: float


class StageRun:
    """One stage.

    Args:
        ask: sends a request and fills in its record.
        requests: in order.
        connections: permits; a request holds one while the server has it.
        ledger: is told of everything.
        stop: ends the stage early, cutting off what runs.
    """

    def __init__(
        self,
        ask: Ask,
        requests: Iterator[PlannedRequest],
        shape: StageShape,
        *,
        connections: asyncio.Semaphore,
        ledger: Ledger,
        stop: asyncio.Event,
    ) -> None:
        self._ask = ask
        self._requests = requests
        self._shape = shape
        self._connections = connections
        self._ledger = ledger
        self._stop = stop
        self._tasks: set[asyncio.Task[None]] = set()
        self._why_given_up = ""
        self._started = 0.0

    async def run(self, started: float) -> float:
        """Run it from `started` on and return when sending ended, both in monotonic seconds."""
        self._started = started
        self._ledger.phase = "warm_up" if self._shape.warm_up_s else "running"
        send = self._send_at_moments if self._shape.concurrency is None else self._send_in_turn
        sending = asyncio.create_task(send())
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait([sending, stopping], return_when=asyncio.FIRST_COMPLETED)
            sending_ended = time.perf_counter()
            if self._shape.duration_s:
                sending_ended = min(sending_ended, started + self._shape.duration_s)
            if not stopping.done():
                sending.result()
                await self._drain(stopping)
        finally:
            await _end([sending, stopping, *self._tasks])
            self._ledger.give_up_rest(self._why_given_up)
        return sending_ended

    async def _drain(self, stopping: "asyncio.Task[bool]") -> None:
        self._ledger.phase = "draining"
        deadline = time.perf_counter() + self._shape.drain_s
        while self._tasks and not stopping.done():
            left = deadline - time.perf_counter()
            if left <= 0:
                self._why_given_up = f"not over {self._shape.drain_s:g} s after sending ended"
                return
            await asyncio.wait([*self._tasks, stopping], timeout=left, return_when=asyncio.FIRST_COMPLETED)

    async def _send_at_moments(self) -> None:
        for planned in self._requests:
            due = self._started + planned.offset_s
            # Sleeping at least once a request lets answers be read while the generator is behind.
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            self._start(self._see_through(self._begin(planned, due)))
        if self._shape.duration_s:
            await asyncio.sleep(max(0.0, self._started + self._shape.duration_s - time.perf_counter()))

    async def _send_in_turn(self) -> None:
        assert self._shape.concurrency is not None
        for _ in range(self._shape.concurrency):
            self._start(self._stream())
        duration_s = self._shape.duration_s
        left = self._started + duration_s - time.perf_counter() if duration_s else None
        await asyncio.wait(set(self._tasks), timeout=left)

    async def _stream(self) -> None:
        """One stream of a closed loop; one whose requests fail pauses, so that a server that refuses isn't hammered."""
        pause_s = FIRST_PAUSE_S
        while self._is_open():
            planned = next(self._requests, None)
            if planned is None:
                return
            request = self._begin(planned, time.perf_counter())
            await self._see_through(request)
            if request.status == "ok":
                pause_s = FIRST_PAUSE_S
            else:
                await asyncio.sleep(self._pause(pause_s))
                pause_s = min(MAX_PAUSE_S, 2 * pause_s)

    def _is_open(self) -> bool:
        return not self._shape.duration_s or time.perf_counter() < self._started + self._shape.duration_s

    def _pause(self, wanted_s: float) -> float:
        if not self._shape.duration_s:
            return wanted_s
        return max(0.0, min(wanted_s, self._started + self._shape.duration_s - time.perf_counter()))

    def _begin(self, planned: PlannedRequest, due: float) -> LoadRequest:
        now = time.perf_counter()
        is_warm_up = due < self._started + self._shape.warm_up_s
        if not is_warm_up and self._ledger.phase == "warm_up":
            self._ledger.phase = "running"
        request = LoadRequest(planned, due, is_warm_up, now, RequestRecord([], now))
        self._ledger.dispatched(request)
        return request

    async def _see_through(self, request: LoadRequest) -> None:
        try:
            async with self._connections:
                self._ledger.sent(request)
                await self._ask(request.planned, request.record)
            request.finish()
        except asyncio.CancelledError:
            request.give_up(self._why_given_up)
            raise
        finally:
            self._ledger.over(request)

    def _start(self, coroutine: "Awaitable[None]") -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _end(tasks: "list[asyncio.Task[None] | asyncio.Task[bool]]") -> None:
    """Cancel the tasks and wait until each has ended; raises what one of them failed with."""
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, Exception):
            raise outcome
