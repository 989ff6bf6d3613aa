"""Tasks on a Spark cluster, whose failures are told as the project's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from lakemark.execution.runner import Result, Task
from lakemark.spark.runner import CancellableSparkRunner, SparkRunner
from streamer.stream_failure import translated


class ClusterRunner(SparkRunner):
    """As its base; what may be done about a failure is in its type, wherever it happened."""

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        """See ``SparkRunner.map``.

        Raises:
            HudiError: what a task raised, or what became of the cluster.
        """
        with _translating():
            return super().map(function, tasks)


class ClusterRunnerBeside(CancellableSparkRunner):
    """As its base, and as ``ClusterRunner``."""

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        """See ``CancellableSparkRunner.map`` and ``ClusterRunner.map``."""
        with _translating():
            return super().map(function, tasks)


@contextmanager
def _translating() -> Iterator[None]:
    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        raise translated(error) from error
