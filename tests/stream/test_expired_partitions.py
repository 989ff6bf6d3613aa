"""A running pipeline deletes expired partitions between batches, and loses no batch."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from checkpoints.checkpoint import KafkaCheckpoint
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from streamer import pipeline
from streamer.config.pipeline import PipelineConfig
from streamer.events import BatchWritten, Event, PartitionsExpired
from tests.fixtures.kafka import Kafka, Message
from tests.stream.orders_pipeline import assert_offsets_chain, pipeline_config

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

#: So short that partitions expire between the batches of a run.
SHORT_S = 0.3
#: So long that a partition does not expire while it is written.
LONGER_S = 6.0


def _order(number: int) -> Message:
    name = f"o{number}"
    value = {"order_id": name, "region": f"r{number % 4}", "updated_at": number}
    return name.encode(), json.dumps(value).encode()


def _run(config: PipelineConfig) -> list[Event]:
    events: list[Event] = []
    with pipeline.build(config, events.append) as built:
        built.loop.run()
    return events


@pytest.mark.parametrize("mode", ["inline", "async"])
def test_partitions_expire_between_batches_that_overlap(
    kafka: Kafka, spark: SparkSession, mode: str, tmp_path: Path
) -> None:
    topic, location = kafka.create_topic(), StorageLocation(str(tmp_path / "orders"))

    def run(lifetime_s: float) -> list[Event]:
        config = pipeline_config(
            kafka.bootstrap,
            topic,
            location.url,
            source={"max_records_per_batch": 2},
            compaction={"mode": mode},
            partition_lifetime={"days": lifetime_s / 86_400, "check_every_minutes": 0.001},
        )
        return _run(config)

    kafka.produce(topic, [_order(number) for number in range(12)])
    run(SHORT_S)
    kafka.produce(topic, [_order(12), _order(13)])
    run(LONGER_S)
    time.sleep(LONGER_S)
    kafka.produce(topic, [_order(14)])
    events = run(LONGER_S)
    kinds = [type(one) for one in events if isinstance(one, BatchWritten | PartitionsExpired)]
    assert kinds[:2] == [PartitionsExpired, BatchWritten], "a check at the start"
    table = open_table(location)
    rows = table.scan(columns=["order_id", "region"]).to_table().to_pylist()
    assert rows == [{"order_id": "o14", "region": "r2"}], "a late record is written again"
    assert_offsets_chain(location, KafkaCheckpoint(topic, {0: 15}))
    assert metadata_differences(table) == []
    assert not table.timeline.pending()
