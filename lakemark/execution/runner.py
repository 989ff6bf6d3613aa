"""What runs tasks: threads of this process, or a Spark cluster (``lakemark.spark.runner``).

Workers return small values. Only the driver reads and changes the timeline.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Protocol, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

#: How long a signal may go unseen, in seconds. The handler runs on the main thread alone; a signal
#: that comes as that thread begins to wait, or that the system hands to another thread, does not
#: end the wait.
_SIGNAL_SEEN_WITHIN_S = 0.2


class Runner(Protocol):
    """Applies one function to many tasks, in parallel, and keeps their order."""

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        """Return one result for each task; the first failure is raised once no task is running."""
        ...


class CancellableRunner(Runner, Protocol):
    """A runner that another thread may stop."""

    def cancel(self) -> None:
        """Begin no further task, for good; ``map`` raises ``Cancelled`` once those at work end."""
        ...


class Cancelled(Exception):
    """The runner was asked to stop before all tasks were done."""


class LazyRunner:
    """Starts another runner when the first tasks arrive.

    Args:
        start: makes the runner, which may take long.
    """

    def __init__(self, start: Callable[[], Runner]) -> None:
        self._start = start
        self._runner: Runner | None = None

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        """See ``Runner.map``."""
        if not tasks:
            return []
        if self._runner is None:
            self._runner = self._start()
        return self._runner.map(function, tasks)


class LocalRunner:
    """Threads of this process; Arrow's kernels and file I/O let go of the interpreter's lock.

    When ``map`` is interrupted (by what a signal handler raises), threads that are at a task are
    left to themselves: a process that is to end then must not wait for them.
    """

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads or os.cpu_count() or 1
        self._cancelled = threading.Event()

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        """Return one result for each task; the first failure is raised once no task is running."""

        def run(task: Task) -> Result:
            if self._cancelled.is_set():
                raise Cancelled
            return function(task)

        if len(tasks) <= 1 or self._threads == 1:
            return [run(task) for task in tasks]
        pool = ThreadPoolExecutor(min(self._threads, len(tasks)))
        try:
            results = [_result(future) for future in [pool.submit(run, task) for task in tasks]]
        except Exception:
            pool.shutdown(cancel_futures=True)
            raise
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        pool.shutdown()
        return results

    def cancel(self) -> None:
        """See ``CancellableRunner.cancel``."""
        self._cancelled.set()


def _result(future: Future[Result]) -> Result:
    while not wait([future], _SIGNAL_SEEN_WITHIN_S).done:
        pass
    return future.result()
