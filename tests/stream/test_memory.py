"""Memory is bounded even if each message has 1 MiB and all belong to one file group."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from lakemark.execution.runner import LocalRunner
from lakemark.log.log_reader import read_blocks
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.storage import StorageLocation
from sinks.batch import KafkaBatch
from sinks.hudi.adaptive_exchange import AdaptiveExchange
from sinks.hudi.collect import MAX_ARROW_BATCH_BYTES
from sinks.hudi.exchange import (
    CHUNK_BYTES,
    DriverExchange,
    OpenWrite,
    Portion,
    PortionResult,
    Prepare,
)
from sinks.hudi.exchange_plan import Cores
from sinks.hudi.spark_exchange import SparkExchange
from streamer import pipeline
from streamer.events import Event
from tests.fixtures.kafka import Kafka
from tests.stream.orders_pipeline import pipeline_config

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]

MESSAGES = 160
MESSAGE_BYTES = 1 << 20
ONE_FILE_GROUP = {"partition_by": [], "buckets": 1}


class TookTooMuch(AssertionError):
    """A worker got a larger chunk than it may hold."""


@dataclass(frozen=True)
class Watched:
    """Passes chunks on to ``prepare``, unless they are larger than a chunk may be."""

    prepare: Prepare

    def __call__(self, records: pa.Table, tasks: int) -> list[Portion]:
        largest = max(batch.nbytes for batch in records.to_batches())
        # The chunk that fills up is as large as what filled it.
        if largest > MAX_ARROW_BATCH_BYTES or records.nbytes > CHUNK_BYTES + largest:
            message = f"chunk of {records.nbytes} bytes, batch of {largest}"
            raise TookTooMuch(message)
        return self.prepare(records, tasks)


class SmallRecords:
    """A forecast that is wrong: it expects records that the driver can collect."""

    def record_bytes(self) -> int:
        return 100

    def buckets(self) -> int:
        return 1

    def cores(self) -> Cores:
        return Cores(driver=2, cluster=0)


class WatchedExchange(SparkExchange):
    """The cluster's exchange, with a check of the size of each chunk."""

    batches = 0

    def run(
        self, batch: KafkaBatch, prepare: Prepare, open_write: OpenWrite
    ) -> list[PortionResult]:
        self.batches += 1
        return super().run(batch, Watched(prepare), open_write)


def test_large_messages_in_one_file_group(
    kafka: Kafka, spark: SparkSession, tmp_path: Path
) -> None:
    topic = kafka.create_topic(settings={"max.message.bytes": str(2 * MESSAGE_BYTES)})
    path = tmp_path / "orders"
    cluster = WatchedExchange(2, max_message_bytes=2 * MESSAGE_BYTES)
    # A budget that would let each record have half of what it needs.
    budget_bytes = MESSAGES * MESSAGE_BYTES // 2
    driver = DriverExchange(LocalRunner(2), budget_bytes)
    exchange = AdaptiveExchange(driver, lambda _: cluster, budget_bytes, SmallRecords())
    for version, reads_ahead in ((1, True), (2, False)):
        config = pipeline_config(
            kafka.bootstrap,
            topic,
            path,
            table=ONE_FILE_GROUP,
            compaction={"enabled": False},
            source={"max_records_per_batch": MESSAGES},
            run={"read_ahead": reads_ahead},
        )
        kafka.produce(topic, [(None, _order(key, version)) for key in range(MESSAGES)])
        with pipeline.build(config, _deaf, exchange) as built:
            built.loop.run()
    assert cluster.batches == 2, "what does not fit the driver goes the other way"

    table = open_table(StorageLocation(str(path)))
    rows = table.scan(columns=["order_id", "updated_at"]).to_reader().read_all()
    assert rows.num_rows == MESSAGES
    assert set(rows["updated_at"].to_pylist()) == {2}
    (file_slice,) = table.view().latest_slices()
    assert file_slice.base is not None
    with table.storage.open(file_slice.base.path) as file:
        metadata = pq.ParquetFile(file).metadata
        sizes = [metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups)]
    assert len(sizes) > 1
    assert max(sizes) <= MAX_ARROW_BATCH_BYTES
    assert max(_log_block_bytes(table)) <= MAX_ARROW_BATCH_BYTES


def _log_block_bytes(table: OpenTable) -> list[int]:
    (file_slice,) = table.view().latest_slices()
    (log,) = file_slice.logs
    with table.storage.open(log.path) as file:
        return [len(block.content.read()) for block in read_blocks(file, log.size_bytes, log.path)]


def _order(key: int, version: int) -> bytes:
    note = f"{key:08d}{version:08d}" * (MESSAGE_BYTES // 16)
    return f'{{"order_id":"{key}","updated_at":{version},"note":"{note}"}}'.encode()


def _deaf(_: Event) -> None:
    """Ignore the event."""
