"""Starts an engine, as a process (for serving) or as a thread (tests, tools), and holds the other end of its socket."""

import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Protocol

from engine.clock import Clock
from engine.serving import BuildCore, serve

ENGINE_MODULE = "engine.process"


class EngineHandle(Protocol):
    """One started engine."""

    @property
    def sock(self) -> socket.socket:
        """The service's end; whoever connects it owns it."""
        ...

    def kill(self) -> None:
        """End it at once, in the middle of whatever it does; harmless when it has ended."""
        ...

    def wait(self, timeout_s: float) -> int | None:
        """Wait until it has ended (blocking); return the exit code, negative for a signal, None when it runs on."""
        ...


Launcher = Callable[[], EngineHandle]


class EngineProcess:
    """An engine in a process of its own; see engine/process.py for what it does.

    Args:
        module: what Python runs there with `--fd N`: the engine, or a stand-in that calls `engine.process.main`.
    """

    def __init__(self, module: str = ENGINE_MODULE) -> None:
        self.sock, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, "--fd", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # a terminal's Ctrl-C goes to the service, which drains
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        self._process.kill()

    def wait(self, timeout_s: float) -> int | None:
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None


class EngineThread:
    """An engine in a daemon thread of this process, over the same kind of socket.

    Args:
        build: makes the core on that thread.
        clock: the engine's.
    """

    def __init__(self, build: BuildCore, *, clock: Clock) -> None:
        self.sock, self._theirs = socket.socketpair()
        self._exit_code: int | None = None
        self._thread = threading.Thread(target=self._run, args=(build, clock), name="engine", daemon=True)
        self._thread.start()

    def kill(self) -> None:
        """Cut the channel: a thread can't be killed, but it ends with its next message."""
        try:
            self._theirs.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it has ended and closed its end

    def wait(self, timeout_s: float) -> int | None:
        self._thread.join(timeout_s)
        return None if self._thread.is_alive() else self._exit_code

    def _run(self, build: BuildCore, clock: Clock) -> None:
        with self._theirs:
            self._exit_code = serve(self._theirs, build=build, clock=clock)


def launch_process() -> EngineHandle:
    """Start an engine process; it waits for Configure."""
    return EngineProcess()


def process_launcher(module: str) -> Launcher:
    """Return a launcher of processes that run another module than the engine's own; see EngineProcess."""
    return lambda: EngineProcess(module)


def thread_launcher(build: BuildCore, *, clock: Clock) -> Launcher:
    """Return a launcher whose engines are threads that build their core with `build`."""
    return lambda: EngineThread(build, clock=clock)
