"""`pellucid loadtest`: run a scenario against a server and say what its users would have seen."""

import argparse
import asyncio
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console
from rich.live import Live
from rich.text import Text

from loadtest.errors import LoadTestError, PlanError, TargetError
from loadtest.load_result import LoadResult
from loadtest.load_run import run_load
from loadtest.report_html import html_report
from loadtest.report_text import report, status_line
from loadtest.scenario import Scenario, read_scenario
from loadtest.snapshot import LoadSnapshot
from service.settings import environment

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130
STDOUT = "-"


def register(subparsers: "Subparsers") -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "loadtest",
        help="run a load scenario against a server",
        description=(
            "Run a scenario (loadtest/scenarios/ has some, docs/loadtest.md says what they may hold) and print "
            "latencies, rates and attainment. $PELLUCID_API_KEY is sent as a bearer token. Ctrl-C ends the load early "
            "and prints what there is. Exit code 1: the server did not answer, no request succeeded, or the scenario's "
            "min_attainment was missed."
        ),
    )
    parser.add_argument("scenario", type=Path, help="TOML file")
    parser.add_argument("--url", default="", help="another server than the scenario's")
    parser.add_argument("--model", default="", help="another model than the scenario's")
    parser.add_argument("--seed", type=int, help="another seed than the scenario's")
    parser.add_argument(
        "--json",
        nargs="?",
        const=STDOUT,
        default="",
        metavar="FILE",
        help="write the whole result as JSON, every request included; without FILE to stdout, and nothing else there",
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with charts")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the scenario, report, and return the exit code."""
    try:
        scenario = _changed(read_scenario(args.scenario), args)
        result = asyncio.run(_load(scenario, shows=args.json != STDOUT))
        if args.json:
            _write(args.json, msgspec.json.encode(result) + b"\n")
        if args.html:
            _write(str(args.html), html_report(result, name=scenario.name).encode())
    except LoadTestError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return EXIT_FAILED if isinstance(error, TargetError) else EXIT_USAGE
    if args.json != STDOUT:
        Console(highlight=False).print(report(result))
    if result.stop_reason == "stopped":
        return EXIT_INTERRUPTED
    return 0 if passed(result, scenario.min_attainment) else EXIT_FAILED


def passed(result: LoadResult, min_attainment: float | None) -> bool:
    """Tell whether something succeeded in every stage, and attainment was what the scenario wants."""
    if any(stage.counts.ok == 0 for stage in result.stages):
        return False
    return min_attainment is None or all((stage.attainment.ratio or 0.0) >= min_attainment for stage in result.stages)


def _changed(scenario: Scenario, args: argparse.Namespace) -> Scenario:
    content = msgspec.to_builtins(scenario)
    content["target"]["url"] = args.url or scenario.target.url
    content["target"]["model"] = args.model or scenario.target.model
    if args.seed is not None:
        content["load"]["seed"] = args.seed
    try:
        return msgspec.convert(content, Scenario)
    except msgspec.ValidationError as error:
        raise PlanError(str(error)) from None


async def _load(scenario: Scenario, *, shows: bool) -> LoadResult:
    """Run the load with a live line; the first Ctrl-C ends it early, a second one at once."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def interrupt() -> None:
        stop.set()
        loop.remove_signal_handler(signal.SIGINT)

    loop.add_signal_handler(signal.SIGINT, interrupt)
    key = environment().get("PELLUCID_API_KEY", "")
    console = Console(highlight=False)
    if not shows or not console.is_terminal:
        return await run_load(scenario.target, scenario.load, stop=stop, api_key=key)
    with Live(Text("asking the server"), console=console, transient=True, auto_refresh=False) as live:

        def show(snapshot: LoadSnapshot) -> None:
            live.update(Text(status_line(snapshot)), refresh=True)

        return await run_load(scenario.target, scenario.load, show, stop, api_key=key)


def _write(name: str, content: bytes) -> None:
    if name == STDOUT:
        sys.stdout.buffer.write(content)
        sys.stdout.flush()
        return
    try:
        Path(name).write_bytes(content)
    except OSError as error:
        raise PlanError(f"{name} can't be written: {error}") from None
