"""The dashboard as a process of its own, for tests that need one."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def dashboard_process(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yield a running dashboard on a free port, and its base URL."""
    command = [sys.executable, "-m", "dashboard.main", "--port", "0", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as child:
        try:
            assert child.stderr is not None
            line = child.stderr.readline()
            found = re.search(r"on (http://\S+)", line)
            assert found is not None, line
            yield child, found.group(1)
        finally:
            child.kill()
