"""`scripts/bench.py --overhead`: what the instruments cost, all of them on against all of them off, in pairs.

Two servers are up all the time, and short bursts of the same closed loop alternate between them in the order on, off,
off, on: what the machine does meanwhile, it does to both. On: events, ring, metrics, spans, a viewer of the live feed,
and a scrape every two seconds, as `run_stack.py` has Prometheus do it. Off: `--no-instruments`. Both get the same
prompts, and their outputs must be equal. That the other server really rests is measured too.
"""

import argparse
import itertools
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from rich.console import Console

from engine.model.catalog import DEFAULT_MODEL
from engine.model.load import load_model
from engine.text.tokenizer import build_tokenizer
from loadtest.closed_loop import LoopShape
from loadtest.corpus import docstrings
from loadtest.machine import fingerprint
from loadtest.process_usage import cpu_s
from loadtest.prompts import PromptSource
from scripts.serving.arms import PellucidArm
from scripts.serving.recorder_cost import recorder_us_per_step
from scripts.serving.workloads import Workload

TEXT_CHARACTERS = 2_000_000
WARM_UP_PAIRS = 4
SCRAPE_INTERVAL_S = 2.0
SCRAPE_HEADERS = {"Accept": "application/openmetrics-text"}
RESAMPLES = 4_000
# Reads the live feed as a browser does, from a process of its own.
VIEWER = """
import sys, threading, urllib.request
def view():
    with urllib.request.urlopen(sys.argv[1] + "/telemetry/kv/live") as feed:
        while feed.read1(65536):
            pass
viewers = [threading.Thread(target=view) for _ in range(int(sys.argv[2]))]
for viewer in viewers:
    viewer.start()
"""


@dataclass(frozen=True, slots=True)
class Burst:
    """One arm's half of a pair.

    Attributes:
        tokens_per_s: output tokens over the time from the first request to the last end.
        service_s, engine_s: processor seconds of the arm's two processes per output token.
        other_share: processor time of the other arm's processes, as a share of one core's over the burst.
        texts: the outputs.
    """

    tokens_per_s: float
    service_s: float
    engine_s: float
    other_share: float
    texts: tuple[str, ...]


class Scraper:
    """Asks for the metrics every SCRAPE_INTERVAL_S of the time in which its server is under load.

    Args:
        address: of the server.

    Attributes:
        num_scrapes: so far.
    """

    def __init__(self, address: str) -> None:
        self._request = Request(f"{address}/metrics", headers=SCRAPE_HEADERS)
        self._due_s = SCRAPE_INTERVAL_S
        self.num_scrapes = 0

    @contextmanager
    def during(self) -> Iterator[None]:
        """Scrape while the block runs, on a thread, if one falls due in it."""
        over = threading.Event()
        thread = threading.Thread(target=self._run, args=(over,))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _run(self, over: threading.Event) -> None:
        began = time.perf_counter()
        while not over.wait(max(0.0, began + self._due_s - time.perf_counter())):
            with urlopen(self._request, timeout=10) as response:
                response.read()
            self.num_scrapes += 1
            self._due_s += SCRAPE_INTERVAL_S
        self._due_s -= time.perf_counter() - began


class Comparison:
    """The two servers, and the bursts that they get.

    Args:
        on, off: started.
        workload: what a burst asks for; its first concurrency counts.
        prompts: where the prompts come from.
    """

    def __init__(self, on: PellucidArm, off: PellucidArm, workload: Workload, prompts: PromptSource) -> None:
        self._arms = {"on": on, "off": off}
        self._workload = workload
        self._prompts = prompts
        self.scraper = Scraper(on.address)

    def pair(self, order: tuple[str, str]) -> dict[str, Burst]:
        """Give both the same prompts, one after the other."""
        workload = self._workload
        prompts = self._prompts.take_many(workload.num_requests, workload.prompt_tokens)
        return {name: self._burst(name, prompts) for name in order}

    def _burst(self, name: str, prompts: list[list[int]]) -> Burst:
        arm, other = self._arms[name], self._arms["off" if name == "on" else "on"]
        shape = LoopShape(self._workload.concurrencies[0], num_requests=self._workload.num_requests)
        before, other_before, began = _spent(arm), sum(_spent(other)), time.perf_counter()
        if name == "on":
            with self.scraper.during():
                run = arm.run_loop(shape, prompts, self._workload)
        else:
            run = arm.run_loop(shape, prompts, self._workload)
        after, other_after, ended = _spent(arm), sum(_spent(other)), time.perf_counter()
        num_tokens = sum(record.num_tokens for record in run.records)
        texts = {tuple(record.prompt): record.text for record in run.records}
        service_s, engine_s = ((b - a) / num_tokens for a, b in zip(before, after, strict=True))
        return Burst(
            num_tokens / (run.closed - run.opened),
            service_s,
            engine_s,
            (other_after - other_before) / (ended - began),
            tuple(texts[tuple(prompt)] for prompt in prompts),
        )


def main(arguments: Sequence[str]) -> int:
    """Measure, print, write the record; 1 when outputs differ or the cost may be over the limit, 2 for bad usage."""
    args = _arguments(arguments)
    console = Console(stderr=args.json == "-")
    machine = fingerprint(threads=args.threads)
    model = load_model(args.model)
    text = build_tokenizer(model.tokenizer).encode("\n\n".join(docstrings(TEXT_CHARACTERS)))
    workload = Workload("overhead", args.prompt_tokens, args.new_tokens, (args.streams,), num_requests=args.streams)
    logs = Path(tempfile.mkdtemp(prefix="pellucid-overhead-"))
    options = ["--threads", str(args.threads)]
    on = PellucidArm("on", logs, model=args.model, options=options)
    off = PellucidArm("off", logs, model=args.model, options=[*options, "--no-instruments"])
    pairs: list[dict[str, Burst]] = []
    try:
        on.start(workload)
        off.start(workload)
        viewer = subprocess.Popen([sys.executable, "-c", VIEWER, on.address, str(args.viewers)])
        try:
            comparison = Comparison(on, off, workload, PromptSource(text, seed=1))
            deadline = 0.0
            for number, order in enumerate(itertools.cycle((("on", "off"), ("off", "on"))), -WARM_UP_PAIRS):
                if number == 0:
                    deadline = time.perf_counter() + args.seconds
                if number >= 0 and (number >= args.pairs or time.perf_counter() > deadline):
                    break
                pair = comparison.pair(order)
                if pair["on"].texts != pair["off"].texts:
                    console.print("[red]the outputs of the two servers differ, no figures[/red]")
                    return 1
                if number >= 0:
                    pairs.append(pair)
            assert viewer.poll() is None or not args.viewers, "the viewer of the live feed ended"
        finally:
            viewer.kill()
            viewer.wait()
    finally:
        on.stop()
        off.stop()
    record = {
        "bench": "instruments_overhead",
        "model": str(args.model),
        "machine": asdict(machine),
        "streams": args.streams,
        "prompt_tokens": args.prompt_tokens,
        "new_tokens": args.new_tokens,
        "viewers": args.viewers,
        "scrapes": comparison.scraper.num_scrapes,
        "pairs": len(pairs),
        **_figures(pairs),
        "recorder_us_per_step": round(recorder_us_per_step(args.streams), 1),
    }
    _print(record, console)
    if args.json == "-":
        print(json.dumps(record))
    elif args.json:
        Path(args.json).write_text(json.dumps(record, indent=1) + "\n")
    return 1 if record["throughput_ratio"]["low"] < 1 - args.limit else 0


def _spent(arm: PellucidArm) -> tuple[float, float]:
    """Return the processor seconds of an arm's service and engine so far."""
    service, engine = arm.pids[:2]
    return cpu_s(service), cpu_s(engine)


def _figures(pairs: Sequence[dict[str, Burst]]) -> dict[str, Any]:
    figures: dict[str, Any] = {
        "throughput_ratio": _ratio([p["on"].tokens_per_s / p["off"].tokens_per_s for p in pairs])
    }
    for name in ("service", "engine"):
        spent = {arm: [getattr(pair[arm], f"{name}_s") for pair in pairs] for arm in ("on", "off")}
        figures[f"{name}_us_per_token"] = {arm: round(1e6 * statistics.median(spent[arm]), 1) for arm in spent}
    both = [[pair[arm].service_s + pair[arm].engine_s for pair in pairs] for arm in ("on", "off")]
    figures["cpu_per_token_ratio"] = _ratio([on / off for on, off in zip(*both, strict=True)])
    for arm in ("on", "off"):
        figures[f"{arm}_tokens_per_s"] = round(statistics.median(pair[arm].tokens_per_s for pair in pairs), 1)
    figures["resting_share"] = {
        "on": round(statistics.median(pair["off"].other_share for pair in pairs), 4),
        "off": round(statistics.median(pair["on"].other_share for pair in pairs), 4),
    }
    return figures


def _ratio(ratios: list[float]) -> dict[str, float]:
    """Return the median and its 95 % interval by bootstrap over pairs, seeded; in logarithms, where pairs are even."""
    draw, logs = random.Random(0), [math.log(ratio) for ratio in ratios]
    medians = sorted(statistics.median(draw.choices(logs, k=len(logs))) for _ in range(RESAMPLES))
    low, high = medians[round(0.025 * RESAMPLES)], medians[round(0.975 * RESAMPLES) - 1]
    found = {"median": statistics.median(logs), "low": low, "high": high}
    return {name: round(math.exp(value), 4) for name, value in found.items()}


def _print(record: dict[str, Any], console: Console) -> None:
    service, engine, rest = record["service_us_per_token"], record["engine_us_per_token"], record["resting_share"]
    console.print(
        f"{record['pairs']} pairs of bursts at {record['streams']} streams, outputs equal\n"
        f"output tokens/s, on / off          {record['on_tokens_per_s']} / {record['off_tokens_per_s']}\n"
        f"throughput, on / off               {_shown(record['throughput_ratio'])}\n"
        f"processor time a token, on / off   {_shown(record['cpu_per_token_ratio'])}\n"
        f"service, us a token, on / off      {service['on']} / {service['off']}\n"
        f"engine, us a token, on / off       {engine['on']} / {engine['off']}\n"
        f"recorder, us a step                {record['recorder_us_per_step']}\n"
        f"cores that the resting server uses {rest['on']} / {rest['off']}",
        highlight=False,
    )


def _shown(ratio: dict[str, float]) -> str:
    return f"{ratio['median']:.4f}  (95 % interval {ratio['low']:.4f} to {ratio['high']:.4f})"


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.py --overhead", description=__doc__.split("\n\n")[0])
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--threads", type=int, default=2, help="compute threads of each server")
    parser.add_argument("--streams", type=int, default=8, help="and requests in each burst")
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--viewers", type=int, default=1, help="readers of the live feed")
    parser.add_argument("--pairs", type=int, default=400, help="at most")
    parser.add_argument("--seconds", type=float, default=420.0, help="no pair begins later")
    parser.add_argument("--limit", type=float, default=0.01, help="cost above which the exit code is 1")
    parser.add_argument("--json", default="", metavar="FILE", help="write the record; - prints it alone")
    return parser.parse_args(arguments)
