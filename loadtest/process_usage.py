"""CPU time and peak memory of another process and its children, from Linux's /proc."""

import os
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PARENT, _USER_TICKS, _SYSTEM_TICKS = 1, 11, 12  # fields of /proc/PID/stat after the command's name


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


def usage(pid: int) -> Usage:
    """Return what the process used; zeros when it is gone."""
    fields = _stat(pid)
    if not fields:
        return Usage(0.0, 0.0)
    peak_kib = 0
    for line in (_PROC / str(pid) / "status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            peak_kib = int(line.split()[1])
    return Usage((int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])) / _TICKS_PER_S, peak_kib / 1024)


def forget_peak(pid: int) -> None:
    """Let the process's peak memory be what it has now."""
    (_PROC / str(pid) / "clear_refs").write_text("5")


def _stat(pid: int) -> list[str]:
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
