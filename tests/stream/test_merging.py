"""Records are merged correctly on the whole path: Kafka, Spark's workers, commits, queries."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import lakemark
from lakemark.execution.runner import LocalRunner
from lakemark.model.action import Action
from lakemark.operations.open_table import open_table
from lakemark.spark.read import read_table
from lakemark.storage import StorageLocation
from sinks.hudi.exchange import DriverExchange, StreamExchange
from sinks.hudi.spark_exchange import SparkExchange
from streamer import pipeline
from streamer.config.pipeline import PipelineConfig
from streamer.events import CompactionCompleted, Event, SchemaEvolved
from tests.fixtures.kafka import Kafka
from tests.stream.orders_pipeline import pipeline_config
from tests.stream.quantity_merger import QuantityMerger

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

EXCHANGES: dict[str, StreamExchange[Any]] = {
    "driver": DriverExchange(LocalRunner(2)),
    "spark": SparkExchange(3),
}
MERGER = "tests.stream.quantity_merger:QuantityMerger"


@pytest.fixture(params=EXCHANGES)
def exchange(request: pytest.FixtureRequest) -> StreamExchange[Any]:
    return EXCHANGES[request.param]


def _send(kafka: Kafka, topic: str, orders: Iterable[Mapping[str, object]]) -> None:
    kafka.produce(topic, [(str(o["order_id"]).encode(), json.dumps(o).encode()) for o in orders])


def _run(config: PipelineConfig, exchange: StreamExchange[Any]) -> list[Event]:
    events: list[Event] = []
    with pipeline.build(config, events.append, exchange) as built:
        built.loop.run()
    return events


def _order(number: int, **fields: object) -> dict[str, object]:
    return {"order_id": f"o{number}", "region": "north", "updated_at": 1, **fields}


def test_a_schema_that_grows_in_the_middle_of_a_batch_loses_no_row(
    kafka: Kafka, spark: SparkSession, exchange: StreamExchange[Any], tmp_path: Path
) -> None:
    topic, path = kafka.create_topic(partitions=2), tmp_path / "orders"
    decode = {"unknown_fields": "evolve", "wider_values": "evolve"}
    config = pipeline_config(kafka.bootstrap, topic, path, decode=decode)
    before = [_order(n, quantity=n) for n in range(50)]
    after = [_order(n, quantity=n + 2**40, coupon=f"c{n}") for n in range(50, 100)]
    _send(kafka, topic, [*before, *after])
    events = _run(config, exchange)
    assert sum(isinstance(event, SchemaEvolved) for event in events) == 1

    opened = open_table(StorageLocation(str(path)))
    assert len(opened.timeline.completed(Action.DELTA_COMMIT)) == 1
    columns = ["order_id", "quantity", "coupon"]
    found = {
        row["order_id"]: row
        for row in opened.scan(columns=columns).to_reader().read_all().to_pylist()
    }
    assert found == {
        str(o["order_id"]): {name: o.get(name) for name in columns} for o in [*before, *after]
    }
    assert not lakemark.open(f"{path}_dead_letters").timeline.completed(Action.COMMIT)


def test_a_merger_of_ones_own_merges_in_the_workers_in_compactions_and_in_queries(
    kafka: Kafka, spark: SparkSession, exchange: StreamExchange[Any], tmp_path: Path
) -> None:
    topic, path = kafka.create_topic(partitions=2), tmp_path / "orders"
    config = pipeline_config(kafka.bootstrap, topic, path, table={"merger": MERGER})
    compacted = 0
    for run in range(1, 5):
        orders = [_order(n, quantity=10**k) for n in range(40) for k in range(3)]
        _send(kafka, topic, orders)
        events = _run(config, exchange)
        compacted += sum(isinstance(event, CompactionCompleted) for event in events)
        rows = lakemark.open(str(path), mergers=[QuantityMerger()]).snapshot().read_all()
        assert rows.num_rows == 40
        assert set(rows["quantity"].to_pylist()) == {111 * run}
    assert compacted
    on_spark = read_table(spark, str(path), mergers=[QuantityMerger()])
    assert on_spark.agg({"quantity": "sum"}).first()[0] == 40 * 444  # type: ignore[index]


def test_fields_that_a_record_lacks_stay_as_they_are(
    kafka: Kafka, spark: SparkSession, exchange: StreamExchange[Any], tmp_path: Path
) -> None:
    topic, path = kafka.create_topic(), tmp_path / "orders"
    parts = {"partial_update": "absent_fields"}
    config = pipeline_config(kafka.bootstrap, topic, path, table=parts)
    steps: list[dict[str, object]] = [
        {"customer": "Ada", "note": "blue", "quantity": 1},
        {"updated_at": 3, "note": None},
        {"updated_at": 2, "note": "red", "customer": "Bea"},
        {"updated_at": 4, "quantity": 5},
    ]
    for step in steps:
        _send(kafka, topic, [_order(1, **step)])
        _run(config, exchange)
    columns = ["customer", "note", "quantity", "updated_at"]
    (row,) = (
        open_table(StorageLocation(str(path)))
        .scan(columns=columns)
        .to_reader()
        .read_all()
        .to_pylist()
    )
    assert row == {"customer": "Ada", "note": None, "quantity": 5, "updated_at": 4}
