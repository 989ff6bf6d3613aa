"""Kills the processes that a call started if a signal interrupts the call."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Set
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def kill_children_on_interrupt() -> Iterator[None]:
    """If a signal's exception ends the block, kill the child processes that the block started.

    The children are found in ``/proc``, so this works on Linux only. On other systems, Spark's JVM
    exits by itself when this process ends, because the JVM's standard input is closed.
    """
    before = set(_descendants(os.getpid()))
    try:
        yield
    except Exception:
        raise
    except BaseException:  # StopRequested or KeyboardInterrupt, raised by a signal
        _kill_descendants(before)
        raise


def _kill_descendants(spared: Set[int]) -> None:
    """Kill the descendants of this process; first stop all of them, so that they cannot fork."""
    stopped: set[int] = set()
    while found := set(_descendants(os.getpid())) - spared - stopped:
        _send(signal.SIGSTOP, found)
        stopped |= found
    _send(signal.SIGKILL, stopped)


def _send(one: signal.Signals, processes: Set[int]) -> None:
    for process in processes:
        with suppress(OSError):  # the process has already ended
            os.kill(process, one)


def _descendants(process: int) -> Iterator[int]:
    """Yield the process ids of the current descendants of a process."""
    for listing in Path("/proc").glob(f"{process}/task/*/children"):
        with suppress(OSError):  # the thread or the process has ended
            for child in map(int, listing.read_text().split()):
                yield child
                yield from _descendants(child)
