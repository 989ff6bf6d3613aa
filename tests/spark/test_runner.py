"""Spark jobs beside others of their session."""

from __future__ import annotations

import threading
import time

import pytest
from pyspark.sql import SparkSession

from table.execution.runner import Cancelled
from table.spark.runner import SparkRunnerBeside

pytestmark = pytest.mark.spark


def test_jobs_beside_others_are_a_group_that_can_be_cancelled(spark: SparkSession) -> None:
    runner, jobs = SparkRunnerBeside(spark, "beside"), spark.sparkContext.statusTracker()
    ended: list[object] = []

    def work() -> None:
        try:
            ended.append(runner.map(abs, [-1, 2]))
            runner.map(lambda seconds: time.sleep(seconds), [5.0])
        except Cancelled:
            ended.append("cancelled")

    thread = threading.Thread(target=work)
    thread.start()
    deadline = time.monotonic() + 60
    while len(jobs.getJobIdsForGroup("beside")) < 2 or not jobs.getActiveJobsIds():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    runner.cancel()
    thread.join(60)
    assert ended == [[1, 2], "cancelled"]
    with pytest.raises(Cancelled):
        runner.map(abs, [1])
    assert spark.sparkContext.getLocalProperty("spark.scheduler.pool") != "beside"
