"""From a topic to a table: every record is there once, whichever way it took."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sinks.hudi.exchange import DriverExchange, Exchange
from sinks.hudi.sink import TooManyRejects
from sinks.hudi.spark_exchange import SparkExchange
from streamer import pipeline
from streamer.demo import expected_orders, produce
from streamer.events import BatchWritten, CompactionDone, Event, OffsetsSkipped
from table.execution.runner import LocalRunner
from table.hudi_table import open_table
from table.model.action import Action
from table.storage import StorageLocation
from tests.fixtures.kafka import Kafka
from tests.stream.orders_pipeline import assert_holds, assert_offsets_chain, pipeline_config

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

KEYS = 700
EXCHANGES: dict[str, Exchange] = {
    "driver": DriverExchange(LocalRunner(2)),
    "spark": SparkExchange(3),
}


@pytest.fixture(params=EXCHANGES)
def exchange(request: pytest.FixtureRequest) -> Exchange:
    return EXCHANGES[request.param]


@pytest.mark.parametrize("table_type", ["merge_on_read", "copy_on_write"])
def test_the_table_holds_the_newest_state_of_every_order(
    kafka: Kafka, spark: SparkSession, exchange: Exchange, table_type: str, tmp_path: Path
) -> None:
    topic = kafka.create_topic(partitions=4)
    path = tmp_path / "orders"
    config = pipeline_config(kafka.bootstrap, topic, path, table={"type": table_type})
    sent, events, checkpoint = 0, list[Event](), None
    for count in (9_000, 3_000, 0):
        produce(kafka.bootstrap, topic, count, keys=KEYS, first=sent)
        sent += count
        with pipeline.build(config, events.append, exchange) as built:
            built.loop.run()
            checkpoint = built.sink.checkpoint()
            assert checkpoint is not None
            assert set(built.source.lag(checkpoint).values()) == {0}
        expected = expected_orders(sent, keys=KEYS)
        assert_holds(StorageLocation(str(path)), expected)
        rejects = open_table(StorageLocation(f"{path}_dead_letters")).snapshot().read_all()
        assert rejects.num_rows == expected.broken_count
        assert rejects["value"].null_count == 0
    if table_type == "merge_on_read":
        assert checkpoint is not None
        assert_offsets_chain(StorageLocation(str(path)), checkpoint)
        assert any(isinstance(event, CompactionDone) for event in events)
    batches = [event for event in events if isinstance(event, BatchWritten)]
    assert sum(event.records_read for event in batches) == sent
    assert all(event.records_read for event in batches), "a run without records commits nothing"


def test_too_many_rejects_stop_the_run_and_publish_nothing(
    kafka: Kafka, spark: SparkSession, exchange: Exchange, tmp_path: Path
) -> None:
    topic = kafka.create_topic()
    good = (b"a", b'{"order_id": "a", "region": "north", "updated_at": 1}')
    kafka.produce(topic, [good] * 8 + [(b"b", b"broken")] * 2)
    config = pipeline_config(
        kafka.bootstrap,
        topic,
        tmp_path / "orders",
        dead_letters={"max_share": 0.1, "tolerated": 0},
    )
    with pipeline.build(config, _deaf, exchange) as built:
        with pytest.raises(
            TooManyRejects, match=rf"2 of 10 .* the first: {topic} 0:8: .*JSON object"
        ):
            built.loop.run()
    timeline = open_table(StorageLocation(str(tmp_path / "orders"))).timeline
    assert not timeline.completed(Action.DELTA_COMMIT)


def test_a_tombstone_deletes_by_key(
    kafka: Kafka, spark: SparkSession, exchange: Exchange, tmp_path: Path
) -> None:
    topic = kafka.create_topic()
    rows = [(k, b'{"order_id": "%s", "region": "n", "updated_at": 5}' % k) for k in (b"a", b"b")]
    config = pipeline_config(
        kafka.bootstrap, topic, tmp_path / "orders", table={"partition_by": []}
    )
    for messages in (rows, [(b"a", None)]):
        kafka.produce(topic, messages)
        with pipeline.build(config, _deaf, exchange) as built:
            built.loop.run()
    left = open_table(StorageLocation(str(tmp_path / "orders"))).snapshot(["order_id"]).read_all()
    assert left["order_id"].to_pylist() == ["b"]


def test_records_that_are_lost_while_the_stream_runs_are_told(
    kafka: Kafka, spark: SparkSession, exchange: Exchange, tmp_path: Path
) -> None:
    topic = kafka.create_topic()
    record = '{{"order_id": "{0}", "region": "n", "updated_at": 1}}'
    for first in range(0, 300, 50):  # batches of their own, so that no fetch brings all
        kafka.produce(topic, [(b"k", record.format(first + n).encode()) for n in range(50)])
    config = pipeline_config(
        kafka.bootstrap,
        topic,
        tmp_path / "orders",
        source={
            "max_records_per_batch": 100,
            "fail_on_data_loss": False,
            "consumer": {"max.partition.fetch.bytes": "1000"},
        },
    )
    skipped: list[OffsetsSkipped] = []

    def listener(event: Event) -> None:
        if isinstance(event, BatchWritten) and event.batch_id == 0:
            kafka.delete_before(topic, 250)
        if isinstance(event, OffsetsSkipped):
            skipped.append(event)

    with pipeline.build(config, listener, exchange) as built:
        built.loop.run()
    rows = open_table(StorageLocation(str(tmp_path / "orders"))).snapshot(["order_id"]).read_all()
    missing = set(range(300)) - set(map(int, rows["order_id"].to_pylist()))
    assert missing, "the consumer had fetched all of them before"
    told = [
        range(int(first), int(last) + 1)
        for event in skipped
        for first, last in re.findall(r"lost offsets (\d+) to (\d+)", "".join(event.ranges))
    ]
    assert missing <= {offset for lost in told for offset in lost} <= set(range(100, 250))


def _deaf(_: Event) -> None:
    """Nobody listens."""
