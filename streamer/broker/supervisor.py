"""A script that runs a command so that its end is certain; imports nothing of the project.

supervisor.py attached PARENT_PID COMMAND…   ends the command when the parent is gone, however it
                                             went, and when it is told to end itself
supervisor.py detached COMMAND…              prints the command's process id and leaves it running

A process of its own, because a parent that was killed cannot clean up, and because Linux ties a
child's death signal to the thread that started it: this one has a single thread.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

#: How long the command has after SIGTERM, before SIGKILL.
GRACE_S = 10.0

_LOOK_EVERY_S = 0.1
_PR_SET_PDEATHSIG = 1


def main(arguments: Sequence[str]) -> int:
    """Run as the module's docstring says; the exit code is the command's."""
    how, *rest = arguments
    if how == "attached":
        return _run_attached(int(rest[0]), rest[1:])
    return _start_detached(rest)


def _start_detached(command: Sequence[str]) -> int:
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,  # standard output ends here, for the caller waits for its end
        start_new_session=True,
    )
    print(child.pid, flush=True)
    child.returncode = 0  # it stays, and nobody here waits for it
    return 0


def _run_attached(parent_pid: int, command: Sequence[str]) -> int:
    told_to_end = False

    def end(_signal: int, _frame: object) -> None:
        nonlocal told_to_end
        told_to_end = True

    signal.signal(signal.SIGTERM, end)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=_end_with_supervisor)
    while child.poll() is None and not told_to_end and os.getppid() == parent_pid:
        time.sleep(_LOOK_EVERY_S)
    return _end(child)


def _end(child: subprocess.Popen[bytes]) -> int:
    if child.poll() is None:
        child.terminate()
    try:
        return child.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait()


def _end_with_supervisor() -> None:
    """In the child: ask Linux to kill it when even this script is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
