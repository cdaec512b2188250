"""`pellucid trace check FILE`: prove the KV invariants from a recorded trace alone."""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from observability.trace_check import check_trace
from observability.trace_codec import TraceFormatError

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def register(subparsers: "Subparsers") -> None:
    """Add the command and its action."""
    parser = subparsers.add_parser("trace", help="tools for recorded KV traces", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = actions.add_parser("check", help="rebuild the KV pool from a trace and prove its invariants")
    check.add_argument("file", type=Path, help="a trace, .jsonl or .jsonl.gz")
    check.add_argument("--json", action="store_true", help="print one JSON object on stdout and nothing else")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Check the file; 0 when every invariant holds, 1 when one is broken, 2 when it is no trace."""
    try:
        report = check_trace(args.file)
    except TraceFormatError as error:
        return _refuse(str(error))
    except OSError as error:
        return _refuse(f"{args.file} can't be read: {os.strerror(error.errno) if error.errno else error}")
    print(msgspec.json.format(msgspec.json.encode(report)).decode() if args.json else report.to_text())
    return 0 if report.ok else 1


def _refuse(message: str) -> int:
    print(f"error: {message}", file=sys.stderr)
    return 2
