"""What a reader of a result should know before believing it."""

from loadtest.arrivals import Replay
from loadtest.lengths import mean
from loadtest.load_result import LoadResult, StageResult

LATE_MS = 5.0
FEW = 100
LENGTH_TOLERANCE = 0.25


def cautions(result: LoadResult) -> list[str]:
    """Return sentences, none when there is nothing to say."""
    found: list[str] = []
    if result.stop_reason == "saturated":
        found.append("The server could not keep up with the rate asked for; latencies mostly say for how long.")
    elif result.stop_reason == "stopped":
        found.append("The load was stopped before its end.")
    for stage in result.stages:
        where = f" ({stage.label})" if len(result.stages) > 1 else ""
        found += [text + where + "." for text in _of_stage(stage)]
    found += _of_lengths(result)
    return found


def _of_stage(stage: StageResult) -> list[str]:
    found = []
    counts, late = stage.counts, stage.metrics["request_dispatch_delay"]
    if counts.rejected or counts.failed:
        found.append(f"{counts.rejected} requests were refused and {counts.failed} failed; latencies are of the others")
    if (late.p99 or late.max or 0.0) > LATE_MS:
        found.append(f"The generator itself was up to {late.max or 0:.0f} ms late, which the latencies contain")
    if (stage.metrics["connection_wait"].p50 or 0.0) > LATE_MS:
        found.append("Most requests waited for a connection; `max_connections` was the bound")
    if not counts.ok + counts.rejected + counts.failed:
        found.append("No request fell due in the window and ended; a longer `duration_s` is needed")
    elif 0 < counts.ok < FEW:
        found.append(f"Only {counts.ok} answered: percentiles that need more are left out")
    return found


def _of_lengths(result: LoadResult) -> list[str]:
    if isinstance(result.plan.arrivals, Replay):
        return []
    found = []
    for what, lengths, metric in (
        ("prompts", result.plan.prompt_tokens, "input_sequence_length"),
        ("answers", result.plan.output_tokens, "output_sequence_length"),
    ):
        seen = [stage.metrics[metric] for stage in result.stages]
        count, asked = sum(each.count for each in seen), mean(lengths)
        got = sum(each.sum for each in seen) / count if count else 0.0
        if got and abs(got / asked - 1) > LENGTH_TOLERANCE:
            found.append(f"The {what} had {got:.0f} tokens in the mean, {asked:.0f} were asked for.")
    return found
