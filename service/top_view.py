"""The screen of `pellucid top`: a header of pool and throughput, and one line per request, within 80 columns."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

Form = Mapping[str, Any]

_STYLES = {"decode": "green", "prefill": "cyan", "queue": "yellow", "preempted": "red", "send": "magenta"}
BAR_CELLS = 30
ID_CELLS = 12
NOTE_CELLS = 14


def screen(stats: Form, requests: Form, *, num_rows: int) -> RenderableType:
    """Return the whole screen.

    Args:
        stats: the body of `/stats`.
        requests: the body of `/telemetry/requests`.
        num_rows: lines of the table at most; requests in flight come first, then those that ended last.
    """
    return Group(_engine_line(stats), _rate_line(stats), _pool_line(stats["gauges"]["kv"]), _table(requests, num_rows))


def _engine_line(stats: Form) -> Text:
    engine, gauges = stats["engine"], stats["gauges"]
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(engine["model"] or "no model", "bold")
    line.append(f" on {engine['executor']}  " if engine["executor"] else "  ")
    line.append(engine["state"], "green" if engine["state"] == "ready" else "red")
    line.append(f"  {gauges['running']} running, {gauges['waiting']} waiting")
    if gauges["blocked_on"]:
        line.append(f" for {gauges['blocked_on']}", "yellow")
    return line


def _rate_line(stats: Form) -> Text:
    recent, window = stats["recent"], stats["window"]
    hit = window["prefix_hit_ratio"]
    parts = [
        f"out {recent['decode_tokens_per_s']:.0f} tok/s",
        f"prefill {recent['prefill_tokens_per_s']:.0f} tok/s",
        f"TTFT p50 {seconds(window['ttft']['p50_s'])}",
        f"ITL p50 {seconds(window['itl']['p50_s'])}",
        f"hits {'–' if hit is None else f'{hit:.0%}'}",
    ]
    return Text("  ".join(parts), no_wrap=True, overflow="ellipsis")


def _pool_line(kv: Form) -> Text:
    total = kv["total"]
    line = Text("KV ", no_wrap=True, overflow="ellipsis")
    if not total:
        return line.append("no pool", "dim")
    held = round(BAR_CELLS * kv["referenced"] / total)
    cached = min(BAR_CELLS - held, round(BAR_CELLS * kv["cached"] / total))
    line.append("█" * held, "green").append("▒" * cached, "blue").append("·" * (BAR_CELLS - held - cached), "dim")
    return line.append(f" {kv['referenced']} held {kv['cached']} cached {kv['free']} free of {total}")


def _table(requests: Form, num_rows: int) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), expand=False, pad_edge=False)
    table.add_column("request", no_wrap=True, width=ID_CELLS)
    table.add_column("now", no_wrap=True, width=9)
    for name, width in (("age", 5), ("prompt", 6), ("hit", 5), ("out", 5), ("queue", 5), ("prefl", 5), ("dec", 5)):
        table.add_column(name, justify="right", no_wrap=True, width=width)
    table.add_column("waits for/end", min_width=NOTE_CELLS, overflow="fold")  # a long one goes on in the next line
    for row in [*requests["in_flight"], *requests["recent"]][:num_rows]:
        table.add_row(*_cells(row))
    return table


def _cells(row: Form) -> Sequence[str | Text]:
    phase = row["phase"]
    is_over = phase == "ended"
    so_far = {phase: row["phase_s"]}
    queue_s = row["queue_s"] + so_far.get("queue", 0.0) + so_far.get("preempted", 0.0)
    note = row["waits_for"] or row["finish_reason"] or row["error_type"]
    return (
        Text(row["request_id"].removeprefix("req-")[:ID_CELLS], "dim" if is_over else ""),
        Text(row["state"] if is_over else phase, "dim" if is_over else _STYLES.get(phase, "")),
        seconds(row["e2e_s"] if is_over else row["age_s"]),
        _count(row["num_prompt_tokens"]),
        _count(row["num_cached_tokens"]),
        _count(row["num_output_tokens"]),
        seconds(queue_s),
        seconds(so_far.get("prefill", row["prefill_s"])),
        seconds(so_far.get("decode", row["decode_s"])),
        Text(note, "dim" if is_over else "yellow"),
    )


def seconds(value: float | None) -> str:
    """Return a duration in at most five characters."""
    if value is None:
        return "–"
    if value < 0.0995:
        return f"{value * 1e3:.0f}ms"
    if value < 99.95:
        return f"{value:.1f}s"
    if value < 5_970:
        return f"{value / 60:.0f}m"
    return f"{value / 3_600:.0f}h"


def _count(value: int) -> str:
    """Return a number in at most five characters."""
    if value < 100_000:
        return str(value)
    return f"{value / 1e3:.0f}k" if value < 999_500 else f"{value / 1e6:.0f}M"
