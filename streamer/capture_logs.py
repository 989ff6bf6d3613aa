"""What the parts of this project write to their logs, brought to whoever tells the user."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: The import packages of this project; a part's logger has its module's name.
_PACKAGES = ("checkpoints", "lakemark", "sinks", "streamer", "transforms")


@contextmanager
def capture_logs(tell: Callable[[str, str, str], None]) -> Iterator[None]:
    """A block in which every warning of a part of this project is told, and goes nowhere else.

    Those of other processes, such as Spark's executors, stay in their own logs.

    Args:
        tell: is given the level (``warning`` or ``error``), the part, and the message; on whatever
            thread the part runs.
    """
    telling = _Telling(tell)
    loggers = [logging.getLogger(name) for name in _PACKAGES]
    before = [(one.handlers, one.propagate) for one in loggers]
    for one in loggers:
        one.handlers, one.propagate = [telling], False
    try:
        yield
    finally:
        for one, (handlers, propagate) in zip(loggers, before, strict=True):
            one.handlers, one.propagate = handlers, propagate


class _Telling(logging.Handler):
    def __init__(self, tell: Callable[[str, str, str], None]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        """See ``logging.Handler``."""
        try:
            self._tell(record.levelname.lower(), record.name, record.getMessage())
        except Exception:
            self.handleError(record)
