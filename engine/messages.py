"""What travels between the service's process and the engine's: MessagePack, length-prefixed, one message a step."""

from collections.abc import Sequence as Many
from typing import Final, cast

import msgspec

from engine.config import EngineConfig
from engine.events import TERMINAL_EVENTS, AnyEvent, RequestEvent
from engine.sequence import EngineRequest


class ToEngine(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Base of messages to the engine."""


class Configure(ToEngine, frozen=True, kw_only=True, tag="configure"):
    """The first message: load this."""

    config: EngineConfig


class AddRequest(ToEngine, frozen=True, kw_only=True, tag="add"):
    request: EngineRequest


class Abort(ToEngine, frozen=True, kw_only=True, tag="abort"):
    """Drop a request; unknown ids are ignored and counted."""

    request_id: str
    reason: str


class StopChoice(ToEngine, frozen=True, kw_only=True, tag="stop"):
    """The service found a stop string: the choice is complete with its first `num_output_tokens` tokens."""

    request_id: str
    index: int
    num_output_tokens: int


class ResetPrefixCache(ToEngine, frozen=True, kw_only=True, tag="reset_prefix_cache"):
    call_id: int


class Shutdown(ToEngine, frozen=True, kw_only=True, tag="shutdown"):
    """Abort what still runs, say engine_stopped, exit."""

    reason: str


class FromEngine(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """Base of messages from the engine."""


class LoadProgress(FromEngine, frozen=True, kw_only=True, tag="loading"):
    stage: str


class EngineInfo(FromEngine, frozen=True, kw_only=True, tag="ready"):
    """The engine is loaded and has done a warm-up step.

    Attributes:
        model: the name it was configured with; `architecture`, `num_parameters`, `dtype`, `kv_dtype`, `executor`,
            `device`, `threads`: what really runs.
        eos_token_ids: end-of-sequence ids the engine stops at.
    """

    model: str
    architecture: str
    num_parameters: int
    dtype: str
    executor: str
    device: str
    threads: int
    vocab_size: int
    max_model_len: int
    block_size: int
    num_kv_blocks: int
    kv_dtype: str
    kv_cache_bytes: int
    max_num_seqs: int
    max_num_batched_tokens: int
    prefix_cache: bool
    overflow: str
    eos_token_ids: tuple[int, ...]
    load_s: float


class LogprobEntry(msgspec.Struct, frozen=True, array_like=True):
    """A token with its natural-log probability."""

    token_id: int
    logprob: float


class TokenLogprobs(msgspec.Struct, frozen=True, array_like=True):
    """The chosen (or given) token's log probability and the most likely alternatives, best first."""

    chosen: LogprobEntry
    top: list[LogprobEntry]


class ChoiceOutput(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """What one step added to one choice.

    Attributes:
        token_ids: new output tokens, in order.
        logprobs: one per token when asked for, else empty.
        prompt_logprobs: for prompt positions computed in this step, when asked for; position 0 has none and is not
            listed, so over the steps of a request positions 1..num_prompt_tokens-1 come in order.
        finish_reason: `stop`, `length`, `abort`, `error`, or "" while it goes on.
        stop_token_id: the token that ended it (it is not in token_ids' text, but it is in token_ids); -1 if none.
        error: why, when finish_reason is `error`.
        error_type: stable label, when finish_reason is `error` (`invalid_request_error` for a refusal at admission).
        num_cached_tokens: prompt tokens that came from the prefix cache.
    """

    request_id: str
    index: int = 0
    token_ids: list[int] = []
    logprobs: Many[TokenLogprobs] = ()
    prompt_logprobs: Many[TokenLogprobs] = ()
    finish_reason: str = ""
    stop_token_id: int = -1
    error: str = ""
    error_type: str = ""
    num_cached_tokens: int = 0


_TERMINAL: Final = frozenset(TERMINAL_EVENTS)


class StepOutput(FromEngine, frozen=True, kw_only=True, tag="step"):
    """One step's outputs and events (also sent without a step, when only events or aborts happened).

    Attributes:
        ended: ids of the requests whose terminal event is among the events.
    """

    outputs: list[ChoiceOutput]
    ended: list[str]
    events: list[AnyEvent]

    @classmethod
    def of(cls, outputs: list[ChoiceOutput], events: list[AnyEvent]) -> "StepOutput":
        """Return the message of these."""
        ended = [cast(RequestEvent, event).request_id for event in events if type(event) in _TERMINAL]
        return cls(outputs=outputs, ended=ended, events=events)


class SealedStep(FromEngine, frozen=True, kw_only=True, tag="step"):
    """A StepOutput as it arrives, its events for PackedEvents: nobody looks at them before its tokens are sent."""

    outputs: list[ChoiceOutput]
    ended: list[str]
    events: msgspec.Raw


class Heartbeat(FromEngine, frozen=True, kw_only=True, tag="heartbeat"):
    """Sent at least every `heartbeat_s`, also while idle; `step` is the last finished step."""

    t: float
    step: int


class CallResult(FromEngine, frozen=True, kw_only=True, tag="result"):
    call_id: int
    value: int


class Fatal(FromEngine, frozen=True, kw_only=True, tag="fatal"):
    """The engine can't go on (bad model, a step that raised); the process exits after it.

    Attributes:
        error_type: stable label (`model_load_error`, `config_error`, `internal_error`).
    """

    error_type: str
    message: str


AnyToEngine = Configure | AddRequest | Abort | StopChoice | ResetPrefixCache | Shutdown
AnyFromEngine = LoadProgress | EngineInfo | StepOutput | Heartbeat | CallResult | Fatal
AnyArrival = LoadProgress | EngineInfo | SealedStep | Heartbeat | CallResult | Fatal
