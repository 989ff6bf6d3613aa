"""Failures of Spark are translated to errors of this project."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from lakemark.errors import CorruptData, Permanent, Retriable
from lakemark.write.write_status import ContentMismatch
from streamer.stream_failure import DataLoss, StreamFailed, StreamInterrupted, translate

_TRACEBACK = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
{}
"""
_FROM_AN_EXECUTOR = """An error occurred while calling z:org.apache.spark.api.python.PythonRDD.
: Job aborted: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "worker.py", line 1, in main
    process()
ModuleNotFoundError: No module named 'streamer'

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator
"""


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (_TRACEBACK.format("ValueError: odd"), StreamFailed, "ValueError: odd"),
        (_FROM_AN_EXECUTOR, StreamFailed, "ModuleNotFoundError: No module named 'streamer'"),
        (_TRACEBACK.format("lakemark.errors.StorageUnavailable: busy"), Retriable, "busy"),
        (
            _TRACEBACK.format("lakemark.write.write_status.ContentMismatch: other bytes"),
            ContentMismatch,
            "other bytes",
        ),
        (
            _TRACEBACK.format("lakemark.spark.versions.ExecutorsDiffer: h: 1 not 2"),
            Permanent,
            "1 not",
        ),
        ("first\nsecond", StreamFailed, "first"),
        ("", StreamFailed, "PySparkException"),
        ("Job aborted: ExecutorLostFailure\nmore", StreamInterrupted, "Job aborted: Executor"),
        (
            "Job aborted\n\tat x\nCaused by: y: Some data may have been lost at offset 7 of t-0\n",
            DataLoss,
            "before they were read: y: Some data may have been lost at offset 7 of t-0",
        ),
        ("OffsetOutOfRange for x", DataLoss, "removed from the topic before they were read: Off"),
    ],
)
def test_stream_failure_is_reported_in_one_line(
    text: str, kind: type[Exception], message: str
) -> None:
    error = translate(PySparkException(text))
    assert type(error) is kind
    assert message in str(error)
    assert "\n" not in str(error)


def test_an_error_of_our_own_stays_as_it_is() -> None:
    error = CorruptData("file", 0, "one thing", "another")
    assert translate(error) is error
