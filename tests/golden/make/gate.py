"""Rows that come to a writer only once a gate is opened, so that writers can be made to overlap."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tests.golden.make.rows import Row

_POLL_S = 0.05
_PATIENCE_S = 300.0


def rows_behind(spark: SparkSession, gate: Path, rows: Iterable[Row], columns: str) -> DataFrame:
    """A frame of one partition, whose task waits until the file ``gate`` is there."""
    waiting = spark.sparkContext.parallelize(list(rows), 1).mapPartitions(_after(gate))
    return spark.createDataFrame(waiting, columns, verifySchema=False)


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    """Return as soon as it is so.

    Raises:
        TimeoutError: it is not so after five minutes.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while not is_so():
        if time.monotonic() > deadline:
            message = f"waited {_PATIENCE_S:.0f} s for {what}"
            raise TimeoutError(message)
        time.sleep(_POLL_S)


def _after(gate: Path) -> Callable[[Iterable[Row]], Iterator[Row]]:
    def wait(rows: Iterable[Row]) -> Iterator[Row]:
        wait_until(gate.exists, str(gate))
        yield from rows

    return wait
