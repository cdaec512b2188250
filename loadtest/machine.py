"""What a measurement was taken on: enough to tell whether two records can be compared."""

import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Machine:
    """Fingerprint of machine, software and checkout.

    Attributes:
        load_average: runnable processes over the last minute when the run began; much over 0 is noise.
        commit: of the checkout, with `+` when files differ from it.
    """

    cpu: str
    cores: int
    memory_gib: float
    system: str
    python: str
    torch: str
    threads: int
    load_average: float
    commit: str


def fingerprint(*, threads: int) -> Machine:
    """Describe this machine; `threads` is what the measured code uses."""
    import torch

    return Machine(
        cpu=_cpu_name(),
        cores=os.cpu_count() or 0,
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        system=platform.platform(),
        python=platform.python_version(),
        torch=str(torch.__version__),
        threads=threads,
        load_average=round(os.getloadavg()[0], 2),
        commit=_commit(),
    )


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _commit() -> str:
    try:
        commit = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
        status = subprocess.run(["git", "status", "--porcelain"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return commit.stdout.strip() + ("+" if status.stdout.strip() else "")
