"""Whether Spark's JVM is still there, and what ended it.

Once it is gone every call to it fails, in words of the bridge to it that tell nothing.
"""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from lakemark.errors import Permanent
from streamer.stopping import was_interrupted
from streamer.toolchain import cache_home

#: What the JVM exits with when it runs out of memory (``SparkExitCode.OOM``).
_OUT_OF_MEMORY = 52

#: How long a JVM whose connections are closed may take to exit.
_EXIT_WITHIN_S = 10.0

_LESS = (
    "give it more with spark.driver.memory in spark.conf, such as 4g (executors of a cluster: "
    "spark.executor.memory), or let it hold less at once with max.poll.records in source.consumer "
    "or with source.max_records_per_batch"
)


def log_file() -> Path:
    """Where the JVM of a local session writes its log."""
    return cache_home() / "logs" / "spark.log"


def output_file() -> Path:
    """Where the standard error of that JVM goes, such as what it prints before its log is open."""
    return log_file().with_suffix(".out")


class OutOfMemory(Permanent):
    """What a batch needs does not fit the memory that Spark has."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"Spark ran out of memory ({reason}); {_LESS}")


class JvmEnded(Permanent):
    """Spark's JVM is gone, and with it everything that this process can do."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(
            f"Spark's JVM ended with exit code {exit_code}; the reason is in its log {log_file()} "
            f"or in its output {output_file()} (if the system killed it, -9, for want of memory, "
            "lower spark.driver.memory in spark.conf or use a machine with more)"
        )
        self.exit_code = exit_code


@contextmanager
def report_jvm_exit() -> Iterator[None]:
    """A block in which any failure that comes of the JVM's end is told as that.

    Raises:
        OutOfMemory: it ran out of memory.
        JvmEnded: something else ended it.
    """
    root = logging.getLogger()
    root.addFilter(_is_not_of_the_bridge)
    try:
        yield
    except Exception as error:
        ended = jvm_end(error)
        if ended is None or ended is error:
            raise
        raise ended from error
    finally:
        root.removeFilter(_is_not_of_the_bridge)


def jvm_end(error: BaseException) -> Permanent | None:
    """What ended the JVM, where that is how a call to it failed; None while it lives."""
    if isinstance(error, OutOfMemory | JvmEnded):
        return error
    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:  # of spark-submit: this process ends with it
        return None
    if was_interrupted(error):  # it is the call that ended, and not the JVM
        return None
    if _is_cut_off(error):
        with suppress(subprocess.TimeoutExpired):
            process.wait(_EXIT_WITHIN_S)
    code = process.poll()
    if code is None:
        return None
    return OutOfMemory("its JVM ended") if code == _OUT_OF_MEMORY else JvmEnded(code)


def _is_cut_off(error: BaseException) -> bool:
    if not isinstance(error, Py4JJavaError | PySparkException):
        return isinstance(error, Py4JError | ConnectionError)
    try:
        str(error)  # asks the JVM
    except (Py4JError, OSError):
        return True
    return False


def _is_not_of_the_bridge(record: logging.LogRecord) -> bool:
    """Py4j logs what it raises as well, with its trace, to the root logger."""
    return "py4j" not in record.pathname
