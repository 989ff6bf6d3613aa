"""Tasks on a Spark cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import SparkSession

from table.execution.runner import Result, Task


class SparkRunner:
    """One Spark task for each task; functions and values travel by pickle."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        """One result for each task; Spark retries a failed task where it pleases."""
        if not tasks:
            return []
        context = self._spark.sparkContext
        return context.parallelize(tasks, len(tasks)).map(function).collect()
