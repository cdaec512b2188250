"""The tables that `pellucid trace` prints for people."""

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from observability.trace_diff import FirstDifference, RequestDifference, TraceDiff
from observability.trace_header import TraceHeader
from observability.trace_story import TraceStories

MAX_ROWS = 200


def print_summary(console: Console, header: TraceHeader, stories: TraceStories, rows: list[dict[str, Any]]) -> None:
    """Print what a trace holds and a line per request, the slowest first."""
    seconds = stories.last_t - stories.first_t
    _say(console, f"{header.model} on {header.executor or 'an unnamed executor'}: {header.num_blocks} blocks of "
                  f"{header.block_size} tokens, at most {header.max_num_seqs} sequences and "
                  f"{header.max_num_batched_tokens} tokens a step")  # fmt: skip
    _say(console, f"{stories.num_events} events, {stories.num_steps} steps, {seconds:.3f} s, {len(rows)} requests")
    table = Table(box=None, pad_edge=False)
    table.add_column("request", no_wrap=True)
    for name in ("outcome", "prompt", "cached", "output", "miss", "chunks", "preempted", "queue ms", "waited for",
                 "ttft ms", "e2e ms"):  # fmt: skip
        table.add_column(name, justify="left" if name in ("outcome", "miss", "waited for") else "right")
    shown = sorted(rows, key=lambda row: row["e2e_s"] or float("inf"), reverse=True)[:MAX_ROWS]
    for row in shown:
        waits: dict[str, float] = row["waits"]
        table.add_row(*(Text(str(cell)) for cell in (
            row["request_id"], row["outcome"], row["num_prompt_tokens"], row["num_cached_tokens"],
            row["num_output_tokens"], row["cache_miss"] or "-", row["num_chunks"], row["num_preemptions"],
            _ms(row["queue_s"]), max(waits, key=waits.__getitem__) if waits else "-", _ms(row["ttft_s"]),
            _ms(row["e2e_s"]),
        )))  # fmt: skip
    console.print(table)
    if len(rows) > len(shown):
        _say(console, f"{len(rows) - len(shown)} faster ones are not shown; --json has them all")


def print_diff(console: Console, diff: TraceDiff) -> None:
    """Print settings, the first difference and the requests decided differently."""
    if diff.is_same:
        _say(console, f"the same: {diff.num_events[0]} events, {diff.num_requests[0]} requests")
    for name, (a, b) in diff.settings.items():
        _say(console, f"setting `{name}`: {a} in A, {b} in B")
    if diff.first is not None:
        _print_first(console, diff.first)
    _say(console, f"events {diff.num_events[0]} / {diff.num_events[1]}, "
                  f"requests {diff.num_requests[0]} / {diff.num_requests[1]}")  # fmt: skip
    for name, (a, b) in diff.times.items():
        _say(console, f"mean {name.removesuffix('_s')}: {_ms(a)} / {_ms(b)} ms")
    if diff.requests:
        _print_requests(console, diff.requests)


def _print_first(console: Console, first: FirstDifference) -> None:
    _say(console, f"the first difference is event {first.place}:")
    if first.a is None or first.b is None:
        ended, other = ("A", first.b) if first.a is None else ("B", first.a)
        _say(console, f"  {ended} has ended, the other goes on with {other}")
        return
    if first.a.get("type") != first.b.get("type"):
        _say(console, f"  A: {first.a}")
        _say(console, f"  B: {first.b}")
        return
    _say(console, f"  both `{first.a['type']}`, request {first.a.get('request_id', '-')}, step {first.a.get('step')}")
    for name in sorted(first.a.keys() | first.b.keys()):
        if first.a.get(name) != first.b.get(name):
            _say(console, f"  {name}: {first.a.get(name)} in A, {first.b.get(name)} in B")


def _print_requests(console: Console, requests: tuple[RequestDifference, ...]) -> None:
    table = Table(box=None, pad_edge=False)
    for name in ("request", "differs in", "A", "B", "e2e ms A", "e2e ms B"):
        table.add_column(name)
    for difference in requests[:MAX_ROWS]:
        a, b = difference.a, difference.b
        if a is None or b is None:
            table.add_row(
                f"#{difference.number}", "is missing", "-" if a is None else "there", "-" if b is None else "there"
            )
            continue
        cells = (
            f"#{difference.number}",
            ", ".join(difference.fields),
            ", ".join(str(a[name]) for name in difference.fields),
            ", ".join(str(b[name]) for name in difference.fields),
            _ms(a["e2e_s"]),
            _ms(b["e2e_s"]),
        )
        table.add_row(*(Text(cell) for cell in cells))
    console.print(table)


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.1f}"


def _say(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
