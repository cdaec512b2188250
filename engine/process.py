"""The engine in a process of its own: `python -m engine.process --fd N`, started by engine/launch.py.

What it does between Configure and its end is engine/serving.py. The parent decides when it ends: it ignores SIGINT and
SIGTERM (a terminal's Ctrl-C and a service manager's stop reach the whole group, and the service wants to drain first)
and ends on Shutdown, or as soon as the parent's end of the channel is closed, even in the middle of a step that hangs.
"""

import argparse
import logging
import os
import select
import signal
import socket
import sys
import threading

from engine.clock import Clock, SystemClock
from engine.config import EngineConfig
from engine.engine_loop import SteppableCore
from engine.garbage import settle_garbage_collector
from engine.messages import EngineInfo
from engine.process_environment import set_compute_threads, wait_without_spinning
from engine.serving import BuildCore, Progress, serve

EXIT_ORPHANED = 3


def build_real_core(config: EngineConfig, clock: Clock, progress: Progress) -> tuple[SteppableCore, EngineInfo]:
    """Load the configured model; imports torch, and so only now, after the environment has been set."""
    set_compute_threads(config.threads)
    wait_without_spinning()
    from engine.build import build_core

    core = build_core(config, clock, progress)
    settle_garbage_collector()
    return core


def _exit_with_parent(fd: int, has_ended: threading.Event) -> None:
    """End the process when the peer of `fd` is gone, whatever the main thread does (loading, a kernel that hangs)."""
    poll = select.poll()
    poll.register(fd, getattr(select, "POLLRDHUP", 0))  # POLLHUP is always reported; macOS has no more
    poll.poll()
    if not has_ended.is_set():
        os._exit(EXIT_ORPHANED)


def main(arguments: list[str], *, build: BuildCore = build_real_core) -> int:
    """Live one engine life on the descriptor that the arguments name; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m engine.process", description=__doc__)
    parser.add_argument("--fd", type=int, required=True, help="descriptor of a connected stream socket")
    fd = parser.parse_args(arguments).fd
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.dup2(2, 1)  # stdout belongs to the service's command; whatever a library prints goes where errors go
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s engine[%(process)d] %(levelname)s %(message)s")
    has_ended = threading.Event()
    threading.Thread(target=_exit_with_parent, args=(fd, has_ended), name="exit-with-parent", daemon=True).start()
    with socket.socket(fileno=fd) as sock:
        try:
            return serve(sock, build=build, clock=SystemClock())
        finally:
            has_ended.set()  # before the socket is closed: the parent then closes its end, and the exit code is ours


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
