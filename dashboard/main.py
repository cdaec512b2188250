"""`python -m dashboard.main`: serve the dashboard until SIGTERM or Ctrl-C, then exit with 0."""

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import uvicorn

from dashboard.server import create_app

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
    parser.add_argument("--api-key-file", type=Path, help="file with the key to send to the service")
    args = parser.parse_args(argv)
    url = urlsplit(args.service_url)
    if url.scheme not in ("http", "https") or not url.hostname:
        parser.error(f"`--service-url` must be an http(s) URL, got {args.service_url}")
    if not 0 <= args.port <= 65535:
        parser.error(f"`--port` must be in 0..65535, got {args.port}")
    if args.api_key_file is not None and not args.api_key_file.is_file():
        parser.error(f"`--api-key-file` must be a file, got {args.api_key_file}")
    return args


async def serve(args: argparse.Namespace) -> int:
    """Serve until told to stop; return the exit code (1: the port can't be bound)."""
    api_key = args.api_key_file.read_text().strip() if args.api_key_file is not None else ""
    app = create_app(args.service_url, api_key=api_key)
    config = uvicorn.Config(
        app,
        host=args.host,
        port=args.port,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
    )
    bound = config.bind_socket()
    server = _Server(config)
    loop = asyncio.get_running_loop()
    closing: list[asyncio.Task[None]] = []

    def stop() -> None:
        server.force_exit = server.should_exit  # a second signal doesn't wait
        server.should_exit = True
        closing.append(loop.create_task(app.state.feed.close()))

    for signal_number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signal_number, stop)
    logger.info("dashboard of %s on http://%s:%d", args.service_url, args.host, bound.getsockname()[1])
    await server.serve(sockets=[bound])
    return 0 if server.started else 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    args = parse_args(argv)
    return asyncio.run(serve(args))


if __name__ == "__main__":
    sys.exit(main())
