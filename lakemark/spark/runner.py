"""Runs tasks on a Spark cluster. A task returns only after its files are durable."""

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
    """A function whose files are forced to the local disk before its result is returned.

    The task forces the files itself, because the driver can force only files of its own process.
    """

    function: Callable[[Task], Result]

    def __call__(self, task: Task) -> Result:
        """Call the function, force the files that it wrote to disk, and return its result.

        Raises:
            StorageUnavailable: the disk failed or is full.
        """
        result = self.function(task)
        sync_process()
        return result


class SparkRunner:
    """Runs each task as a Spark task. Functions, tasks and results are pickled."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        """Return the result of each task. Spark may retry a failed task on another executor.

        Raises:
            Exception: a task failed. Spark's exception contains the traceback of the task's
                exception, which is ``ExecutorsDiffer`` if an executor has other versions than the
                driver.
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
    """Runs tasks that can be cancelled, in a thread, while the session runs other jobs.

    All jobs of this runner have the same job group and scheduler pool. If the session schedules
    jobs fairly (``spark.scheduler.mode: FAIR``), the pool gets at most half of the executors while
    other jobs run.

    Args:
        spark: the Spark session.
        name: name of the job group and of the scheduler pool.
    """

    def __init__(self, spark: SparkSession, name: str) -> None:
        self._spark, self._name = spark, name
        self._cancelled = threading.Event()

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        """See ``SparkRunner.map``. Job group and pool are set for the calling thread."""
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
        """See ``CancellableRunner.cancel``. Spark also asks running tasks to end."""
        self._cancelled.set()
        self._spark.sparkContext.cancelJobGroup(self._name)
