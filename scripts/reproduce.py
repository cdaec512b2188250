#!/usr/bin/env python3
"""Re-derive every table of the documentation from the committed records; fail if one differs.

A table stands between `<!-- table: NAME -->` (or `<!-- table: NAME as FORM -->`) and `<!-- /table -->` and is rendered
from `loadtest/records/NAME.json`.
Standard library only. `--write` puts the rendered tables into the pages instead.
"""

import argparse
import json
import re
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "docs")
MARKED = re.compile(
    r"(<!-- table: (?P<name>[\w-]+)(?: as (?P<form>\w+))? -->\n)(?P<body>.*?)(<!-- /table -->)", re.DOTALL
)

Record = dict[str, Any]


def render_batching(record: Record) -> str:
    """Tokens per second of each arm, with the spread, and what it was measured on."""
    lines = ["| arm | output tokens/s, median | lowest to highest | rounds |", "|---|---|---|---|"]
    for name, rates in record["output_tokens_per_s"].items():
        spread = f"{min(rates):.1f} to {max(rates):.1f}"
        lines.append(f"| {name} | {statistics.median(rates):.1f} | {spread} | {len(rates)} |")
    rates = [statistics.median(rates) for rates in record["output_tokens_per_s"].values()]
    machine = record["machine"]
    lines += [
        "",
        (
            f"{record['requests_per_round']} requests a round, {record['prompt_tokens']} prompt tokens and "
            f"{record['new_tokens']} new ones each, greedy, {record['dtype']}, arms in alternation, outputs equal. "
            f"The second arm is {rates[1] / rates[0]:.2f} times the first, {rates[1] / rates[2]:.2f} times the third. "
            f"{machine['cpu']}, {machine['threads']} threads, torch {machine['torch']}, commit {machine['commit']}."
        ),
    ]
    return "\n".join(lines) + "\n"


def render_serving(record: Record) -> str:
    """Speed of each arm in every cell, ours over the best peer's, then what it was measured on."""
    lines = [
        "| workload, streams | arm | median (lowest to highest) | TTFT p50 / p99, ms | ITL p50 / p99, ms | peak MiB |",
        "|---|---|---|---|---|---|",
    ]
    for cell in record["cells"]:
        place = f"{cell['workload']}, {cell['concurrency']}"
        for name, arm in cell["arms"].items():
            marked = f"**{name}**" if name == cell.get("best_peer") else name
            spread = f"{arm['median']} ({min(arm['rates'])} to {max(arm['rates'])})"
            lines.append(
                f"| {place} | {marked} | {spread} | {_pair(arm, 'ttft')} | {_pair(arm, 'itl')} | {arm['peak_mib']} |"
            )
        if "best_peer" in cell:
            first = {"ratio": cell["ratio_to_best_peer"], "spread": cell["ratio_spread"]}
            # A record of one arm of ours may have been made before there could be two.
            ratios = {"ours": first, **cell.get("other_ratios", {})}
            for name, found in ratios.items():
                low, high = found["spread"]
                lines.append(
                    f"| {place} | {name} over the best peer | {found['ratio']:.2f} times, "
                    f"rounds {low:.2f} to {high:.2f} | | | |"
                )
    return "\n".join([*lines, "", _serving_conditions(record)]) + "\n"


def render_serving_ratios(record: Record) -> str:
    """Only ours beside the best peer."""
    lines = ["| | ours | best peer | ratio (rounds) |", "|---|---|---|---|"]
    for cell in record["cells"]:
        if "best_peer" not in cell:
            continue
        best = cell["best_peer"]
        ours = next(iter(cell["arms"].values()))
        low, high = cell["ratio_spread"]
        lines.append(
            f"| {cell['workload']}, {cell['concurrency']} streams, {cell['rate']} | {ours['median']:.0f} | "
            f"{cell['arms'][best]['median']:.0f}, {best} | {cell['ratio_to_best_peer']:.2f} ({low:.2f} to {high:.2f}) |"
        )
    return "\n".join([*lines, "", _serving_conditions(record)]) + "\n"


def _serving_conditions(record: Record) -> str:
    machine, method = record["machine"], record["method"]
    in_process = [name for name, arm in record["arms"].items() if not arm["over_http"]]
    missing = "; ".join(f"{name}: {reason}" for name, reason in record["missing"].items())
    return (
        f"{record['model']}, {method['repeats']} rounds in alternation, windows of {method['window_s']:g} s, outputs "
        f"checked; over HTTP but {', '.join(in_process) or 'none'}, which has no server of its own. "
        f"{machine['cpu']}, {machine['cores']} cores, commit {machine['commit']}."
        + (f" Not measured: {missing}." if missing else "")
    )


def _pair(arm: Record, name: str) -> str:
    values = (arm[f"{name}_p50_ms"], arm[f"{name}_p99_ms"])
    return " / ".join("–" if value is None else f"{value:.0f}" for value in values)


def _weights(row: Record) -> str:
    """What was done to a file's weights, if it shows in no name of the file."""
    weights = row.get("weights") or ""
    if weights == "int8":
        return " as int8"
    return " in bfloat16" if weights.endswith(":bfloat16") else ""


def render_quality(record: Record) -> str:
    """KL divergences of every file, engine and KV precision."""
    lines = [
        "| file | engine | KV | mean | p99.9 | same likeliest token |",
        "|---|---|---|---|---|---|",
    ]
    rows = record["rows"]
    lines += [
        f"| {row['file']}{_weights(row)} | {row['engine']} | {row['kv']} | "
        f"{row['mean']:.2e} | {row['p99_9']:.2e} | {row['same_top']:.2%} |"
        for row in rows
    ]
    machine, num_tokens = record["machine"], rows[0]["num_tokens"]
    is_own = all(row.get("exact", row["file"]) == row["file"] for row in rows)
    weights = "the file's own dequantised weights" if is_own else f"the weights of {rows[0]['exact']}"
    lines += [
        "",
        (
            f"KL divergence in nats from float32 on {weights}, {num_tokens} "
            f"tokens of real text in pieces of {record['window']}. {machine['cpu']}, commit {machine['commit']}."
        ),
    ]
    return "\n".join(lines) + "\n"


def render_overhead(record: Record) -> str:
    """What the instruments cost: ratios with their intervals, and processor times a token."""

    def interval(ratio: Record) -> str:
        return f"{ratio['mean']:.4f} ({ratio['low']:.4f} to {ratio['high']:.4f})"

    service, engine, rest = record["service_us_per_token"], record["engine_us_per_token"], record["resting_share"]
    machine = record["machine"]
    throughput = f"{record['on_tokens_per_s']} | {record['off_tokens_per_s']} | {interval(record['throughput_ratio'])}"
    ratios = record["block_ratios"]
    conditions = (
        f"{record['pairs']} pairs of bursts of {record['streams']} streams, {record['prompt_tokens']} prompt tokens "
        f"and {record['new_tokens']} new ones each, outputs equal, over {len(ratios)} pairs of servers "
        f"({min(ratios):.3f} to {max(ratios):.3f}); {record['viewers']} viewer of the live feed, {record['scrapes']} "
        f"scrapes. The server whose turn it isn't uses {rest['on']:.1%} and {rest['off']:.1%} of a core. The recorder "
        f"alone takes {record['recorder_us_per_step']} µs a step, with warm caches. {record['model']}, "
        f"{machine['cpu']}, {machine['cores']} cores, commit {machine['commit']}."
    )
    lines = [
        "| | all instruments on | all off | on / off (95 % interval) |",
        "|---|---|---|---|",
        f"| output tokens/s | {throughput} |",
        f"| processor time of the service, µs a token | {service['on']} | {service['off']} | |",
        f"| processor time of the engine, µs a token | {engine['on']} | {engine['off']} | |",
        f"| both | | | {interval(record['cpu_per_token_ratio'])} |",
    ]
    added = record["added_us_per_token"]
    share = added["share"]
    parts = f"service {added['service']}, viewer {added['viewer']}, events in the engine {added['engine_events']}"
    of_all = f"{share['mean']:.2%} ({share['low']:.2%} to {share['high']:.2%}) of all"
    lines.append(f"| added by instruments, µs a token | {parts} | | {of_all} |")
    return "\n".join([*lines, "", conditions]) + "\n"


def render_service_cost(record: Record) -> str:
    """What the service's process costs a streamed token and a request, at each pace."""
    lines = [
        "| streams | a token each every | tokens/s | chunks/s | service, µs a token | µs a request |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {cell['streams']} | {cell['step_ms']:g} ms | {cell['tokens_per_s']:.0f} | {cell['chunks_per_s']:.0f} | "
        f"{cell['service_us']:.1f} | {cell['request_us']:.0f} |"
        for cell in record["cells"]
    ]
    machine = record["machine"]
    return "\n".join([*lines, "", f"{machine['cpu']}, {machine['cores']} cores, commit {machine['commit']}."]) + "\n"


RENDERERS: dict[str, Callable[[Record], str]] = {
    "batching": render_batching,
    "cpu_serving": render_serving,
    "cpu_serving_ratios": render_serving_ratios,
    "instruments_overhead": render_overhead,
    "quality": render_quality,
    "service_cost": render_service_cost,
}


def rendered(name: str, form: str | None) -> str:
    """Return the table that the record gives in its bench's own form or another one; raises SystemExit without one."""
    path = ROOT / "loadtest" / "records" / f"{name}.json"
    if not path.exists():
        sys.exit(f"error: table {name!r} has no record {path.relative_to(ROOT)}")
    record = json.loads(path.read_text())
    return RENDERERS[form or record["bench"]](record)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--write", action="store_true", help="update the pages instead of comparing")
    args = parser.parse_args()
    num_tables, different = 0, []
    pages = [
        path for name in PAGES for path in ([ROOT / name] if name.endswith(".md") else (ROOT / name).rglob("*.md"))
    ]
    for page in pages:
        text = page.read_text()
        fresh = MARKED.sub(lambda found: found[1] + rendered(found["name"], found["form"]) + found[5], text)
        num_tables += len(MARKED.findall(text))
        if fresh != text:
            different.append(str(page.relative_to(ROOT)))
            if args.write:
                page.write_text(fresh)
    if args.write:
        print(f"{num_tables} tables, {len(different)} pages updated")
        return 0
    for page in different:
        print(f"{page}: a table differs from its record (scripts/reproduce.py --write)")
    print(f"{num_tables} tables re-derived, {len(different)} pages differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
