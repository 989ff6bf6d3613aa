"""Spark jobs of lakemark run next to other jobs of their session, and refuse unlike executors."""

from __future__ import annotations

import platform
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakemark.errors import Permanent
from lakemark.execution.runner import Cancelled
from lakemark.spark.versions import versions
from sinks.hudi.prepare import FindBuckets
from sinks.hudi.spark_exchange import SparkExchange
from streamer.cluster_runner import CancellableClusterRunner, ClusterRunner
from streamer.stream_failure import translate
from tests.waiting import until

pytestmark = pytest.mark.spark


@pytest.fixture
def old_driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make this process report Python 3.7, which is older than that of the executors."""
    monkeypatch.setattr(platform, "python_version_tuple", lambda: ("3", "7", "0"))
    versions.cache_clear()
    yield
    versions.cache_clear()


def run_tasks(spark: SparkSession) -> None:
    ClusterRunner(spark).map(abs, [-1])


def run_exchange(spark: SparkSession) -> None:
    batch, anything = SimpleNamespace(records=spark.range(1)), cast(Any, len)
    SparkExchange(1).run(cast(Any, batch), anything, lambda _: FindBuckets())


@pytest.mark.parametrize("run", [run_tasks, run_exchange])
@pytest.mark.usefixtures("old_driver")
def test_executor_with_other_versions_is_refused_when_it_joins_later(
    spark: SparkSession, run: Callable[[SparkSession], None]
) -> None:
    with pytest.raises((PySparkException, Permanent)) as raised:
        run(spark)
    error = translate(raised.value)
    assert type(error) is Permanent, "the run ends: another start would meet the same"
    here = ".".join(map(str, sys.version_info[:2]))
    message = (
        f"the executor on {platform.node()} differs from the driver: "
        f"Python is {here} on the executor and"
    )
    assert str(error).startswith(f"{message} 3.7 on the driver; ship ")


def test_background_jobs_are_a_group_that_can_be_cancelled(spark: SparkSession) -> None:
    runner = CancellableClusterRunner(spark, "background")
    jobs = spark.sparkContext.statusTracker()
    ended: list[object] = []

    def work() -> None:
        try:
            ended.append(runner.map(abs, [-1, 2]))
            runner.map(lambda seconds: time.sleep(seconds), [300.0])
        except Cancelled:
            ended.append("cancelled")

    thread = threading.Thread(target=work)
    thread.start()
    until(lambda: len(jobs.getJobIdsForGroup("background")) > 1 and bool(jobs.getActiveJobsIds()))
    runner.cancel()
    thread.join(120)
    assert ended == [[1, 2], "cancelled"]
    with pytest.raises(Cancelled):
        runner.map(abs, [1])
    assert spark.sparkContext.getLocalProperty("spark.scheduler.pool") != "background"
