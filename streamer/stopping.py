"""Handles Ctrl-C and SIGTERM: the first signal stops the run after the batch in progress.

The second signal stops the run at once. While the stream does not run yet, the first signal
interrupts the start at once. An interrupted start leaves the same files as a crash, and the next
start removes them.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequested(BaseException):
    """The process was asked to stop, and no stream is running that would stop by itself."""


class StopSignals:
    """The signal handlers of this process; created by ``stop_on_signals``."""

    def __init__(self) -> None:
        self._stop: Callable[[], bool] = _nothing_runs
        self.is_asked = self.is_asked_early = False

    def watch(self, stop: Callable[[], bool]) -> None:
        """Call ``stop`` at the first signal.

        Args:
            stop: asks the run to stop; returns whether the run will stop by itself.
        """
        self._stop = stop
        self.install()  # again, because Spark's session has replaced the handler of Ctrl-C

    def install(self) -> None:
        """Install the signal handlers."""
        for one in _SIGNALS:
            signal.signal(one, self._on_signal)

    def _on_signal(self, _signal: int, _frame: FrameType | None) -> None:
        if self.is_asked:
            raise KeyboardInterrupt
        self.is_asked = True
        if not self._stop():
            self.is_asked_early = True
            raise StopRequested


@contextmanager
def stop_on_signals() -> Iterator[StopSignals]:
    """End the block normally at the first signal, and with ``KeyboardInterrupt`` at the second."""
    signals = StopSignals()
    before = {one: signal.getsignal(one) for one in _SIGNALS}
    signals.install()
    try:
        yield signals
    except StopRequested:
        pass
    except KeyboardInterrupt:
        if signals.is_asked:
            raise
        # This was the first signal, and Spark's own handler was in place.
    except Exception:
        if not signals.is_asked_early:
            raise
        # The interrupted call replaced the exception by an error of its own, as py4j does.
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


@contextmanager
def stop_on_first_signal() -> Iterator[None]:
    """Raise ``StopRequested`` at a signal in the block, outside of ``stop_on_signals``."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {one: signal.signal(one, _raise_stop) for one in _SIGNALS}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _raise_stop(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise StopRequested


def was_interrupted(error: BaseException) -> bool:
    """Return whether a signal's exception is among the causes of this error."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, StopRequested | KeyboardInterrupt):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


@contextmanager
def keep_interrupt_handler() -> Iterator[None]:
    """Restore the current handler of Ctrl-C after the block.

    Spark installs a handler that calls the JVM. If the signal arrives while this thread already
    waits for an answer of the JVM, the handler's call fails, and the start ends with an error.
    """
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def exit_now(code: int) -> NoReturn:
    """Exit at once; Python would wait for the threads that are still running."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the reader or this process has closed the stream
            stream.flush()
    os._exit(code)


def _nothing_runs() -> bool:
    return False
