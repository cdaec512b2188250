"""`scripts/bench.py --service`: what the service's process costs for each streamed token and for each request.

A whole server, but for its engine, which recites text at a fixed pace (scripted_engine.py): so the processor time of
the service is that of streaming alone, on a machine that does nothing else. Tokens are counted where they arrive.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from rich.console import Console

from engine.model.catalog import DEFAULT_MODEL
from engine.model.load import load_model
from engine.text.tokenizer import build_tokenizer
from loadtest.corpus import docstrings
from loadtest.machine import fingerprint
from loadtest.process_usage import cpu_s
from loadtest.prompts import PromptSource
from loadtest.request_record import RequestRecord
from scripts.serving.arms import PellucidArm
from scripts.serving.scripted_engine import STEP_MS
from scripts.serving.workloads import Workload

PROMPT_TOKENS = 128
MOST_TOKENS = 2_000
WARM_UP_S = 1.0
NUM_REQUESTS = 200
SERVER = [sys.executable, "-m", "scripts.serving.scripted_server"]


@dataclass(frozen=True, slots=True)
class Pace:
    """So many streams, and a token for each every `step_ms`."""

    streams: int
    step_ms: float


PACES = (Pace(1, 7.0), Pace(32, 50.0), Pace(256, 12.8), Pace(256, 6.4))


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one window.

    Attributes:
        tokens_per_s, chunks_per_s: as they arrived; a chunk has several tokens when the service is behind.
        service_us, engine_us, client_us: processor time of each process a token.
    """

    tokens_per_s: float
    chunks_per_s: float
    service_us: float
    engine_us: float
    client_us: float


class ScriptedArm(PellucidArm):
    """Our server with the reciting engine."""

    def command(self, workload: Workload, port: int) -> list[str]:
        ordinary = super().command(workload, port)
        return [*SERVER, *ordinary[ordinary.index("serve") + 1 :]]


def main(arguments: Sequence[str]) -> int:
    """Measure, print, write the record; 2 for bad usage."""
    args = _arguments(arguments)
    console = Console(stderr=args.json == "-")
    machine = fingerprint(threads=1)
    text = build_tokenizer(load_model(args.model).tokenizer).encode("\n\n".join(docstrings(500_000)))
    paces = [pace for pace in PACES if not args.streams or pace.streams in args.streams]
    cells: list[dict[str, Any]] = []
    for pace in paces:
        costs, request_us = _measure(args, pace, PromptSource(text, seed=1))
        cell = {**asdict(pace), "request_us": request_us}
        for name in Cost.__dataclass_fields__:
            cell[name] = round(statistics.median(getattr(cost, name) for cost in costs), 1)
        cells.append(cell)
        console.print(
            f"{pace.streams} streams, a step every {pace.step_ms:g} ms: "
            f"{cell['tokens_per_s']:.0f} tokens/s in {cell['chunks_per_s']:.0f} chunks/s; a token costs the service "
            f"{cell['service_us']:.1f} us (engine {cell['engine_us']:.1f}, client {cell['client_us']:.1f}), "
            f"a request {request_us:.0f} us",
            highlight=False,
        )
    record = {"bench": "service_cost", "machine": asdict(machine), "windows": args.windows, "cells": cells}
    if args.json == "-":
        print(json.dumps(record))
    elif args.json:
        Path(args.json).write_text(json.dumps(record, indent=1) + "\n")
    return 0


def _measure(args: argparse.Namespace, pace: Pace, prompts: PromptSource) -> tuple[list[Cost], float]:
    workload = Workload("service", PROMPT_TOKENS, MOST_TOKENS, (pace.streams,))
    num_blocks = pace.streams * (PROMPT_TOKENS + MOST_TOKENS) // 16 + pace.streams
    options = ["--max-num-seqs", str(max(64, pace.streams)), "--num-kv-blocks", str(num_blocks), *args.serve_option]
    logs = Path(tempfile.mkdtemp(prefix="pellucid-service-"))
    os.environ[STEP_MS] = str(pace.step_ms)
    arm = ScriptedArm("scripted", logs, model=args.model, options=options)
    try:
        arm.start(workload)
        costs = [asyncio.run(_window(arm, workload, pace, prompts, args.window)) for _ in range(args.windows)]
        return costs, asyncio.run(_request_us(arm, workload, prompts))
    finally:
        arm.stop()


async def _window(arm: ScriptedArm, workload: Workload, pace: Pace, prompts: PromptSource, window_s: float) -> Cost:
    """Keep the streams running over a window in which none begins or ends."""
    client = arm.client(workload)
    records = [RequestRecord(prompts.take(PROMPT_TOKENS), time.perf_counter()) for _ in range(pace.streams)]
    streams = [asyncio.create_task(client.run(record)) for record in records]
    while not all(record.token_times for record in records):  # noqa: ASYNC110 - the client has no event for it
        await asyncio.sleep(0.05)
    await asyncio.sleep(WARM_UP_S)
    service, engine = arm.pids[:2]

    def counted() -> tuple[float, ...]:
        return time.perf_counter(), _generated(arm.address), sum(len(record.token_times) for record in records)

    def spent() -> tuple[float, ...]:
        return cpu_s(service), cpu_s(engine), time.process_time()

    counted_before, spent_before = counted(), spent()
    await asyncio.sleep(window_s)
    spent_after, counted_after = spent(), counted()
    for stream in streams:
        stream.cancel()
    await asyncio.wait(streams)
    seconds, tokens, chunks = (after - before for before, after in zip(counted_before, counted_after, strict=True))
    each_us = [(after - before) * 1e6 / tokens for before, after in zip(spent_before, spent_after, strict=True)]
    return Cost(tokens / seconds, chunks / seconds, *each_us)


async def _request_us(arm: ScriptedArm, workload: Workload, prompts: PromptSource) -> float:
    """Return what a request of one token costs the service, one after the other."""
    client = arm.client(workload)
    before = cpu_s(arm.pids[0])
    for _ in range(NUM_REQUESTS):
        record = RequestRecord(prompts.take(PROMPT_TOKENS), time.perf_counter())
        await client.run(record, max_tokens=1)
        if record.error:
            raise RuntimeError(f"a request failed: {record.error}")
    return (cpu_s(arm.pids[0]) - before) * 1e6 / NUM_REQUESTS


def _generated(address: str) -> float:
    """Return how many tokens the engine has made so far, as the server counts them."""
    with urlopen(f"{address}/stats?history_s=1", timeout=10) as response:
        return float(json.load(response)["counters"]["generated_tokens"])


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.py --service", description=__doc__.split("\n\n")[0])
    parser.add_argument("--model", default=DEFAULT_MODEL, help="whose tokenizer is used")
    parser.add_argument("--streams", type=int, action="append", help="only this number of streams; may be repeated")
    parser.add_argument("--window", type=float, default=3.0, help="seconds of each window")
    parser.add_argument("--windows", type=int, default=3, help="windows of each pace; the median counts")
    parser.add_argument("--serve-option", action="append", default=[], help="one more word of the server's command")
    parser.add_argument("--json", default="", metavar="FILE", help="write the record; - prints it alone")
    return parser.parse_args(arguments)
