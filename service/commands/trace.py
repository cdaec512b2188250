"""`pellucid trace`: what a recorded event stream proves and tells.

check     rebuild the KV pool from it and prove the invariants
explain   what happened to each request, and why
diff      where two traces part, and what that made of each request
perfetto  a file for ui.perfetto.dev
blocks    the prefix tree's changes as outside indexers of KV blocks read them
"""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console

from observability.block_events import indexer_batches
from observability.trace_check import check_trace
from observability.trace_codec import TraceFormatError
from observability.trace_diff import diff_traces
from observability.trace_explain import as_data, sentences
from observability.trace_file import TraceReader
from observability.trace_perfetto import perfetto_json
from observability.trace_story import TraceStories
from service.commands.trace_tables import print_diff, print_summary

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2
PLAIN_WIDTH = 180  # columns of a table that goes into a file or a pipe


def register(subparsers: "Subparsers") -> None:
    """Add the command and its actions."""
    parser = subparsers.add_parser(
        "trace",
        help="tools for recorded KV traces",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    as_json = argparse.ArgumentParser(add_help=False)
    as_json.add_argument("--json", action="store_true", help="print JSON on stdout and nothing else")
    trace = argparse.ArgumentParser(add_help=False)
    trace.add_argument("file", type=Path, help="a trace, .jsonl or .jsonl.gz")
    out = argparse.ArgumentParser(add_help=False)
    out.add_argument("-o", "--output", type=Path, help="file to write (default: stdout)")

    actions.add_parser("check", parents=[trace, as_json], help="rebuild the KV pool and prove its invariants")
    explain = actions.add_parser("explain", parents=[trace, as_json], help="what happened to each request, and why")
    explain.add_argument(
        "request", nargs="?", default="", help="a request id, or how one begins (default: a table of all)"
    )
    diff = actions.add_parser("diff", parents=[as_json], help="where two traces part; exit code 1 if they do")
    diff.add_argument("file_a", type=Path, metavar="A")
    diff.add_argument("file_b", type=Path, metavar="B")
    actions.add_parser("perfetto", parents=[trace, out, as_json], help="write a file for ui.perfetto.dev")
    actions.add_parser("blocks", parents=[trace, out], help="BlockStored, BlockRemoved, AllBlocksCleared as JSON Lines")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Do the action; 0 ok, 1 an invariant is broken or the traces differ, 2 no such trace or request."""
    actions = {"check": _check, "explain": _explain, "diff": _diff, "perfetto": _perfetto, "blocks": _blocks}
    try:
        return actions[args.action](args)
    except TraceFormatError as error:
        return _refuse(str(error))
    except BrokenPipeError:
        raise  # whoever read our output has left; service/cli.py knows what to do
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        return _refuse(f"{error.filename or 'the trace'}: {why}")


def _check(args: argparse.Namespace) -> int:
    with Console(stderr=True, quiet=args.json or not sys.stderr.isatty()).status("checking"):
        report = check_trace(args.file)
    _print_json(report) if args.json else print(report.to_text())
    return EXIT_OK if report.ok else EXIT_FAILED


def _explain(args: argparse.Namespace) -> int:
    with TraceReader(args.file) as reader:
        stories = TraceStories(reader.snapshot)
        for events in reader.batches():
            for event in events:
                stories.take(event)
        header = reader.header
    if not args.request:
        rows = [as_data(story) for story in stories.stories.values()]
        if args.json:
            _print_json({"header": header, "num_events": stories.num_events, "num_steps": stories.num_steps,
                         "seconds": stories.last_t - stories.first_t, "requests": rows})  # fmt: skip
        else:
            print_summary(_console(), header, stories, rows)
        return EXIT_OK
    found = [story for name, story in stories.stories.items() if name.startswith(args.request)]
    exact = [story for story in found if story.request_id == args.request]
    if len(exact or found) != 1:
        return _refuse(f"{len(found) or 'no'} requests of {args.file} begin with {args.request!r}")
    (story,) = exact or found
    told = sentences(story)
    if args.json:
        _print_json({**as_data(story), "sentences": told, "lookups": story.lookups, "chunks": story.chunks,
                     "preemptions": story.preemptions, "decoding": story.decoding})  # fmt: skip
    else:
        print("\n".join(told))
    return EXIT_OK


def _diff(args: argparse.Namespace) -> int:
    found = diff_traces(args.file_a, args.file_b)
    if args.json:
        _print_json({"is_same": found.is_same, **{name: getattr(found, name) for name in found.__slots__}})
    else:
        print_diff(_console(), found)
    return EXIT_OK if found.is_same else EXIT_FAILED


def _perfetto(args: argparse.Namespace) -> int:
    with TraceReader(args.file) as reader:
        num_bytes = _write(args.output, perfetto_json(reader))
    if args.output is not None:
        if args.json:
            _print_json({"file": str(args.output), "num_bytes": num_bytes})
        else:
            print(f"{args.output}: {num_bytes} bytes; open it at https://ui.perfetto.dev")
    return EXIT_OK


def _blocks(args: argparse.Namespace) -> int:
    with TraceReader(args.file) as reader:
        header = reader.header
        batches = indexer_batches(
            reader,
            block_size=header.block_size,
            wall_offset_s=header.wall_origin_s - header.monotonic_origin_s,
            snapshot=reader.snapshot,
        )
        _write(args.output, (msgspec.json.encode(batch) + b"\n" for batch in batches))
    return EXIT_OK


def _write(path: Path | None, pieces: Any) -> int:
    """Write pieces to a file, or to stdout; return how many bytes."""
    num_bytes = 0
    if path is None:
        for piece in pieces:
            num_bytes += len(piece)
            sys.stdout.write(piece.decode())
        return num_bytes
    with path.open("wb") as file:
        for piece in pieces:
            num_bytes += file.write(piece)
    return num_bytes


def _console() -> Console:
    return Console() if sys.stdout.isatty() else Console(width=PLAIN_WIDTH)


def _print_json(value: Any) -> None:
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def _refuse(message: str) -> int:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return EXIT_USAGE
