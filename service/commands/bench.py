"""`pellucid bench`: how fast steps are, their share of the machine's roofline, and whether they have become slower."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from engine.errors import ConfigError, ModelLoadError
from service.flags import add_flags, resolve
from service.serve_flags import ENGINE_FLAGS, engine_config
from service.settings import environment

if TYPE_CHECKING:
    from service.benchmark.report import BenchReport

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

EXIT_REGRESSED, EXIT_USAGE = 1, 2


def register(subparsers: "Subparsers") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "bench",
        help="measure speed and the share of the roofline",
        description=(
            "Time steps of the engine in this process (decoding 1, 8 and 32 sequences, computing 512 prompt tokens) "
            "and print what share of the machine's measured ceilings they reach. With --url, also measure a running "
            "server."
        ),
    )
    add_flags(parser.add_argument_group("engine"), ENGINE_FLAGS)
    parser.add_argument("--steps", type=int, default=40, help="steps of each shape (default: 40)")
    parser.add_argument("--url", default="", help="of a running server with the same model, measured too")
    parser.add_argument("--api-key", default="", help="for --url")
    parser.add_argument("--seconds", type=float, default=6.0, help="of each measurement with --url (default: 6)")
    parser.add_argument(
        "--baseline", type=Path, metavar="FILE", help="compare with the good runs in there; a good run is added to them"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout and nothing else")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure and print; 1 when something has become slower than the baseline allows, 2 for bad usage."""
    if args.steps < 3:
        return _fail(f"--steps must be at least 3, got {args.steps}")
    try:
        config = engine_config(resolve(ENGINE_FLAGS, args, environment()))
        from service.benchmark.report import measure  # brings torch

        report = measure(config, num_steps=args.steps, url=args.url, api_key=args.api_key, seconds=args.seconds)
    except (ConfigError, ModelLoadError) as error:
        return _fail(error.message)
    except RuntimeError as error:
        return _fail(str(error))
    regressions = []
    if args.baseline:
        from service.benchmark.baseline import Baseline

        try:
            baseline = Baseline(args.baseline)
        except (OSError, ValueError) as error:
            return _fail(str(error))
        regressions = [str(each) for each in baseline.regressions(report.run)]
        if not regressions:
            baseline.add(report.run)
    _print(report, regressions, as_json=args.json)
    return EXIT_REGRESSED if regressions else 0


def _print(report: "BenchReport", regressions: list[str], *, as_json: bool) -> None:
    if as_json:
        content: dict[str, Any] = {**report.to_dict(), "regressions": regressions}
        print(msgspec.json.format(msgspec.json.encode(content)).decode())
        return
    print(report.to_text())
    for regression in regressions:
        print(f"SLOWER {regression}")


def _fail(message: str) -> int:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return EXIT_USAGE
