"""AsyncEngine: what the service talks to. Keeps one engine alive in a process of its own and shares it out.

    engine = await AsyncEngine.start(config, clock=clock, on_events=recorder.record)
    await engine.wait_ready()
    async with engine.generate(request) as generation:
        async for outputs in generation:
            ...

Everything runs on one event loop and nothing here blocks it. Two kinds of ending must not be confused: what the engine
says about one request (a refusal at admission, NaN logits) comes as a ChoiceOutput with finish_reason `error`; losing
the engine is raised from the iterator as RequestFailedError, and shutting down as EngineUnavailableError.

Events reach `on_events` in order, those of a message before its outputs reach any consumer. When the engine is lost,
the client ends its event stream in its place: see engine/event_ledger.py for the rule.
"""

import asyncio
import enum
import logging
from collections.abc import Callable, Sequence
from typing import Self

from engine.clock import Clock
from engine.config import EngineConfig
from engine.engine_life import EngineLife, LifeEnd
from engine.errors import EngineUnavailableError, PellucidError, RequestFailedError
from engine.events import Event
from engine.launch import Launcher, launch_process
from engine.messages import Abort, ChoiceOutput, EngineInfo, SealedStep, Shutdown, StopChoice
from engine.packed_events import PackedEvents
from engine.request_stream import Generation
from engine.sequence import EngineRequest
from engine.stream_table import StreamTable
from engine.supervision import RestartBudget, SupervisionConfig

log = logging.getLogger(__name__)

OnEvents = Callable[[Sequence[Event]], None]

DEFAULT_SUPERVISION = SupervisionConfig()
MARGIN_S = 1.0  # for the event loop to come round, on top of a time limit


class EngineState(enum.Enum):
    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"  # what runs may end, nothing new is taken
    RESTARTING = "restarting"  # lost, and on its way back
    FAILED = "failed"  # it can't be loaded, or was lost too often; stays so
    CLOSED = "closed"


class AsyncEngine:
    """The engine, from the event loop's side. Made by `start`.

    Attributes:
        info: what was loaded; None before the first time it was ready, kept while it restarts.
        num_restarts: lives started after the first one.
    """

    def __init__(
        self,
        config: EngineConfig,
        *,
        clock: Clock,
        on_events: OnEvents,
        launcher: Launcher,
        supervision: SupervisionConfig,
    ) -> None:
        self.info: EngineInfo | None = None
        self.num_restarts = 0
        self._config = config
        self._clock = clock
        self._on_events = on_events
        self._launcher = launcher
        self._limits = supervision
        self._loop = asyncio.get_running_loop()
        self._streams = StreamTable()
        self._life: EngineLife | None = None
        self._state = EngineState.LOADING
        self._reason = "starting"
        self._is_draining = False
        self._is_closing = False
        self._failure: PellucidError | None = None
        self._settled = asyncio.Event()  # ready, failed or closed: wait_ready() can answer
        self._supervisor = self._loop.create_task(self._supervise(), name="engine-supervisor")
        self._supervisor.add_done_callback(self._end_supervision)

    @classmethod
    async def start(
        cls,
        config: EngineConfig,
        *,
        clock: Clock,
        on_events: OnEvents,
        launcher: Launcher = launch_process,
        supervision: SupervisionConfig = DEFAULT_SUPERVISION,
    ) -> Self:
        """Start loading and return at once, in state `loading`; `wait_ready` waits for the rest.

        Args:
            config: for the engine process.
            clock: the same kind of monotonic clock as the engine's.
            on_events: called on the event loop with every event; must not block. If it raises, the loop's exception
                handler hears of it and the engine goes on.
            launcher: a process, or for tests a thread (engine/launch.py).
            supervision: time limits and the restart policy.
        """
        return cls(config, clock=clock, on_events=on_events, launcher=launcher, supervision=supervision)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- what it is doing ------------------------------------------------------------------------------------------

    @property
    def state(self) -> EngineState:
        if self._is_draining and self._state not in (EngineState.FAILED, EngineState.CLOSED):
            return EngineState.DRAINING
        if self._state is EngineState.READY and (self._life is None or not self._life.is_ready):
            return EngineState.RESTARTING  # gone a moment ago; the supervisor is about to say why
        return self._state

    @property
    def reason(self) -> str:
        """Why it is not ready, in a line for `/ready`; "" when it is."""
        if self.state is EngineState.DRAINING:
            return "the server is shutting down"
        if self._state is EngineState.LOADING and self._life is not None:
            return f"loading the model: {self._life.load_stage}"
        return self._reason or ("" if self.state is EngineState.READY else "the engine was lost")

    @property
    def num_in_flight(self) -> int:
        """Requests whose consumer still waits for outputs."""
        return len(self._streams)

    def is_in_flight(self, request_id: str) -> bool:
        """Whether the request's consumer still waits for outputs."""
        return request_id in self._streams

    @property
    def num_dropped_outputs(self) -> int:
        """Outputs for requests that nobody waits for any more, or that were never sent."""
        return self._streams.num_dropped_outputs

    def heartbeat_age(self) -> float:
        """Return seconds since the engine was last heard of; grows without bound while there is none."""
        return 0.0 if self._life is None else self._life.message_age_s

    async def wait_ready(self) -> EngineInfo:
        """Wait until the model is loaded.

        Raises:
            ModelLoadError, ConfigError: it can't be; waiting longer is no use.
            EngineUnavailableError: the engine was lost too often, or closed.
        """
        while self.info is None or self._life is None or not self._life.is_ready:
            if self._failure is not None:
                raise self._failure
            if self._is_closing:
                raise EngineUnavailableError(self._reason)
            self._settled.clear()
            await self._settled.wait()
        return self.info

    # --- requests --------------------------------------------------------------------------------------------------

    def generate(self, request: EngineRequest) -> Generation:
        """Send a request and return the iterator of its outputs; the caller closes it (`async with`).

        Each item holds what came since the last one, at most one ChoiceOutput per choice. The iterator ends after every
        choice had its one output with a finish_reason. Closing it earlier aborts the request.

        Raises:
            EngineUnavailableError: it is not ready; `reason` says why.
            QueueFullError: the engine is in a long step and too much waits already.
            ValueError: the id is in use; ids are ours and unique, so this is a bug of the caller.
        """
        life = self._ready_life()
        request_id = request.request_id
        if request_id in self._streams or request_id in life.ledger:
            raise ValueError(f"request id {request_id!r} is in use")
        life.add(request)
        stream = self._streams.open(request_id, request.params.n)

        def leave() -> None:
            if self._streams.leave(request_id, stream):
                life.send(Abort(request_id=request_id, reason="client_gone"))

        return Generation(stream, leave)

    def stop_choice(self, request_id: str, index: int, num_output_tokens: int) -> bool:
        """End a choice with `stop` after its first tokens; return False when the request is not in flight."""
        if self._life is None or request_id not in self._streams:
            return False
        self._life.send(StopChoice(request_id=request_id, index=index, num_output_tokens=num_output_tokens))
        return True

    def abort(self, request_id: str, reason: str) -> bool:
        """Abort a request for someone other than its consumer, who gets the outputs that say so.

        Returns False when the request is not in flight, or is being aborted already.
        """
        if self._life is None or not self._streams.begin_abort(request_id):
            return False
        self._life.send(Abort(request_id=request_id, reason=reason))
        return True

    async def reset_prefix_cache(self) -> int:
        """Empty the prefix tree between two steps; return how many cached blocks were dropped.

        Raises EngineUnavailableError when there is no engine to do it, or it is lost meanwhile.
        """
        return await self._ready_life().reset_prefix_cache()

    # --- the end ---------------------------------------------------------------------------------------------------

    async def drain(self, grace_s: float) -> int:
        """Take nothing new, let what runs end within `grace_s`, end the rest; return how many had to be ended.

        Those get EngineUnavailableError from their iterator and are aborted in the engine.
        """
        self._is_draining = True
        try:
            async with asyncio.timeout(grace_s):
                await self._streams.wait_empty()
        except TimeoutError:
            for request_id in self._streams:
                self.abort(request_id, "drain")
        return self._streams.fail_all(EngineUnavailableError("the server is shutting down"))

    async def close(self) -> None:
        """End the engine within `shutdown_s` + `reap_s`: in order if it can, else by force. May be called again."""
        self._is_closing = True
        self._reason = "the engine is closed"
        self._streams.fail_all(EngineUnavailableError("the server is shutting down"))
        try:
            if self._life is not None and self._life.is_ready:
                self._life.send(Shutdown(reason="closed"))
                await asyncio.wait({self._supervisor}, timeout=self._limits.shutdown_s)
        finally:
            self._supervisor.cancel()
        await asyncio.wait({self._supervisor}, timeout=self._limits.reap_s + MARGIN_S)

    # --- supervision -----------------------------------------------------------------------------------------------

    async def _supervise(self) -> None:
        budget = RestartBudget(self._limits, clock=self._clock)
        while True:
            end = await self._live()
            if self._is_closing:
                return
            delay_s = None if end.final is not None else budget.next_delay_s()
            if delay_s is None:
                self._give_up(end)
                return
            log.error("the engine is lost, starting it again in %.1f s: %s", delay_s, end.reason)
            self._state, self._reason = EngineState.RESTARTING, f"the engine restarts: {end.reason}"
            await asyncio.sleep(delay_s)
            self.num_restarts += 1

    def _end_supervision(self, supervisor: asyncio.Task[None]) -> None:
        error = None if supervisor.cancelled() else supervisor.exception()
        if error is not None:
            log.error("the engine's supervision broke", exc_info=error)
            self._give_up(LifeEnd(f"supervision broke: {type(error).__name__}: {error}"))
        if self._is_closing:
            self._state = EngineState.CLOSED
        self._settled.set()

    async def _live(self) -> LifeEnd:
        """Start an engine and stay with it to its end, then settle what it left behind."""
        try:
            handle = self._launcher()
        except OSError as error:
            return LifeEnd(f"the engine can't be started: {error}")
        life = self._life = EngineLife(handle, clock=self._clock, on_ready=self._become_ready, on_step=self._take_step)
        end = LifeEnd("the engine was closed")
        try:
            end = await life.run(self._config, self._limits)
            return end
        finally:
            life.kill()
            last_words = life.ledger.close(end.reason, error_type="" if self._is_closing else "internal_error")
            self._loop.call_soon(self._deliver, last_words)
            self._streams.fail_all(RequestFailedError(f"the engine was lost: {end.reason}"))
            await life.reap(self._limits.reap_s)

    def _become_ready(self, info: EngineInfo) -> None:
        self.info = info
        self._state, self._reason = EngineState.READY, ""
        self._settled.set()

    def _give_up(self, end: LifeEnd) -> None:
        if end.final is None or self.info is not None:  # what can't be loaded at first is raised by wait_ready()
            log.error("the engine stays down: %s", end.reason)
        self._state, self._reason = EngineState.FAILED, end.reason
        self._failure = end.final or EngineUnavailableError(f"the engine was lost too often: {end.reason}")

    def _take_step(self, message: SealedStep) -> None:
        """Pass a step on: its events, then its outputs.

        Both go through the loop's queue, so that a callback that raises can't break the channel, and no consumer that
        happens to run in between sees outputs whose events have not been delivered.
        """
        assert self._life is not None
        events = PackedEvents(message.events)
        self._life.ledger.seen(events, message.ended)
        self._loop.call_soon(self._deliver, events, message.outputs, message.ended)

    def _deliver(
        self, events: Sequence[Event], outputs: Sequence[ChoiceOutput] = (), ended: Sequence[str] = ()
    ) -> None:
        try:
            if events:
                self._on_events(events)
        finally:
            if outputs or ended:
                self._streams.take(outputs, ended)

    def _ready_life(self) -> EngineLife:
        if self._life is None or self._is_closing or self.state is not EngineState.READY:
            raise EngineUnavailableError(self.reason)
        return self._life
