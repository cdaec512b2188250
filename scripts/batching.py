"""Measure batching: one stream, many streams, and transformers one request at a time; the same work in every arm.

    .venv/bin/python scripts/bench.py [--json loadtest/records/FILE.json]

Every arm generates the same number of tokens for the same prompts (windows of the LICENSE file), greedily, with the
same float32 weights and the same number of threads. Arms alternate; a warm-up round comes first and checks that all
outputs are equal. If they are not, nothing is printed but the difference, and the exit code is 1.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

for _needed in ("transformers", "torch", "rich"):
    if find_spec(_needed) is None:
        sys.exit(f"bench: the Python package `{_needed}` is missing; run with the project's .venv (extras: dev)")

import torch  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.progress import Progress  # noqa: E402
from rich.table import Table  # noqa: E402
from transformers import PreTrainedModel  # noqa: E402

from engine.clock import SystemClock  # noqa: E402
from engine.llm import LLM  # noqa: E402
from engine.model.catalog import DEFAULT_MODEL  # noqa: E402
from engine.model.load import load_model  # noqa: E402
from engine.sampling_params import SamplingParams  # noqa: E402
from loadtest.machine import fingerprint  # noqa: E402
from tests.support.transformers_model import transformers_model  # noqa: E402

NEAR_TIE = 0.002  # two float32 programs may order logits closer than this differently
GOAL_OVER_ONE_STREAM = 2.5
GOAL_OVER_TRANSFORMERS = 2.8

Tokens = list[list[int]]


@dataclass(frozen=True)
class Arm:
    """One way of doing the work; `run` returns the output tokens of every prompt."""

    name: str
    run: Callable[[], Tokens]


@dataclass(frozen=True)
class Result:
    """Output tokens per second of one arm."""

    name: str
    tokens_per_s: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.tokens_per_s)


class OutputsDifferError(Exception):
    """Two arms gave different tokens where the logits were no near tie."""


def main() -> int:
    args = _arguments()
    console = Console(stderr=args.json == "-")
    llm = LLM(
        args.model,
        executor="torch",
        dtype="float32",
        device="cpu",
        threads=args.threads,
        prefix_cache=False,
        num_kv_blocks=args.streams * (-(-(args.prompt_tokens + args.new_tokens) // 16) + 1),
    )
    machine = fingerprint(threads=llm.info.threads)
    peer = transformers_model(load_model(args.model))
    peer.set_attn_implementation("sdpa")
    prompts = license_prompts(llm, num_prompts=args.streams, num_tokens=args.prompt_tokens)
    params = SamplingParams(max_tokens=args.new_tokens, temperature=0.0, ignore_eos=True)
    arms = [
        Arm("1 stream", lambda: [llm.generate([prompt], params)[0].token_ids for prompt in prompts]),
        Arm(f"{args.streams} streams", lambda: [each.token_ids for each in llm.generate(prompts, params)]),
        Arm("transformers, one at a time", lambda: [generate(peer, prompt, args.new_tokens) for prompt in prompts]),
    ]
    try:
        results = measure(arms, peer, prompts, repeats=args.repeats, console=console)
    except OutputsDifferError as error:
        console.print(f"[red]outputs differ:[/red] {error}")
        return 1
    record = {
        "bench": "batching",
        "model": args.model,
        "dtype": "float32",
        "prompt_tokens": args.prompt_tokens,
        "new_tokens": args.new_tokens,
        "requests_per_round": args.streams,
        "repeats": args.repeats,
        "machine": asdict(machine),
        "output_tokens_per_s": {each.name: each.tokens_per_s for each in results},
        "over_one_stream": results[1].median / results[0].median,
        "over_transformers": results[1].median / results[2].median,
    }
    report(results, record, console)
    if args.json == "-":
        print(json.dumps(record, indent=2))
    elif args.json:
        Path(args.json).write_text(json.dumps(record, indent=2) + "\n")
    return 0


def license_prompts(llm: LLM, *, num_prompts: int, num_tokens: int) -> Tokens:
    """Cut the LICENSE file into distinct prompts of exactly num_tokens tokens."""
    ids = llm.tokenizer.encode((ROOT / "LICENSE").read_text())
    if num_prompts * num_tokens > len(ids):
        sys.exit(f"bench: {num_prompts} prompts of {num_tokens} tokens need more text than LICENSE has ({len(ids)})")
    return [ids[i * num_tokens : (i + 1) * num_tokens] for i in range(num_prompts)]


def generate(model: PreTrainedModel, prompt: list[int], num_tokens: int) -> list[int]:
    """Let transformers generate greedily, end-of-sequence ignored."""
    ids = torch.tensor([prompt])
    with torch.inference_mode():
        output = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=num_tokens,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
    return [int(token) for token in output[0, len(prompt) :]]


def measure(arms: list[Arm], peer: PreTrainedModel, prompts: Tokens, *, repeats: int, console: Console) -> list[Result]:
    """Warm up and compare outputs, then time every arm `repeats` times, another arm first each time."""
    clock = SystemClock()
    seconds: dict[str, list[float]] = {arm.name: [] for arm in arms}
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("warm-up", total=len(arms) * (repeats + 1))
        expected: Tokens = []
        for repeat in range(repeats + 1):
            first = repeat % len(arms)
            for arm in arms if repeat == 0 else arms[first:] + arms[:first]:
                progress.update(task, description=f"round {repeat}: {arm.name}")
                started = clock.now()
                tokens = arm.run()
                if repeat:
                    seconds[arm.name].append(clock.now() - started)
                expected = expected or tokens
                compare(expected, tokens, arm.name, peer, prompts)
                progress.advance(task)
    num_tokens = sum(len(each) for each in expected)
    return [Result(name, [round(num_tokens / each, 2) for each in taken]) for name, taken in seconds.items()]


def compare(expected: Tokens, tokens: Tokens, arm: str, peer: PreTrainedModel, prompts: Tokens) -> None:
    """Raise OutputsDifferError unless outputs agree up to their first near tie."""
    for number, (prompt, ours, theirs) in enumerate(zip(prompts, expected, tokens, strict=True)):
        if ours == theirs:
            continue
        if len(ours) != len(theirs):
            raise OutputsDifferError(f"{arm}, prompt {number}: {len(theirs)} tokens, expected {len(ours)}")
        step = next(i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b)
        with torch.inference_mode():
            logits = peer(torch.tensor([prompt + ours[:step]])).logits[0, -1]
        margin = float(logits.max() - min(logits[ours[step]], logits[theirs[step]]))
        if margin >= NEAR_TIE:
            raise OutputsDifferError(
                f"{arm}, prompt {number}, token {step}: {theirs[step]}, expected {ours[step]}, {margin:.4f} apart"
            )


def report(results: list[Result], record: dict[str, object], console: Console) -> None:
    """Print what was measured, and on what."""
    table = Table(title=f"{record['requests_per_round']} x ({record['prompt_tokens']} in + {record['new_tokens']} out)")
    for column in ("arm", "output tokens/s, median", "spread", "n"):
        table.add_column(column, justify="left" if column == "arm" else "right")
    for each in results:
        spread = f"{min(each.tokens_per_s):.1f}-{max(each.tokens_per_s):.1f}"
        table.add_row(each.name, f"{each.median:.1f}", spread, str(len(each.tokens_per_s)))
    console.print(table)
    console.print(f"outputs equal; {record['machine']}")
    console.print(f"{results[1].name} over 1 stream: {record['over_one_stream']:.2f} (goal {GOAL_OVER_ONE_STREAM})")
    console.print(
        f"{results[1].name} over transformers: {record['over_transformers']:.2f} (goal {GOAL_OVER_TRANSFORMERS})"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench.py",
        description=__doc__.splitlines()[0] if __doc__ else None,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--model", default=DEFAULT_MODEL, help="a model of the llama, qwen2 or qwen3 family")
    parser.add_argument("--streams", type=int, default=8, help="requests a round, all at once in the second arm")
    parser.add_argument("--prompt-tokens", type=int, default=128, help="length of each prompt")
    parser.add_argument("--new-tokens", type=int, default=64, help="tokens generated for each prompt")
    parser.add_argument("--repeats", type=int, default=3, help="timed rounds of every arm")
    parser.add_argument("--threads", type=int, default=0, help="compute threads; 0 is one per core")
    parser.add_argument("--json", metavar="FILE", default="", help="write the record there; - is standard output")
    args = parser.parse_args()
    for name in ("streams", "prompt_tokens", "new_tokens", "repeats"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1, got {getattr(args, name)}")
    return args
