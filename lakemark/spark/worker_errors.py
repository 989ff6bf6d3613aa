"""Restores an error of this project that a Spark task raised.

Spark passes the error of a Python worker to the driver only as the text of a traceback.
"""

from __future__ import annotations

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

_OWN_PACKAGES = ("lakemark.", "transforms.")

_OWN_ERRORS: dict[str, type[HudiError]] = {
    "StorageUnavailable": Retriable,
    "DiskFull": DiskFull,
    "SnapshotChanged": Retriable,
    "WriteConflict": WriteConflict,
    "ContentMismatch": ContentMismatch,
    "ExecutorsDiffer": Permanent,
    "CorruptData": Permanent,
    "Unsupported": Permanent,
    "Refused": Refused,
    "InvalidConfig": InvalidConfig,
    "InvalidRecords": InvalidRecords,
    "RegistryUnavailable": Retriable,
    "RegistryRefused": Permanent,
    "ReadForbidden": Permanent,
    "SchemaNotFound": Permanent,
}


def own_error_of_worker(error: BaseException) -> HudiError | None:
    """Return the error of this project that a task raised; None if it raised another error.

    Args:
        error: the error that Spark raised in the driver.
    """
    for line in reversed(str(error).splitlines()):
        name, _, message = line.strip().partition(": ")
        kind = _OWN_ERRORS.get(name.rsplit(".", 1)[-1]) if name.startswith(_OWN_PACKAGES) else None
        if kind is not None:
            return kind(message)
    return None
