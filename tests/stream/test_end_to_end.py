"""With each exchange, every record of a topic arrives exactly once in the table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.lookup import find_progress
from lakemark.config import keys
from lakemark.execution.runner import LocalRunner
from lakemark.model.action import Action
from lakemark.operations.open_table import open_table
from lakemark.spark.read import read_table
from lakemark.storage import StorageLocation
from sinks.hudi.exchange import DriverExchange, StreamExchange
from sinks.hudi.spark_exchange import SparkExchange
from sinks.reject_limit import TooManyRejects
from streamer import pipeline
from streamer.demo import expected_orders, produce
from streamer.events import BatchWritten, CompactionCompleted, Event, OffsetsLost
from streamer.sources.errors import LostOffsets
from tests.fixtures.kafka import Kafka
from tests.stream.orders_pipeline import assert_holds, assert_offsets_chain, pipeline_config

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

KEYS = 700
_FOLDER_AND_DAY = ("_hoodie_partition_path", "updated_at_day")
EXCHANGES: dict[str, StreamExchange[Any]] = {
    "driver": DriverExchange(LocalRunner(2)),
    "spark": SparkExchange(3),
}


@pytest.fixture(params=EXCHANGES)
def exchange(request: pytest.FixtureRequest) -> StreamExchange[Any]:
    return EXCHANGES[request.param]


@pytest.mark.parametrize("table_type", ["merge_on_read", "copy_on_write"])
def test_the_table_holds_the_newest_state_of_every_order(
    kafka: Kafka,
    spark: SparkSession,
    exchange: StreamExchange[Any],
    table_type: str,
    tmp_path: Path,
) -> None:
    topic = kafka.create_topic(partitions=4)
    path = tmp_path / "orders"
    has_logs = table_type == "merge_on_read"
    mode = "async" if has_logs and exchange is EXCHANGES["spark"] else "inline"
    config = pipeline_config(
        kafka.bootstrap, topic, path, table={"type": table_type}, compaction={"mode": mode}
    )
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
        rejects = open_table(StorageLocation(f"{path}_dead_letters")).scan().to_reader().read_all()
        assert rejects.num_rows == expected.broken_count
        assert rejects["value"].null_count == 0
    if table_type == "merge_on_read":
        assert checkpoint is not None
        assert_offsets_chain(StorageLocation(str(path)), checkpoint)
        assert any(isinstance(event, CompactionCompleted) for event in events)
        assert not open_table(StorageLocation(str(path))).timeline.pending()
    batches = [event for event in events if isinstance(event, BatchWritten)]
    assert sum(event.records_read for event in batches) == sent
    assert all(event.records_read for event in batches), "a run without records commits nothing"


def test_too_many_rejects_stop_the_run_and_publish_nothing(
    kafka: Kafka, spark: SparkSession, exchange: StreamExchange[Any], tmp_path: Path
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
    kafka: Kafka, spark: SparkSession, exchange: StreamExchange[Any], tmp_path: Path
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
    left = (
        open_table(StorageLocation(str(tmp_path / "orders")))
        .scan(columns=["order_id"])
        .to_reader()
        .read_all()
    )
    assert left["order_id"].to_pylist() == ["b"]


@pytest.mark.parametrize("table_type", ["merge_on_read", "copy_on_write"])
def test_table_is_partitioned_by_expressions(
    kafka: Kafka,
    spark: SparkSession,
    exchange: StreamExchange[Any],
    table_type: str,
    tmp_path: Path,
) -> None:
    topic, path = kafka.create_topic(), tmp_path / "orders"
    config = pipeline_config(
        kafka.bootstrap,
        topic,
        path,
        decode={"schema": {"order_id": "string", "region": "string", "updated_at": "timestamp"}},
        table={"partition_by": ["region", "day(updated_at)"], "type": table_type},
    )
    for minute in (1, 2):
        messages = [
            json.dumps(
                {
                    "order_id": f"o{n}",
                    "region": "n",
                    "updated_at": f"2026-01-{1 + n % 9:02d}T00:0{minute}:00Z",
                }
            ).encode()
            for n in range(90)
        ]
        tombstone = {"order_id": "o0", "region": "n", "updated_at": "2026-01-01T23:00:00Z"}
        kafka.produce(topic, [(b"k", message) for message in messages])
        if minute == 2:
            kafka.produce(topic, [(json.dumps(tombstone).encode(), None)])
        with pipeline.build(config, _deaf, exchange) as built:
            built.loop.run()
    table = open_table(StorageLocation(str(path)))
    scan = table.scan(where="updated_at >= '2026-01-08 00:00:00'")
    rows = scan.to_table()
    assert rows.num_rows == 20
    expected = {("n/2026-01-08", "2026-01-08"), ("n/2026-01-09", "2026-01-09")}
    stored = zip(*(rows[name].to_pylist() for name in _FOLDER_AND_DAY), strict=True)
    assert {*stored} == expected
    assert {one.group.partition_path for one in scan.slices} == {path for path, _ in expected}
    ids = table.scan(columns=["order_id"]).to_table()["order_id"].to_pylist()
    assert sorted(ids) == sorted(f"o{n}" for n in range(1, 90))
    assert read_table(spark, path, where="updated_at >= '2026-01-08 00:00:00'").count() == 20


@pytest.mark.parametrize("policy", ["fail", "earliest", "latest"])
def test_records_lost_while_the_stream_runs_follow_the_policy(
    kafka: Kafka, spark: SparkSession, policy: str, tmp_path: Path
) -> None:
    topic = kafka.create_topic(partitions=2)
    record = '{{"order_id": "{0}", "region": "n", "updated_at": 1}}'
    for first in range(0, 300, 50):  # batches of their own, so that no fetch brings all
        rows = [(b"k", record.format(first + n).encode()) for n in range(50)]
        kafka.produce(topic, rows, partition=0)
    kafka.produce(topic, [(b"k", record.format(1000 + n).encode()) for n in range(30)], partition=1)
    config = pipeline_config(
        kafka.bootstrap,
        topic,
        tmp_path / "orders",
        source={
            "max_records_per_batch": 100,
            "on_offset_out_of_range": policy,
            "consumer": {"max.partition.fetch.bytes": "1000", "max.poll.records": "10"},
        },
        run={"retry": {"backoff_s": 0.01}},
    )
    skipped: list[OffsetsLost] = []

    def listener(event: Event) -> None:
        if isinstance(event, BatchWritten) and event.batch_id == 0 and not skipped:
            kafka.delete_before(topic, 250)
        if isinstance(event, OffsetsLost):
            skipped.append(event)

    with pipeline.build(config, listener, DriverExchange(LocalRunner(2))) as built:
        if policy == "fail":
            with pytest.raises(LostOffsets, match="partition 0 lost offsets"):
                built.loop.run()
        else:
            assert built.loop.run().checkpoint == {0: 300, 1: 30}
    table = open_table(StorageLocation(str(tmp_path / "orders")))
    orders = set(
        map(int, table.scan(columns=["order_id"]).to_reader().read_all()["order_id"].to_pylist())
    )
    extras = [
        table.store.read_commit(i).extra_metadata
        for i in table.timeline.completed(Action.DELTA_COMMIT)
    ]
    kept = [json.loads(extra[keys.SOURCE_LOST]) for extra in extras if keys.SOURCE_LOST in extra]
    read = len([order for order in orders if order < 250])
    if policy == "fail":
        assert kept == [], "nothing was skipped"
        assert orders <= {*range(read), *range(1000, 1030)}
        assert not skipped
    else:
        ((lost,),) = kept
        end = 250 if policy == "earliest" else 300
        assert lost == {
            "topic": topic,
            "partition": 0,
            "from": read,
            "to": end,
            "count": end - read,
        }
        assert [one.lost for one in skipped] == [(lost,)]
        assert orders == {*range(read), *range(end, 300), *range(1000, 1030)}
        audits = [json.loads(extra[keys.AUDIT]) for extra in extras]
        assert sum(audit["records"] for audit in audits) == len(orders)


def test_commit_accounts_for_every_offset(
    kafka: Kafka, spark: SparkSession, exchange: StreamExchange[Any], tmp_path: Path
) -> None:
    topic = kafka.create_topic()
    row = b'{"order_id": "%s", "region": "n", "updated_at": %d}'
    rows = [(b"k", row % (key, at)) for at in (1, 2) for key in (b"a", b"b", b"c")]
    kafka.produce(topic, [*rows, (b"k", b"broken")])
    for aborts in (True, False):
        with kafka.transaction(topic, [(None, row % (b"d", 3 + aborts))], aborts=aborts):
            pass
    config = pipeline_config(
        kafka.bootstrap, topic, tmp_path / "orders", dead_letters={"tolerated": 1}
    )
    with pipeline.build(config, _deaf, exchange) as built:
        built.loop.run()
    table = open_table(StorageLocation(str(tmp_path / "orders")))
    (commit,) = table.timeline.completed(Action.DELTA_COMMIT)
    extra = table.store.read_commit(commit).extra_metadata
    assert json.loads(extra[keys.AUDIT]) == {
        "offsets": 11,  # 7 records, an aborted one and its mark, a committed one and its mark
        "records": 8,
        "written": 4,
        "merged": 3,
        "rejected": 1,
        "skipped": 3,
        "ignored": 0,
        "lost": 0,
    }


def test_two_streamers_of_one_table_keep_separate_checkpoints(
    kafka: Kafka, spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "orders"
    topics = {"": kafka.create_topic(), "returns": kafka.create_topic()}
    for turn in range(2):
        for identity, topic in topics.items():
            key = f"{identity or 'default'}{turn}"
            record = f'{{"order_id": "{key}", "region": "n", "updated_at": 1}}'
            kafka.produce(topic, [(b"k", record.encode())])
            source = {"checkpoint_id": identity}
            config = pipeline_config(kafka.bootstrap, topic, path, source=source)
            with pipeline.build(config, _deaf) as built:
                assert built.loop.run().rows_written == 1
    table = open_table(StorageLocation(str(path)))
    for identity, topic in topics.items():
        progress = find_progress(table, table.timeline, identity)
        assert progress is not None
        assert progress.checkpoint == KafkaCheckpoint(topic, {0: 2})
    keys_there = table.scan(columns=["order_id"]).to_reader().read_all()["order_id"].to_pylist()
    assert sorted(keys_there) == ["default0", "default1", "returns0", "returns1"]


def _deaf(_: Event) -> None:
    """Ignore the event."""
