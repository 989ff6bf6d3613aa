"""The source reads a topic of a real broker, in the application's own Spark session."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import DataFrame, SparkSession

from checkpoints.checkpoint import KafkaCheckpoint
from lakemark.storage.scratch import scratch_folder
from streamer.config.kafka_source import KafkaSourceConfig
from streamer.config.load import validated
from streamer.events import Event, GroupCommitFailed
from streamer.sources import kafka_admin
from streamer.sources.errors import (
    BrokerUnreachable,
    ForeignCheckpoint,
    InvalidConsumer,
    LostOffsets,
    SourceError,
    TopicNotFound,
    TopicRecreated,
    TopicReplaced,
    UnknownPartitions,
)
from streamer.sources.kafka import KafkaSource
from streamer.sources.offset_log import planned_end
from streamer.sources.topic_client import TopicClient
from tests.fixtures.kafka import Kafka

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def config(bootstrap_servers: str, topic: str, **settings: object) -> KafkaSourceConfig:
    source = {"bootstrap_servers": bootstrap_servers, "topic": topic, **settings}
    return validated({"source": source, "table": {"path": "p", "record_key": "k"}}).kafka


@pytest.fixture
def orders(kafka: Kafka) -> str:
    """A topic of two partitions with 30 and 20 records."""
    topic = kafka.create_topic(partitions=2)
    kafka.produce(topic, [(b"k", b"a%d" % i) for i in range(30)], partition=0)
    kafka.produce(topic, [(b"k", b"b%d" % i) for i in range(20)], partition=1)
    return topic


Batch = tuple[KafkaCheckpoint, list[tuple[bytes | None, bytes | None, int, int]]]


def drain(source: KafkaSource, start: KafkaCheckpoint) -> list[Batch]:
    """Read the topic to its end; return the planned end and the records of each batch."""
    batches: list[Batch] = []

    def keep(records: DataFrame, batch_id: int) -> None:
        rows = records.select("key", "value", "partition", "offset").collect()
        plain = [(k and bytes(k), v and bytes(v), p, o) for k, v, p, o in rows]
        batches.append((planned_end(scratch, batch_id), sorted(plain, key=lambda row: row[2:])))

    with scratch_folder("stream") as scratch:
        writer = source.stream(start).writeStream.foreachBatch(keep)
        writer = writer.option("checkpointLocation", scratch.as_uri())
        assert writer.trigger(availableNow=True).start().awaitTermination(120)
    return batches


def test_the_planned_ends_join_and_cover_each_record_once(
    spark: SparkSession, bootstrap: str, orders: str
) -> None:
    with KafkaSource(spark, config(bootstrap, orders, max_records_per_batch=20)) as source:
        begin = source.start_checkpoint(KafkaCheckpoint(orders, {0: 7}))
        assert begin == KafkaCheckpoint(orders, {0: 7, 1: 0})
        assert source.lag(begin) == {0: 23, 1: 20}
        batches = drain(source, begin)
        assert len(batches) > 2
        at = begin
        for end, rows in batches:
            expected = [(p, o) for p in (0, 1) for o in range(at.offsets[p], end.offsets[p])]
            assert [(p, o) for _, _, p, o in rows] == expected
            at = end
        assert at == KafkaCheckpoint(orders, {0: 30, 1: 20})
        assert source.lag(at) == {0: 0, 1: 0}


def test_aborted_records_are_skipped_and_the_end_is_after_them(
    spark: SparkSession, kafka: Kafka, bootstrap: str, orders: str
) -> None:
    with kafka.transaction(orders, [(None, b"aborted")] * 5, aborts=True):
        pass
    with KafkaSource(spark, config(bootstrap, orders)) as source:
        ((end, rows),) = drain(source, KafkaCheckpoint(orders, {0: 28, 1: 20}))
    assert [offset for *_, offset in rows] == [28, 29]
    assert end == KafkaCheckpoint(orders, {0: 36, 1: 20})  # 30 + 5 + the abort's own mark


def test_run_starts_as_the_pipeline_says_after_a_reset_of_its_checkpoint(
    spark: SparkSession, kafka: Kafka, bootstrap: str, orders: str
) -> None:
    with KafkaSource(spark, config(bootstrap, orders)) as source:
        source.stream(source.start_checkpoint(KafkaCheckpoint(orders, {0: 7, 1: 7})))
        assert source.start_checkpoint(None) == KafkaCheckpoint(orders, {0: 0, 1: 0})
    with KafkaSource(spark, config(bootstrap, orders, starting_offsets="latest")) as source:
        first = source.start_checkpoint(None)
        source.stream(first)
        kafka.produce(orders, [(b"k", b"new")], partition=0)
        assert source.start_checkpoint(None) == first, "nothing has recorded it"
        source.forget_first_start()
        assert source.start_checkpoint(None) == KafkaCheckpoint(orders, {0: 31, 1: 20})


def test_a_key_is_read_only_where_it_is_all_there_is(
    spark: SparkSession, kafka: Kafka, bootstrap: str, orders: str
) -> None:
    kafka.produce(orders, [(b"dead", None)], partition=1)
    end_of_orders = KafkaCheckpoint(orders, {0: 29, 1: 20})
    with KafkaSource(spark, config(bootstrap, orders)) as source:
        ((_, rows),) = drain(source, end_of_orders)
    assert rows == [(None, b"a29", 0, 29), (b"dead", None, 1, 20)]
    with KafkaSource(spark, config(bootstrap, orders, metadata_columns=["key", "topic"])) as source:
        ((_, rows),) = drain(source, end_of_orders)
        assert "topic" in source.stream(end_of_orders).columns
    assert rows == [(b"k", b"a29", 0, 29), (b"dead", None, 1, 20)]


def test_the_longest_message_is_the_topics(spark: SparkSession, kafka: Kafka) -> None:
    topic = kafka.create_topic(settings={"max.message.bytes": "5000000"})
    with KafkaSource(spark, config(kafka.bootstrap, topic)) as source:
        assert source.max_message_bytes() == 5_000_000


def test_partitions_added_later_are_read_from_their_first_record(
    spark: SparkSession, kafka: Kafka, bootstrap: str, orders: str
) -> None:
    kafka.add_partitions(orders, 3)
    kafka.produce(orders, [(b"k", b"new")], partition=2)
    with KafkaSource(spark, config(bootstrap, orders, starting_offsets="latest")) as source:
        start = source.start_checkpoint(KafkaCheckpoint(orders, {0: 30, 1: 20}))
        ((_, rows),) = drain(source, start)
    assert rows == [(None, b"new", 2, 0)]


def test_lost_records_stop_the_run_or_are_in_the_start(
    spark: SparkSession, kafka: Kafka, bootstrap: str, orders: str
) -> None:
    kafka.delete_before(orders, 10)
    read = KafkaCheckpoint(orders, {0: 3, 1: 4})
    with KafkaSource(spark, config(bootstrap, orders)) as source:
        with pytest.raises(LostOffsets, match="partition 0 lost offsets 3 to 9") as raised:
            source.start_checkpoint(read)
        assert [lost.partition for lost in raised.value.lost] == [0]
    for policy, at in (("earliest", 10), ("latest", 30)):
        tolerant = config(bootstrap, orders, on_offset_out_of_range=policy)
        with KafkaSource(spark, tolerant) as source:
            start = source.start(read)
        assert start.checkpoint == KafkaCheckpoint(orders, {0: at, 1: 4})
        facts = {"topic": orders, "partition": 0, "from": 3, "to": at, "count": at - 3}
        assert [lost.facts(orders) for lost in start.lost] == [facts]


def test_topic_created_again_is_recognised_regardless_of_its_size(
    spark: SparkSession, kafka: Kafka, bootstrap: str, orders: str
) -> None:
    with KafkaSource(spark, config(bootstrap, orders)) as source:
        before = source.start(None).topic_id
        assert before
        assert TopicClient(bootstrap, orders, {}).topic_id() == before
        source.check_same_topic(before)
        kafka.delete(orders)
        kafka.create_again(orders, partitions=2)
        kafka.produce(orders, [(b"k", b"new")] * 40, partition=0)
        read = KafkaCheckpoint(orders, {0: 30, 1: 0})
        with pytest.raises(TopicRecreated, match="lakemark checkpoint reset"):
            source.start(read, before)
        with pytest.raises(TopicReplaced, match=before):
            source.check_same_topic(before)
    for policy, at in (("earliest", 0), ("latest", 40)):
        tolerant = config(bootstrap, orders, on_offset_out_of_range=policy)
        with KafkaSource(spark, tolerant) as source:
            start = source.start(read, before)
        assert start.checkpoint == KafkaCheckpoint(orders, {0: at, 1: 0})
        assert start.topic_id not in ("", before)
        assert [(lost.wanted, lost.resumes_at) for lost in start.lost] == [(30, at), (0, 0)]


def test_a_moment_is_resolved_to_the_first_record_that_is_no_older(
    spark: SparkSession, kafka: Kafka, bootstrap: str
) -> None:
    topic = kafka.create_topic(partitions=3)
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition, times in enumerate(([1_000, 2_000, 3_000], [1_000, 1_500], [])):
        for time_ms in times:
            producer.produce(
                topic, b"v", partition=partition, timestamp=1_700_000_000_000 + time_ms
            )
    assert producer.flush(60) == 0
    for starting, at in (
        ({"timestamp": 1_700_000_002_000}, {0: 1, 1: 2, 2: 0}),
        ({"timestamp": "2023-11-14T22:13:21Z"}, {0: 0, 1: 0, 2: 0}),
        ({"timestamp": 1_700_000_003_001}, {0: 3, 1: 2, 2: 0}),
    ):
        with KafkaSource(spark, config(bootstrap, topic, starting_offsets=starting)) as source:
            assert source.start_checkpoint(None) == KafkaCheckpoint(topic, at)


def test_consumer_group_receives_the_offsets_of_the_table(
    spark: SparkSession, bootstrap: str, orders: str
) -> None:
    group = f"{orders}-lag"
    reported: list[Event] = []
    with KafkaSource(
        spark, config(bootstrap, orders, commit_group=group), reported.append
    ) as source:
        for offset in (5, 6, 7):
            source.report_position(KafkaCheckpoint(orders, {0: offset, 1: 2}))
    watcher = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    asked = [TopicPartition(orders, partition) for partition in (0, 1)]
    assert [found.offset for found in watcher.committed(asked, 60)] == [7, 2]
    watcher.subscribe([orders])
    deadline = time.monotonic() + 120
    while not watcher.assignment():
        assert time.monotonic() < deadline, "the group has no members"
        watcher.poll(0.2)
    assert reported == []
    with KafkaSource(
        spark, config(bootstrap, orders, commit_group=group), reported.append
    ) as source:
        source.report_position(KafkaCheckpoint(orders, {0: 8, 1: 2}))
    watcher.close()
    assert isinstance(reported[0], GroupCommitFailed), "a group with members is its members' own"


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"topic": "nowhere"}, TopicNotFound),
        ({"starting_offsets": {"7": 0}}, UnknownPartitions),
        ({"starting_offsets": {"0": 31}}, LostOffsets),
        ({"bootstrap_servers": "no-such-host.invalid:9092"}, BrokerUnreachable),
        ({"consumer": {"security.protocol": "SASL_SSL"}}, InvalidConsumer),
        ({"consumer": {"security.protocol": "TELNET"}}, InvalidConsumer),
    ],
    ids=str,
)
def test_source_error_is_raised_before_the_stream_starts(
    spark: SparkSession,
    bootstrap: str,
    orders: str,
    settings: dict[str, object],
    error: type[SourceError],
) -> None:
    chosen = {"bootstrap_servers": bootstrap, "topic": orders, **settings}
    with pytest.raises(error), KafkaSource(spark, config(**chosen)) as source:  # type: ignore[arg-type]
        source.start_checkpoint(None)


def test_the_checkpoint_of_another_topic_is_refused(
    spark: SparkSession, bootstrap: str, orders: str
) -> None:
    with (
        KafkaSource(spark, config(bootstrap, orders)) as source,
        pytest.raises(ForeignCheckpoint, match="another topic"),
    ):
        source.start_checkpoint(KafkaCheckpoint("other", {0: 1}))


def test_a_broker_that_does_not_answer_is_given_up_soon(
    spark: SparkSession, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_admin, "ANSWER_WITHIN_S", 2)
    started = time.monotonic()
    with (
        pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:1: .* \(within 2 s\)"),
        KafkaSource(spark, config("127.0.0.1:1", topic)) as source,
    ):
        source.start_checkpoint(None)
    assert time.monotonic() - started < 30, "a client of Kafka's asks for a minute by default"
