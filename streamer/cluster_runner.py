"""Runs tasks on a Spark cluster, and translates their failures to errors of this project."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from lakemark.execution.runner import Result, Task
from lakemark.spark.runner import CancellableSparkRunner, SparkRunner
from streamer.stream_failure import translate


class ClusterRunner(SparkRunner):
    """A ``SparkRunner`` that raises the errors of this project."""

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        """See ``SparkRunner.map``.

        Raises:
            HudiError: a task raised this error, or the cluster failed.
        """
        with _translating():
            return super().map(function, tasks)


class CancellableClusterRunner(CancellableSparkRunner):
    """A ``ClusterRunner`` whose tasks can be cancelled."""

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        """See ``CancellableSparkRunner.map`` and ``ClusterRunner.map``."""
        with _translating():
            return super().map(function, tasks)


@contextmanager
def _translating() -> Iterator[None]:
    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        raise translate(error) from error
