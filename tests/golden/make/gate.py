"""Rows that reach a writer only after a gate is opened, so that writers overlap."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tests.golden.make.rows import Row
from tests.waiting import until


def rows_behind(spark: SparkSession, gate: Path, rows: Iterable[Row], columns: str) -> DataFrame:
    """Create a frame of one partition whose task waits until the file ``gate`` exists."""
    waiting = spark.sparkContext.parallelize(list(rows), 1).mapPartitions(_after(gate))
    return spark.createDataFrame(waiting, columns, verifySchema=False)


def _after(gate: Path) -> Callable[[Iterable[Row]], Iterator[Row]]:
    def wait(rows: Iterable[Row]) -> Iterator[Row]:
        until(gate.exists, str(gate), within_s=300)
        yield from rows

    return wait
