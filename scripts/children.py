"""Child processes of the stack: started in order, watched, stopped in reverse. Standard library only."""

import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

EXIT_USAGE = 2  # a child that ends so was asked for something impossible, and its last line says what


class StartError(Exception):
    """A child did not come up.

    Args:
        message: one line.
        exit_code: what it ended with; None when it didn't end by itself.
    """

    def __init__(self, message: str, *, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def port_is_free(host: str, port: int) -> bool:
    """Whether nobody listens on `port`: a connection is refused and the port can be bound."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(0.5)
        if probe.connect_ex((host, port)) == 0:
            return False
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_ports(host: str, count: int) -> list[int]:
    """Return distinct ports that were free a moment ago."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_STREAM) for _ in range(count)]
    try:
        for one in sockets:
            one.bind((host, 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()


@dataclass
class Child:
    """One process of the stack.

    Attributes:
        name: for messages and the log file.
        command: argv.
        ready_url: answers 200 when the child is ready.
        required: the stack ends when it ends; an optional child is started again, `max_restarts` times.
        stop_grace_s: seconds between SIGTERM and SIGKILL.
    """

    name: str
    command: list[str]
    ready_url: str
    log_path: Path
    required: bool = True
    stop_grace_s: float = 15.0
    max_restarts: int = 3
    process: subprocess.Popen[bytes] | None = None
    num_restarts: int = 0
    ready_after_s: float = field(default=0.0)

    def start(self) -> None:
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            # A session of its own: Ctrl-C in the terminal reaches the supervisor alone, which stops all in order.
            self.process = subprocess.Popen(
                self.command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True
            )

    def poll(self) -> int | None:
        return self.process.poll() if self.process else None

    def last_lines(self, count: int = 6) -> str:
        """Return the end of the child's log."""
        try:
            return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-count:])
        except OSError:
            return ""

    def wait_ready(self, timeout_s: float, stopping: threading.Event) -> None:
        """Poll `ready_url` until it answers 200; raise StartError when the child ends, time runs out or we stop."""
        started = time.monotonic()
        reason = "no answer yet"
        while time.monotonic() - started < timeout_s:
            code = self.poll()
            if code is not None:
                said = self.last_lines(1).removeprefix("error: ")
                if code == EXIT_USAGE and said:
                    raise StartError(said, exit_code=code)
                raise StartError(f"{self.name} ended with exit code {code}: {said or 'no output'}", exit_code=code)
            try:
                with urllib.request.urlopen(self.ready_url, timeout=2) as response:
                    if response.status == 200:
                        self.ready_after_s = time.monotonic() - started
                        return
            except urllib.error.HTTPError as error:
                reason = f"HTTP {error.code}"
            except OSError as error:
                reason = str(error)
            if stopping.wait(0.1):
                raise StartError(f"stopped while {self.name} was starting")
        raise StartError(f"{self.name} was not ready after {timeout_s:.0f} s ({reason}); log: {self.log_path}")

    def kill(self) -> None:
        """End it at once, if it was started and runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()

    def stop(self) -> int | None:
        """Ask, wait `stop_grace_s`, kill; return the exit code."""
        if self.process is None:
            return None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(self.stop_grace_s)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        return self.process.returncode
