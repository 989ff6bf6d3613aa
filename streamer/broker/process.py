"""Identifies another process by id and start time, because ids are reused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """The id of a process, and its start time as the system reports it."""

    pid: int
    began: str

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity | None:
        """Return the identity of the running process with this id; None if there is none."""
        began = _began(pid)
        return None if began is None else cls(pid, began)

    @property
    def is_running(self) -> bool:
        """Whether this process is still running."""
        return _began(self.pid) == self.began

    def end(self, grace_s: float) -> None:
        """Terminate the process, kill it after ``grace_s``, and return when it has exited."""
        for signal_number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, grace_s)):
            deadline = time.monotonic() + wait_s
            if self.is_running:
                os.kill(self.pid, signal_number)
            while self.is_running and time.monotonic() < deadline:
                time.sleep(_POLL_S)


def _began(pid: int) -> str | None:
    """Return the start time of a process; None if it does not exist or is a zombie."""
    if sys.platform != "linux":
        return _began_by_ps(pid)
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in "ZX" else fields[18]  # field 22 of proc(5)


def _began_by_ps(pid: int) -> str | None:
    ps = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True
    )
    state, _, began = ps.stdout.strip().partition(" ")
    return None if not state or state.startswith("Z") else began.strip()
