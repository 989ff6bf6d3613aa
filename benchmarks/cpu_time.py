"""The CPU time of a process and its descendants, from ``/proc`` (Linux only)."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_time_s(pid: int) -> float:
    """Return the CPU time that a process and its living descendants have used, in seconds."""
    parents = {}
    used_s = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                text = (folder / "stat").read_text()
            except OSError:
                continue  # it has ended
            # The name of the program, in parentheses, may contain spaces.
            fields = text.rpartition(")")[2].split()
            parents[int(folder.name)] = int(fields[1])
            used_s[int(folder.name)] = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
    return sum(used for one, used in used_s.items() if _descends(one, pid, parents))


def _descends(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    while pid != ancestor:
        if pid not in parents:
            return False
        pid = parents[pid]
    return True
