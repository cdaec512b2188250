"""Loads that run in this process, one at a time, and what is kept of those that are over."""

import asyncio
import logging
import tempfile
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from dashboard.load_order import LoadOrder, load_target, plan_of, with_trace
from dashboard.load_record import LoadRecord, State
from dashboard.load_store import LoadStore
from dashboard.targets import Target
from loadtest.errors import LoadTestError
from loadtest.load_result import LoadResult
from loadtest.load_run import run_load
from loadtest.plan import LoadPlan
from loadtest.snapshot import LoadSnapshot

MAX_KEPT = 20
MAX_SNAPSHOTS = 3600
STOP_S = 5.0

logger = logging.getLogger("pellucid.dashboard")


class LoadRuns:
    """Starts, watches, stops and keeps loads.

    Args:
        targets: servers that may be put under load, by name.
        store: of loads that are over.
    """

    def __init__(self, targets: Mapping[str, Target], store: LoadStore) -> None:
        self._targets = targets
        self._store = store
        self._records = {record.id: record for record in store.load(most=MAX_KEPT)}
        self._next = max((record.number for record in self._records.values()), default=0) + 1
        self._running: _Running | None = None
        self._turn = asyncio.Lock()
        self._is_closed = False

    @property
    def records(self) -> list[LoadRecord]:
        """All that are known, newest first."""
        return sorted(map(self._newest, self._records.values()), key=lambda record: -record.number)

    def get(self, run_id: str) -> LoadRecord | None:
        record = self._records.get(run_id)
        return None if record is None else self._newest(record)

    def _newest(self, record: LoadRecord) -> LoadRecord:
        return self._running.record if self._running is not None and self.is_running(record.id) else record

    def is_running(self, run_id: str) -> bool:
        return self._running is not None and self._running.record.id == run_id

    async def start(self, order: LoadOrder) -> LoadRecord:
        """Start a load; one that runs is stopped first, and none of its requests is left when the new one begins.

        Raises:
            LoadTestError: the order is wrong; what runs goes on.
        """
        plan = plan_of(order)
        for side in order.sides:
            load_target(side, self._targets)
        async with self._turn:
            await self._end_running()
            if self._is_closed:
                raise LoadTestError("the dashboard is shutting down")
            rounds = order.rounds if len(order.sides) > 1 else 1
            record = LoadRecord(
                id=f"load-{self._next}",
                number=self._next,
                label=order.label.strip(),
                sides=tuple(order.sides),
                rounds=rounds,
                plan=plan,
            )
            self._next += 1
            self._records[record.id] = record
            self._forget_oldest()
            self._running = _Running(record)
            self._running.task = asyncio.create_task(self._run(self._running, order.trace))
            return record

    async def stop(self, run_id: str) -> None:
        """End a load early, if it runs, and wait until nothing of it is left."""
        async with self._turn:
            if self.is_running(run_id):
                await self._end_running()

    async def forget(self, run_id: str) -> None:
        """Drop a load that is over."""
        record = self._records.get(run_id)
        if record is not None and not self.is_running(run_id):
            del self._records[run_id]
            await asyncio.to_thread(self._store.forget, record)

    async def close(self) -> None:
        """End what runs and refuse what comes."""
        self._is_closed = True
        async with self._turn:
            await self._end_running()

    async def watch(self, run_id: str) -> AsyncGenerator[bytes, None]:
        """Yield server-sent events of a load until it is over: `run` when its record changed, `snapshot` as they come.

        A watcher who joins late gets the snapshots so far first; the last event is the record of the load that is over.
        """
        yield b"retry: 1000\n\n"
        running = self._running
        if running is None or running.record.id != run_id:
            if (record := self._records.get(run_id)) is not None:
                yield _event("run", record.outline())
            return
        seen, shown = 0, None
        while shown is None or shown.state == "running":
            changed, record = running.changed, running.record
            for each in running.after(seen):
                seen = each.number
                age_s = asyncio.get_running_loop().time() - each.taken
                yield _event("snapshot", {"part": each.part, "age_s": age_s, "snapshot": each.snapshot})
            if record is not shown:
                shown = record
                yield _event("run", shown.outline())
            else:
                await changed.wait()

    async def _run(self, running: "_Running", trace: str) -> None:
        with tempfile.TemporaryDirectory(prefix="pellucid-load-") as directory:
            try:
                file = Path(directory) / "trace.jsonl"
                if trace:
                    await asyncio.to_thread(file.write_text, trace)
                await self._run_parts(running, with_trace(running.record.plan, str(file)))
                running.end("stopped" if running.stop.is_set() else "done")
            except LoadTestError as error:
                running.end("failed", error.message.replace(directory + "/", ""))
            finally:
                if running.record.state == "running" and running.stop.is_set():
                    running.end("stopped")
                elif running.record.state == "running":
                    running.end("failed", "the load generator broke off")
                self._records[running.record.id] = running.record
                self._running = None
        await asyncio.to_thread(self._store.save, running.record)

    async def _run_parts(self, running: "_Running", plan: LoadPlan) -> None:
        """Run every server's turns; in each round all have the same requests, and no round repeats another's."""
        record = running.record
        for round_number in range(record.rounds):
            for index, side in enumerate(record.sides):
                if running.stop.is_set():
                    return
                result = await run_load(
                    load_target(side, self._targets),
                    msgspec.structs.replace(plan, seed=plan.seed + round_number),
                    running.on_progress,
                    running.stop,
                    api_key=self._targets[side.target].api_key,
                )
                result = msgspec.structs.replace(result, plan=with_trace(result.plan, "trace.jsonl"))
                running.add(side=index, round_number=round_number, result=result)

    async def _end_running(self) -> None:
        running = self._running
        if running is None or running.task is None:
            return
        running.stop.set()
        _, late = await asyncio.wait({running.task}, timeout=STOP_S)
        if late:
            running.task.cancel()
            await asyncio.wait({running.task})
        if not running.task.cancelled() and (error := running.task.exception()) is not None:
            logger.error("load %s broke: %s", running.record.id, error)

    def _forget_oldest(self) -> None:
        for record in self.records[MAX_KEPT:]:
            del self._records[record.id]
            self._store.forget(record)


@dataclass(frozen=True, slots=True)
class _Shot:
    """A snapshot, counted from 1, of a part; `taken` is the event loop's time."""

    number: int
    part: int
    taken: float
    snapshot: LoadSnapshot


class _Running:
    """A load while it runs; `changed` is set, and replaced, whenever there is news."""

    def __init__(self, record: LoadRecord) -> None:
        self.record = record
        self.stop = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.changed = asyncio.Event()
        self._snapshots: deque[_Shot] = deque(maxlen=MAX_SNAPSHOTS)
        self._num_snapshots = 0

    def on_progress(self, snapshot: LoadSnapshot) -> None:
        self._num_snapshots += 1
        taken = asyncio.get_running_loop().time()
        self._snapshots.append(_Shot(self._num_snapshots, len(self.record.parts), taken, snapshot))
        self._notify()

    def add(self, *, side: int, round_number: int, result: LoadResult) -> None:
        self.record = self.record.with_part(side=side, round_number=round_number, result=result)
        self._notify()

    def end(self, state: State, error: str = "") -> None:
        self.record = msgspec.structs.replace(self.record, state=state, error=error)
        self._notify()

    def after(self, seen: int) -> list["_Shot"]:
        """Return the snapshots after number `seen`."""
        return [each for each in self._snapshots if each.number > seen]

    def _notify(self) -> None:
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()


def _event(name: str, content: object) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(content) + b"\n\n"
