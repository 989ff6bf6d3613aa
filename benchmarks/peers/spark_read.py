"""Engines on Spark, which write all rows to Spark's ``noop`` sink.

``--engine hudi`` is Apache Hudi's own source, ``--engine lakemark`` that of ``lakemark.spark``, and
``--engine parquet`` Spark's plain scan of the same base files, without any table format.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.orders import KEY
from benchmarks.peers.read_contract import (
    QueryType,
    ReadAnswer,
    Reading,
    ReadQuery,
    ReadTask,
    Sums,
    peak_memory_bytes,
    timed,
)
from benchmarks.peers.spark_session import local_session
from lakemark.read.queries import ReadOptimized, Snapshot
from lakemark.spark.read import read_table
from streamer.toolchain import cache_home, resolve
from tests.interop.oracle_server import HUDI_COORDINATE, HUDI_SETTINGS

#: Returns the rows of a query, which are not read yet.
Opener = Callable[[SparkSession, ReadTask, ReadQuery], DataFrame]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", type=lambda path: ReadTask.from_json(Path(path).read_text()))
    parser.add_argument("--engine", choices=sorted(_OPENERS), required=True)
    arguments = parser.parse_args()
    task: ReadTask = arguments.task
    is_hudi = arguments.engine == "hudi"
    jars = resolve([HUDI_COORDINATE], cache_home() / "jars") if is_hudi else []
    spark = local_session("read", task.driver_memory, jars, HUDI_SETTINGS if is_hudi else {})
    read(spark, task, _OPENERS[arguments.engine]).write(Path(task.answer_path))
    spark.stop()


def read(spark: SparkSession, task: ReadTask, opener: Opener) -> ReadAnswer:
    """Run every query of the task."""
    java = int(spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    readings = [_reading(spark, task, query, opener, java) for query in task.queries]
    return ReadAnswer(tuple(readings), peak_memory_bytes(java))


def _reading(
    spark: SparkSession, task: ReadTask, query: ReadQuery, opener: Opener, java: int
) -> Reading:
    def consume() -> None:
        opener(spark, task, query).write.format("noop").mode("overwrite").save()

    seconds, read_bytes = timed(query.name, task.repeats, consume, java)
    return Reading(query.name, seconds, read_bytes, sums(opener(spark, task, query)))


def stored_sums(spark: SparkSession, path: str, query_type: QueryType) -> Sums:
    """Compute the sums of the rows that Apache Hudi reads from a table."""
    reader = spark.read.format("hudi").option("hoodie.datasource.query.type", query_type)
    return sums(reader.load(path))


def sums(rows: DataFrame) -> Sums:
    """Compute the same sums as ``benchmarks.tables.sums``."""
    row = rows.selectExpr(
        "count(*)",
        "sum(sequence)",
        "sum(updated_at)",
        "sum(quantity)",
        "cast(sum(amount) * 100 as bigint)",
        "sum(length(note))",
    ).head()
    return Sums(*(value or 0 for value in row or ()))


def _hudi(spark: SparkSession, task: ReadTask, query: ReadQuery) -> DataFrame:
    reader = spark.read.format("hudi").option("hoodie.datasource.query.type", query.query_type)
    if query.key is not None:
        # These options look keys up in the record index; they would not help other queries.
        reader = reader.option("hoodie.metadata.enable", "true")
        reader = reader.option("hoodie.enable.data.skipping", "true")
    return _filtered(reader.load(task.table_path), query)


def _lakemark(spark: SparkSession, task: ReadTask, query: ReadQuery) -> DataFrame:
    kind = ReadOptimized() if query.query_type == "read_optimized" else Snapshot()
    return read_table(spark, task.table_path, kind, where=query.where)


def _parquet(spark: SparkSession, task: ReadTask, query: ReadQuery) -> DataFrame:
    return _filtered(spark.read.parquet(*task.files), query)


def _filtered(rows: DataFrame, query: ReadQuery) -> DataFrame:
    if query.key is not None:
        return rows.where(f"{KEY} = '{query.key}'")
    return rows if query.where is None else rows.where(query.where)


_OPENERS: dict[str, Opener] = {"hudi": _hudi, "lakemark": _lakemark, "parquet": _parquet}


if __name__ == "__main__":
    main()
