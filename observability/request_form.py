"""The form of `/telemetry/requests`, `/telemetry/requests/{id}` and `/telemetry/steps`. Durations are in seconds.

A change of meaning or a removal raises the form's version.
"""

from typing import Final, Literal

import msgspec

from engine.events import StepFinished
from observability.cache_explanation import CacheExplanation

TABLE_SCHEMA: Final[Literal["pellucid-requests"]] = "pellucid-requests"
DETAIL_SCHEMA: Final[Literal["pellucid-request"]] = "pellucid-request"
STEPS_SCHEMA: Final[Literal["pellucid-steps"]] = "pellucid-steps"
VERSION: Final = 1


class RequestSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the request table.

    Attributes:
        state: `opened`, `waiting`, `running`, or how it ended: `finished`, `failed`, `aborted`, `rejected`.
        phase: what it does now: `tokenize`, `queue`, `prefill`, `decode`, `preempted`, `send`, or `ended`.
        phase_s: since when; 0 once it has ended.
        waits_for: in `queue` and `preempted` what the head of the queue waits for, else "".
        arrival: Unix epoch seconds.
        num_output_tokens: of all choices.
        queue_s: of the waiting that is over.
    """

    request_id: str
    trace_id: str
    route: str
    model: str
    stream: bool
    state: str
    phase: str
    phase_s: float
    waits_for: str
    finish_reason: str
    error_type: str
    arrival: float
    age_s: float
    num_prompt_tokens: int
    num_cached_tokens: int
    num_output_tokens: int
    max_tokens: int
    num_preemptions: int
    ttft_s: float | None
    e2e_s: float | None
    queue_s: float
    prefill_s: float | None
    decode_s: float | None
    mean_itl_s: float | None


class RequestTable(msgspec.Struct, frozen=True, kw_only=True):
    """In flight, oldest first, and ended, newest first. `t` is Unix epoch seconds."""

    schema: Literal["pellucid-requests"]
    version: int
    t: float
    in_flight: list[RequestSummary]
    recent: list[RequestSummary]


class Stamps(msgspec.Struct, frozen=True, kw_only=True):
    """Moments in the life of a request, after its arrival; null for what has not happened."""

    encoded_s: float | None
    first_scheduled_s: float | None
    first_token_s: float | None
    last_token_s: float | None
    sent_first_s: float | None
    sent_last_s: float | None
    ended_s: float | None


class WaitForm(msgspec.Struct, frozen=True, kw_only=True):
    """A waiting interval; `cause` is `queued` or `preempted`."""

    start_s: float
    end_s: float
    cause: str


class ChunkForm(msgspec.Struct, frozen=True, kw_only=True):
    """A prefill chunk: tokens start..start+num_tokens-1 of a choice."""

    at_s: float
    step: int
    index: int
    start: int
    num_tokens: int
    num_recomputed: int


class ChoiceForm(msgspec.Struct, frozen=True, kw_only=True):
    """One choice; `stall_s` is the largest gap between two of its tokens."""

    index: int
    num_tokens: int
    first_token_s: float | None
    last_token_s: float | None
    stall_s: float | None
    finish_reason: str


class Beside(msgspec.Struct, frozen=True, kw_only=True):
    """Work of the service that cost the request no time, for the engine was at work on later tokens."""

    detokenize_s: float
    send_blocked_s: float


class AttributionForm(msgspec.Struct, frozen=True, kw_only=True):
    """Where the wall time went.

    Attributes:
        wall_s: arrival to the last byte sent, or until now.
        is_complete: false while it goes on; the engine's current step is unattributed then.
        causes: exclusive, every cause of observability/attribution.py; they sum to `wall_s`.
        beside: not part of the sum.
    """

    wall_s: float
    is_complete: bool
    causes: dict[str, float]
    beside: Beside


class RequestDetail(RequestSummary, frozen=True, kw_only=True):
    """Everything known of one request.

    Attributes:
        cache: null until it was looked up in the prefix cache.
    """

    schema: Literal["pellucid-request"]
    version: int
    message: str
    ttft_engine_s: float | None
    tpot_s: float | None
    stall_s: float | None
    first_queue_s: float | None
    num_computed_tokens: int
    num_recomputed_tokens: int
    prefix_why: str
    stamps: Stamps
    waits: list[WaitForm]
    chunks: list[ChunkForm]
    choices: list[ChoiceForm]
    attribution: AttributionForm
    cache: CacheExplanation | None


class StepRecord(StepFinished, frozen=True, kw_only=True, tag="step_finished"):
    """A step_finished event, and when the step started (monotonic seconds, as `t`)."""

    started: float


class StepTable(msgspec.Struct, frozen=True, kw_only=True):
    """Engine steps, oldest first. `monotonic_origin` dates their stamps: Unix epoch seconds at monotonic 0."""

    schema: Literal["pellucid-steps"]
    version: int
    monotonic_origin: float
    steps: list[StepRecord]
