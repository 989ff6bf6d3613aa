"""Checks that Spark's executors have the same versions as the driver."""

from __future__ import annotations

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from lakemark.errors import Permanent
from lakemark.spark.versions import check_same, report_versions, versions
from streamer.stream_failure import spark_message

#: Enough tasks that each executor gets at least one.
_TASKS_PER_CORE = 4


class ExecutorsUnusable(Permanent):
    """Executors cannot run the code of this project."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"executors cannot run the project: {reason}; "
            "ship the driver's environment with spark-submit --archives"
        )
        self.reason = reason


def check_executors(spark: SparkSession) -> None:
    """Compare the versions of every executor with the driver's; skip this for a local session.

    Executors that join later are checked when they run their first task (``VersionCheckedTask``).

    Raises:
        ExecutorsDiffer: an executor has other versions, which might write different bytes.
        ExecutorsUnusable: the executors cannot report their versions.
    """
    context = spark.sparkContext
    if is_local(spark):
        return
    tasks = context.defaultParallelism * _TASKS_PER_CORE
    try:
        reports = context.parallelize(range(tasks), tasks).mapPartitions(report_versions).collect()
    except Py4JJavaError as error:
        raise ExecutorsUnusable(spark_message(error)) from error
    for host, theirs in set(reports):
        check_same(host, theirs, versions())


def is_local(spark: SparkSession) -> bool:
    """Return whether the session's tasks run in the driver's own process."""
    return (spark.sparkContext.master or "").startswith("local")
