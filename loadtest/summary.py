"""From the records of one or more runs to the figures of a cell: rates per run, percentiles over all samples."""

from collections.abc import Sequence
from dataclasses import dataclass

from loadtest.closed_loop import LoadRun
from observability.percentiles import percentile


@dataclass(frozen=True, slots=True)
class Rates:
    """Tokens per second over the window of one run; a prompt counts when its first token comes."""

    output_tokens_per_s: float
    prompt_tokens_per_s: float


@dataclass(frozen=True, slots=True)
class Latencies:
    """Percentiles in milliseconds over the requests that began in a window; None where samples are too few.

    Attributes:
        num_requests, num_gaps: samples of the first-token times and of the inter-token times.
    """

    ttft_p50_ms: float | None
    ttft_p99_ms: float | None
    itl_p50_ms: float | None
    itl_p99_ms: float | None
    num_requests: int
    num_gaps: int


def rates(run: LoadRun) -> Rates:
    """Count what came within the window, whichever request it belongs to."""
    seconds = run.closed - run.opened
    output = sum(record.tokens_between(run.opened, run.closed) for record in run.records)
    prompt = sum(
        len(record.prompt)
        for record in run.records
        if record.token_times and run.opened <= record.token_times[0] <= run.closed
    )
    return Rates(output / seconds, prompt / seconds)


def latencies(runs: Sequence[LoadRun]) -> Latencies:
    """Pool the samples of several runs; percentiles of parts are never averaged."""
    measured = [
        record
        for run in runs
        for record in run.records
        if record.token_times and run.opened <= record.started <= run.closed
    ]
    first = sorted((record.token_times[0] - record.started) * 1e3 for record in measured)
    gaps = sorted(
        (later - earlier) * 1e3
        for record in measured
        for earlier, later in zip(record.token_times, record.token_times[1:], strict=False)
    )
    return Latencies(
        percentile(first, 50), percentile(first, 99), percentile(gaps, 50), percentile(gaps, 99), len(first), len(gaps)
    )
