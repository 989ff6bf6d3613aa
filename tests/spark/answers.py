"""Apache Hudi's answers to queries, and functions that run the queries with lakemark on Spark."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from pyspark.sql import DataFrame, Row, SparkSession

from lakemark.read.queries import Incremental, Query, ReadOptimized, Snapshot
from lakemark.spark.read import read_table
from tests.golden.golden_table import GoldenTable

Door: TypeAlias = Callable[[SparkSession, GoldenTable, Query], DataFrame]

#: A few tables, each with a feature that the others do not have.
TABLES = [
    "v6_mor_compacted",
    "v9_cow_simple",
    "v9_mor_compacted",
    "v9_mor_evolved",
    "v9_mor_hive_complex_ts",
]


def queries_of(golden: GoldenTable) -> dict[str, Query]:
    """Return the queries that Apache Hudi answered for a table, by the name of the answer."""
    queries: dict[str, Query] = {"snapshot": Snapshot(), "read_optimized": ReadOptimized()}
    if "as_of" in golden.queries:
        queries["as_of"] = Snapshot(golden.queries["as_of"]["as.of.instant"])
        begin = golden.queries["incremental"]["hoodie.datasource.read.begin.instanttime"]
        queries["incremental"] = Incremental(begin)
    return queries


def apaches(spark: SparkSession, golden: GoldenTable, query: str) -> DataFrame:
    """Read Apache Hudi's answer, which Spark wrote with its own types."""
    return spark.read.parquet(str(golden.root.parent / "expected" / f"{query}.parquet"))


def ours(
    spark: SparkSession, golden: GoldenTable, query: Query, where: str | None = None
) -> DataFrame:
    """Run the query with ``read_table``."""
    return read_table(spark, golden.root, query, where=where)


def sorted_rows(frame: DataFrame) -> list[Row]:
    """Sort the rows, so that frames can be compared without regard to order."""
    return sorted(frame.collect(), key=str)


def plan_of(frame: DataFrame) -> str:
    """Return the physical plan as Spark prints it."""
    return str(frame._jdf.queryExecution().executedPlan().toString())


def files_read_by_spark(frame: DataFrame) -> set[str]:
    """Return the names of the Parquet files that Spark's own scan reads."""
    return {re.sub(r"^.*/", "", path) for path in frame.inputFiles()}
