"""One life of the engine as the client sees it: from the start of a process to the moment it is gone."""

import asyncio
import signal
from collections.abc import Callable
from dataclasses import dataclass

from engine.clock import Clock
from engine.config import EngineConfig
from engine.connection import EngineConnection
from engine.errors import ConfigError, EngineUnavailableError, ModelLoadError, PellucidError
from engine.event_ledger import EventLedger
from engine.launch import EngineHandle
from engine.messages import (
    AddRequest,
    AnyArrival,
    AnyToEngine,
    CallResult,
    Configure,
    EngineInfo,
    Fatal,
    Heartbeat,
    LoadProgress,
    ResetPrefixCache,
    SealedStep,
)
from engine.sequence import EngineRequest
from engine.supervision import Silence, SupervisionConfig, longest_honest_step_s

EXIT_CODE_WAIT_S = 1.0  # after the channel has closed; only the report waits for it


@dataclass(frozen=True, slots=True)
class LifeEnd:
    """How a life ended.

    Attributes:
        reason: one line for people.
        final: set when another life would end the same way: the model or the settings can't be used.
    """

    reason: str
    final: PellucidError | None = None


class EngineLife:
    """Drives one started engine.

    Args:
        handle: the started process or thread.
        clock: for ages and for events written in a dead engine's place.
        on_ready: called once, when the engine is loaded.
        on_step: called for each step's outputs and events.
    """

    def __init__(
        self,
        handle: EngineHandle,
        *,
        clock: Clock,
        on_ready: Callable[[EngineInfo], None],
        on_step: Callable[[SealedStep], None],
    ) -> None:
        self.ledger = EventLedger(clock)
        self.load_stage = "starting"
        self._is_loaded = False
        self._longest_step_s = 0.0
        self._handle = handle
        self._clock = clock
        self._on_ready = on_ready
        self._on_step = on_step
        self._connection = EngineConnection(self._dispatch, clock=clock)
        self._calls: dict[int, asyncio.Future[int]] = {}
        self._next_call_id = 1
        self._fatal: Fatal | None = None

    @property
    def is_ready(self) -> bool:
        """Whether it is loaded and not gone yet."""
        return self._is_loaded and not self._connection.lost.done()

    @property
    def message_age_s(self) -> float:
        """Seconds since the last message, or since the start when there was none."""
        return self._clock.now() - self._connection.last_message_t

    async def run(self, config: EngineConfig, limits: SupervisionConfig) -> LifeEnd:
        """Configure the engine and watch it until it is lost or ends; `kill` and `reap` must follow."""
        await self._connection.connect(self._handle.sock)
        self._connection.send(Configure(config=config))
        hang = await self._watch(limits)
        if hang:
            return LifeEnd(hang)
        return self._describe_end(await self._wait(min(EXIT_CODE_WAIT_S, limits.reap_s)))

    def kill(self) -> None:
        """End it by force, if it has not ended, and fail the calls that wait for it; doesn't wait."""
        self._connection.abort()
        self._handle.kill()
        for future in self._calls.values():
            if not future.done():
                future.set_exception(EngineUnavailableError("the engine was lost during the call"))

    async def reap(self, timeout_s: float) -> None:
        """Wait until nothing of it is left; a process stuck in a driver can outlast `timeout_s`."""
        await self._wait(timeout_s)

    def add(self, request: EngineRequest) -> None:
        """Send a request; raise QueueFullError when too much waits to be read."""
        self._connection.send(AddRequest(request=request))
        self.ledger.sent(request)

    def send(self, message: AnyToEngine) -> None:
        self._connection.send(message)

    async def reset_prefix_cache(self) -> int:
        """Return the number of blocks dropped; raise EngineUnavailableError when the engine is lost meanwhile."""
        call_id, self._next_call_id = self._next_call_id, self._next_call_id + 1
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._calls[call_id] = future
        try:
            self._connection.send(ResetPrefixCache(call_id=call_id))
            return await future
        finally:
            self._calls.pop(call_id, None)

    async def _watch(self, limits: SupervisionConfig) -> str:
        """Return "" once the channel is closed, or why the engine counts as hung."""
        silence = Silence()
        lost = self._connection.lost
        while True:
            await asyncio.wait({lost}, timeout=limits.check_s)
            if lost.done():
                return ""
            limit_s = max(limits.hang_timeout_s, self._longest_step_s) if self._is_loaded else limits.load_timeout_s
            is_pending = not self._is_loaded or self.ledger.num_unended > 0 or bool(self._calls)
            if silence.is_too_long(is_overdue=is_pending and self.message_age_s > limit_s):
                what = f"{self.ledger.num_unended} requests pending" if self._is_loaded else f"load: {self.load_stage}"
                return f"the engine was silent for {self.message_age_s:.1f} s (limit {limit_s:g} s, {what})"

    async def _wait(self, timeout_s: float) -> int | None:
        return await asyncio.to_thread(self._handle.wait, timeout_s)

    def _describe_end(self, exit_code: int | None) -> LifeEnd:
        if self._fatal is not None:
            return LifeEnd(self._fatal.message, None if self._is_loaded else _load_error(self._fatal))
        when = "" if self._is_loaded else f" while loading ({self.load_stage})"
        broken = self._connection.lost.result()
        if broken:
            return LifeEnd(broken + when)
        return LifeEnd(f"the engine ended{when} {_describe_exit(exit_code)}")

    def _dispatch(self, message: AnyArrival) -> None:
        match message:
            case SealedStep():
                self._on_step(message)
            case Heartbeat():
                return
            case CallResult(call_id=call_id, value=value):
                future = self._calls.pop(call_id, None)
                if future is not None and not future.done():
                    future.set_result(value)
            case LoadProgress(stage=stage):
                self.load_stage = stage
            case EngineInfo():
                self._is_loaded = True
                self._longest_step_s = longest_honest_step_s(message)
                self._on_ready(message)
            case Fatal():
                self._fatal = message


def _load_error(fatal: Fatal) -> PellucidError:
    for kind in (ModelLoadError, ConfigError):
        if fatal.error_type == kind.error_type:
            return kind(fatal.message)
    return EngineUnavailableError(f"the engine can't load: {fatal.message}")


def _describe_exit(exit_code: int | None) -> str:
    if exit_code is None:
        return "and doesn't exit"
    if exit_code < 0:
        return f"by signal {signal.Signals(-exit_code).name}"
    return f"with exit code {exit_code}"
