"""`pellucid kernels`: the same kernels through every backend, checked and timed; `--doctor`: the toolchain."""

import argparse
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from engine.errors import ConfigError
from engine.kernels.lab.doctor import Diagnosis, diagnose
from engine.kernels.lab.process import command, parse_line
from engine.kernels.lab.report import Report
from engine.kernels.native_library import INSTRUCTION_SETS
from service.kernel_tables import report_tables

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def register(subparsers: "Subparsers") -> None:
    """Add the command."""
    parser = subparsers.add_parser("kernels", help="compare the kernels' backends and bindings", description=__doc__)
    parser.add_argument(
        "--doctor", action="store_true", help="say what was found to build with, what is built, and what isn't and why"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout and nothing else")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter samples")
    parser.add_argument("--no-build", action="store_true", help="use what is built, compile nothing")
    parser.add_argument(
        "--instruction-set",
        choices=("auto", *INSTRUCTION_SETS),
        default="auto",
        help="of the native kernels (default: auto)",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure or diagnose; 0 when all is right, 1 when a backend is wrong or nothing can be built, 2 for bad usage."""
    if args.doctor:
        diagnosis = diagnose()
        _print(diagnosis, _doctor_tables(diagnosis), as_json=args.json)
        return 0 if diagnosis.ok else 1
    try:
        report = _measure(args)
    except ConfigError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 2
    if report is None:
        print("error: the measuring process ended without a report", file=sys.stderr)
        return 1
    _print(report, report_tables(report), as_json=args.json)
    return 0 if report.ok else 1


def _measure(args: argparse.Namespace) -> Report | None:
    """Run the laboratory in its process and show what it is doing; None when it ended without a report."""
    asked = command(quick=args.quick, build=not args.no_build, instruction_set=args.instruction_set)
    console = Console(stderr=True, quiet=args.json)
    report = None
    with subprocess.Popen(asked, stdout=subprocess.PIPE) as process, console.status("starting") as status:
        assert process.stdout is not None
        for line in process.stdout:
            message = parse_line(line)
            if message.error:
                raise ConfigError(message.error)
            if message.progress:
                status.update(Text(message.progress))
            report = message.report or report
    return report


def _print(result: Report | Diagnosis, tables: Group, *, as_json: bool) -> None:
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(result)).decode())
    else:
        Console().print(tables)


def _doctor_tables(diagnosis: Diagnosis) -> Group:
    findings = Table("", "found", "needed for", title=f"interpreter {diagnosis.interpreter}", title_justify="left")
    for finding in diagnosis.findings:
        mark = "[green]yes[/]" if finding.found else "[yellow]no[/]"
        findings.add_row(
            finding.subject, Text.assemble(Text.from_markup(mark), f" {finding.detail}"), finding.needed_for
        )
    artefacts = Table("", "state", "", title=f"artefacts in {diagnosis.cache}", title_justify="left")
    for artefact in diagnosis.artefacts:
        artefacts.add_row(artefact.name, artefact.state, Text(artefact.detail, overflow="fold"))
    return Group(findings, artefacts, *(Text(line) for line in diagnosis.discarded))
