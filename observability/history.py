"""The columns that charts are drawn from: one row per second."""

from collections.abc import Sequence

from observability.sketch import Sketch
from observability.stats import History
from observability.window import Second, Sliding

# A chart's percentile at second s is over the seconds that end with s: one second alone rarely holds enough samples.
# There are many gaps between tokens for one first token, so those follow more closely.
TTFT_SLIDING_S = 60
ITL_SLIDING_S = 10
SLIDING_S = max(TTFT_SLIDING_S, ITL_SLIDING_S)


def history_columns(seconds: Sequence[Second], num_rows: int, wall_offset: float) -> History:
    """Return the last `num_rows` of `seconds` as columns.

    Args:
        seconds: complete seconds, oldest first; those before the rows serve the sliding percentiles.
        num_rows: rows wanted at most.
        wall_offset: Unix epoch seconds minus monotonic seconds.
    """
    rows = seconds[max(0, len(seconds) - num_rows) :]
    first = len(seconds) - len(rows)
    sliding = [_sliding(seconds, i) for i in range(first, len(seconds))]
    return History(
        t=[round(row.second + wall_offset) for row in rows],
        prefill_tokens=[row.prefill_tokens for row in rows],
        generated_tokens=[row.generated_tokens for row in rows],
        steps=[row.steps for row in rows],
        batch_prefill=[_per_step(row.prefill_tokens, row) for row in rows],
        batch_decode=[_per_step(row.decode_tokens, row) for row in rows],
        running=[row.gauges.running for row in rows],
        waiting=[row.gauges.waiting for row in rows],
        kv_free=[row.gauges.kv_free for row in rows],
        kv_referenced=[row.gauges.kv_referenced for row in rows],
        kv_cached=[row.gauges.kv_cached for row in rows],
        blocked_on=[row.gauges.blocked_on for row in rows],
        busy_s=[_short(row.busy_s) for row in rows],
        schedule_s=[_short(row.schedule_s) for row in rows],
        execute_s=[_short(row.execute_s) for row in rows],
        sample_s=[_short(row.sample_s) for row in rows],
        update_s=[_short(row.update_s) for row in rows],
        preemptions=[row.preemptions for row in rows],
        kv_evictions=[row.evictions for row in rows],
        recomputed_tokens=[row.recomputed_tokens for row in rows],
        prefix_queries=[row.prefix_queries for row in rows],
        prefix_hits=[row.prefix_hits for row in rows],
        requests_received=[row.requests_received for row in rows],
        requests_ended=[row.requests_ended for row in rows],
        ttft_p50_ms=[_milliseconds(row.ttft_p50_s) for row in sliding],
        ttft_p90_ms=[_milliseconds(row.ttft_p90_s) for row in sliding],
        ttft_p99_ms=[_milliseconds(row.ttft_p99_s) for row in sliding],
        itl_p50_ms=[_milliseconds(row.itl_p50_s) for row in sliding],
        itl_p99_ms=[_milliseconds(row.itl_p99_s) for row in sliding],
    )


def _sliding(seconds: Sequence[Second], index: int) -> Sliding:
    """Return the percentiles that end at seconds[index]; computed once, since a settled second doesn't change."""
    row = seconds[index]
    if row.sliding is None:
        ttft = Sketch.merged(second.ttft for second in _ending(seconds, index, TTFT_SLIDING_S))
        itl = Sketch.merged(second.itl for second in _ending(seconds, index, ITL_SLIDING_S))
        row.sliding = Sliding(
            ttft_p50_s=ttft.percentile(50),
            ttft_p90_s=ttft.percentile(90),
            ttft_p99_s=ttft.percentile(99),
            itl_p50_s=itl.percentile(50),
            itl_p99_s=itl.percentile(99),
        )
    return row.sliding


def _ending(seconds: Sequence[Second], index: int, span: int) -> Sequence[Second]:
    return seconds[max(0, index - span + 1) : index + 1]


def _per_step(tokens: int, row: Second) -> float | None:
    return round(tokens / row.steps, 2) if row.steps else None


def _short(seconds: float) -> float:
    """To a tenth of a millisecond: these columns are sent every second."""
    return round(seconds, 4)


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)
