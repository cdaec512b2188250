"""A load's result for a terminal."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from loadtest.attainment import Attainment
from loadtest.cautions import cautions
from loadtest.distribution import Distribution
from loadtest.load_result import LoadResult, StageResult
from loadtest.snapshot import LoadSnapshot

COLUMNS = ("avg", "p50", "p90", "p95", "p99", "max")
NONE = "–"


def report(result: LoadResult) -> RenderableType:
    """Return everything worth reading: a table over the stages of a sweep, a table of latencies for each, cautions."""
    parts: list[RenderableType] = [
        Text(f"{result.model} at {result.target.base}, {result.duration_s:.1f} s, {result.stop_reason}", style="bold")
    ]
    if len(result.stages) > 1:
        parts.append(_levels(result))
    parts += [_stage(stage) for stage in (result.stages if len(result.stages) == 1 else ())]
    if result.knee:
        parts.append(Text(_knee(result)))
    for stage in result.stages:
        parts += [Text(f"{times} × {message}", style="red") for message, times in stage.errors.items()]
    parts += [Text(f"! {caution}", style="yellow") for caution in cautions(result)]
    return Group(*parts)


def status_line(snapshot: LoadSnapshot) -> str:
    """Return one line about a running load."""
    failed = snapshot.num_failed + snapshot.num_rejected
    asked = "" if snapshot.rate_asked is None else f" of {snapshot.rate_asked:.1f} asked"
    return (
        f"{snapshot.elapsed_s:5.0f} s  {snapshot.phase}, {snapshot.stage_label}: {snapshot.in_flight} in flight, "
        f"{snapshot.num_done} done, {failed} failed, {snapshot.rate_done:.1f}/s{asked}, "
        f"{snapshot.output_tokens_per_s:.0f} tokens/s, TTFT p50 {number(snapshot.ttft_p50_ms)} ms, "
        f"ITL p50 {number(snapshot.itl_p50_ms)} ms"
    )


def _stage(stage: StageResult) -> RenderableType:
    counts, rates = stage.counts, stage.rates
    table = Table(title=stage.label, title_justify="left", box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for column in (*COLUMNS, "n"):
        table.add_column(column, justify="right")
    for name, metric in stage.metrics.items():
        if metric.count:
            table.add_row(f"{name.replace('_', ' ')}, {metric.unit}", *_cells(metric), str(metric.count))
    return Group(
        table,
        Text(
            f"{counts.ok} ok, {counts.rejected} refused, {counts.failed} failed, {counts.cut} cut off, "
            f"{counts.warm_up} in warm-up, over {stage.window_s:.1f} s"
        ),
        Text(
            f"per second: {rates.requests_planned:.2f} requests due, {rates.requests_done:.2f} done, "
            f"{rates.goodput:.2f} good, {rates.output_tokens:.1f} output and {rates.prompt_tokens:.1f} prompt tokens"
        ),
        Text(f"attainment {attainment_text(stage.attainment)}"),
    )


def _levels(result: LoadResult) -> Table:
    table = Table(box=None, pad_edge=False)
    rates, latencies = ("req/s", "tok/s", "good/s", "good"), ("TTFT p50", "p99", "ITL p50", "p99")
    for column in ("streams", *rates, *latencies, "ok", "bad"):
        table.add_column(column, justify="right", no_wrap=True)
    for stage in result.stages:
        first, gaps = stage.metrics["time_to_first_token"], stage.metrics["inter_token_latency"]
        table.add_row(
            str(stage.concurrency),
            f"{stage.rates.requests_done:.2f}",
            f"{stage.rates.output_tokens:.1f}",
            f"{stage.rates.goodput:.2f}",
            _percent(stage.attainment.ratio),
            *(number(value) for value in (first.p50, first.p99, gaps.p50, gaps.p99)),
            str(stage.counts.ok),
            str(stage.counts.failed + stage.counts.rejected),
        )
    return table


def attainment_text(attainment: Attainment) -> str:
    """Return the share with its interval."""
    if attainment.ratio is None:
        return NONE
    interval = f"{_percent(attainment.low)} to {_percent(attainment.high)}"
    return f"{_percent(attainment.ratio)} (95 % interval {interval}), {attainment.good} of {attainment.total}"


def _knee(result: LoadResult) -> str:
    assert result.knee is not None
    place = "no knee" if result.knee.concurrency is None else f"knee at {result.knee.concurrency} streams"
    best = result.knee.best_within_slos
    slos = "" if best is None else f"; the SLOs hold up to {best} streams"
    return f"{place}: {result.knee.why}{slos}"


def _cells(metric: Distribution) -> list[str]:
    return [number(getattr(metric, column), metric.unit) for column in COLUMNS]


def number(value: float | None, unit: str = "") -> str:
    """Return a value with as many digits as are worth reading, a dash for None."""
    if value is None:
        return NONE
    if unit == "ratio":
        return f"{value:.3f}"
    return f"{value:.1f}" if abs(value) < 100 else f"{value:.0f}"


def _percent(value: float | None) -> str:
    return NONE if value is None else f"{value * 100:.1f} %"
