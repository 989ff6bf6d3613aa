"""Tasks on a Spark cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from pyspark.sql import SparkSession

from lakemark.execution.runner import Cancelled, Result, Task
from lakemark.spark.durable_task import DurableTask
from lakemark.spark.versions import SameVersions

_POOL = "spark.scheduler.pool"


class SparkRunner:
    """One Spark task for each task; functions and values travel by pickle."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        """One result for each task; Spark retries a failed task where it pleases.

        Raises:
            Exception: Spark's, with the traceback of what a task raised; ``ExecutorsDiffer`` where
                an executor does not run what the driver runs.
        """
        if not tasks:
            return []
        context = self._spark.sparkContext
        return (
            context.parallelize(tasks, len(tasks))
            .map(SameVersions(DurableTask(function)))
            .collect()
        )


class SparkRunnerBeside:
    """The same from a thread of its own, beside other jobs of the session.

    Its jobs are a group, which can be cancelled, in a pool of their own: where the session shares
    executors fairly (``spark.scheduler.mode: FAIR``) they take half of them at most.

    Args:
        spark: the session.
        name: of the group and the pool.
    """

    def __init__(self, spark: SparkSession, name: str) -> None:
        self._spark, self._name = spark, name
        self._cancelled = threading.Event()

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        """See ``SparkRunner.map``; group and pool are those of the calling thread."""
        if self._cancelled.is_set():
            raise Cancelled
        context = self._spark.sparkContext
        context.setJobGroup(self._name, self._name)
        context.setLocalProperty(_POOL, self._name)
        try:
            return SparkRunner(self._spark).map(function, tasks)
        except Exception as error:
            if self._cancelled.is_set():
                raise Cancelled from error
            raise

    def cancel(self) -> None:
        """See ``CancellableRunner.cancel``; tasks at work are asked to end, too."""
        self._cancelled.set()
        self._spark.sparkContext.cancelJobGroup(self._name)
