"""Ctrl-C and SIGTERM: end after the batch in progress; asked again, at once.

Before the stream runs nothing is in progress that must end in order: what a start leaves behind is
what a crash would leave, and the next start removes it.
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
    """The process was asked to end, and nothing has to be waited for."""


class StopSignals:
    """What the signals of this process do; made by ``ends_on_signals``."""

    def __init__(self) -> None:
        self._stop: Callable[[], bool] = _nothing_runs
        self.is_asked = self.is_asked_early = False

    def watch(self, stop: Callable[[], bool]) -> None:
        """Let the first signal call ``stop``, from which something may then end in order.

        Args:
            stop: returns whether something runs that ends by itself now.
        """
        self._stop = stop
        self.install()  # a session that was there before has set a handler of its own

    def install(self) -> None:
        """Take the signals over."""
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
def ends_on_signals() -> Iterator[StopSignals]:
    """A block that the first signal ends as if it were done; the second is an interrupt."""
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
        # The interrupted call has made an error of its own out of it, as py4j does.
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def was_interrupted(error: BaseException) -> bool:
    """Whether an error came up while a signal's exception was on its way, as py4j raises them."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, StopRequested | KeyboardInterrupt):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


@contextmanager
def interrupts_kept() -> Iterator[None]:
    """A block after which Ctrl-C does what it did before.

    Spark sets a handler of its own, which calls its JVM. While this thread waits for another answer
    of the JVM, that call fails, and an interrupted start would end as an error.
    """
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def end_at_once(code: int) -> NoReturn:
    """End the process with an exit code, whatever its threads do: Python would wait for them."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # nobody reads it any more, or it is closed
            stream.flush()
    os._exit(code)


def _nothing_runs() -> bool:
    return False
