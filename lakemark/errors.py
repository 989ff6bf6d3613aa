"""Errors that the table format raises. The class of an error shows how the caller may react.

HudiError
├─ Retriable          nothing was published: reload the table and call again
│  ├─ WriteConflict       another writer changed the same files, instants or properties
│  ├─ LockTimeout         another owner held the table's lock for too long
│  ├─ StorageUnavailable  the store did not answer, or is busy
│  │  └─ DiskFull            the disk is full, or the user's quota is exhausted
│  └─ SnapshotChanged     a file of the snapshot was deleted while it was being read
├─ OutcomeUnknown     the instant may have been published: reload the timeline, delete nothing
├─ Fenced             this writer's instant was rolled back: stop and publish nothing
└─ Permanent          the call would fail again if it were repeated
   ├─ CorruptData         stored bytes do not match the format
   ├─ Unsupported         the table requires something that this project does not implement
   ├─ InvalidConfig       a setting is wrong, or contradicts the table
   ├─ Refused             the table's state forbids the call; the message names the remedy
   ├─ InvalidRecords      rows cannot be written (for example, a record key is null or empty)
   └─ TableNotFound       there is no table at the path

Every error can be pickled, so the driver receives an error of a Spark worker with all its fields.
"""

from __future__ import annotations

from typing import Any


class HudiError(Exception):
    """Base class of all errors that the table format raises."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the message and the fields instead of the arguments of ``__init__``.

        ``__init__`` derives the message from its arguments, so ``args`` holds only the message.
        """
        return (_rebuild, (type(self), self.args, dict(self.__dict__)))


def _rebuild(kind: type[HudiError], args: tuple[Any, ...], fields: dict[str, Any]) -> HudiError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(fields)
    return error


class Retriable(HudiError):
    """Nothing was published. The caller may reload the table and call again."""


class WriteConflict(Retriable):
    """Another writer, or another attempt, changed the same files, instants or properties."""


class LockTimeout(Retriable):
    """Another owner held the table's lock for longer than the caller waits."""

    def __init__(self, path: str, owner: str, waited_s: float) -> None:
        super().__init__(
            f"lock {path} is still held by {owner!r} after {waited_s:.1f} s; "
            "stop that writer, or wait until its lease has expired"
        )
        self.path, self.owner, self.waited_s = path, owner, waited_s


class StorageUnavailable(Retriable):
    """The store did not answer, or is busy."""


class DiskFull(StorageUnavailable):
    """The disk is full, or the user's quota is exhausted. Only a user can free space."""


class SnapshotChanged(Retriable):
    """A file of the snapshot was deleted (cleaned, rolled back) while it was being read."""


class OutcomeUnknown(HudiError):
    """The instant may or may not have been published. Reload the timeline and delete nothing."""


class Fenced(HudiError):
    """This writer's instant was rolled back, or its checkpoint is no longer the newest."""

    def __init__(self, instant: str, reason: str) -> None:
        super().__init__(f"instant {instant} was not published: {reason}")
        self.instant, self.reason = instant, reason


class Permanent(HudiError):
    """The call would fail again if it were repeated."""


class CorruptData(Permanent):
    """Stored bytes do not match the format.

    Attributes:
        path: path of the file, or a description of the file if the parser does not know the path.
        offset: position of the error in the file, in bytes; None for the whole file.
        expected: the bytes or values that the format requires.
        actual: the bytes or values in the file.
    """

    def __init__(self, path: str, offset: int | None, expected: str, actual: str) -> None:
        where = path if offset is None else f"{path} at byte {offset}"
        super().__init__(f"{where}: expected {expected}, found {actual}")
        self.path, self.offset, self.expected, self.actual = path, offset, expected, actual


class Unsupported(Permanent):
    """The table requires something that this project does not implement."""


class InvalidConfig(Permanent):
    """A setting is wrong, or contradicts the table."""


class Refused(Permanent):
    """The state of the table does not allow the call; the message names the remedy."""


class InvalidRecords(Permanent):
    """Rows cannot be written, for example because a record key is null or empty."""


class TableNotFound(Permanent):
    """There is no table at the path."""
