"""`scripts/bench.py --overhead`: what the instruments cost, all of them on against all of them off, in pairs.

Two servers run side by side, one of them idle at any time. On: events, ring, metrics, spans, a viewer of the live feed
and a scrape each second. Off: `--no-instruments`. Each pair asks both for the same prompts, in alternating order, and
their tokens must be equal.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from engine.model.catalog import DEFAULT_MODEL
from engine.model.load import load_model
from engine.text.tokenizer import build_tokenizer
from loadtest.closed_loop import LoopShape
from loadtest.corpus import docstrings
from loadtest.machine import fingerprint
from loadtest.prompts import PromptSource
from scripts.serving.arms import PellucidArm
from scripts.serving.workloads import Workload

TEXT_CHARACTERS = 2_000_000
WARM_UP_PAIRS = 2
# Reads the live feed as a browser does, and the metrics as Prometheus does, from a process of its own.
WATCHER = """
import sys, threading, time, urllib.request
def scrape():
    request = urllib.request.Request(sys.argv[1] + "/metrics", headers={"Accept": "application/openmetrics-text"})
    while True:
        urllib.request.urlopen(request).read()
        time.sleep(1)
def view():
    with urllib.request.urlopen(sys.argv[1] + "/telemetry/kv/live") as feed:
        while feed.read1(65536):
            pass
for _ in range(int(sys.argv[2])):
    threading.Thread(target=view, daemon=True).start()
scrape()
"""


@dataclass(frozen=True, slots=True)
class Round:
    """One arm's half of a pair: output tokens per second, and processor seconds of its processes per output token."""

    tokens_per_s: float
    cpu_s_per_token: float
    texts: tuple[str, ...]


def main(arguments: Sequence[str]) -> int:
    """Measure, print, write the record; 1 when outputs differ or the cost is over the limit, 2 for bad usage."""
    args = _arguments(arguments)
    console = Console(stderr=args.json == "-")
    machine = fingerprint(threads=args.threads)
    model = load_model(args.model)
    text = build_tokenizer(model.tokenizer).encode("\n\n".join(docstrings(TEXT_CHARACTERS)))
    workload = Workload("overhead", 128, 64, (args.streams,), num_requests=args.requests)
    logs = Path(tempfile.mkdtemp(prefix="pellucid-overhead-"))
    options = ["--threads", str(args.threads)]
    on = PellucidArm("on", logs, model=args.model, options=options)
    off = PellucidArm("off", logs, model=args.model, options=[*options, "--no-instruments"])
    pairs: list[tuple[Round, Round]] = []
    try:
        on.start(workload)
        off.start(workload)
        watcher = subprocess.Popen([sys.executable, "-c", WATCHER, on.address, str(args.viewers)])
        try:
            source = PromptSource(text, seed=1)
            for number in range(-WARM_UP_PAIRS, args.pairs):
                pair = _pair(on, off, workload, source.take_many(args.requests, workload.prompt_tokens), number)
                if pair[0].texts != pair[1].texts:
                    console.print("[red]the outputs of the two servers differ, no figures[/red]")
                    return 1
                if number >= 0:
                    pairs.append(pair)
            assert watcher.poll() is None, "the watcher of the live feed ended"
        finally:
            watcher.kill()
            watcher.wait()
    finally:
        on.stop()
        off.stop()
    record = {
        "bench": "instruments_overhead",
        "model": str(args.model),
        "machine": asdict(machine),
        "streams": args.streams,
        "requests_a_round": args.requests,
        "viewers": args.viewers,
        "pairs": len(pairs),
        "on_tokens_per_s": round(statistics.median(on.tokens_per_s for on, _ in pairs), 1),
        "off_tokens_per_s": round(statistics.median(off.tokens_per_s for _, off in pairs), 1),
        "throughput_ratio": _ratio([on.tokens_per_s / off.tokens_per_s for on, off in pairs]),
        "cpu_per_token_ratio": _ratio([on.cpu_s_per_token / off.cpu_s_per_token for on, off in pairs]),
        "on_cpu_ms_per_token": round(1e3 * statistics.median(on.cpu_s_per_token for on, _ in pairs), 4),
        "off_cpu_ms_per_token": round(1e3 * statistics.median(off.cpu_s_per_token for _, off in pairs), 4),
    }
    throughput, cpu = record["throughput_ratio"], record["cpu_per_token_ratio"]
    console.print(
        f"{len(pairs)} pairs of {args.requests} requests at {args.streams} streams, outputs equal\n"
        f"output tokens/s, on / off      {record['on_tokens_per_s']} / {record['off_tokens_per_s']}\n"
        f"throughput, on / off           {_shown(throughput)}\n"
        f"processor time a token         {_shown(cpu)}",
        highlight=False,
    )
    if args.json == "-":
        print(json.dumps(record))
    elif args.json:
        Path(args.json).write_text(json.dumps(record, indent=1) + "\n")
    assert isinstance(throughput, dict)
    return 1 if throughput["high"] < 1 - args.limit else 0


def _pair(
    on: PellucidArm, off: PellucidArm, workload: Workload, prompts: list[list[int]], number: int
) -> tuple[Round, Round]:
    if number % 2:
        second = _round(off, workload, prompts)
        return _round(on, workload, prompts), second
    return _round(on, workload, prompts), _round(off, workload, prompts)


def _round(arm: PellucidArm, workload: Workload, prompts: list[list[int]]) -> Round:
    shape = LoopShape(workload.concurrencies[0], num_requests=workload.num_requests)
    run, used = arm.run(shape, prompts, workload)
    num_tokens = sum(record.num_tokens for record in run.records)
    texts = {tuple(record.prompt): record.text for record in run.records}
    return Round(
        num_tokens / (run.closed - run.opened),
        (used.cpu_s + used.children_cpu_s) / num_tokens,
        tuple(texts[tuple(prompt)] for prompt in prompts),
    )


def _ratio(ratios: list[float], *, resamples: int = 2000) -> dict[str, float]:
    """Return the median and its 95 % interval by bootstrap over pairs, seeded."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(resamples))
    low, high = medians[round(0.025 * resamples)], medians[round(0.975 * resamples) - 1]
    return {"median": round(statistics.median(ratios), 4), "low": round(low, 4), "high": round(high, 4)}


def _shown(ratio: Any) -> str:
    return f"{ratio['median']:.4f}  (95 % interval {ratio['low']:.4f} to {ratio['high']:.4f})"


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.py --overhead", description=__doc__.split("\n\n")[0])
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--threads", type=int, default=2, help="compute threads of each server")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--requests", type=int, default=16, help="of each half of a pair")
    parser.add_argument("--viewers", type=int, default=1, help="readers of the live feed")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--limit", type=float, default=0.01, help="cost above which the exit code is 1")
    parser.add_argument("--json", default="", metavar="FILE", help="write the record; - prints it alone")
    return parser.parse_args(arguments)
