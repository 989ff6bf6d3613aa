"""Calls of DuckDB that Ctrl-C ends.

Python runs the handlers of signals in its main thread, between two of its own instructions. While
DuckDB executes a query, it may stay in one call for hours. So another thread makes the calls, and
the main thread waits for them in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, TypeAlias, TypeVar

Result = TypeVar("Result")
_Calls: TypeAlias = "SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None]"

#: DuckDB forgets an interrupt that arrives between two steps of a query, so it is repeated.
_REPEAT_AFTER_S: Final = 0.05
_MAX_INTERRUPTS: Final = 100


class InterruptibleCalls:
    """Makes calls, one after another, in a thread of its own."""

    def __init__(self, calls: _Calls, interrupt: Callable[[], None]) -> None:
        """Keep the queue of the thread; see ``interruptible_calls``."""
        self._calls, self._interrupt = calls, interrupt

    def make(self, function: Callable[[], Result]) -> Result:
        """Call a function, and return its result or raise its error.

        If the wait ends by another exception, such as ``KeyboardInterrupt``, then the call is
        interrupted, and the exception is raised when the call has ended, or after a few seconds.
        """
        done: Future[Result] = Future()
        self._calls.put((function, done))
        try:
            return done.result()
        except BaseException:
            self._end(done)
            raise

    def _end(self, done: Future[Any]) -> None:
        for _ in range(_MAX_INTERRUPTS):
            if done.done():
                return
            self._interrupt()
            wait([done], _REPEAT_AFTER_S)


@contextmanager
def interruptible_calls(interrupt: Callable[[], None]) -> Iterator[InterruptibleCalls]:
    """Start a thread for calls, which ends with the block, or with the process.

    Args:
        interrupt: lets the present call fail soon.
    """
    calls: _Calls = SimpleQueue()
    Thread(target=_make_all, args=(calls,), name="sql", daemon=True).start()
    try:
        yield InterruptibleCalls(calls, interrupt)
    finally:
        calls.put(None)


def _make_all(calls: _Calls) -> None:
    while (call := calls.get()) is not None:
        _make(*call)
        del call  # it refers to the rows


def _make(function: Callable[[], Any], done: Future[Any]) -> None:
    try:
        done.set_result(function())
    except BaseException as error:
        done.set_exception(error)
