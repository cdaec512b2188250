"""`pellucid top`: the requests of a server, live in the terminal."""

import argparse
import sys
import threading
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console
from rich.live import Live
from rich.text import Text

from engine.errors import ConfigError
from service.flags import Flag, add_flags, resolve
from service.settings import environment
from service.telemetry_client import TelemetryClient, TelemetryError
from service.top_view import screen

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

FLAGS = (
    Flag("--url", str, "http://127.0.0.1:8100", "the server"),
    Flag("--interval", float, 1.0, "seconds between two looks"),
    Flag("--rows", int, 30, "requests shown; those in flight first, then those that ended last"),
)
HEADER_LINES = 5  # of the screen, besides the requests


def register(subparsers: "Subparsers") -> None:
    """Add the command."""
    parser = subparsers.add_parser("top", help="live table of a server's requests", description=__doc__)
    parser.add_argument("--once", action="store_true", help="print one look and end")
    parser.add_argument("--json", action="store_true", help="with --once: one JSON object with `stats` and `requests`")
    add_flags(parser, FLAGS)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Show until Ctrl-C; 0 then, 1 when the server can't be asked, 2 for a bad flag."""
    try:
        values = resolve(FLAGS, args, environment())
        if values["interval"] <= 0 or values["rows"] < 1:
            raise ConfigError("--interval must be greater than 0 and --rows at least 1")
        if args.json and not args.once:
            raise ConfigError("--json needs --once")
    except ConfigError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 2
    with TelemetryClient(values["url"], api_key=environment().get("PELLUCID_API_KEY", "")) as client:
        try:
            if args.once:
                _once(client, num_rows=values["rows"], as_json=args.json)
            else:
                _live(client, num_rows=values["rows"], interval_s=values["interval"])
        except TelemetryError as error:
            print(f"error: {error.message}", file=sys.stderr)
            return 1
    return 0


def _once(client: TelemetryClient, *, num_rows: int, as_json: bool) -> None:
    stats, requests = client.stats(), client.requests(num_rows)
    if as_json:
        print(msgspec.json.encode({"stats": stats, "requests": requests}).decode())
    else:
        Console(highlight=False).print(screen(stats, requests, num_rows=num_rows))


def _live(client: TelemetryClient, *, num_rows: int, interval_s: float) -> None:
    """Look again and again; a server that was there once may go and come back."""
    console, pause = Console(highlight=False), threading.Event()
    shown = screen(client.stats(), client.requests(num_rows), num_rows=num_rows)
    with Live(shown, console=console, screen=console.is_terminal, auto_refresh=False) as live:
        try:
            while not pause.wait(interval_s):
                rows = min(num_rows, max(1, console.height - HEADER_LINES))
                try:
                    live.update(screen(client.stats(), client.requests(rows), num_rows=rows), refresh=True)
                except TelemetryError as error:
                    live.update(Text(error.message, "red"), refresh=True)
        except KeyboardInterrupt:
            return
