"""What a failure of the stream means: whether it may pass, and in which words."""

from __future__ import annotations

import re

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from lakemark.errors import HudiError, OutcomeUnknown, Permanent, Retriable, WriteConflict
from lakemark.timeline.clock import REPEATED_HOUR_S, ClockBehind
from lakemark.write.new_file import ContentMismatch
from streamer.jvm_exit import OutOfMemory, jvm_end
from streamer.sources.errors import SourceError


class DataLoss(SourceError, Retriable):
    """Records went away while the stream was running, before it had read them.

    Another start finds out what is lost, and whether it may go on.
    """


class StreamFailed(Permanent):
    """Spark ended the stream for a reason that another start will not change."""


class StreamInterrupted(Retriable):
    """Spark ended the stream for a reason that may pass: brokers away, executors lost."""


_LOSS = ("data may have been lost", "OffsetOutOfRange", "KAFKA_DATA_LOSS", "failOnDataLoss")
_PASSING = (
    "TimeoutException",
    "DisconnectException",
    "NetworkException",
    "CoordinatorNotAvailable",
    "NotLeaderOrFollower",
    "BrokerNotAvailable",
    "LeaderNotAvailable",
    "ExecutorLost",
    "FetchFailed",
    "SparkException: Job aborted due to stage failure: ShuffleMapStage",
)

_MEMORY = re.compile(r"java\.lang\.OutOfMemoryError[^\n]*")

#: The line in which a Python traceback says what was raised.
_RAISED = re.compile(r"^.*Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)", re.MULTILINE)

_CALLING = re.compile(r"\AAn error occurred while calling .*\n: ")


def is_transient(error: BaseException) -> bool:
    """Whether to start again from the table's offsets.

    A clock that is behind by more than the hour that the autumn repeats does not catch up by
    itself: it, or the time zone of a writer, is wrong.
    """
    if isinstance(error, ClockBehind):
        return error.ahead_s <= REPEATED_HOUR_S
    return isinstance(error, Retriable | OutcomeUnknown)


def least_pause_s(error: BaseException) -> float:
    """Seconds for which it is useless to start again."""
    return error.ahead_s if isinstance(error, ClockBehind) else 0.0


def translated(error: BaseException) -> BaseException:
    """The project's own error for what Spark threw; others as they are."""
    if isinstance(error, HudiError):
        return error
    ended = jvm_end(error)
    if ended is not None:
        return ended
    if not isinstance(error, PySparkException | Py4JJavaError):
        return error
    try:
        return _as_told(error)
    except (Py4JError, OSError) as gone:  # the JVM, while it was asked
        return jvm_end(gone) or gone


def _as_told(error: BaseException) -> BaseException:
    own = _raised_in_a_worker(error)
    if own is not None:
        return own
    text, told = str(error), told_by_spark(error)
    if any(word in text for word in _LOSS):
        loss = next(line for line in text.splitlines() if any(word in line for word in _LOSS))
        message = (
            "records were removed from the topic before they were read: "
            + loss.strip().removeprefix("Caused by: ")
        )
        return DataLoss(message)
    memory = _MEMORY.search(text)
    if memory is not None:
        return OutOfMemory(memory[0])
    if any(word in text for word in _PASSING):
        return StreamInterrupted(told)
    return StreamFailed(told)


def told_by_spark(error: BaseException) -> str:
    """One line: what a Python worker raised, or else the first that Spark says."""
    raised = _RAISED.findall(str(error))
    # py4j names the call first, and on the next line, after a colon, what Java threw.
    text = _CALLING.sub("", str(error).strip())
    lines = [*reversed(raised), *text.splitlines()]
    return lines[0] if lines else type(error).__name__


def _raised_in_a_worker(error: BaseException) -> HudiError | None:
    """An error of ours that a Python worker raised reaches the driver as text in a traceback."""
    for line in reversed(str(error).splitlines()):
        name, _, message = line.strip().partition(": ")
        kind = _OWN_ERRORS.get(name.rsplit(".", 1)[-1]) if name.startswith(_OWN_PACKAGES) else None
        if kind is not None:
            return kind(message)
    return None


_OWN_PACKAGES = ("lakemark.", "transforms.")

_OWN_ERRORS: dict[str, type[HudiError]] = {
    "StorageUnavailable": Retriable,
    "SnapshotChanged": Retriable,
    "WriteConflict": WriteConflict,
    "ContentMismatch": ContentMismatch,
    "ExecutorsDiffer": Permanent,
    "CorruptData": Permanent,
    "Unsupported": Permanent,
    "InvalidConfig": Permanent,
    "InvalidRecords": Permanent,
    "RegistryUnavailable": Retriable,
    "RegistryRefused": Permanent,
    "ReadForbidden": Permanent,
    "SchemaNotFound": Permanent,
}
