"""Both exchanges find the same rows that change their partition."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakemark.operations.open_table import open_table
from lakemark.operations.stored_rows import repeated_keys
from lakemark.storage import StorageLocation
from sinks.batch import KafkaBatch
from sinks.hudi.exchange import OpenWrite, PortionResult, Prepare
from sinks.hudi.partition_rule import PartitionChange
from sinks.hudi.spark_exchange import SparkExchange
from tests.json_stream import InThisProcess, JsonStream

pytestmark = pytest.mark.spark

COLUMNS = {"id": "string", "ts": "bigint", "region": "string"}
RECORDS = "key binary, value binary, partition int, offset long, timestamp timestamp"


@dataclass(frozen=True)
class OnExecutors(InThisProcess):
    """An exchange that sends the records to Spark's workers; two tasks read and two write."""

    spark: SparkSession | None = None

    def run(
        self, batch: KafkaBatch, prepare: Prepare, open_write: OpenWrite
    ) -> list[PortionResult]:
        """Run as the streamer does for a batch that does not fit into the driver."""
        assert self.spark is not None
        rows = [tuple(row.values()) for row in cast(pa.Table, batch.records).to_pylist()]
        records = self.spark.createDataFrame(rows, RECORDS).repartition(2)
        return SparkExchange(2).run(replace(batch, records=records), prepare, open_write)


def test_executors_refuse_rows_that_change_their_partition(
    spark: SparkSession, tmp_path: Path
) -> None:
    location = StorageLocation(str(tmp_path / "orders"))
    stream = JsonStream(
        location,
        columns=COLUMNS,
        partition_by=("region",),
        partition_change=PartitionChange.REJECT,
        exchange=OnExecutors(spark=spark),
    )
    stream.write([_row(f"k{number}", "north") for number in range(20)])
    result = stream.write([_row("k3", "south"), _row("k4", "north"), _row("new", "south")])
    assert (result.records, result.rejected) == (3, 1)
    reason = stream.reasons()[20]
    assert reason.startswith("record key 'k3' exists in partition 'north', but this row is in")
    assert not repeated_keys(open_table(location)).keys


def _row(key: str, region: str) -> dict[str, object]:
    return {"id": key, "ts": 0, "region": region}
