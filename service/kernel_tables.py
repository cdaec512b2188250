"""The kernel laboratory's report as tables for a terminal."""

from collections.abc import Iterable
from typing import TypeVar

from rich.console import Group
from rich.table import Table
from rich.text import Text

from engine.kernels.lab.report import CallCost, Check, Report, Timing

Key = TypeVar("Key", str, tuple[str, str], tuple[str, str, str])


def report_tables(report: Report) -> Group:
    """Return backends, errors, times and the cost of a call, in this order."""
    names = [backend.name for backend in report.backends if backend.state == "available"]
    return Group(
        _backends(report), _errors(report.checks, names), _times(report.timings, names), _costs(report.call_costs)
    )


def _backends(report: Report) -> Table:
    told = report.conditions
    table = Table("backend", "version", "device", "state", "why", title="Backends", title_justify="left")
    for backend in report.backends:
        table.add_row(backend.name, backend.version, backend.device, backend.state, Text(backend.reason))
    table.caption = (
        f"{told.machine}, {told.num_cores} cores, {told.num_threads} thread per backend; Python {told.python}, "
        f"NumPy {told.numpy}, torch {told.torch}, {told.compiler or 'no compiler'}"
    )
    return table


def _errors(checks: list[Check], names: list[str]) -> Table:
    table = Table(
        "kernel", *names, title="Largest error against float64, as a share of the largest value (all shapes)",
        title_justify="left",
    )  # fmt: skip
    for kernel in _in_order(check.kernel for check in checks):
        cells = [_worst([c for c in checks if (c.kernel, c.backend) == (kernel, name)]) for name in names]
        table.add_row(kernel, *cells)
    table.caption = f"{len(checks)} checks, {sum(not check.passed for check in checks)} failed"
    return table


def _worst(checks: list[Check]) -> Text:
    if not checks:
        return Text("")
    failed = [check for check in checks if not check.passed]
    if failed:
        return Text(f"wrong at {failed[0].shape}", style="red")
    return Text(f"{max(check.max_rel_error or 0.0 for check in checks):.1e}")


def _times(timings: list[Timing], names: list[str]) -> Table:
    table = Table("kernel", "shape", *names, title="Microseconds a call: median (quartiles)", title_justify="left")
    for kernel, phase, shape in _in_order((t.kernel, t.phase, t.shape) for t in timings):
        by_backend = {t.backend: t for t in timings if (t.kernel, t.phase) == (kernel, phase)}
        cells = [_time(by_backend[name]) if name in by_backend else "" for name in names]
        table.add_row(f"{kernel}, {phase}", shape, *cells)
    if timings:
        table.caption = f"n = {timings[0].num_samples} batches each, taken in turn"
    return table


def _time(timing: Timing) -> str:
    return f"{timing.median_us:.2f} ({timing.p25_us:.2f}-{timing.p75_us:.2f})"


def _costs(costs: list[CallCost]) -> Table:
    table = Table(
        "binding", "arguments", "lock held", "lock released",
        title="Nanoseconds a call of a C function that does nothing: median (quartiles)", title_justify="left",
    )  # fmt: skip
    for binding, arguments in _in_order((cost.binding, cost.arguments) for cost in costs):
        by_lock = {c.interpreter_lock: c for c in costs if (c.binding, c.arguments) == (binding, arguments)}
        cells = [_cost(by_lock[lock]) if lock in by_lock else "" for lock in ("held", "released")]
        table.add_row(binding, arguments, *cells)
    if costs:
        table.caption = f"n = {costs[0].num_samples} batches of {costs[0].calls_per_sample:,} calls, the loop included"
    return table


def _cost(cost: CallCost) -> str:
    return f"{cost.median_ns:.0f} ({cost.p25_ns:.0f}-{cost.p75_ns:.0f})"


def _in_order(items: Iterable[Key]) -> list[Key]:
    return list(dict.fromkeys(items))
