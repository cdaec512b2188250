"""`pellucid serve` as a process of its own, for tests that need one."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest

TIMEOUT_S = 90.0
ROOT = Path(__file__).resolve().parents[2]


class ServeProcess:
    """A running `pellucid serve`.

    Args:
        flags: of the command.
        environment: variables on top of ours.

    Attributes:
        url: where it listens, once it said so.
        lines: what it wrote to stderr.
    """

    def __init__(self, *flags: str, environment: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "service.cli", "serve", "--port", "0", *flags],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PELLUCID_MAX_QUEUE": "7", **(environment or {})},
        )
        self.url = ""
        self.lines: list[str] = []
        self._listening = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        assert self._listening.wait(TIMEOUT_S), "it said nothing"
        assert self.url, "\n".join(self.lines)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip())
            found = re.search(r"listening on (http://\S+)", line)
            if found:
                self.url = found.group(1)
                self._listening.set()
        self._listening.set()

    def wait_ready(self) -> None:
        waiting = threading.Event()
        for _ in range(int(TIMEOUT_S / 0.1)):
            if httpx.get(self.url + "/ready", timeout=TIMEOUT_S).status_code == 200:
                return
            waiting.wait(0.1)
        pytest.fail("never ready: " + "\n".join(self.lines))

    def wait(self) -> int:
        """Return the exit code."""
        code = self.process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()


def engine_pids(served: ServeProcess) -> list[int]:
    """Return the children of the service that run an engine: one, or none between a death and a restart."""
    children = Path(f"/proc/{served.process.pid}/task/{served.process.pid}/children").read_text().split()
    return [int(pid) for pid in children if b"engine" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def engine_pid(served: ServeProcess) -> int:
    """Return the child of the service that runs the engine."""
    engines = engine_pids(served)
    assert len(engines) == 1, engines
    return engines[0]
