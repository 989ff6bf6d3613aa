"""A script that runs a command; it imports nothing of the project.

supervisor.py attached PARENT_PID COMMAND…   stops the command when the parent exits or is killed,
                                             or when this script receives SIGTERM
supervisor.py detached COMMAND…              starts the command, prints its process id, and exits

The script runs in a separate process, because a parent that was killed cannot clean up. It has only
one thread. The reason is that the command asks Linux for a signal when its parent dies, and Linux
sends this signal as soon as the thread that started the command ends.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

#: Seconds between SIGTERM and SIGKILL.
GRACE_S = 10.0

_POLL_S = 0.1
_PR_SET_PDEATHSIG = 1


def main(arguments: Sequence[str]) -> int:
    """Run as the module's docstring describes; return the exit code of an attached command."""
    how, *rest = arguments
    if how == "attached":
        return _run_attached(int(rest[0]), rest[1:])
    return _start_detached(rest)


def _start_detached(command: Sequence[str]) -> int:
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,  # the caller waits for the end of standard output
        start_new_session=True,
    )
    print(child.pid, flush=True)
    child.returncode = 0  # the command keeps running; Popen must not warn
    return 0


def _run_attached(parent_pid: int, command: Sequence[str]) -> int:
    is_terminated = False

    def end(_signal: int, _frame: object) -> None:
        nonlocal is_terminated
        is_terminated = True

    signal.signal(signal.SIGTERM, end)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=_end_with_supervisor)
    while child.poll() is None and not is_terminated and os.getppid() == parent_pid:
        time.sleep(_POLL_S)
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
    """In the child process, ask Linux to kill the child if this script is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
