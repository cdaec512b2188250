"""The clients as commands: built if they need it, skipped where their tools are missing (a failure under --strict)."""

import functools
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CLIENTS = ROOT / "clients"
LANGUAGES = ("c", "javascript")
TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Run:
    """How a program ended and what it wrote."""

    code: int
    stdout: str
    stderr: str


def require(tool: str) -> None:
    """Skip the test without `tool`, or fail it where every tool must be there."""
    if shutil.which(tool) is None:
        if os.environ.get("PELLUCID_STRICT_TOOLS") == "1":
            pytest.fail(f"{tool} is missing; a client can't be tested")
        pytest.skip(f"{tool} is missing")


@functools.cache
def c_build() -> Path:
    """Build the C client, plain and sanitized, and return the directory."""
    require("gcc")
    require("make")
    done = subprocess.run(
        ["make", "-s", "CC=gcc", "all", "sanitized"],
        cwd=CLIENTS / "c",
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", "the compiler has something to say"
    return CLIENTS / "c" / "build"


def command(language: str) -> list[str]:
    """Return what starts a client."""
    if language == "c":
        return [str(c_build() / "sanitized" / "pellucid-client")]
    if language == "javascript":
        require("node")
        return ["node", "--no-warnings", str(CLIENTS / "javascript" / "main.mjs")]
    raise ValueError(language)


def run(language: str, *arguments: str, environment: dict[str, str] | None = None) -> Run:
    """Run a client with nothing of ours in its environment but `environment`."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("PELLUCID_")}
    done = subprocess.run(
        [*command(language), *arguments],
        capture_output=True,
        timeout=TIMEOUT_S,
        env={**clean, **(environment or {})},
        check=False,
    )
    return Run(done.returncode, done.stdout.decode(), done.stderr.decode())
