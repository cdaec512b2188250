"""What a running load looks like at one moment."""

from typing import Literal

import msgspec

Phase = Literal["preparing", "warm_up", "running", "draining", "done"]


class LoadSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Counts since the load began; rates and percentiles over the last seconds, None where samples are too few.

    Attributes:
        elapsed_s: since the first request was due.
        phase: `draining` when sending has ended.
        stage, num_stages, stage_label: which part of a sweep.
        window_s: what "the last seconds" are.
        concurrency: of a closed loop.
        in_flight: begun and not over; `waiting` of them have no connection yet.
        num_planned: in all stages; None when only time ends the load.
        num_sent, num_done, num_rejected, num_failed, num_cut: requests.
        rate_asked: requests that fell due, per second; None in a closed loop.
        rate_sent, rate_done, output_tokens_per_s: per second.
        ttft_..., itl_..., e2e_..._ms: over tokens and ends of the last seconds; ITL is the gap between pieces.
        lateness_max_ms: how late the generator itself came to a request.
        last_error: of a failure.
    """

    elapsed_s: float
    phase: Phase
    stage: int
    num_stages: int
    stage_label: str
    window_s: float
    concurrency: int | None
    in_flight: int
    waiting: int
    num_planned: int | None
    num_sent: int
    num_done: int
    num_rejected: int
    num_failed: int
    num_cut: int
    rate_asked: float | None
    rate_sent: float
    rate_done: float
    output_tokens_per_s: float
    ttft_p50_ms: float | None
    ttft_p95_ms: float | None
    ttft_p99_ms: float | None
    itl_p50_ms: float | None
    itl_p95_ms: float | None
    itl_p99_ms: float | None
    e2e_p50_ms: float | None
    e2e_p95_ms: float | None
    e2e_p99_ms: float | None
    lateness_max_ms: float
    last_error: str
