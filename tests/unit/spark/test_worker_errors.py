"""An error that a task raises has the same kind in the driver."""

from __future__ import annotations

import traceback

import pytest

from lakemark.errors import (
    CorruptData,
    DiskFull,
    HudiError,
    InvalidConfig,
    InvalidRecords,
    LockTimeout,
    Permanent,
    Refused,
    Retriable,
    SnapshotChanged,
    StorageUnavailable,
    Unsupported,
    WriteConflict,
)
from lakemark.index.record_level import UnreadLocation
from lakemark.model.file_slice import FileGroupId
from lakemark.services.clustering import PlanOutdated
from lakemark.spark.versions import ExecutorsDiffer
from lakemark.spark.worker_errors import own_error_of_worker
from lakemark.storage.storage import AccessDenied, NotFound
from lakemark.write.early_conflicts import EarlyConflict, Rival
from lakemark.write.write_status import ContentMismatch
from transforms.decode.schema_registry import ReadForbidden, RegistryUnavailable
from transforms.steps.expression import InvalidExpression


def as_spark_reports(error: BaseException) -> RuntimeError:
    """Return an error with the text of the task's traceback, followed by that of the JVM."""
    try:
        raise error
    except BaseException as raised:
        text = "".join(traceback.format_exception(raised))
    return RuntimeError(f"org.apache.spark.api.python.PythonException: {text}\n\tat java.lang.Run")


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (ContentMismatch("a"), ContentMismatch),
        (EarlyConflict(FileGroupId("p", "f"), Rival("2026", "heartbeat", 1)), WriteConflict),
        (PlanOutdated("a"), WriteConflict),
        (WriteConflict("a"), WriteConflict),
        (DiskFull("a"), DiskFull),
        (StorageUnavailable("a"), Retriable),
        (SnapshotChanged("a"), Retriable),
        (LockTimeout("lock", "another", 3), Retriable),
        (RegistryUnavailable("a"), Retriable),
        (ReadForbidden("a"), Permanent),
        (CorruptData("a.parquet", 3, "PAR1", "nothing"), Permanent),
        (Unsupported("a"), Permanent),
        (NotFound("a"), Permanent),
        (ExecutorsDiffer("host", "Python is 3"), Permanent),
        (InvalidConfig("a"), InvalidConfig),
        (AccessDenied("a"), InvalidConfig),
        (InvalidExpression("a", "no column"), InvalidConfig),
        (InvalidRecords("a"), InvalidRecords),
        (Refused("a"), Refused),
        (UnreadLocation("a"), Refused),
    ],
    ids=lambda one: one.__name__ if isinstance(one, type) else type(one).__name__,
)
def test_error_of_a_task_keeps_its_kind_and_message(
    raised: HudiError, kind: type[HudiError]
) -> None:
    found = own_error_of_worker(as_spark_reports(raised))
    assert type(found) is kind
    assert str(found) == str(raised)


OTHER_ERRORS = [
    "ValueError: lakemark.errors.Refused: quoted",
    "lakemark.absent.Refused: a",
    "lakemark.errors.Absent: a",
    "lakemark.errors.annotations: a",
    "lakemark.errors.HudiError: a",
    "mylakemark.errors.Refused: a",
]


@pytest.mark.parametrize("text", OTHER_ERRORS)
def test_other_errors_are_not_taken_for_errors_of_this_project(text: str) -> None:
    assert own_error_of_worker(RuntimeError(f"Traceback:\n{text}\n")) is None
