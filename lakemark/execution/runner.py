"""Runners of tasks: threads of this process, or a Spark cluster (``lakemark.spark.runner``).

Tasks return small values. Only the driver reads and changes the timeline.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Protocol, TypeVar

from lakemark.execution.limits import usable_threads

Task = TypeVar("Task")
Result = TypeVar("Result")

#: Longest time until the main thread notices a signal, in seconds. Only the main thread runs signal
#: handlers. A signal does not interrupt the wait of the main thread if it arrives just before the
#: wait begins, or if the system delivers it to another thread. So the wait has short steps.
_SIGNAL_SEEN_WITHIN_S = 0.2


class Runner(Protocol):
    """Applies a function to many tasks in parallel."""

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        """Return the result of each task, in the order of the tasks.

        If a task fails, its exception is raised once no task is running.
        """
        ...


class CancellableRunner(Runner, Protocol):
    """A runner that another thread can cancel."""

    def cancel(self) -> None:
        """Start no further task, now or later.

        ``map`` raises ``Cancelled`` once the running tasks have ended.
        """
        ...


class Cancelled(Exception):
    """The runner was cancelled before all tasks were done."""


class LazyRunner:
    """Starts another runner when the first tasks arrive, and passes all tasks to it.

    Args:
        start: function that starts the other runner, which may take long.
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
    """Runs tasks in threads of this process.

    Threads run in parallel because Arrow's kernels and file I/O release Python's global interpreter
    lock. If a signal handler raises an exception during ``map``, then ``map`` does not wait for
    running tasks, because the process is about to end.
    """

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads or usable_threads()
        self._cancelled = threading.Event()

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        """See ``Runner.map``."""

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
