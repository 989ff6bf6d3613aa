"""Runs tasks on a Spark cluster; a task ends only when its files survive a power failure."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic

from pyspark.sql import SparkSession

from lakemark.execution.runner import Cancelled, Result, Task
from lakemark.spark.versions import VersionCheckedTask
from lakemark.storage.durability import sync_process

_POOL = "spark.scheduler.pool"


@dataclass(frozen=True)
class DurableTask(Generic[Task, Result]):
    """Forces the files of a function to the local disk before the driver gets its result.

    The driver itself forces only files of its own process.
    """

    function: Callable[[Task], Result]

    def __call__(self, task: Task) -> Result:
        """Call the function, then force its files.

        Raises:
            StorageUnavailable: the disk failed, or is full.
        """
        result = self.function(task)
        sync_process()
        return result


class SparkRunner:
    """One Spark task for each task; functions and values are pickled."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        """Return one result for each task; Spark retries a failed task, possibly elsewhere.

        Raises:
            Exception: Spark's, with the traceback of the task's exception; ``ExecutorsDiffer`` if
                an executor has other versions than the driver.
        """
        if not tasks:
            return []
        context = self._spark.sparkContext
        return (
            context.parallelize(tasks, len(tasks))
            .map(VersionCheckedTask(DurableTask(function)))
            .collect()
        )


class CancellableSparkRunner:
    """Runs tasks from a thread of its own, while the session runs other jobs; can be cancelled.

    Its jobs are one job group, in a scheduler pool of their own. If the session shares executors
    fairly (``spark.scheduler.mode: FAIR``), they use at most half of them.

    Args:
        spark: the session.
        name: of the group and the pool.
    """

    def __init__(self, spark: SparkSession, name: str) -> None:
        self._spark, self._name = spark, name
        self._cancelled = threading.Event()

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        """See ``SparkRunner.map``; job group and pool belong to the calling thread."""
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
        """See ``CancellableRunner.cancel``; running tasks are asked to end, too."""
        self._cancelled.set()
        self._spark.sparkContext.cancelJobGroup(self._name)
