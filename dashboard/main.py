"""`python -m dashboard.main`: serve the dashboard until SIGTERM or Ctrl-C, then exit with 0."""

import argparse
import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from dashboard.host_guard import host_rule
from dashboard.server import create_app
from dashboard.settings import environment
from dashboard.targets import TargetError, make_targets, server_address

GRACE_S = 2

logger = logging.getLogger("pellucid.dashboard")


class _Server(uvicorn.Server):
    """uvicorn without its own signal handling, which would re-raise the signal at the end: exit code -15, not 0."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return checked arguments; a bad one ends the process with exit code 2 and one line."""
    parser = argparse.ArgumentParser(prog="dashboard", description="Pellucid's dashboard: one page, its own port.")
    parser.add_argument("--host", default="127.0.0.1", help="address to bind (default: %(default)s)")
    parser.add_argument("--port", type=int, default=3100, help="port to bind, 0 for a free one (default: %(default)s)")
    parser.add_argument(
        "--service-url", default="http://127.0.0.1:8100", help="base URL of the service (default: %(default)s)"
    )
    parser.add_argument("--api-key-file", type=Path, help="the service's key file; its first key is sent")
    parser.add_argument(
        "--target",
        action="append",
        default=[],
        metavar="NAME=URL",
        help="another OpenAI-compatible server that the Playground and the Load tab may talk to; may be repeated",
    )
    parser.add_argument(
        "--target-key",
        action="append",
        default=[],
        metavar="NAME=VARIABLE",
        help="environment variable that holds the API key of a target; may be repeated",
    )
    parser.add_argument(
        "--allowed-host",
        action="append",
        default=[],
        metavar="NAME",
        help="another name that browsers reach the dashboard by; may be repeated",
    )
    parser.add_argument("--state-dir", type=Path, help="keep load results there (default: in memory only)")
    args = parser.parse_args(argv)
    try:
        args.service_url = server_address("--service-url", args.service_url)
        args.targets = make_targets(args.target, args.target_key, environment())
    except TargetError as error:
        parser.error(str(error))
    try:
        args.hosts = host_rule(args.host, args.allowed_host)
    except ValueError as error:
        parser.error(f"`--allowed-host` {error}")
    if not 0 <= args.port <= 65535:
        parser.error(f"`--port` must be in 0..65535, got {args.port}")
    if args.api_key_file is not None and not args.api_key_file.is_file():
        parser.error(f"`--api-key-file` must be a file, got {args.api_key_file}")
    return args


def first_key(path: Path) -> str:
    """Return the first key of a key file of the service: one a line, `#` begins a comment; "" when there is none."""
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    return next((line for line in lines if line and not line.startswith("#")), "")


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens on the address, which may be an IPv6 one; raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family=family)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen()
    except OSError:
        bound.close()
        raise
    return bound


async def serve(args: argparse.Namespace, bound: socket.socket) -> None:
    """Serve on a bound socket until told to stop."""
    api_key = first_key(args.api_key_file) if args.api_key_file is not None else ""
    app = create_app(
        args.service_url, api_key=api_key, targets=args.targets, state_dir=args.state_dir, hosts=args.hosts
    )
    config = uvicorn.Config(
        app,
        host=args.host,
        port=args.port,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
    )
    server = _Server(config)
    loop = asyncio.get_running_loop()
    closing: list[asyncio.Task[None]] = []

    def stop() -> None:
        server.force_exit = server.should_exit  # a second signal doesn't wait
        server.should_exit = True
        closing.append(loop.create_task(app.state.end_streams()))

    for signal_number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signal_number, stop)
    logger.info("dashboard of %s on http://%s:%d", args.service_url, args.host, bound.getsockname()[1])
    await server.serve(sockets=[bound])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    args = parse_args(argv)
    try:
        bound = bind(args.host, args.port)
    except OSError as error:
        logger.error("can't listen on %s:%d: %s", args.host, args.port, error.strerror)
        return 1
    asyncio.run(serve(args, bound))
    return 0


if __name__ == "__main__":
    sys.exit(main())
