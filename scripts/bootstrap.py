"""Make `.venv` and install the project into it, from nothing but Python and pip. Standard library only.

A stamp in `.venv` remembers what was installed (pyproject.toml's hash, the extras, the interpreter), so a second run
costs a few milliseconds.
"""

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
MIN_PYTHON = (3, 11)
_INSIDE = "PELLUCID_BOOTSTRAPPED"


def venv_python() -> Path:
    """Return the path of the virtual environment's interpreter, whether it exists or not."""
    return VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def fail(message: str, code: int = 1) -> NoReturn:
    """Print one line to stderr and exit."""
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(code)


def end_on_signals() -> None:
    """From now on Ctrl-C and SIGTERM end this process in one line, and with it the step that it waits for."""

    def end(number: int, _: object) -> NoReturn:
        for later in (signal.SIGINT, signal.SIGTERM):
            signal.signal(later, signal.SIG_IGN)  # it is ending already
        print("stopped", file=sys.stderr)
        raise SystemExit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)


def _fingerprint(extras: tuple[str, ...]) -> str:
    digest = hashlib.sha256((ROOT / "pyproject.toml").read_bytes())
    digest.update(repr((sorted(extras), sys.version_info[:3], str(ROOT))).encode())
    return digest.hexdigest()


def _run(command: list[str], *, what: str, quiet: bool) -> None:
    """Run a step of the set-up; show what pip is downloading, not everything it says; fail in one line."""
    started = time.monotonic()
    if not quiet:
        print(f"[setup] {what}", flush=True)
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    assert process.stdout is not None
    tail: deque[str] = deque(maxlen=15)
    try:
        for line in process.stdout:
            tail.append(line)
            words = line.split()
            if not quiet and words and words[0] in ("Downloading", "Building", "Installing"):
                print(f"[setup]   {line.strip()[:110]}", flush=True)
        code = process.wait()
    except BaseException:
        os.killpg(process.pid, signal.SIGTERM)  # pip works in children of its own
        process.wait()
        raise
    if code:
        print("".join(tail), file=sys.stderr, end="")
        fail(f"{what} failed (exit code {code}): {' '.join(command)}")
    if not quiet:
        print(f"[setup] {what}: done in {time.monotonic() - started:.0f} s", flush=True)


def ensure_environment(extras: tuple[str, ...] = (), *, quiet: bool = False) -> None:
    """Create `.venv` and install the project with `extras`, unless the stamp says that this was done already.

    Args:
        extras: optional dependency groups of pyproject.toml.
        quiet: print errors only.
    """
    if sys.version_info < MIN_PYTHON:
        fail(f"Python {MIN_PYTHON[0]}.{MIN_PYTHON[1]} or newer is needed, this is {sys.version.split()[0]}")
    stamp = VENV / "pellucid-install-stamp"
    wanted = _fingerprint(extras)
    superset = _fingerprint(tuple({*extras, "dev"}))
    if stamp.exists() and venv_python().exists() and stamp.read_text() in (wanted, superset):
        return
    if not venv_python().exists():
        _run([sys.executable, "-m", "venv", str(VENV)], what=f"creating {VENV.name}", quiet=quiet)
    python = str(venv_python())
    target = f".[{','.join(extras)}]" if extras else "."
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    _run(
        [*pip, "install", "--progress-bar", "off", "-e", target],
        what=f"installing the project and its dependencies ({target}); the first time downloads a few hundred MB",
        quiet=quiet,
    )
    stamp.write_text(wanted)


def reexec_inside(extras: tuple[str, ...] = (), *, quiet: bool = False) -> None:
    """Return only when running on `.venv`'s interpreter with everything installed; else install and re-execute."""
    if os.environ.get(_INSIDE) == str(VENV):
        return
    ensure_environment(extras, quiet=quiet)
    os.environ[_INSIDE] = str(VENV)
    sys.stdout.flush()
    os.execv(str(venv_python()), [str(venv_python()), *sys.argv])
