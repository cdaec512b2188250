#!/usr/bin/env python3
"""Re-derive every table of the documentation from the committed records; fail if one differs.

A table stands between `<!-- table: NAME -->` and `<!-- /table -->` and is rendered from `loadtest/records/NAME.json`.
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
MARKED = re.compile(r"(<!-- table: (?P<name>[\w-]+) -->\n)(?P<body>.*?)(<!-- /table -->)", re.DOTALL)

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


RENDERERS: dict[str, Callable[[Record], str]] = {"batching": render_batching}


def rendered(name: str) -> str:
    """Return the table that the record gives; raises SystemExit when there is no such record or renderer."""
    path = ROOT / "loadtest" / "records" / f"{name}.json"
    if not path.exists():
        sys.exit(f"error: table {name!r} has no record {path.relative_to(ROOT)}")
    record = json.loads(path.read_text())
    return RENDERERS[record["bench"]](record)


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
        fresh = MARKED.sub(lambda found: found[1] + rendered(found["name"]) + found[4], text)
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
