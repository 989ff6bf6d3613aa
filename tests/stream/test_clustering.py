"""A running pipeline clusters its table between batches, and loses no batch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from checkpoints.checkpoint import KafkaCheckpoint
from lakemark.operations.cluster import schedule_clustering
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.open_table import open_table
from lakemark.services.clustering_plan import ClusteringPolicy
from lakemark.storage import StorageLocation
from lakemark.transaction import plan_owner
from streamer import pipeline
from streamer.config.load import validated
from streamer.events import BatchWritten, Event, ServiceCompleted
from tests.fixtures.kafka import Kafka, Message
from tests.stream.orders_pipeline import assert_offsets_chain, pipeline_tree

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def _order(number: int) -> Message:
    name = f"o{number}"
    value = {"order_id": name, "region": f"r{number % 2}", "updated_at": number}
    return name.encode(), json.dumps(value).encode()


def test_small_files_of_batches_are_clustered(
    kafka: Kafka, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, location = kafka.create_topic(), StorageLocation(str(tmp_path / "orders"))
    tree = pipeline_tree(
        kafka.bootstrap,
        topic,
        location.url,
        source={"max_records_per_batch": 4},
        table={"operation": "insert"},
        base_files={"small_file_bytes": 0},
        clustering={"enabled": True, "after_commits": 2, "sort_by": ["order_id"]},
    )
    del tree["table"]["buckets"]

    def run() -> list[type[Event]]:
        events: list[Event] = []
        with pipeline.build(validated(tree), events.append) as built:
            built.loop.run()
        return [
            type(event)
            for event in events
            if isinstance(event, BatchWritten)
            or (isinstance(event, ServiceCompleted) and event.service == "clustering")
        ]

    kafka.produce(topic, [_order(number) for number in range(12)])
    assert run() == [BatchWritten, BatchWritten, ServiceCompleted, BatchWritten]
    table = open_table(location)
    assert schedule_clustering(table, ClusteringPolicy()) is not None
    kafka.produce(topic, [_order(number) for number in range(12, 16)])
    # As if the plan were two minutes old: the writer of a new plan may be about to execute it.
    monkeypatch.setattr(plan_owner, "is_fresh", lambda *_: False)
    assert run() == [ServiceCompleted, BatchWritten], "the plan of another writer comes first"
    table = open_table(location)
    rows = table.scan(columns=["order_id"]).to_table()["order_id"].to_pylist()
    assert sorted(rows) == sorted(f"o{number}" for number in range(16))
    assert_offsets_chain(location, KafkaCheckpoint(topic, {0: 16}))
    assert metadata_differences(table) == []
    assert not table.timeline.pending()
