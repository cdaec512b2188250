"""The columns that charts are drawn from: one row per second."""

from collections.abc import Callable, Sequence
from typing import Any

from observability.sketch import Sketch
from observability.stats import History
from observability.window import Cell, Second, Sliding

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
    first = max(0, len(seconds) - num_rows)
    rows = [_cells(seconds, i) for i in range(first, len(seconds))]
    columns: dict[str, list[Any]] = {
        name: list(cells) for name, cells in zip(_CELLS, zip(*rows, strict=True), strict=False)
    }
    return History(
        t=[round(second.second + wall_offset) for second in seconds[first:]],
        **{name: columns.get(name, []) for name in _CELLS},
    )


def _cells(seconds: Sequence[Second], index: int) -> Sequence[Cell]:
    """Return what the columns say of seconds[index]: made once, for a settled second rarely changes."""
    row = seconds[index]
    if row.cells is None:
        sliding = _sliding(seconds, index)
        row.cells = tuple(cell(row, sliding) for cell in _CELLS.values())
    return row.cells


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


_CELLS: dict[str, Callable[[Second, Sliding], Cell]] = {
    "prefill_tokens": lambda row, _: row.prefill_tokens,
    "generated_tokens": lambda row, _: row.generated_tokens,
    "steps": lambda row, _: row.steps,
    "batch_prefill": lambda row, _: _per_step(row.prefill_tokens, row),
    "batch_decode": lambda row, _: _per_step(row.decode_tokens, row),
    "running": lambda row, _: row.gauges.running,
    "waiting": lambda row, _: row.gauges.waiting,
    "kv_free": lambda row, _: row.gauges.kv_free,
    "kv_referenced": lambda row, _: row.gauges.kv_referenced,
    "kv_cached": lambda row, _: row.gauges.kv_cached,
    "blocked_on": lambda row, _: row.gauges.blocked_on,
    "busy_s": lambda row, _: _short(row.busy_s),
    "schedule_s": lambda row, _: _short(row.schedule_s),
    "execute_s": lambda row, _: _short(row.execute_s),
    "sample_s": lambda row, _: _short(row.sample_s),
    "update_s": lambda row, _: _short(row.update_s),
    "preemptions": lambda row, _: row.preemptions,
    "kv_evictions": lambda row, _: row.evictions,
    "recomputed_tokens": lambda row, _: row.recomputed_tokens,
    "prefix_queries": lambda row, _: row.prefix_queries,
    "prefix_hits": lambda row, _: row.prefix_hits,
    "requests_received": lambda row, _: row.requests_received,
    "requests_ended": lambda row, _: row.requests_ended,
    "ttft_p50_ms": lambda _, sliding: _milliseconds(sliding.ttft_p50_s),
    "ttft_p90_ms": lambda _, sliding: _milliseconds(sliding.ttft_p90_s),
    "ttft_p99_ms": lambda _, sliding: _milliseconds(sliding.ttft_p99_s),
    "itl_p50_ms": lambda _, sliding: _milliseconds(sliding.itl_p50_s),
    "itl_p99_ms": lambda _, sliding: _milliseconds(sliding.itl_p99_s),
}
