"""Histories that several tables share."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, when

from tests.golden.make.rows import Row, rows
from tests.golden.make.table_in_making import TableInMaking

INSERTED = rows(range(30), version=0, ts=100)
UPDATED = rows(range(20), version=1, ts=200) + rows(range(30, 36), version=1, ts=100)

#: Late rows, newer ones, a soft delete and one that comes too late.
LATE_AND_DELETED: tuple[Row, ...] = (
    *rows(range(10), version=2, ts=50),
    *rows(range(10, 15), version=2, ts=300),
    *rows([28], version=2, ts=300, is_deleted=True),
    *rows([29], version=2, ts=10, is_deleted=True),
)

HARD_DELETED = rows([1, 2], version=3, ts=400)
LAST = rows([3, 4, 5], version=4, ts=250)
AFTERWARDS = rows([7, 8], version=6, ts=400)


def five_commits(table: TableInMaking) -> None:
    """Write inserts, updates, late rows with soft deletes, hard deletes, updates."""
    table.write("insert", INSERTED)
    table.write("upsert", UPDATED)
    table.write("upsert", LATE_AND_DELETED)
    table.write("delete", HARD_DELETED)
    table.write("upsert", LAST)


def sixteen_commits(table: TableInMaking) -> None:
    """Update every other record, from a different first record each time."""
    for number in range(16):
        table.write("upsert", rows(range(number % 5, 20, 2), version=number, ts=100 + number))


def in_default_partition(table: TableInMaking) -> None:
    """Write rows, half of them without a partition value."""
    table.write("insert", INSERTED, shape=_without_some_regions)
    table.write("upsert", UPDATED, shape=_without_some_regions)


def only_query(table: TableInMaking) -> None:
    """Do nothing, because the current release writes no tables before version 6."""


def _without_some_regions(frame: DataFrame) -> DataFrame:
    region = when(col("qty") % 20 < 10, col("region"))
    return frame.withColumn("region", region)
