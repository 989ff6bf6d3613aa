"""Errors of the table format, typed by what the caller may do.

HudiError
├─ Retriable          nothing was published: reload and call again
│  ├─ WriteConflict       another writer changed what this one was about to change
│  ├─ LockTimeout         the table's lock stayed with another owner
│  ├─ StorageUnavailable  the store did not answer, or answered that it is busy
│  └─ SnapshotChanged     a file of the snapshot was removed while it was being read
├─ OutcomeUnknown     a publish may or may not have landed: reload the timeline, delete nothing
├─ Fenced             this writer's instant was taken from it: end, publish nothing
└─ Permanent          calling again cannot help
   ├─ CorruptData         bytes on storage disagree with the format
   ├─ Unsupported         the table asks for something this project does not do
   ├─ InvalidConfig       a setting is wrong, or contradicts the table
   ├─ Refused             the table's state does not allow it: do first what the message says
   ├─ InvalidRecords      rows that may not be written (a null or empty record key)
   └─ TableNotFound       no table at this place

Every error pickles: what a Spark worker raises reaches the driver with its fields.
"""

from __future__ import annotations

from typing import Any


class HudiError(Exception):
    """Base of every error that the table format raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild from the instance's fields, since the message is derived from them."""
        return (_rebuild, (type(self), self.args, dict(self.__dict__)))


def _rebuild(kind: type[HudiError], args: tuple[Any, ...], fields: dict[str, Any]) -> HudiError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(fields)
    return error


class Retriable(HudiError):
    """Nothing was published; the caller may reload the table and call again."""


class WriteConflict(Retriable):
    """Another writer, or another attempt, changed what this one was about to change."""


class LockTimeout(Retriable):
    """The table's lock stayed with another owner for longer than the caller would wait."""

    def __init__(self, path: str, owner: str, waited_s: float) -> None:
        super().__init__(
            f"lock {path} is still held by {owner!r} after {waited_s:.1f} s; "
            "stop that writer or wait until its lease has run out"
        )
        self.path, self.owner, self.waited_s = path, owner, waited_s


class StorageUnavailable(Retriable):
    """The store did not answer, or answered that it is busy."""


class SnapshotChanged(Retriable):
    """A file of the snapshot was removed (cleaned, rolled back) while it was being read."""


class OutcomeUnknown(HudiError):
    """A publish may or may not have landed; reload the timeline and delete nothing."""


class Fenced(HudiError):
    """This writer's pending instant no longer stands, or its checkpoint is no longer the newest."""

    def __init__(self, instant: str, reason: str) -> None:
        super().__init__(f"instant {instant} was not published: {reason}")
        self.instant, self.reason = instant, reason


class Permanent(HudiError):
    """Calling again cannot help."""


class CorruptData(Permanent):
    """Bytes on storage disagree with the format.

    Attributes:
        path: file that holds them, as far as it is known where the bytes are parsed.
        offset: where in the file, in bytes; None when the whole file is meant.
        expected: what the format asks for.
        actual: what was found.
    """

    def __init__(self, path: str, offset: int | None, expected: str, actual: str) -> None:
        place = path if offset is None else f"{path} at byte {offset}"
        super().__init__(f"{place}: expected {expected}, found {actual}")
        self.path, self.offset, self.expected, self.actual = path, offset, expected, actual


class Unsupported(Permanent):
    """The table asks for something this project does not do."""


class InvalidConfig(Permanent):
    """A setting is wrong, or contradicts the table."""


class Refused(Permanent):
    """The table's state does not allow what was asked; the message says what to do first."""


class InvalidRecords(Permanent):
    """Rows that may not be written, such as those with a null or empty record key."""


class TableNotFound(Permanent):
    """No table at this place."""
