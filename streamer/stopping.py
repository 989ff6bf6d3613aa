"""Handles Ctrl-C and SIGTERM: the first stops after the batch in progress, the second at once.

Before the stream runs, the first signal interrupts the start at once. What an interrupted start
leaves is what a crash leaves, and the next start removes it.
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
    """The process was asked to stop, and has nothing to wait for."""


class StopSignals:
    """The signal handlers of this process; created by ``stop_on_signals``."""

    def __init__(self) -> None:
        self._stop: Callable[[], bool] = _nothing_runs
        self.is_asked = self.is_asked_early = False

    def watch(self, stop: Callable[[], bool]) -> None:
        """Call ``stop`` at the first signal.

        Args:
            stop: asks the run to stop; returns whether it stops by itself.
        """
        self._stop = stop
        self.install()  # Spark's session has set its own handler

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
    """End the block normally at the first signal, and with KeyboardInterrupt at the second."""
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
        # The first signal came while Spark's own handler was in place.
    except Exception:
        if not signals.is_asked_early:
            raise
        # The interrupted call has replaced the exception by its own error, as py4j does.
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def was_interrupted(error: BaseException) -> bool:
    """Return whether an error was raised while a signal's exception was handled, as py4j does."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, StopRequested | KeyboardInterrupt):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


@contextmanager
def keep_interrupt_handler() -> Iterator[None]:
    """Restore the handler of Ctrl-C after the block.

    Spark installs a handler that calls its JVM. If this thread waits for another answer of the JVM,
    that call fails, so an interrupted start would end with an error.
    """
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def exit_now(code: int) -> NoReturn:
    """Exit without waiting for threads that are still running, for which Python would wait."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the reader has closed it, or it is closed here
            stream.flush()
    os._exit(code)


def _nothing_runs() -> bool:
    return False
