"""What a load came to. All types encode to JSON with `msgspec.json.encode`; durations say their unit in their name."""

from typing import Literal

import msgspec

from loadtest.attainment import Attainment
from loadtest.distribution import Distribution
from loadtest.plan import LoadPlan
from loadtest.snapshot import LoadSnapshot
from loadtest.target import Target

SCHEMA, VERSION = "pellucid-load", 1

Status = Literal["ok", "rejected", "failed", "cut"]
StopReason = Literal["finished", "stopped", "saturated"]


class RequestResult(msgspec.Struct, frozen=True, kw_only=True):
    """One request; moments are seconds from the load's start.

    Attributes:
        number, stage: its place.
        status: `ok`, `rejected` (429 or 503), `failed` (anything else that is no whole answer), `cut` (the load was
            stopped while it ran).
        is_warm_up: sent, but in no statistics.
        due_s: when it should have been sent; latencies count from here.
        dispatched_s, sent_s: when the generator came to it, and when it had a connection.
        first_token_s: first piece with content.
        ended_s: finish reason, failure, or cut.
        num_prompt_tokens, num_cached_tokens, num_output_tokens: as the server counted them.
        num_chunks: pieces with content.
        itl_s: (end - first token) / (tokens - 1); None for less than two tokens.
        longest_gap_s: between two pieces.
        fluidity: see loadtest/fluidity.py.
        is_good: met every SLO; None when it was cut before that was settled.
        request_id: the server's own.
    """

    number: int
    stage: int
    status: Status
    is_warm_up: bool
    due_s: float
    dispatched_s: float
    sent_s: float | None
    first_token_s: float | None
    ended_s: float
    prompt_tokens_asked: int
    output_tokens_asked: int
    num_prompt_tokens: int
    num_cached_tokens: int
    num_output_tokens: int
    num_chunks: int
    itl_s: float | None
    longest_gap_s: float | None
    fluidity: float | None
    is_good: bool | None
    finish_reason: str
    http_status: int
    request_id: str
    error: str

    @property
    def ttft_s(self) -> float | None:
        return None if self.first_token_s is None else self.first_token_s - self.due_s

    @property
    def e2e_s(self) -> float:
        return self.ended_s - self.due_s


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Per second over the measured window.

    Attributes:
        requests_planned: that fell due; in a closed loop those that were begun.
        requests_sent: that got their connection.
        requests_done: that ended as they should.
        goodput: that fell due and turned out good.
        output_tokens, prompt_tokens: of answers that weren't failures, when they came; a prompt counts with its first
            token.
    """

    requests_planned: float
    requests_sent: float
    requests_done: float
    goodput: float
    output_tokens: float
    prompt_tokens: float


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Requests of a stage that fell due in its window, by what became of them; `warm_up` are the others."""

    ok: int = 0
    rejected: int = 0
    failed: int = 0
    cut: int = 0
    warm_up: int = 0


class StageResult(msgspec.Struct, frozen=True, kw_only=True):
    """One stage; all but a sweep have one.

    Attributes:
        label: e.g. `8 streams` or `poisson, 4/s`.
        concurrency: of a closed loop.
        window_s: measured time, warm-up left out.
        metrics: by name, over the requests that are `ok`; see docs/loadtest.md.
        errors: messages of failures with how often, the most frequent first, at most 20.
    """

    label: str
    concurrency: int | None
    window_s: float
    counts: Counts
    rates: Rates
    attainment: Attainment
    metrics: dict[str, Distribution]
    errors: dict[str, int]


class Knee(msgspec.Struct, frozen=True, kw_only=True):
    """Where more concurrency stops paying; see loadtest/knee.py.

    Attributes:
        concurrency: of the knee; None when throughput grew to the last level.
        best_within_slos: highest level whose attainment is at least 0.95 at the low end of its interval.
        why: in words.
    """

    concurrency: int | None
    best_within_slos: int | None
    why: str


class LoadResult(msgspec.Struct, frozen=True, kw_only=True):
    """A whole load.

    Attributes:
        started_at: Unix seconds.
        target, plan, model: what was asked of whom.
        characters_per_token: by which prompts were cut.
        stop_reason: the plan's end, the caller's stop, or saturation.
        stages: in order.
        knee: of a sweep.
        timeline: the snapshots, one a second.
        requests: every one, in the order of their ends.
    """

    schema: str
    version: int
    started_at: float
    duration_s: float
    target: Target
    plan: LoadPlan
    model: str
    characters_per_token: float
    stop_reason: StopReason
    stages: tuple[StageResult, ...]
    knee: Knee | None
    timeline: tuple[LoadSnapshot, ...]
    requests: tuple[RequestResult, ...]

    def without_requests(self) -> "LoadResult":
        """Return it without the requests, which are most of its size."""
        return msgspec.structs.replace(self, requests=())
