"""The engine's outermost loop: inbox, step, message; one thread, nothing asynchronous.

Liveness rule. A step runs on this thread, so nothing can be said while it runs, and a helper thread that beats while a
kernel hangs would lie. Therefore every message counts as a sign of life: a StepOutput after each step, and a Heartbeat
(with the number of the last finished step) whenever `heartbeat_s` has passed since the last one. The client's rule is
the age of the last message *while work is pending*; its bound is longer than the longest honest step
(engine/supervision.py).
"""

import logging
from typing import Protocol

from engine.channel import ChannelClosedError, EngineChannel
from engine.clock import Clock
from engine.messages import (
    Abort,
    AddRequest,
    AnyToEngine,
    CallResult,
    Configure,
    Fatal,
    Heartbeat,
    ResetPrefixCache,
    Shutdown,
    StepOutput,
    StopChoice,
)
from engine.sequence import EngineRequest

log = logging.getLogger(__name__)

EXIT_OK = 0
EXIT_STEP_FAILED = 1


class SteppableCore(Protocol):
    """What the loop drives; EngineCore is the real one."""

    @property
    def has_work(self) -> bool:
        """Whether step() has something to compute, or to report: refusals, aborts, events."""
        ...

    @property
    def num_steps(self) -> int: ...

    def add(self, request: EngineRequest) -> None: ...

    def abort(self, request_id: str, reason: str) -> None: ...

    def stop_choice(self, request_id: str, index: int, num_output_tokens: int) -> None: ...

    def reset_prefix_cache(self) -> int: ...

    def step(self) -> StepOutput: ...

    def collect(self) -> StepOutput:
        """Return outputs and events that no message has carried yet."""
        ...

    def fail(self, error: str) -> StepOutput:
        """End everything in flight as failed, after a step raised, and say engine_failed; no step may follow."""
        ...

    def stop(self, reason: str) -> StepOutput:
        """Abort everything in flight and say engine_stopped; no step may follow."""
        ...


class EngineLoop:
    """Serves one core over one channel until it is told to stop, the service goes away, or a step raises.

    Args:
        core: what is driven.
        channel: the engine's end; not closed here.
        clock: stamps heartbeats.
        heartbeat_s: longest silence while idle, in seconds.
    """

    def __init__(self, core: SteppableCore, channel: EngineChannel, *, clock: Clock, heartbeat_s: float) -> None:
        self._core = core
        self._channel = channel
        self._clock = clock
        self._heartbeat_s = heartbeat_s
        self._last_beat = clock.now()

    def run(self) -> int:
        """Loop; return the exit code: 0 after Shutdown or when the service is gone, 1 after a step that raised.

        A step that raised leaves the device, the KV cache and the libraries' own state in a condition that nobody can
        vouch for. So the loop reports what failed, says Fatal and returns: only a fresh process can't repeat the
        fault for ever. The client starts it, and stops doing so when that happens too often.
        """
        try:
            while True:
                for message in self._channel.receive(self._patience_s()):
                    if isinstance(message, Shutdown):
                        self._channel.send(self._core.stop(message.reason))
                        return EXIT_OK
                    self._handle(message)
                if self._core.has_work:
                    self._channel.send(self._core.step())
                self._beat()
        except ChannelClosedError as gone:
            log.info("the engine ends: %s", gone.message)
            return EXIT_OK
        except Exception as error:  # noqa: BLE001  the engine's outermost loop: whatever it was, the process ends in order
            return self._end_after(error)

    def _patience_s(self) -> float:
        """How long the inbox may be waited for: not at all with work, else until the next heartbeat is due."""
        if self._core.has_work:
            return 0.0
        return max(0.001, self._last_beat + self._heartbeat_s - self._clock.now())

    def _handle(self, message: AnyToEngine) -> None:
        match message:
            case AddRequest(request=request):
                self._core.add(request)
            case Abort(request_id=request_id, reason=reason):
                self._core.abort(request_id, reason)
            case StopChoice(request_id=request_id, index=index, num_output_tokens=num_output_tokens):
                self._core.stop_choice(request_id, index, num_output_tokens)
            case ResetPrefixCache(call_id=call_id):
                self._channel.send(CallResult(call_id=call_id, value=self._core.reset_prefix_cache()))
            case Configure() | Shutdown():
                raise AssertionError(f"{type(message).__name__} is not for the running loop")

    def _beat(self) -> None:
        now = self._clock.now()
        if now - self._last_beat >= self._heartbeat_s:
            self._last_beat = now
            self._channel.send(Heartbeat(t=now, step=self._core.num_steps))

    def _end_after(self, error: Exception) -> int:
        log.error("a step of the engine raised", exc_info=error)
        reason = f"{type(error).__name__}: {error}"
        try:
            self._channel.send(self._core.fail(reason))
            self._channel.send(Fatal(error_type="internal_error", message=reason))
        except ChannelClosedError as gone:
            log.info("nobody is left to hear of it: %s", gone.message)
        return EXIT_STEP_FAILED
