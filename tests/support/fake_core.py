"""A core for tests of the loop and the client: one token per choice and step, held, broken or slowed on cue."""

import threading
from collections.abc import Callable

import msgspec

from engine.clock import Clock
from engine.config import EngineConfig
from engine.errors import InvalidRequestError
from engine.event_ledger import emit_arrived
from engine.events import (
    EngineFailed,
    EngineStarted,
    EngineStopped,
    EventLog,
    RequestAborted,
    RequestFailed,
    RequestFinished,
    RequestRejected,
    RequestTokens,
)
from engine.messages import ChoiceOutput, EngineInfo, StepOutput
from engine.sequence import EngineRequest

REFUSED_TOKEN = 999


class FakeCore:
    """Counts: choice `index` of a request gets token ids 100 * index + 0, 1, 2 ... up to max_tokens.

    A prompt that begins with REFUSED_TOKEN is refused at admission.

    Args:
        clock: stamps events.
        before_step: called at the start of each step with its number, on the engine's thread; may wait or raise.
    """

    def __init__(self, clock: Clock, before_step: Callable[[int], None] = lambda step: None) -> None:
        self._log = EventLog(clock)
        self._before_step = before_step
        self._requests: dict[str, EngineRequest] = {}
        self._open: dict[str, dict[int, int]] = {}
        self._outputs: list[ChoiceOutput] = []
        self.num_steps = 0
        self._log.emit(
            EngineStarted,
            model="fake",
            executor="fake",
            block_size=16,
            num_blocks=64,
            max_num_seqs=64,
            max_num_batched_tokens=512,
            max_model_len=1_000_000,
            prefix_cache=True,
        )

    @property
    def has_work(self) -> bool:
        return bool(self._open or self._outputs or self._log.has_pending)

    @property
    def running_ids(self) -> list[str]:
        return list(self._open)

    def add(self, request: EngineRequest) -> None:
        emit_arrived(self._log, request)
        if REFUSED_TOKEN in request.prompt_token_ids[:1]:
            error = InvalidRequestError(f"`prompt` must not begin with {REFUSED_TOKEN}")
            self._log.emit(
                RequestRejected, request_id=request.request_id, error_type=error.error_type, message=error.message
            )
            self._outputs += [
                ChoiceOutput(
                    request_id=request.request_id,
                    index=index,
                    finish_reason="error",
                    error=error.message,
                    error_type=error.error_type,
                )
                for index in range(request.params.n)
            ]
            return
        self._requests[request.request_id] = request
        self._open[request.request_id] = dict.fromkeys(range(request.params.n), 0)

    def abort(self, request_id: str, reason: str) -> None:
        choices = self._open.pop(request_id, None)
        if choices is None:
            return
        self._outputs += [ChoiceOutput(request_id=request_id, index=i, finish_reason="abort") for i in choices]
        self._log.emit(RequestAborted, request_id=request_id, reason=reason, num_output_tokens=sum(choices.values()))

    def stop_choice(self, request_id: str, index: int, num_output_tokens: int) -> None:
        choices = self._open.get(request_id, {})
        if choices.pop(index, None) is not None:
            self._outputs.append(ChoiceOutput(request_id=request_id, index=index, finish_reason="stop"))
            self._finish_if_done(request_id)

    def reset_prefix_cache(self) -> int:
        return 7

    def step(self) -> StepOutput:
        if not self._open:
            return self.collect()
        self.num_steps += 1
        self._log.step = self.num_steps
        self._before_step(self.num_steps)
        for request_id, choices in list(self._open.items()):
            max_tokens = self._requests[request_id].params.max_tokens
            for index in list(choices):
                count = choices[index] = choices[index] + 1
                is_last = count >= max_tokens
                self._outputs.append(
                    ChoiceOutput(
                        request_id=request_id,
                        index=index,
                        token_ids=[100 * index + count - 1],
                        finish_reason="length" if is_last else "",
                    )
                )
                self._log.emit(RequestTokens, request_id=request_id, index=index, num_tokens=1, num_output_tokens=count)
                if is_last:
                    del choices[index]
            self._finish_if_done(request_id)
        return self.collect()

    def collect(self) -> StepOutput:
        outputs, self._outputs = self._outputs, []
        return StepOutput.of(outputs, self._log.drain())

    def stop(self, reason: str) -> StepOutput:
        for request_id in list(self._open):
            self.abort(request_id, reason)
        self._log.emit(EngineStopped, reason=reason)
        return self.collect()

    def fail(self, error: str) -> StepOutput:
        for request_id, choices in self._open.items():
            self._outputs += [
                ChoiceOutput(
                    request_id=request_id, index=i, finish_reason="error", error=error, error_type="internal_error"
                )
                for i in choices
            ]
            self._log.emit(
                RequestFailed,
                request_id=request_id,
                error_type="internal_error",
                message=error,
                num_output_tokens=sum(choices.values()),
            )
        self._open.clear()
        self._log.emit(EngineFailed, error=error)
        return self.collect()

    def _finish_if_done(self, request_id: str) -> None:
        if request_id in self._open and not self._open[request_id]:
            del self._open[request_id]
            self._log.emit(
                RequestFinished,
                request_id=request_id,
                finish_reason="length",
                num_prompt_tokens=len(self._requests[request_id].prompt_token_ids),
                num_cached_tokens=0,
                num_output_tokens=0,
                num_preemptions=0,
            )


class FakeEngine:
    """Builds fake cores for thread_launcher, and is the test's hand on them.

    Attributes:
        cores: every core built, oldest first.
        gate: steps wait for it; open at first.
        in_step: set while a step waits at the gate.
        load_gate: loading waits for it; open at first.
        load_error: raised while loading, when set.
        raise_in_step: the number of the step that raises, in every life; 0 is never.
    """

    def __init__(self, *, num_parameters: int = 0) -> None:
        self._num_parameters = num_parameters
        self.cores: list[FakeCore] = []
        self.gate = threading.Event()
        self.gate.set()
        self.in_step = threading.Event()
        self.load_gate = threading.Event()
        self.load_gate.set()
        self.load_error: Exception | None = None
        self.raise_in_step = 0

    def build(self, config: EngineConfig, clock: Clock, progress: Callable[[str], None]) -> tuple[FakeCore, EngineInfo]:
        progress("fake weights")
        self.load_gate.wait()
        if self.load_error is not None:
            raise self.load_error
        progress("warm-up")
        core = FakeCore(clock, self._before_step)
        self.cores.append(core)
        return core, msgspec.structs.replace(fake_info(config), num_parameters=self._num_parameters)

    def _before_step(self, step: int) -> None:
        if not self.gate.is_set():
            self.in_step.set()
            self.gate.wait()
            self.in_step.clear()
        if step == self.raise_in_step:
            raise ArithmeticError(f"step {step} was told to fail")


def fake_info(config: EngineConfig) -> EngineInfo:
    return EngineInfo(
        model=config.model,
        architecture="fake",
        num_parameters=0,
        dtype="float32",
        executor="fake",
        device="cpu",
        threads=1,
        vocab_size=1000,
        max_model_len=1_000_000,
        block_size=16,
        num_kv_blocks=64,
        kv_dtype="float32",
        kv_cache_bytes=0,
        max_num_seqs=64,
        max_num_batched_tokens=512,
        prefix_cache=True,
        overflow="reject",
        eos_token_ids=(0,),
        load_s=0.0,
    )
