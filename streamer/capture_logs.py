"""Passes the warnings that modules of this project log to a function that shows them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lakemark.own_packages import PACKAGES, find_clashes

_LOGGER = logging.getLogger(__name__)


@contextmanager
def capture_logs(emit: Callable[[str, str, str], None]) -> Iterator[None]:
    """Pass every warning of this project to ``emit``, and nowhere else, until the block ends.

    Warnings of other processes, such as Spark's executors, are only in the logs of these processes.

    Args:
        emit: called on the thread that logs, with the level (``warning`` or ``error``), the module
            and the message.
    """
    handler = _CallbackHandler(emit)
    loggers = [logging.getLogger(name) for name in PACKAGES]  # the parents of the modules' loggers
    before = [(one.handlers, one.propagate) for one in loggers]
    for one in loggers:
        one.handlers, one.propagate = [handler], False
    try:
        yield
    finally:
        for one, (handlers, propagate) in zip(loggers, before, strict=True):
            one.handlers, one.propagate = handlers, propagate


def log_clashes() -> None:
    """Warn of each module on the Python path that has the name of a package of lakemark."""
    for clash in find_clashes():
        _LOGGER.warning(clash)


class _CallbackHandler(logging.Handler):
    def __init__(self, emit: Callable[[str, str, str], None]) -> None:
        super().__init__(logging.WARNING)
        self._emit = emit

    def emit(self, record: logging.LogRecord) -> None:
        """See ``logging.Handler``."""
        try:
            self._emit(record.levelname.lower(), record.name, record.getMessage())
        except Exception:
            self.handleError(record)
