"""Before anything starts: whether the executors run what the driver runs."""

from __future__ import annotations

import platform
from collections.abc import Iterable

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from lakemark.errors import Permanent
from lakemark.spark.versions import Versions, check_same, versions
from streamer.stream_failure import told_by_spark

#: Enough tasks that each executor gets one, whatever their number of cores.
_TASKS_PER_CORE = 4


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

    Those that come later are asked with their first task (``VersionCheckedTask``).

    Raises:
        ExecutorsDiffer: one of them would not write the same bytes.
        ExecutorsUnfit: they cannot even say it.
    """
    context = spark.sparkContext
    if is_local(spark):
        return
    tasks = context.defaultParallelism * _TASKS_PER_CORE
    try:
        reports = context.parallelize(range(tasks), tasks).mapPartitions(_report).collect()
    except Py4JJavaError as error:
        raise ExecutorsUnfit(told_by_spark(error)) from error
    for host, theirs in set(reports):
        check_same(host, theirs, versions())


def is_local(spark: SparkSession) -> bool:
    """Whether the session's tasks run in the driver's own process and machine."""
    return (spark.sparkContext.master or "").startswith("local")


def _report(_: Iterable[int]) -> Iterable[tuple[str, Versions]]:
    yield platform.node(), versions()
