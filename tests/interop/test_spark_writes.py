"""Apache Hudi continues a table that lakemark writes from Spark, and its record of batches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import lakemark
from lakemark.spark import foreach_batch, write
from tests.interop.oracle import ApacheTable, Oracle
from tests.interop.test_lookup_index import SCHEMA

pytestmark = [pytest.mark.oracle, pytest.mark.spark, pytest.mark.usefixtures("few_tasks")]

BUCKETS = ApacheTable("orders", ["id"], ["region"], ["ts"], has_metadata=True)


def rows(numbers: range, ts: int) -> pa.Table:
    listed = [{"id": f"k{n:02d}", "region": f"r{n % 2}", "ts": ts, "v": n + ts} for n in numbers]
    return pa.Table.from_pylist(listed, SCHEMA)


def frame(spark: SparkSession, given: pa.Table) -> DataFrame:
    listed = [tuple(row.values()) for row in given.to_pylist()]
    return spark.createDataFrame(listed, "id string, region string, ts bigint, v int")


@pytest.mark.parametrize("index", ["bucket", "lookup"])
def test_both_continue_a_table_and_the_batches_of_a_stream(
    oracle: Oracle, spark: SparkSession, tmp_path: Path, index: str
) -> None:
    path = tmp_path / "orders"
    buckets: dict[str, Any] = {"buckets": 2} if index == "bucket" else {}
    table = lakemark.create(
        path,
        schema=SCHEMA,
        record_key="id",
        partition_by="region",
        ordering="ts",
        index=index,
        **buckets,
    )
    extra = {} if index == "bucket" else {"hoodie.index.type": "BLOOM"}
    theirs = replace(BUCKETS, extra=extra)
    model: dict[str, int] = {}

    def check(*given: pa.Table) -> None:
        for row in (row for one in given for row in one.to_pylist()):
            model[row["id"]] = row["v"]
        found = oracle.read(path).select(["id", "v"]).to_pylist()
        assert sorted((row["id"], row["v"]) for row in found) == sorted(model.items())

    first, second = rows(range(20), 1), rows(range(10, 30), 2)
    write(frame(spark, first), table)
    check(first)
    foreach_batch(table, stream="orders")(frame(spark, second), 4)
    check(second)
    third = rows(range(25, 35), 3)
    streaming = {
        "hoodie.datasource.write.streaming.checkpoint.identifier": "orders",
        "hoodie.internal.spark.streaming.batch.id": "5",
    }
    oracle.write(path, third, replace(theirs, extra={**extra, **streaming}))
    check(third)
    table = lakemark.open(path)
    foreach_batch(table, stream="orders")(frame(spark, rows(range(40), 9)), 5)
    check()  # Apache Hudi has written batch 5
    fourth = rows(range(5, 40), 10)
    foreach_batch(table, stream="orders")(frame(spark, fourth), 6)
    check(fourth)
    overwritten = rows(range(0, 6, 2), 11)
    write(frame(spark, overwritten), table, "insert_overwrite")
    for key in [key for key in model if int(key[1:]) % 2 == 0]:
        del model[key]
    check(overwritten)
