"""The cores and the memory that this process may use, on the machine or in its container."""

from __future__ import annotations

import math
import os
from pathlib import Path

#: Where Linux shows the limits of the process's container: version 2, and version 1.
_CGROUP = Path("/sys/fs/cgroup")


def usable_cores(cgroup: Path = _CGROUP) -> float:
    """Return the number of cores that this process may use; a container may limit it to a part.

    Args:
        cgroup: the folder with the limits of the container.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    quota, period = _quota(cgroup)
    return min(cores or 1, quota / period) if quota > 0 and period > 0 else cores or 1


def usable_threads() -> int:
    """Return the number of threads that keep all usable cores busy."""
    return max(1, math.ceil(usable_cores()))


def usable_memory_bytes(cgroup: Path = _CGROUP) -> int:
    """Return the memory of this machine, or of the container if this is less.

    Args:
        cgroup: the folder with the limits of the container.
    """
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = (_words(cgroup / name) for name in ("memory.max", "memory/memory.limit_in_bytes"))
    return min([machine, *(int(limit[0]) for limit in limits if limit and limit[0].isdigit())])


def _quota(cgroup: Path) -> tuple[int, int]:
    """Return how many microseconds of CPU time the container has in each period; 0: no limit."""
    words = _words(cgroup / "cpu.max") or [
        word
        for name in ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")
        for word in _words(cgroup / name)
    ]
    if len(words) != 2 or not all(word.isdigit() for word in words):
        return 0, 0
    return int(words[0]), int(words[1])


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
