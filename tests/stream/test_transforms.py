"""A pipeline with transforms reads a real topic, with each exchange, and continues after a stop."""

from __future__ import annotations

import hashlib
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakemark.config import keys
from lakemark.execution.runner import LocalRunner
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from sinks.hudi.exchange import DriverExchange, StreamExchange
from sinks.hudi.spark_exchange import SparkExchange
from streamer import pipeline
from streamer.config.load import validated
from streamer.events import BatchWritten, Event
from tests.fixtures.kafka import Kafka

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

EXCHANGES: dict[str, StreamExchange[Any]] = {
    "driver": DriverExchange(LocalRunner(2)),
    "spark": SparkExchange(2),
}


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_each_run_writes_rejects_filters_and_deletes(
    kafka: Kafka, spark: SparkSession, exchange: str, tmp_path: Path
) -> None:
    topic, path = kafka.create_topic(partitions=2), str(tmp_path / "rows")
    config = validated(
        {
            "source": {"bootstrap_servers": kafka.bootstrap, "topic": topic},
            "decode": {"schema": {"id": "int", "price": "string", "n": "int", "ts": "bigint"}},
            "transform": [
                {"step": "filter", "where": "n > 0"},
                {"step": "rename", "columns": {"id": "key"}},
                {"step": "cast", "columns": {"price": "decimal(10,2)"}},
                {"step": "add", "columns": {"total": "price * n"}},
                {"step": "hash", "columns": ["key"], "salt": "pepper"},
                {"step": "select", "columns": ["key", "total", "ts"]},
            ],
            "table": {"path": path, "record_key": "key", "ordering": "ts", "buckets": 2},
            "dead_letters": {"tolerated": 1_000},
            "run": {"mode": "once", "trigger_interval_s": 0},
        }
    )
    events: list[Event] = []
    for ts in (1, 2):
        values = [
            {"id": n, "price": "x" if n % 10 == 9 else f"{n}.5", "n": n % 3, "ts": ts}
            for n in range(ts * 10, 60)
        ]
        messages = [(str(v["id"]).encode(), json.dumps(v).encode()) for v in values]
        kafka.produce(topic, messages)
        if ts == 2:
            kafka.produce(topic, [(b"22", None)])
        with pipeline.build(config, events.append, EXCHANGES[exchange]) as built:
            built.loop.run()
    table = open_table(StorageLocation(path))
    rows = table.scan(columns=["key", "total", "ts"]).to_reader().read_all().to_pylist()
    expected = {
        hashlib.sha256(b"pepper%d" % n).hexdigest(): (Decimal(f"{n}.50") * (n % 3), 1 + (n >= 20))
        for n in range(10, 60)
        if n % 10 != 9 and n % 3 and n != 22
    }
    assert {row["key"]: (row["total"], row["ts"]) for row in rows} == expected
    batches = [event for event in events if isinstance(event, BatchWritten)]
    assert sum(event.filtered for event in batches) == 16 + 13
    assert sum(event.rejects for event in batches) == 4 + 3
    assert all(
        keys.TRANSFORM in table.store.read_commit(one).extra_metadata
        for one in table.timeline.instants
        if one.is_completed and one.action.is_ingest
    )
