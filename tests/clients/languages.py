"""Running the clients: each program in a process of its own, or in a worker where a process is slow to start."""

import functools
import os
import shutil
import subprocess

from tests.clients.builds import command, worker_command
from tests.clients.runs import Run
from tests.clients.worker import Worker

# The C# client runs under .NET as well where `dotnet` is installed; the registries of CI don't have it.
WORKER_LANGUAGES = ("java", "csharp", *(("dotnet",) if shutil.which("dotnet") else ()))
LANGUAGES = ("c", "javascript", *WORKER_LANGUAGES)
TIMEOUT_S = 60.0

_workers: dict[str, Worker] = {}


def clean_environment(**more: str) -> dict[str, str]:
    """Return the environment without anything of ours but `more`."""
    return {**{key: value for key, value in os.environ.items() if not key.startswith("PELLUCID_")}, **more}


def run_process(language: str, *arguments: str, environment: dict[str, str] | None = None) -> Run:
    """Run a client as a command, with nothing of ours in its environment but `environment`."""
    done = subprocess.run(
        [*command(language), *arguments],
        capture_output=True,
        timeout=TIMEOUT_S,
        env=clean_environment(**(environment or {})),
        check=False,
    )
    return Run(done.returncode, done.stdout.decode(), done.stderr.decode())


@functools.cache
def worker(language: str) -> Worker:
    """Return the worker of a language, started at the first call."""
    started = _workers[language] = Worker(worker_command(language))
    return started


def close_workers() -> None:
    """Close the workers that were started."""
    for started in _workers.values():
        started.close()
    _workers.clear()
    worker.cache_clear()


def run(language: str, *arguments: str, environment: dict[str, str] | None = None) -> Run:
    """Run a client with nothing of ours in its environment but `environment`."""
    if language in WORKER_LANGUAGES:
        return worker(language).run(arguments, environment or {})
    return run_process(language, *arguments, environment=environment)
