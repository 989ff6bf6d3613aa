"""Faults of the broker and the topic while a pipeline reads: no row is lost or written twice."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from pyspark.sql import SparkSession

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.lookup import find_progress
from lakemark.config import keys
from lakemark.errors import Permanent, StorageUnavailable, WriteConflict
from lakemark.execution.runner import LocalRunner
from lakemark.model.action import COMMITS, Action
from lakemark.model.instant import Instant
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.storage import StorageLocation
from sinks.batch import KafkaBatch
from sinks.hudi.exchange import DriverExchange, ReadBatch
from streamer import pipeline
from streamer.broker import EmbeddedBroker
from streamer.events import (
    BatchPlanned,
    BatchWritten,
    Event,
    OffsetsLost,
    Retrying,
    RunStarted,
)
from streamer.sources.errors import LostOffsets, OffsetsWithoutRecord
from streamer.sources.kafka import KafkaSource
from streamer.sources.kafka_admin import KafkaAdmin
from streamer.sources.kafka_offsets import OffsetRange
from tests.fixtures.kafka import Kafka, Message
from tests.stream.orders_pipeline import assert_offsets_chain, pipeline_config
from tests.stream.test_kafka_source import config

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

_WITHIN_S = 120

#: What docs/cluster.md promises, whatever the broker does, and some more for a busy machine; Spark
#: asks a broker that is away for a minute.
END_WITHIN_S = 45


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A broker that a test may stop, with a short interval of the log cleaner."""
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as started:
        alter(started.bootstrap, ResourceType.BROKER, "1", {"log.cleaner.backoff.ms": "100"})
        yield started


def alter(bootstrap: str, kind: ResourceType, name: str, settings: dict[str, str]) -> None:
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in settings.items()
    ]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for answer in admin.incremental_alter_configs(
        [ConfigResource(kind, name, incremental_configs=entries)]
    ).values():
        answer.result(_WITHIN_S)


def order(key: int, at: int) -> Message:
    record = f'{{"order_id": "{key}", "region": "n", "updated_at": {at}}}'
    return str(key).encode(), record.encode()


def offsets_left(bootstrap: str, topic: str, end: int) -> list[int]:
    """Return the offsets of partition 0 that still have a record; the last offset has one."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[int] = []
    while not found or found[-1] < end - 1:
        found += [message.offset() or 0 for message in consumer.consume(1_000, 0.2)]
    consumer.close()
    return found


def contents(table: OpenTable) -> dict[str, int]:
    rows = table.scan(columns=["order_id", "updated_at"]).to_reader().read_all().to_pylist()
    assert len({row["order_id"] for row in rows}) == len(rows), "an order is there twice"
    return {row["order_id"]: row["updated_at"] for row in rows}


def audits(table: OpenTable) -> list[dict[str, int]]:
    commits = table.timeline.completed(Action.DELTA_COMMIT)
    return [json.loads(table.store.read_commit(i).extra_metadata[keys.AUDIT]) for i in commits]


def test_records_that_the_broker_compacts_meanwhile_are_counted_as_skipped(
    broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path
) -> None:
    kafka = Kafka(broker.bootstrap)
    rolling = {"segment.ms": "20", "min.cleanable.dirty.ratio": "0.001"}
    topic = kafka.create_topic(settings=rolling)
    rounds, orders = 8, 50
    for at in range(rounds):  # each round is a segment, all but the last of which are compacted
        kafka.produce(topic, [order(key, at) for key in range(orders)])
        time.sleep(0.03)
    sent, left = rounds * orders, list[int]()
    source = {
        "max_records_per_batch": 120,  # so that some batches end where no record is any more
        "consumer": {"max.partition.fetch.bytes": "1000", "max.poll.records": "10"},
    }
    pipeline_of = pipeline_config(broker.bootstrap, topic, tmp_path / "orders", source=source)

    def listener(event: Event) -> None:
        if isinstance(event, BatchWritten) and event.batch_id == 0:
            compacted = {"cleanup.policy": "compact"}
            alter(broker.bootstrap, ResourceType.TOPIC, topic, compacted)
            deadline = time.monotonic() + _WITHIN_S
            while len(left) in (0, sent) and time.monotonic() < deadline:
                left[:] = offsets_left(broker.bootstrap, topic, sent)

    with pipeline.build(pipeline_of, listener, DriverExchange(LocalRunner(2))) as built:
        assert built.loop.run().checkpoint == {0: sent}
    assert len(left) < sent, "the broker has compacted nothing"
    table = open_table(StorageLocation(str(tmp_path / "orders")))
    assert contents(table) == {str(key): rounds - 1 for key in range(orders)}
    reported = audits(table)
    assert sum(audit["offsets"] for audit in reported) == sent
    skipped = sum(audit["skipped"] for audit in reported)
    assert 0 < skipped <= sent - 120, "nothing of the first batch"
    assert sum(audit["written"] + audit["merged"] for audit in reported) == sent - skipped


def test_a_broker_that_dies_and_comes_back_while_a_batch_is_read_costs_no_row(
    broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path
) -> None:
    kafka = Kafka(broker.bootstrap)
    topic = kafka.create_topic(partitions=2)
    for partition in (0, 1):
        rows = [order(1_000 * partition + n, n) for n in range(300)]
        kafka.produce(topic, rows, partition=partition)
    location = StorageLocation(str(tmp_path / "orders"))
    pipeline_of = pipeline_config(
        broker.bootstrap,
        topic,
        location.url,
        source={
            "max_records_per_batch": 200,
            "consumer": {"max.partition.fetch.bytes": "1000", "max.poll.records": "10"},
        },
        run={"retry": {"backoff_s": 0.1}},
    )
    coming_back = threading.Thread(target=broker.start)
    died: list[int] = []

    def listener(event: Event) -> None:
        if isinstance(event, BatchPlanned) and event.batch_id == 1 and not died:
            died.append(event.batch_id)
            broker.kill()
            coming_back.start()

    with pipeline.build(pipeline_of, listener, DriverExchange(LocalRunner(2))) as built:
        assert built.loop.run().checkpoint == {0: 300, 1: 300}
    coming_back.join(_WITHIN_S)
    assert died
    table = open_table(location)
    assert contents(table) == {str(1_000 * p + n): n for p in (0, 1) for n in range(300)}
    assert sum(audit["records"] for audit in audits(table)) == 600
    assert sum(audit["skipped"] for audit in audits(table)) == 0
    assert_offsets_chain(location, KafkaCheckpoint(topic, {0: 300, 1: 300}))


def test_a_run_that_is_stopped_while_the_broker_is_away_does_not_wait_for_it(
    broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path
) -> None:
    topic = Kafka(broker.bootstrap).create_topic()
    Kafka(broker.bootstrap).produce(topic, [order(1, 1)])
    pipeline_of = pipeline_config(
        broker.bootstrap,
        topic,
        tmp_path / "orders",
        source={"commit_group": f"{topic}-lag"},
        run={"mode": "continuous", "trigger_interval_s": 0.1},
    )
    asked_at: list[float] = []

    def stop() -> None:
        time.sleep(1)  # by now Spark asks for the topic's newest offsets
        asked_at.append(time.monotonic())
        built.loop.stop()

    stopping = threading.Thread(target=stop)

    def listener(event: Event) -> None:
        if isinstance(event, BatchWritten):
            broker.kill()
            stopping.start()

    with pipeline.build(pipeline_of, listener, DriverExchange(LocalRunner(2))) as built:
        ended = built.loop.run()
    took_s = time.monotonic() - asked_at[0]
    broker.start()
    assert (ended.reason, ended.checkpoint) == ("interrupted", {0: 1})
    assert took_s < END_WITHIN_S


def test_aborted_transactions_and_a_new_partition_of_a_stream_that_never_stops(
    kafka: Kafka, spark: SparkSession, tmp_path: Path
) -> None:
    topic = kafka.create_topic(partitions=2)
    location = StorageLocation(str(tmp_path / "orders"))
    pipeline_of = pipeline_config(
        kafka.bootstrap,
        topic,
        location.url,
        source={"max_records_per_batch": 100},
        run={"mode": "continuous"},
    )
    kafka.produce(topic, [order(n, n) for n in range(100)], partition=0)

    def happenings() -> Iterator[int]:
        """Apply the next fault; yields the number of records to read before it."""
        yield 100
        with kafka.transaction(topic, [order(900 + n, n) for n in range(50)], aborts=True):
            # Nothing behind what is undecided is read, though it is there.
            kafka.produce(topic, [order(100 + n, n) for n in range(50)], partition=0)
            kafka.produce(topic, [order(200 + n, n) for n in range(50)], partition=1)
            yield 150
        yield 200
        kafka.add_partitions(topic, 3)
        kafka.produce(topic, [order(300 + n, n) for n in range(50)], partition=2)
        with kafka.transaction(topic, [order(400 + n, n) for n in range(50)], aborts=False):
            pass
        yield 300
        built.loop.stop()

    wanted, read, turns = 0, 0, happenings()

    def listener(event: Event) -> None:
        nonlocal wanted, read
        assert not isinstance(event, Retrying), event
        if isinstance(event, BatchWritten):
            read += event.records_read
        if isinstance(event, RunStarted | BatchWritten) and read == wanted:
            wanted = next(turns, 0)

    with pipeline.build(pipeline_of, listener, DriverExchange(LocalRunner(2))) as built:
        end = built.loop.run().checkpoint
    marks = 2  # the end of each transaction is an offset too
    assert end == {0: 250 + marks, 1: 50, 2: 50}
    table = open_table(location)
    assert contents(table) == {
        **{str(n): n for n in range(100)},
        **{str(hundred + n): n for hundred in (100, 200, 300, 400) for n in range(50)},
    }
    skipped = sum(audit["skipped"] for audit in audits(table))
    assert skipped == 50 + marks
    assert_offsets_chain(location, KafkaCheckpoint(topic, end))


class FailsOnce(DriverExchange):
    """An exchange whose first batch fails with an unavailable storage."""

    failed = False

    def read(self, batch: KafkaBatch) -> ReadBatch:
        if not self.failed:
            self.failed = True
            message = "the storage is away for a moment"
            raise StorageUnavailable(message)
        return super().read(batch)


def test_a_first_run_at_the_latest_offset_leaves_out_nothing_when_it_starts_again(
    kafka: Kafka, spark: SparkSession, tmp_path: Path
) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, [order(1, 1)])
    pipeline_of = pipeline_config(
        kafka.bootstrap,
        topic,
        tmp_path / "orders",
        source={"starting_offsets": "latest"},
        run={"retry": {"backoff_s": 0.01}},
    )
    events: list[Event] = []

    def listener(event: Event) -> None:
        is_first = not any(isinstance(one, RunStarted) for one in events)
        events.append(event)
        if isinstance(event, RunStarted) and is_first:
            kafka.produce(topic, [order(2, 2)])

    with pipeline.build(pipeline_of, listener, FailsOnce(LocalRunner(2))) as built:
        assert built.loop.run().checkpoint == {0: 2}
    assert any(isinstance(event, Retrying) for event in events)
    assert contents(open_table(StorageLocation(str(tmp_path / "orders")))) == {"2": 2}


class Dies(DriverExchange):
    """An exchange in a process that dies with its first batch."""

    def read(self, batch: KafkaBatch) -> ReadBatch:
        message = "the process is dead"
        raise Permanent(message)


LATER_THAN_ALL = {"timestamp": "2100-01-01T00:00:00Z"}


@pytest.mark.parametrize("starting", ["latest", LATER_THAN_ALL], ids=["latest", "time"])
def test_a_run_resumes_from_the_first_start_although_its_first_batch_died(
    kafka: Kafka, spark: SparkSession, starting: object, tmp_path: Path
) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, [order(1, 1)])
    path = tmp_path / "orders"
    pipeline_of = pipeline_config(
        kafka.bootstrap, topic, path, source={"starting_offsets": starting}
    )

    def listener(event: Event) -> None:
        if isinstance(event, RunStarted):
            kafka.produce(topic, [order(2, 1)])

    with (
        pipeline.build(pipeline_of, listener, Dies(LocalRunner(2))) as built,
        pytest.raises(Permanent, match="the process is dead"),
    ):
        built.loop.run()
    kafka.produce(topic, [order(3, 1)])
    with pipeline.build(pipeline_of, lambda _: None, DriverExchange(LocalRunner(2))) as built:
        assert built.loop.run().checkpoint == {0: 3}
    location = StorageLocation(str(path))
    assert contents(open_table(location)) == {"2": 1, "3": 1}
    assert_offsets_chain(location, KafkaCheckpoint(topic, {0: 3}))


@pytest.mark.parametrize("loses", [False, True], ids=["first run", "after a loss"])
@pytest.mark.parametrize("starting", ["latest", LATER_THAN_ALL], ids=["latest", "time"])
def test_run_that_starts_at_the_end_of_an_idle_topic_keeps_its_offsets(
    kafka: Kafka, spark: SparkSession, loses: bool, starting: object, tmp_path: Path
) -> None:
    topic = kafka.create_topic()
    location = StorageLocation(str(tmp_path / "orders"))
    policy = {"starting_offsets": starting, "on_offset_out_of_range": "latest"}
    pipeline_of = pipeline_config(kafka.bootstrap, topic, location.url, source=policy)

    def run_once() -> None:
        with pipeline.build(pipeline_of, lambda _: None, DriverExchange(LocalRunner(2))) as built:
            built.loop.run()

    kafka.produce(topic, [order(1, 1)])
    run_once()
    if loses:
        kafka.produce(topic, [order(key, 1) for key in (2, 3, 4)])
        kafka.delete_before(topic, 3)
        run_once()
    kafka.produce(topic, [order(5, 1)])
    run_once()
    run_once()
    table = open_table(location)
    assert contents(table) == {"5": 1}
    reported = [table.store.read_commit(i).extra_metadata for i in table.timeline.completed()]
    lost = [json.loads(extra[keys.SOURCE_LOST]) for extra in reported if keys.SOURCE_LOST in extra]
    fact = {"topic": topic, "partition": 0, "from": 1, "to": 4, "count": 3}
    assert lost == ([[fact]] if loses else [])
    progress = find_progress(table, table.timeline)
    assert progress is not None
    assert progress.checkpoint == KafkaCheckpoint(topic, {0: 5 if loses else 2})


def test_records_that_come_while_a_moment_is_resolved_are_no_loss(
    kafka: Kafka, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, [order(1, 1)])
    ranges = KafkaAdmin.ranges

    def then_more_come(admin: KafkaAdmin) -> dict[int, OffsetRange]:
        found = ranges(admin)
        kafka.produce(topic, [order(2, 1)])
        return found

    monkeypatch.setattr(KafkaAdmin, "ranges", then_more_come)
    with KafkaSource(
        spark, config(kafka.bootstrap, topic, starting_offsets=LATER_THAN_ALL)
    ) as source:
        assert source.start_checkpoint(None) == KafkaCheckpoint(topic, {0: 1})


@pytest.mark.parametrize("policy", ["fail", "earliest"])
def test_records_that_are_deleted_between_the_plan_of_a_batch_and_its_reading_are_lost(
    kafka: Kafka, spark: SparkSession, policy: str, tmp_path: Path
) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, [order(key, 1) for key in range(50)])
    source = {"on_offset_out_of_range": policy}
    pipeline_of = pipeline_config(
        kafka.bootstrap,
        topic,
        tmp_path / "orders",
        source=source,
        run={"retry": {"backoff_s": 0.01}},
    )
    skipped: list[OffsetsLost] = []

    def listener(event: Event) -> None:
        if isinstance(event, BatchPlanned) and not skipped:
            kafka.delete_before(topic, 30)
        if isinstance(event, OffsetsLost):
            skipped.append(event)

    with pipeline.build(pipeline_of, listener, DriverExchange(LocalRunner(2))) as built:
        with nullcontext() if policy == "earliest" else pytest.raises(LostOffsets, match="0 to 29"):
            built.loop.run()
    table = open_table(StorageLocation(str(tmp_path / "orders")))
    if policy == "fail":
        assert not table.timeline.completed(*COMMITS)
        assert not skipped
    else:
        assert contents(table) == {str(key): 1 for key in range(30, 50)}
        fact = {"topic": topic, "partition": 0, "from": 0, "to": 30, "count": 30}
        assert [one.lost for one in skipped] == [(fact,)]
        assert [audit["skipped"] for audit in audits(table)] == [0, 0]


def fails_once(publish: Callable[..., Instant]) -> Callable[..., Instant]:
    """Make the first publication raise a conflict, so that the batch is retried."""
    attempts = iter([False])

    def published(*arguments: Any) -> Instant:
        if not next(attempts, True):
            message = "another writer was faster"
            raise WriteConflict(message)
        return publish(*arguments)

    return published


class Withholds(DriverExchange):
    """An exchange that does not get some records of its first batch.

    Attributes:
        offsets: offsets of these records.
        afterwards: called after the other records were read.
    """

    offsets: tuple[int, ...] = ()
    afterwards: Callable[[], None] = staticmethod(lambda: None)

    def read(self, batch: KafkaBatch) -> ReadBatch:
        withheld, self.offsets = self.offsets, ()
        records = batch.records.filter(~batch.records["offset"].isin(list(withheld)))
        read = super().read(replace(batch, records=records))
        self.afterwards()
        return read


def test_a_record_that_the_topic_has_and_a_batch_has_not_is_read_again(
    kafka: Kafka, spark: SparkSession, tmp_path: Path
) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, [order(key, 1) for key in range(9)])
    path = tmp_path / "orders"
    run = {"retry": {"backoff_s": 0.01}}
    retries: list[Retrying] = []

    def listener(event: Event) -> None:
        if isinstance(event, Retrying):
            retries.append(event)

    for offsets, shown in (((3, 4, 7), "offset 3 of partition 0"), ((17,), "offset 17 of")):
        exchange = Withholds(LocalRunner(2))
        exchange.offsets = offsets
        pipeline_of = pipeline_config(kafka.bootstrap, topic, path, run=run)
        with pipeline.build(pipeline_of, listener, exchange) as built:
            built.loop.run()
        assert retries[-1].error_type == "RecordsWithheld"
        assert shown in retries[-1].error
        kafka.produce(topic, [order(key, 1) for key in range(9, 18)])
    assert len(retries) == 2
    table = open_table(StorageLocation(str(path)))
    assert contents(table) == {str(key): 1 for key in range(18)}
    assert [audit["skipped"] for audit in audits(table)] == [0, 0]


@pytest.mark.parametrize("policy", ["fail", "earliest"])
def test_offsets_that_were_not_read_and_are_deleted_now_are_lost(
    kafka: Kafka, spark: SparkSession, policy: str, tmp_path: Path
) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, [order(key, 1) for key in range(9)])
    path = tmp_path / "orders"
    source = {"on_offset_out_of_range": policy}
    pipeline_of = pipeline_config(kafka.bootstrap, topic, path, source=source)
    exchange = Withholds(LocalRunner(2))
    exchange.offsets = (2, 3, 4)
    exchange.afterwards = lambda: kafka.delete_before(topic, 5)
    skipped: list[OffsetsLost] = []

    def listener(event: Event) -> None:
        if isinstance(event, OffsetsLost):
            skipped.append(event)

    with pipeline.build(pipeline_of, listener, exchange) as built:
        with nullcontext() if policy == "earliest" else pytest.raises(LostOffsets, match="2 to 4 "):
            built.loop.run()
    table = open_table(StorageLocation(str(path)))
    if policy == "fail":
        assert not table.timeline.completed(*COMMITS)
        assert not skipped
    else:
        _check_loss(table, topic, skipped)


def _check_loss(table: OpenTable, topic: str, skipped: list[OffsetsLost]) -> None:
    """Check that offsets 2 to 4 of nine are recorded as lost, and the others are rows."""
    (commit,) = table.timeline.completed(*COMMITS)
    fact = {"topic": topic, "partition": 0, "from": 2, "to": 5, "count": 3}
    extra = table.store.read_commit(commit).extra_metadata
    assert json.loads(extra[keys.SOURCE_LOST]) == [fact]
    assert [one.lost for one in skipped] == [(fact,)]
    (audit,) = audits(table)
    assert (audit["records"], audit["skipped"], audit["lost"]) == (6, 0, 3)
    assert contents(table) == {str(key): 1 for key in (0, 1, 5, 6, 7, 8)}


def test_lost_offsets_of_a_batch_that_is_written_again_are_reported_once(
    kafka: Kafka, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, [order(key, 1) for key in range(9)])
    source = {"on_offset_out_of_range": "earliest"}
    pipeline_of = pipeline_config(kafka.bootstrap, topic, tmp_path / "orders", source=source)
    exchange = Withholds(LocalRunner(2))
    exchange.offsets = (2, 3, 4)
    exchange.afterwards = lambda: monkeypatch.setattr(
        KafkaAdmin, "ranges", lambda _: {0: OffsetRange(5, 9)}
    )
    skipped: list[OffsetsLost] = []

    def listener(event: Event) -> None:
        if isinstance(event, OffsetsLost):
            skipped.append(event)

    with pipeline.build(pipeline_of, listener, exchange) as built:
        writer = built.sink._writer
        monkeypatch.setattr(writer, "_publish", fails_once(writer._publish))
        built.loop.run()
    (audit,) = audits(open_table(StorageLocation(str(tmp_path / "orders"))))
    assert audit["lost"] == 3
    assert [lost["count"] for one in skipped for lost in one.lost] == [3]


def test_a_topic_that_must_have_no_gaps_stops_the_run_at_the_first_one(
    kafka: Kafka, spark: SparkSession, tmp_path: Path
) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, [order(1, 1)])
    path = tmp_path / "orders"
    pipeline_of = pipeline_config(
        kafka.bootstrap, topic, path, source={"on_missing_offsets": "fail"}
    )
    with pipeline.build(pipeline_of, lambda _: None, DriverExchange(LocalRunner(2))) as built:
        built.loop.run()
    with kafka.transaction(topic, [order(2, 1)], aborts=False):
        pass
    with (
        pipeline.build(pipeline_of, lambda _: None, DriverExchange(LocalRunner(2))) as built,
        pytest.raises(
            OffsetsWithoutRecord, match=r"partition 0, offsets 2 to 2, and source\.on_mis"
        ),
    ):
        built.loop.run()
    assert contents(open_table(StorageLocation(str(path)))) == {"1": 1}


@pytest.mark.parametrize("is_old", [False, True], ids=["no older than the time", "older"])
def test_a_record_between_the_two_requests_of_a_start_at_a_time_is_not_skipped(
    kafka: Kafka, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, is_old: bool
) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, [order(1, 1)])
    time.sleep(0.01)
    now_ms = time.time_ns() // 1_000_000
    ask = KafkaAdmin._list_offsets

    def then_a_record_arrives(admin: KafkaAdmin, *arguments: Any) -> Any:
        answer = ask(admin, *arguments)
        answer.all().get()
        kafka.produce(topic, [order(2, 1)])
        return answer

    starting = LATER_THAN_ALL if is_old else {"timestamp": now_ms}
    with KafkaSource(spark, config(kafka.bootstrap, topic, starting_offsets=starting)) as source:
        monkeypatch.setattr(KafkaAdmin, "_list_offsets", then_a_record_arrives)
        assert source.start_checkpoint(None) == KafkaCheckpoint(topic, {0: 1})
