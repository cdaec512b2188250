"""`scripts/bench.py --overhead`: what the instruments cost, all of them on against all of them off, in pairs.

Two servers are up at a time, and short bursts of the same closed loop alternate between them in the order on, off,
off, on: what the machine does meanwhile, it does to both. On: events, ring, metrics, spans, a viewer of the live feed,
and a scrape every two seconds, as `run_stack.py` has Prometheus do it. Off: `--no-instruments`. Both get the same
prompts, and their outputs must be equal. That the other server really rests is measured too.

Two processes of the same program differ by a percent or two for as long as they live, by where their memory happens to
lie. So both are started anew for each of several blocks, the other one first in every second, and the interval is over
blocks: more pairs of the same two processes would only repeat their difference. `--control` compares two servers
without instruments, which shows what the method itself says of no difference.

A rate moves with everything that the machine does. So the processor time that instruments add is added up as well, each
part where it can be told from the rest: the service's, which computes nothing else of weight, and the viewer's over the
blocks; the engine's own, that of saying events and packing them, step by step in this process. While an engine keeps
every core busy, the share that is added is the share of the rate that is lost, but for what each takes out of the
other's caches.
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
from collections.abc import Callable, Iterator, Sequence
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
from scripts.serving.recorder_cost import events_us_per_step, recorder_us_per_step
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
        viewer_s: those of the viewer; 0 where nobody watches.
        other_share: processor time of the other arm's processes, as a share of one core's over the burst.
        texts: the outputs.
    """

    tokens_per_s: float
    service_s: float
    engine_s: float
    viewer_s: float
    other_share: float
    texts: tuple[str, ...]


class Scraper:
    """Asks for the metrics every SCRAPE_INTERVAL_S of the time in which its server is under load.

    Args:
        arm: the server.

    Attributes:
        num_scrapes: so far.
    """

    def __init__(self, arm: PellucidArm) -> None:
        self._arm = arm
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
            with urlopen(Request(f"{self._arm.address}/metrics", headers=SCRAPE_HEADERS), timeout=10) as response:
                response.read()
            self.num_scrapes += 1
            self._due_s += SCRAPE_INTERVAL_S
        self._due_s -= time.perf_counter() - began


class Comparison:
    """The two servers, and the bursts that they get.

    Args:
        on, off: started before the first pair.
        workload: what a burst asks for; its first concurrency counts.
        prompts: where the prompts come from.
        is_watched: whether the first is scraped.

    Attributes:
        viewer: process that reads the first one's live feed; 0 for none.
    """

    def __init__(
        self, on: PellucidArm, off: PellucidArm, workload: Workload, prompts: PromptSource, *, is_watched: bool
    ) -> None:
        self.viewer = 0
        self._arms = {"on": on, "off": off}
        self._workload = workload
        self._prompts = prompts
        self._is_watched = is_watched
        self.scraper = Scraper(on)

    def pair(self, order: tuple[str, str]) -> dict[str, Burst]:
        """Give both the same prompts, one after the other."""
        workload = self._workload
        prompts = self._prompts.take_many(workload.num_requests, workload.prompt_tokens)
        return {name: self._burst(name, prompts) for name in order}

    def _burst(self, name: str, prompts: list[list[int]]) -> Burst:
        arm, other = self._arms[name], self._arms["off" if name == "on" else "on"]
        shape = LoopShape(self._workload.concurrencies[0], num_requests=self._workload.num_requests)
        viewer = self.viewer if name == "on" else 0
        viewer_before = cpu_s(viewer) if viewer else 0.0
        before, other_before, began = _spent(arm), sum(_spent(other)), time.perf_counter()
        if name == "on" and self._is_watched:
            with self.scraper.during():
                run = arm.run_loop(shape, prompts, self._workload)
        else:
            run = arm.run_loop(shape, prompts, self._workload)
        after, other_after, ended = _spent(arm), sum(_spent(other)), time.perf_counter()
        viewer_s = cpu_s(viewer) - viewer_before if viewer else 0.0
        num_tokens = sum(record.num_tokens for record in run.records)
        texts = {tuple(record.prompt): record.text for record in run.records}
        service_s, engine_s = ((b - a) / num_tokens for a, b in zip(before, after, strict=True))
        return Burst(
            num_tokens / (run.closed - run.opened),
            service_s,
            engine_s,
            viewer_s / num_tokens,
            (other_after - other_before) / (ended - began),
            tuple(texts[tuple(prompt)] for prompt in prompts),
        )


def main(arguments: Sequence[str]) -> int:
    """Measure, print, write the record; 1 when outputs differ or the cost is over the limit, 2 for bad usage."""
    args = _arguments(arguments)
    console = Console(stderr=args.json == "-")
    machine = fingerprint(threads=args.threads)
    model = load_model(args.model)
    text = build_tokenizer(model.tokenizer).encode("\n\n".join(docstrings(TEXT_CHARACTERS)))
    workload = Workload("overhead", args.prompt_tokens, args.new_tokens, (args.streams,), num_requests=args.streams)
    logs = Path(tempfile.mkdtemp(prefix="pellucid-overhead-"))
    options = ["--threads", str(args.threads)]
    prompts = PromptSource(text, seed=1)
    blocks: list[list[dict[str, Burst]]] = []
    num_scrapes = 0
    for number in range(args.blocks):
        on_options = [*options, "--no-instruments"] if args.control else options
        on = PellucidArm(f"on{number}", logs, model=args.model, options=on_options)
        off = PellucidArm(f"off{number}", logs, model=args.model, options=[*options, "--no-instruments"])
        comparison = Comparison(on, off, workload, prompts, is_watched=not args.control)
        try:
            for arm in (on, off) if number % 2 == 0 else (off, on):
                arm.start(workload)
            if number == 0:
                console.print(f"Pellucid {on.version}", highlight=False)
            blocks.append(_block(comparison, on, args))
        finally:
            on.stop()
            off.stop()
        num_scrapes += comparison.scraper.num_scrapes
        if any(pair["on"].texts != pair["off"].texts for pair in blocks[-1]):
            console.print("[red]the outputs of the two servers differ, no figures[/red]")
            return 1
        console.print(
            f"block {number + 1} of {args.blocks}: {_block_ratio(blocks[-1], _rate_ratio):.4f}", highlight=False
        )
    record = {
        "bench": "instruments_overhead",
        "model": str(args.model),
        "version": on.version,
        "machine": asdict(machine),
        "streams": args.streams,
        "prompt_tokens": args.prompt_tokens,
        "new_tokens": args.new_tokens,
        "viewers": args.viewers,
        "scrapes": num_scrapes,
        "control": args.control,
        "pairs": sum(map(len, blocks)),
        **_figures(blocks, events_us_per_step(args.streams) / args.streams),
        "recorder_us_per_step": round(recorder_us_per_step(args.streams), 1),
    }
    _print(record, console)
    if args.json == "-":
        print(json.dumps(record))
    elif args.json:
        Path(args.json).write_text(json.dumps(record, indent=1) + "\n")
    return 1 if record["throughput_ratio"]["mean"] < 1 - args.limit else 0


def _block(comparison: "Comparison", on: PellucidArm, args: argparse.Namespace) -> list[dict[str, Burst]]:
    """Return the pairs of one block, after a few that don't count."""
    viewers = 0 if args.control else args.viewers
    viewer = subprocess.Popen([sys.executable, "-c", VIEWER, on.address, str(viewers)])
    comparison.viewer = viewer.pid if viewers else 0
    pairs: list[dict[str, Burst]] = []
    try:
        orders = itertools.cycle((("on", "off"), ("off", "on")))
        for order in itertools.islice(orders, WARM_UP_PAIRS):
            comparison.pair(order)
        deadline = time.perf_counter() + args.seconds
        while time.perf_counter() < deadline or len(pairs) % 2:  # both orders as often
            pairs.append(comparison.pair(next(orders)))
        assert viewer.poll() is None or not viewers, "the viewer of the live feed ended"
    finally:
        viewer.kill()
        viewer.wait()
    return pairs


def _spent(arm: PellucidArm) -> tuple[float, float]:
    """Return the processor seconds of an arm's service and engine so far."""
    service, engine = arm.pids[:2]
    return cpu_s(service), cpu_s(engine)


def _figures(blocks: Sequence[list[dict[str, Burst]]], events_us: float) -> dict[str, Any]:
    pairs = [pair for block in blocks for pair in block]
    figures: dict[str, Any] = {
        "block_ratios": [round(_block_ratio(block, _rate_ratio), 4) for block in blocks],
        "throughput_ratio": _ratio(blocks, _rate_ratio),
    }
    for name in ("service", "engine"):
        spent = {arm: [getattr(pair[arm], f"{name}_s") for pair in pairs] for arm in ("on", "off")}
        figures[f"{name}_us_per_token"] = {arm: round(1e6 * statistics.median(spent[arm]), 1) for arm in spent}
    figures["cpu_per_token_ratio"] = _ratio(blocks, _cpu_ratio)
    figures["added_us_per_token"] = _added(blocks, events_us)
    for arm in ("on", "off"):
        figures[f"{arm}_tokens_per_s"] = round(statistics.median(pair[arm].tokens_per_s for pair in pairs), 1)
    figures["resting_share"] = {
        "on": round(statistics.median(pair["off"].other_share for pair in pairs), 4),
        "off": round(statistics.median(pair["on"].other_share for pair in pairs), 4),
    }
    return figures


def _rate_ratio(pair: dict[str, Burst]) -> float:
    return pair["on"].tokens_per_s / pair["off"].tokens_per_s


def _cpu_ratio(pair: dict[str, Burst]) -> float:
    on, off = pair["on"], pair["off"]
    return (on.service_s + on.engine_s) / (off.service_s + off.engine_s)


def _added(blocks: Sequence[list[dict[str, Burst]]], events_us: float) -> dict[str, Any]:
    """Return what instruments add to the processor time of a token, part by part, and as a share of it without them."""

    def middle(block: list[dict[str, Burst]], us: Callable[[dict[str, Burst]], float]) -> float:
        return statistics.median(map(us, block))

    service = [middle(block, lambda pair: 1e6 * (pair["on"].service_s - pair["off"].service_s)) for block in blocks]
    viewer = [statistics.mean(1e6 * pair["on"].viewer_s for pair in block) for block in blocks]
    without = statistics.mean(
        middle(block, lambda pair: 1e6 * (pair["off"].service_s + pair["off"].engine_s)) for block in blocks
    )
    mean, low, high = _interval([each + beside + events_us for each, beside in zip(service, viewer, strict=True)])
    return {
        "service": round(statistics.mean(service), 1),
        "viewer": round(statistics.mean(viewer), 1),
        "engine_events": round(events_us, 2),
        "share": {"mean": round(mean / without, 5), "low": round(low / without, 5), "high": round(high / without, 5)},
    }


def _block_ratio(block: list[dict[str, Burst]], ratio: Callable[[dict[str, Burst]], float]) -> float:
    return statistics.median(map(ratio, block))


def _ratio(blocks: Sequence[list[dict[str, Burst]]], ratio: Callable[[dict[str, Burst]], float]) -> dict[str, float]:
    """Return the geometric mean over blocks of their medians and its 95 % interval."""
    found = _interval([math.log(_block_ratio(block, ratio)) for block in blocks])
    return {name: round(math.exp(value), 4) for name, value in zip(("mean", "low", "high"), found, strict=True)}


def _interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean of one value a block and the ends of its 95 % interval by bootstrap over blocks, seeded."""
    draw = random.Random(0)
    means = sorted(statistics.mean(draw.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return statistics.mean(values), means[round(0.025 * RESAMPLES)], means[round(0.975 * RESAMPLES) - 1]


def _print(record: dict[str, Any], console: Console) -> None:
    service, engine, rest = record["service_us_per_token"], record["engine_us_per_token"], record["resting_share"]
    added = record["added_us_per_token"]
    share = added["share"]
    console.print(
        f"{record['pairs']} pairs of bursts at {record['streams']} streams in {len(record['block_ratios'])} blocks, "
        f"outputs equal\n"
        f"output tokens/s, on / off          {record['on_tokens_per_s']} / {record['off_tokens_per_s']}\n"
        f"throughput, on / off               {_shown(record['throughput_ratio'])}\n"
        f"processor time a token, on / off   {_shown(record['cpu_per_token_ratio'])}\n"
        f"service, us a token, on / off      {service['on']} / {service['off']}\n"
        f"engine, us a token, on / off       {engine['on']} / {engine['off']}\n"
        f"added, us a token                  service {added['service']}, viewer {added['viewer']}, engine's events "
        f"{added['engine_events']}: {share['mean']:.2%} of all (95 % interval {share['low']:.2%} to "
        f"{share['high']:.2%})\n"
        f"recorder, us a step                {record['recorder_us_per_step']}\n"
        f"cores that the resting server uses {rest['on']} / {rest['off']}",
        highlight=False,
    )


def _shown(ratio: dict[str, float]) -> str:
    return f"{ratio['mean']:.4f}  (95 % interval {ratio['low']:.4f} to {ratio['high']:.4f})"


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.py --overhead", description=__doc__.split("\n\n")[0])
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--threads", type=int, default=2, help="compute threads of each server")
    parser.add_argument("--streams", type=int, default=8, help="and requests in each burst")
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--viewers", type=int, default=1, help="readers of the live feed")
    parser.add_argument("--blocks", type=int, default=10, help="for each of which both servers are started anew")
    parser.add_argument("--seconds", type=float, default=25.0, help="of each block, in which pairs begin")
    parser.add_argument("--control", action="store_true", help="compare two servers without instruments")
    parser.add_argument("--limit", type=float, default=0.01, help="mean cost above which the exit code is 1")
    parser.add_argument("--json", default="", metavar="FILE", help="write the record; - prints it alone")
    return parser.parse_args(arguments)
