"""Runs a load: the one entry point for the command line, the dashboard and scripts."""

import asyncio
import time
from collections.abc import Callable

from loadtest.arrivals import Sweep
from loadtest.errors import LoadTestError, PlanError, TargetError
from loadtest.knee import find_knee
from loadtest.ledger import Ledger, StageInfo
from loadtest.lengths import mean
from loadtest.load_result import SCHEMA, VERSION, LoadResult, RequestResult, StageResult, StopReason
from loadtest.plan import LoadPlan, checked
from loadtest.planned_request import PlannedRequest, planned_requests
from loadtest.probe import Probe, body, client, probe
from loadtest.prompt_text import CHARACTERS_PER_TOKEN, PromptText, corpus
from loadtest.request_record import RequestRecord
from loadtest.saturation import SaturationWatch
from loadtest.slo import Slos
from loadtest.snapshot import LoadSnapshot
from loadtest.stage_run import Ask, StageRun
from loadtest.stage_summary import stage_result
from loadtest.stages import Stage, stages_of
from loadtest.target import Target

__all__ = ["LoadTestError", "PlanError", "TargetError", "run_load"]

SNAPSHOT_EVERY_S = 1.0

OnProgress = Callable[[LoadSnapshot], None]


async def run_load(
    target: Target,
    plan: LoadPlan,
    on_progress: OnProgress | None = None,
    stop: asyncio.Event | None = None,
    *,
    api_key: str = "",
    snapshot_every_s: float = SNAPSHOT_EVERY_S,
) -> LoadResult:
    """Run a load in this event loop and return what it came to.

    One unmeasured request is sent first. Failed requests don't end a load; they are counted. When this returns, raises
    or is cancelled, no request of it is left.

    Args:
        target, plan: whom to ask and what.
        on_progress: called on the event loop, once when the load begins, every `snapshot_every_s` and once at the end;
            it must not block.
        stop: set it to end the load early; what runs is cut off, and the result says so.
        api_key: bearer token.

    Raises:
        PlanError: the plan or a file that it names is wrong.
        TargetError: the server doesn't answer the first request.
    """
    plan = checked(plan)
    text = await asyncio.to_thread(corpus)
    found = await probe(target, _probe_prompt(plan, text), api_key=api_key)
    load = _Load(target, plan, found, text, api_key=api_key, stop=stop or asyncio.Event())
    return await load.run(on_progress or _ignore, snapshot_every_s)


class _Load:
    def __init__(
        self, target: Target, plan: LoadPlan, found: Probe, text: str, *, api_key: str, stop: asyncio.Event
    ) -> None:
        self._target, self._plan, self._found = target, plan, found
        self._asked_to_stop, self._stop = stop, asyncio.Event()
        self._client = client(target, api_key)
        self._prompts = PromptText(
            text, seed=plan.seed, shared=plan.shared_prefix, characters_per_token=found.characters_per_token
        )
        self._stages = stages_of(plan)
        self._connections = asyncio.Semaphore(plan.max_connections)
        self._stop_reason: StopReason = "finished"
        self._watch = SaturationWatch() if plan.stop_when_saturated and plan.is_open else None
        self._timeline: list[LoadSnapshot] = []
        self._results: list[RequestResult] = []

    async def run(self, on_progress: OnProgress, every_s: float) -> LoadResult:
        started_at, origin = time.time(), time.perf_counter()
        num_planned = self._plan.num_requests * len(self._stages) or None
        self._ledger = Ledger(origin=origin, slos=self._plan.slos, num_planned=num_planned)
        ticking = asyncio.create_task(self._tick(on_progress, every_s))
        listening = asyncio.create_task(self._listen())
        stages: list[StageResult] = []
        try:
            for number, stage in enumerate(self._stages):
                stages.append(await self._run_stage(number, stage))
                if self._stop.is_set():
                    break
        finally:
            ticking.cancel()
            listening.cancel()
            await asyncio.wait([ticking, listening])
        if not ticking.cancelled():
            ticking.result()  # a callback that raised
        self._ledger.phase = "done"
        self._show(on_progress)
        has_slos = self._plan.slos != Slos()
        return LoadResult(
            schema=SCHEMA,
            version=VERSION,
            started_at=started_at,
            duration_s=time.perf_counter() - origin,
            target=self._target,
            plan=self._plan,
            model=self._found.model,
            characters_per_token=self._found.characters_per_token,
            stop_reason=self._stop_reason,
            stages=tuple(stages),
            knee=find_knee(stages, has_slos=has_slos) if isinstance(self._plan.arrivals, Sweep) else None,
            timeline=tuple(self._timeline),
            requests=tuple(self._results),
        )

    async def _run_stage(self, number: int, stage: Stage) -> StageResult:
        shape, ledger = stage.shape, self._ledger
        ledger.stage = StageInfo(number, len(self._stages), stage.label, shape.concurrency)
        run = StageRun(
            self._ask(number),
            planned_requests(self._plan, stage=number),
            shape,
            connections=self._connections,
            ledger=ledger,
            stop=self._stop,
        )
        started = time.perf_counter()
        sending_ended = await run.run(started)
        ended = ledger.take_ended()
        self._results += (each.result for each in ended)
        closed = sending_ended
        if not shape.duration_s and not self._stop.is_set():
            closed = max((ledger.origin + each.result.ended_s for each in ended), default=sending_ended)
        return stage_result(
            ended,
            label=stage.label,
            concurrency=shape.concurrency,
            origin=ledger.origin,
            opened=started + shape.warm_up_s,
            closed=closed,
        )

    def _ask(self, stage: int) -> Ask:
        extra = {"temperature": self._plan.temperature}
        if self._plan.ignore_eos:
            extra["ignore_eos"] = True

        async def ask(planned: PlannedRequest, record: RequestRecord) -> None:
            prompt = self._prompts.write(planned, stage=stage)
            content = body(self._target, self._found.model, prompt, max_tokens=planned.output_tokens, **extra)
            await self._client.send(record, content)

        return ask

    async def _listen(self) -> None:
        await self._asked_to_stop.wait()
        self._end_early("stopped")

    def _end_early(self, reason: StopReason) -> None:
        if not self._stop.is_set():
            self._stop_reason = reason
            self._stop.set()

    async def _tick(self, on_progress: OnProgress, every_s: float) -> None:
        try:
            while True:
                self._show(on_progress)
                await asyncio.sleep(every_s)
        except Exception:  # of the callback; the load ends, and `run` raises it
            self._end_early("stopped")
            raise

    def _show(self, on_progress: OnProgress) -> None:
        snapshot = self._ledger.snapshot(time.perf_counter())
        self._timeline.append(snapshot)
        on_progress(snapshot)
        ttft_s = None if snapshot.ttft_p50_ms is None else snapshot.ttft_p50_ms / 1e3
        if self._watch and self._watch.is_saturated(snapshot.elapsed_s, snapshot.in_flight, ttft_s):
            self._end_early("saturated")


def _probe_prompt(plan: LoadPlan, text: str) -> str:
    length = round(mean(plan.prompt_tokens) * CHARACTERS_PER_TOKEN)
    return text[: max(1, length)]


def _ignore(_: LoadSnapshot) -> None:
    pass
