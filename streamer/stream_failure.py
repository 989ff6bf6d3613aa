"""Translates failures of the stream to errors of this project, which show whether to retry."""

from __future__ import annotations

import re

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from lakemark.errors import HudiError, OutcomeUnknown, Permanent, Retriable
from lakemark.spark.worker_errors import own_error_of_worker
from lakemark.timeline.clock import REPEATED_HOUR_S, ClockBehind
from streamer.jvm_exit import OutOfMemory, jvm_failure
from streamer.sources.errors import SourceError
from streamer.sources.kafka_admin import NO_TOKEN


class DataLoss(SourceError, Retriable):
    """Kafka deleted records while the stream ran, before it had read them.

    The next start determines the lost ranges, and whether the run may continue.
    """


class StreamFailed(Permanent):
    """The stream failed permanently."""


class StreamInterrupted(Retriable):
    """The stream failed for a transient reason, such as lost brokers or executors."""


_LOSS = ("data may have been lost", "OffsetOutOfRange", "KAFKA_DATA_LOSS", "failOnDataLoss")
_TRANSIENT = (
    "TimeoutException",
    "DisconnectException",
    "NetworkException",
    "CoordinatorNotAvailable",
    "NotLeaderOrFollower",
    "BrokerNotAvailable",
    "LeaderNotAvailable",
    NO_TOKEN,  # the endpoint may be away for a while
    "ExecutorLost",
    "FetchFailed",
    "SparkException: Job aborted due to stage failure: ShuffleMapStage",
)

_MEMORY = re.compile(r"java\.lang\.OutOfMemoryError[^\n]*")

#: The line of a Python traceback that contains the error.
_RAISED = re.compile(r"^.*Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)", re.MULTILINE)

_CALLING = re.compile(r"\AAn error occurred while calling .*\n: ")


def is_transient(error: BaseException) -> bool:
    """Return whether the stream may be started again from the table's offsets.

    A clock may be behind by the hour that is repeated in autumn. If it is further behind, it does
    not catch up by itself, because the clock or a writer's time zone is wrong.
    """
    if isinstance(error, ClockBehind):
        return error.ahead_s <= REPEATED_HOUR_S
    return isinstance(error, Retriable | OutcomeUnknown)


def min_pause_s(error: BaseException) -> float:
    """Return the shortest pause after which a restart can succeed, in seconds."""
    return error.ahead_s if isinstance(error, ClockBehind) else 0.0


def translate(error: BaseException) -> BaseException:
    """Translate an error of Spark to an error of this project; return other errors unchanged."""
    if isinstance(error, HudiError):
        return error
    exit_error = jvm_failure(error)
    if exit_error is not None:
        return exit_error
    if not isinstance(error, PySparkException | Py4JJavaError):
        return error
    try:
        return _translate_spark_error(error)
    except (Py4JError, OSError) as gone:  # the JVM exited during the call
        return jvm_failure(gone) or gone


def _translate_spark_error(error: BaseException) -> BaseException:
    own = own_error_of_worker(error)
    if own is not None:
        return own
    text, message = str(error), spark_message(error)
    if any(word in text for word in _LOSS):
        loss = next(line for line in text.splitlines() if any(word in line for word in _LOSS))
        reason = loss.strip().removeprefix("Caused by: ")
        text = f"records were removed from the topic before they were read: {reason}"
        return DataLoss(text)
    memory = _MEMORY.search(text)
    if memory is not None:
        return OutOfMemory(memory[0])
    if any(word in text for word in _TRANSIENT):
        return StreamInterrupted(message)
    return StreamFailed(message)


def spark_message(error: BaseException) -> str:
    """Return the error of a Python worker, or the first line of Spark's message."""
    raised = _RAISED.findall(str(error))
    # py4j first describes the call. The Java exception is on the next line, after a colon.
    text = _CALLING.sub("", str(error).strip())
    lines = [*reversed(raised), *text.splitlines()]
    return lines[0] if lines else type(error).__name__
