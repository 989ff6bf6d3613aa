"""Processes that a call starts on its way, which must not outlive it if a signal interrupts it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Set
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def ended_if_interrupted() -> Iterator[None]:
    """A block whose new child processes are killed if a signal's exception leaves it.

    ``/proc`` lists the children, so this works on Linux. On other systems Spark's JVM ends by
    itself, because the end of this process closes its standard input.
    """
    before = set(_descendants(os.getpid()))
    try:
        yield
    except Exception:
        raise
    except BaseException:  # of a signal: StopRequested or KeyboardInterrupt
        _kill_descendants(before)
        raise


def _kill_descendants(spared: Set[int]) -> None:
    """Kill the processes below this one; each is stopped first, so that it starts no other."""
    stopped: set[int] = set()
    while found := set(_descendants(os.getpid())) - spared - stopped:
        _send(signal.SIGSTOP, found)
        stopped |= found
    _send(signal.SIGKILL, stopped)


def _send(one: signal.Signals, processes: Set[int]) -> None:
    for process in processes:
        with suppress(OSError):  # it has ended by itself
            os.kill(process, one)


def _descendants(process: int) -> Iterator[int]:
    """Process ids of the children of a process and of theirs, as they are now."""
    for listing in Path("/proc").glob(f"{process}/task/*/children"):
        with suppress(OSError):  # the thread or the process has ended
            for child in map(int, listing.read_text().split()):
                yield child
                yield from _descendants(child)
