"""`scripts/bench.py --peers`: serving speed beside llama.cpp, OpenVINO GenAI and vLLM, all in one run.

Peers are programs outside this project, named by flags; one that isn't named or doesn't come up is listed as missing.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from engine.model.catalog import DEFAULT_MODEL
from engine.model.load import load_model
from engine.text.tokenizer import build_tokenizer
from loadtest.corpus import docstrings
from loadtest.machine import fingerprint
from scripts.serving.arms import Arm, LlamaCppArm, OpenVinoArm, PellucidArm, VllmArm
from scripts.serving.comparison import Comparison, Effort
from scripts.serving.verification import OutputsDifferError
from scripts.serving.workloads import WORKLOADS, Workload

TEXT_CHARACTERS = 2_000_000
PEER_FLAGS = ("--llama-server", "--openvino-python", "or --vllm-python with --vllm-model")
VLLM_ENVIRONMENT = ("VLLM_TARGET_DEVICE=cpu", "VLLM_CPU_KVCACHE_SPACE=2", "VLLM_CPU_OMP_THREADS_BIND=0-1")


def main(arguments: Sequence[str]) -> int:
    """Compare, print, write the record; 1 when an output is wrong, 2 for bad usage."""
    args = _arguments(arguments)
    if not (args.llama_server or args.openvino_python or (args.vllm_python and args.vllm_model)):
        print(f"bench: no peer to compare with: give {', '.join(PEER_FLAGS)}", file=sys.stderr)
        return 2
    console = Console(stderr=args.json == "-")
    machine = fingerprint(threads=args.threads)
    model = load_model(args.model)
    if model.path is None:
        sys.exit(f"bench: peers need a file, {args.model} is none")
    logs = Path(tempfile.mkdtemp(prefix="pellucid-bench-"))
    arms, missing = _arms(args, str(model.path), logs)
    text = build_tokenizer(model.tokenizer).encode("\n\n".join(docstrings(TEXT_CHARACTERS)))
    effort = Effort(args.repeats, args.warm_up, args.window)
    comparison = Comparison(arms, text, effort, lambda line: console.print(line, highlight=False))
    cells: list[dict[str, Any]] = []
    try:
        for workload in _workloads(args):
            cells += comparison.run(workload)
    except OutputsDifferError as error:
        console.print(f"[red]outputs are wrong, no figures:[/red] {error}", highlight=False)
        return 1
    record = {
        "bench": "cpu_serving",
        "model": model.path.name,
        "machine": asdict(machine),
        "method": asdict(effort),
        "arms": {arm.name: {"over_http": arm.over_http, "version": arm.version} for arm in arms},
        "missing": {**missing, **comparison.missing},
        "cells": cells,
    }
    _report(record, console)
    if args.json == "-":
        sys.stdout.write(json.dumps(record, indent=1) + "\n")
    elif args.json:
        Path(args.json).write_text(json.dumps(record, indent=1) + "\n")
    return 0


def _arms(args: argparse.Namespace, file: str, logs: Path) -> tuple[list[Arm], dict[str, str]]:
    """Return the arms that can be tried, ours first, and why others can't."""
    name = f"Pellucid {_precision(file)}"
    arms: list[Arm] = [PellucidArm(name, logs, model=file, options=args.serve_option)]
    arms += [
        PellucidArm(f"{name} in {dtype}", logs, model=file, options=[*args.serve_option, "--dtype", dtype])
        for dtype in args.also_dtype
    ]
    missing: dict[str, str] = {}
    threads = args.threads
    files = [file, *args.peer_model]
    if args.llama_server:
        binary = args.llama_server
        arms += [
            LlamaCppArm(f"llama.cpp {_precision(file)}", logs, binary=binary, model=file, threads=threads)
            for file in files
        ]
    else:
        missing["llama.cpp"] = "--llama-server was not given"
    if args.openvino_python:
        python = args.openvino_python
        arms += [
            OpenVinoArm(f"OpenVINO GenAI {_precision(file)}", logs, python=python, model=file, threads=threads)
            for file in files
        ]
    else:
        missing["OpenVINO GenAI"] = "--openvino-python was not given"
    if args.vllm_python and args.vllm_model:
        environment = [*VLLM_ENVIRONMENT, *args.vllm_environment]
        arms.append(VllmArm("vLLM bf16", logs, python=args.vllm_python, model=args.vllm_model, environment=environment))
    else:
        missing["vLLM"] = "--vllm-python and --vllm-model were not given"
    return arms, missing


def _precision(file: str) -> str:
    return Path(file).stem.rpartition(".")[2]


def _workloads(args: argparse.Namespace) -> list[Workload]:
    chosen = [each for each in WORKLOADS if each.name in args.workloads.split(",")]
    if not args.streams:
        return chosen
    wanted = [int(word) for word in args.streams.split(",")]
    return [each.at(wanted) for each in chosen if each.at(wanted).concurrencies]


def _report(record: dict[str, Any], console: Console) -> None:
    for cell in record["cells"]:
        table = Table(title=f"{cell['workload']}, {cell['concurrency']} streams, {cell['rate']}")
        for column in ("arm", "median", "spread", "TTFT p50 / p99 ms", "ITL p50 / p99 ms", "peak MiB", "CPU us/token"):
            table.add_column(column, justify="left" if column == "arm" else "right")
        for name, arm in cell["arms"].items():
            table.add_row(
                name,
                str(arm["median"]),
                f"{min(arm['rates'])}-{max(arm['rates'])}",
                f"{arm['ttft_p50_ms']} / {arm['ttft_p99_ms']}",
                f"{arm['itl_p50_ms']} / {arm['itl_p99_ms']}",
                str(arm["peak_mib"]),
                f"{arm['service_cpu_us_per_token']} + {arm['engine_cpu_us_per_token']}",
            )
        console.print(table)
        if "best_peer" in cell:
            ratios = {"": {"ratio": cell["ratio_to_best_peer"], "spread": cell["ratio_spread"]}, **cell["other_ratios"]}
            for name, found in ratios.items():
                line = f"{found['ratio']} times {cell['best_peer']}, rounds {found['spread']}"
                console.print(f"{name}: {line}" if name else line, highlight=False)
    for name, reason in record["missing"].items():
        console.print(f"MISSING {name}: {reason}", highlight=False)
    console.print(str(record["machine"]), highlight=False)


def _arguments(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench.py --peers", description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--model", default=DEFAULT_MODEL, help="a GGUF file or a catalogue name; all arms load it")
    parser.add_argument(
        "--peer-model", action="append", default=[], metavar="FILE", help="another precision, for the peers only"
    )
    parser.add_argument("--llama-server", default="", metavar="PATH", help="llama.cpp's server")
    parser.add_argument("--openvino-python", default="", metavar="PATH", help="a Python that has openvino-genai")
    parser.add_argument("--vllm-python", default="", metavar="PATH", help="a Python that has vLLM's CPU build")
    parser.add_argument("--vllm-model", default="", metavar="DIR", help="the model as a Hugging Face directory")
    parser.add_argument(
        "--vllm-environment", action="append", default=[], metavar="NAME=VALUE", help="further settings of vLLM's"
    )
    parser.add_argument("--serve-option", action="append", default=[], metavar="=OPTION", help="for `pellucid serve`")
    parser.add_argument(
        "--also-dtype", action="append", default=[], metavar="DTYPE", help="measure `pellucid serve --dtype DTYPE` too"
    )
    parser.add_argument("--workloads", default="W1,W2,W3", help="which, comma-separated")
    parser.add_argument("--streams", default="", help="only these concurrencies, comma-separated")
    parser.add_argument("--repeats", type=int, default=3, help="rounds, another arm first in each")
    parser.add_argument("--warm-up", type=float, default=2.0, help="seconds before a cell's window opens")
    parser.add_argument("--window", type=float, default=6.0, help="seconds a cell's window lasts at least")
    parser.add_argument("--threads", type=int, default=2, help="compute threads of the peers")
    parser.add_argument("--json", metavar="FILE", default="", help="write the record there; - is standard output")
    args = parser.parse_args(arguments)
    if args.repeats < 1:
        parser.error(f"--repeats must be at least 1, got {args.repeats}")
    return args
