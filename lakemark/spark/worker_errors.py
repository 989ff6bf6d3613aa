"""Restores an error of this project that a Spark task raised.

Spark passes the error of a Python worker to the driver only as the text of a traceback. So the
driver raises the nearest kind of error that is made of a message alone: what the caller may do is
the same, but attributes of the original error are lost.
"""

from __future__ import annotations

import re
from importlib import import_module

from lakemark.errors import (
    DiskFull,
    HudiError,
    InvalidConfig,
    InvalidRecords,
    Permanent,
    Refused,
    Retriable,
    WriteConflict,
)
from lakemark.write.write_status import ContentMismatch

#: The last line of a traceback of Python, with the full name of the class.
_RAISED = re.compile(
    r"\s*(?P<module>(?:lakemark|transforms)(?:\.\w+)*)\.(?P<name>\w+)(?:: (?P<text>.*))?"
)

#: The kinds that are raised in the driver; those that callers treat in a special way are first.
_KINDS: tuple[type[HudiError], ...] = (
    ContentMismatch,
    WriteConflict,
    DiskFull,
    InvalidConfig,
    InvalidRecords,
    Refused,
    Retriable,
    Permanent,
)


def own_error_of_worker(error: BaseException) -> HudiError | None:
    """Return the error of this project that a task raised; None if it raised another error.

    Args:
        error: the error that Spark raised in the driver.
    """
    for line in reversed(str(error).splitlines()):
        found = _RAISED.fullmatch(line)
        kind = None if found is None else _kind_of(found["module"], found["name"])
        if found is not None and kind is not None:
            return kind(found["text"] or "")
    return None


def _kind_of(module: str, name: str) -> type[HudiError] | None:
    """Return the kind of an error class; None if there is no such class of this project."""
    try:
        raised = getattr(import_module(module), name, None)
    except ImportError:
        return None
    if not isinstance(raised, type):
        return None
    return next((kind for kind in _KINDS if issubclass(raised, kind)), None)
