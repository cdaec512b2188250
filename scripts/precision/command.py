"""What `scripts/quality.py` does: for each file, exact float32 beside ours in its precision and llama.cpp's."""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from engine.execution.native_executor import NativeExecutor
from engine.execution.torch_executor import TorchExecutor
from engine.kernels.build import build_library
from engine.kernels.native_library import NativeLibrary
from engine.model.load import LoadedModel, load_model
from engine.text.tokenizer import build_tokenizer
from loadtest.corpus import docstrings
from loadtest.machine import fingerprint
from loadtest.prompts import PromptSource
from scripts.precision.distributions import (
    BLOCK_SIZE,
    LogitsOf,
    build_llama_cpp_program,
    from_executor,
    from_llama_cpp,
)
from scripts.precision.divergence import kl_rows, same_top, summarize

TEXT_CHARACTERS = 400_000


def main() -> int:
    """Measure every file, print, write the record."""
    args = _arguments()
    console = Console(stderr=args.json == "-")
    torch.set_num_threads(args.threads)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        program = None
        if args.llama_source and args.llama_build:
            target = Path(scratch) / "llama_cpp_logits"
            program = build_llama_cpp_program(Path(args.llama_source), Path(args.llama_build), target)
        else:
            console.print("MISSING llama.cpp: --llama-source and --llama-build were not given", highlight=False)
        for name in args.models:
            rows += measure(load_model(name), args, program)
            console.print(f"{name}: done", highlight=False)
    record = {
        "bench": "quality",
        "machine": asdict(fingerprint(threads=args.threads)),
        "windows": args.windows,
        "window": args.window,
        "dtype": args.dtype,
        "has_llama_cpp": program is not None,
        "rows": rows,
    }
    _report(rows, console)
    if args.json == "-":
        sys.stdout.write(json.dumps(record, indent=1) + "\n")
    elif args.json:
        Path(args.json).write_text(json.dumps(record, indent=1) + "\n")
    return 0


def measure(model: LoadedModel, args: argparse.Namespace, program: Path | None) -> list[dict[str, Any]]:
    """Return a row for every engine and KV precision with this file; each beside exact float32 on its weights."""
    text = build_tokenizer(model.tokenizer).encode("\n\n".join(docstrings(TEXT_CHARACTERS)))
    pieces = PromptSource(text, seed=1).take_many(args.windows, args.window)
    spec = model.spec
    num_blocks = -(-args.window // BLOCK_SIZE)
    with ExitStack() as stack:
        engines: dict[tuple[str, str], LogitsOf] = {}
        library = NativeLibrary(build_library(lambda text: None))
        weights: dict[tuple[str, str], str] = {}
        own = Path(model.path or model.name)
        beside = Path(args.llama_model) if args.llama_model else own
        for kv_dtype in args.kv_dtype:
            native = NativeExecutor(
                spec, model.weights, library=library, num_blocks=num_blocks, block_size=BLOCK_SIZE,
                max_tokens=args.window, max_positions=args.window, threads=args.threads,
                kv_dtype=kv_dtype, int8_weights=args.dtype == "int8", bfloat16=args.dtype == "bfloat16",
            )  # fmt: skip
            engines["Pellucid", kv_dtype] = from_executor(native)
            weights["Pellucid", kv_dtype] = native.dtype_name
            if args.dtype == "int8" and native.dtype_name != "int8":
                sys.exit(f"error: --dtype int8 takes float files, {own.name} is {native.dtype_name}")
        if program is not None and model.path is not None:
            engines["llama.cpp", "float16"] = stack.enter_context(
                from_llama_cpp(program, beside, window=args.window, vocab_size=spec.vocab_size, threads=args.threads)
            )
        exact = from_executor(
            TorchExecutor(
                spec, model.weights, num_blocks=num_blocks, block_size=BLOCK_SIZE, dtype="float32", device="cpu",
                threads=args.threads,
            )
        )  # fmt: skip
        found: dict[tuple[str, str], list[torch.Tensor]] = {key: [] for key in engines}
        num_same = dict.fromkeys(engines, 0)
        for piece in pieces:
            expected = exact(piece).clone()
            for key, logits_of in engines.items():
                logits = logits_of(piece)
                found[key].append(kl_rows(expected, logits))
                num_same[key] += same_top(expected, logits)
    return [
        {
            "file": (beside if engine == "llama.cpp" else own).name,
            "exact": own.name,
            "weights": weights.get((engine, kv), "of the file"),
            "engine": engine,
            "kv": kv,
            **asdict(summarize(torch.cat(found[engine, kv]), num_same[engine, kv])),
        }
        for engine, kv in engines
    ]


def _report(rows: Sequence[dict[str, Any]], console: Console) -> None:
    table = Table(title="KL divergence from exact float32 on the file's dequantised weights, nats")
    for column in ("file", "engine", "KV", "mean", "p99.9", "largest", "same top token", "tokens"):
        table.add_column(column)
    for row in rows:
        table.add_row(
            row["file"], row["engine"], row["kv"], f"{row['mean']:.2e}", f"{row['p99_9']:.2e}",
            f"{row['largest']:.2e}", f"{row['same_top']:.4f}", str(row["num_tokens"]),
        )  # fmt: skip
    console.print(table)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="quality.py", description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=["smollm2-135m-instruct"], help="GGUF files or catalogue names")
    parser.add_argument(
        "--kv-dtype",
        action="append",
        default=[],
        help="of our KV cache, float16 if not given; may be given several times",
    )
    parser.add_argument(
        "--dtype",
        choices=("auto", "int8", "bfloat16"),
        default="auto",
        help="the file's, 8 bits of a float file, or products in bfloat16",
    )
    parser.add_argument("--windows", type=int, default=16, help="pieces of text, each computed from an empty cache")
    parser.add_argument("--window", type=int, default=256, help="tokens of a piece; p99.9 needs 1000 in all")
    parser.add_argument("--threads", type=int, default=2, help="compute threads")
    parser.add_argument("--llama-source", default="", metavar="DIR", help="llama.cpp's sources, for its headers")
    parser.add_argument("--llama-build", default="", metavar="DIR", help="where it was built")
    parser.add_argument(
        "--llama-model", default="", metavar="FILE", help="what llama.cpp reads instead of the one file that we read"
    )
    parser.add_argument("--json", metavar="FILE", default="", help="write the record there; - is standard output")
    args = parser.parse_args()
    if args.windows * args.window < 1000:
        parser.error(f"--windows times --window must be at least 1000, got {args.windows * args.window}")
    if args.llama_model and len(args.models) != 1:
        parser.error(f"--llama-model goes with one model, got {len(args.models)}")
    args.kv_dtype = args.kv_dtype or ["float16"]
    return args
