"""CPU time and peak memory of another process and its children, from Linux."""

import time
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_PARENT = 1  # field of /proc/PID/stat after the command's name
_CPU_CLOCK_OF_PROCESS = 2  # the kernel's CPUCLOCK_SCHED: on-CPU time of all threads, ended ones included


@dataclass(frozen=True, slots=True)
class Usage:
    """Of one process so far, its children not included."""

    cpu_s: float
    peak_mib: float


def process_tree(pid: int) -> list[int]:
    """Return the process and all its descendants, the process first."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[_PARENT]), []).append(int(entry.name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process so far, to the nanosecond (/proc counts in hundredths); 0 when it is gone."""
    try:
        return time.clock_gettime((~pid << 3) | _CPU_CLOCK_OF_PROCESS)
    except OSError:
        return 0.0


def usage(pid: int) -> Usage:
    """Return what the process used; zeros when it is gone."""
    spent = cpu_s(pid)
    try:
        status = (_PROC / str(pid) / "status").read_text()
    except OSError:
        return Usage(0.0, 0.0)
    peaks = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")]
    return Usage(spent, sum(peaks) / 1024)


def forget_peak(pid: int) -> None:
    """Let the process's peak memory be what it has now."""
    (_PROC / str(pid) / "clear_refs").write_text("5")


def _stat(pid: int) -> list[str]:
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
