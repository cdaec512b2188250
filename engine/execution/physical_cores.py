"""How many cores compute threads should use: one thread per core, not one per hardware thread."""

import os
from pathlib import Path

_TOPOLOGY = Path("/sys/devices/system/cpu")


def count_physical_cores(usable: set[int] | None = None, topology: Path = _TOPOLOGY) -> int:
    """Count the cores behind the usable processors; where the system doesn't tell, each processor is one.

    Args:
        usable: processor numbers; those this process may run on if not given.
        topology: directory with `cpuN/topology/thread_siblings_list`.
    """
    if usable is None:
        has_affinity = hasattr(os, "sched_getaffinity")
        usable = set(os.sched_getaffinity(0)) if has_affinity else set(range(os.cpu_count() or 1))
    cores = set()
    for number in usable:
        siblings = topology / f"cpu{number}" / "topology" / "thread_siblings_list"
        cores.add(siblings.read_text().strip() if siblings.exists() else f"cpu{number}")
    return max(1, len(cores))
