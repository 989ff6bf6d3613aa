"""Recognises that Spark's JVM has exited, and reports the cause.

After the exit, every call to the JVM fails with an error of py4j that does not name the cause.
"""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from lakemark.errors import Permanent
from streamer.stopping import was_interrupted
from streamer.toolchain import cache_home

#: The exit code of a JVM that ran out of memory (``SparkExitCode.OOM``).
_OUT_OF_MEMORY = 52

#: Seconds that a JVM may take to exit after its connections were closed.
_EXIT_WITHIN_S = 10.0

_REMEDY = (
    "give it more with spark.driver.memory in spark.conf, such as 4g (executors of a cluster: "
    "spark.executor.memory), or reduce the records in memory with max.poll.records in "
    "source.consumer or with source.max_records_per_batch"
)


def log_file() -> Path:
    """Return the log file of the JVM of a local session."""
    return cache_home() / "logs" / "spark.log"


def output_file() -> Path:
    """Return the file for the JVM's standard error, such as output from before its log is open."""
    return log_file().with_suffix(".out")


class OutOfMemory(Permanent):
    """A batch needs more memory than Spark has."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"Spark ran out of memory ({reason}); {_REMEDY}")


class JvmEnded(Permanent):
    """Spark's JVM has exited, so this process cannot continue."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(
            f"Spark's JVM ended with exit code {exit_code}; the reason is in its log {log_file()} "
            f"or in its output {output_file()} (-9: the system killed it, perhaps because memory "
            "ran out; then lower spark.driver.memory in spark.conf or use a machine with more "
            "memory)"
        )
        self.exit_code = exit_code


@contextmanager
def report_jvm_exit() -> Iterator[None]:
    """Replace each error that the JVM's exit causes in the block by an error that names the cause.

    Raises:
        OutOfMemory: the JVM ran out of memory.
        JvmEnded: the JVM exited for another reason.
    """
    root = logging.getLogger()
    from_others = partial(_is_not_from_py4j)  # an object of its own, because blocks may overlap
    root.addFilter(from_others)
    try:
        yield
    except Exception as error:
        cause = jvm_failure(error)
        if cause is None or cause is error:
            raise
        raise cause from error
    finally:
        root.removeFilter(from_others)


def jvm_failure(error: BaseException) -> Permanent | None:
    """Return why the JVM exited, if this made a call fail; None if the JVM still runs."""
    if isinstance(error, OutOfMemory | JvmEnded):
        return error
    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:  # spark-submit's JVM ends this process when the JVM exits
        return None
    if was_interrupted(error):  # a signal ended the call; the JVM still runs
        return None
    if _lost_connection(error):
        with suppress(subprocess.TimeoutExpired):
            process.wait(_EXIT_WITHIN_S)
    return jvm_end()


def jvm_end() -> Permanent | None:
    """Return why the JVM that this process launched has exited; None if it has not."""
    process = getattr(SparkContext._gateway, "proc", None)
    code = None if process is None else process.poll()
    if code is None:
        return None
    return OutOfMemory("its JVM ended") if code == _OUT_OF_MEMORY else JvmEnded(code)


def _lost_connection(error: BaseException) -> bool:
    if not isinstance(error, Py4JJavaError | PySparkException):
        return isinstance(error, Py4JError | ConnectionError)
    try:
        str(error)  # asks the JVM
    except (Py4JError, OSError):
        return True
    return False


def _is_not_from_py4j(record: logging.LogRecord) -> bool:
    """Drop the records of py4j, which logs each error that it raises to the root logger."""
    return "py4j" not in record.pathname
