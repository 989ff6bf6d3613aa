"""Executors must run what the driver runs, or they would write other bytes than it expects."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from importlib.metadata import version

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from streamer.stream_failure import told_by_spark
from table.errors import Permanent

_PACKAGES = ("lakemark", "pyarrow", "numpy", "obstore", "fastavro")

#: Enough tasks that each executor gets one, whatever their number of cores.
_TASKS_PER_CORE = 4


class ExecutorsDiffer(Permanent):
    """An executor has another Python, or other packages, than the driver."""

    def __init__(self, host: str, differences: str) -> None:
        super().__init__(
            f"the executor on {host} differs from the driver: {differences}; "
            "ship the driver's environment with spark-submit --archives"
        )
        self.host, self.differences = host, differences


class ExecutorsUnfit(Permanent):
    """Executors cannot run anything of the project."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"executors cannot run the project: {reason}; "
            "ship the driver's environment with spark-submit --archives"
        )
        self.reason = reason


def check_executors(spark: SparkSession) -> None:
    """Let every executor say what it runs; a local session is the driver itself.

    Raises:
        ExecutorsDiffer: one of them would not write the same bytes.
        ExecutorsUnfit: they cannot even say it.
    """
    context = spark.sparkContext
    if is_local(spark):
        return
    tasks = context.defaultParallelism * _TASKS_PER_CORE
    ours = versions()
    try:
        reports = context.parallelize(range(tasks), tasks).mapPartitions(_report).collect()
    except Py4JJavaError as error:
        raise ExecutorsUnfit(told_by_spark(error)) from error
    for host, theirs in set(reports):
        differences = [
            f"{name} is {found or 'absent'} there and {wanted} here"
            for (name, wanted), (_, found) in zip(ours, theirs, strict=True)
            if found != wanted
        ]
        if differences:
            raise ExecutorsDiffer(host, "; ".join(differences))


def is_local(spark: SparkSession) -> bool:
    """Whether the session's tasks run in the driver's own process and machine."""
    return (spark.sparkContext.master or "").startswith("local")


def versions() -> tuple[tuple[str, str], ...]:
    """What this process runs: Python to its minor version, and the packages that write files."""
    python = ".".join(platform.python_version_tuple()[:2])
    return (("Python", python), *((name, _version(name)) for name in _PACKAGES))


def _version(package: str) -> str:
    try:
        return version(package)
    except ImportError:
        return ""


def _report(_: Iterable[int]) -> Iterable[tuple[str, tuple[tuple[str, str], ...]]]:
    yield platform.node(), versions()
