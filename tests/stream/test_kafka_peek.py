"""Sampling a few records of a topic uses bounded memory, however long the records are."""

from __future__ import annotations

import time
from contextlib import closing

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from sinks.audit import OffsetGap
from streamer.config.kafka_source import KafkaSourceConfig
from streamer.config.load import validated
from streamer.events import RunStarted
from streamer.metrics.poller import poll_in_background
from streamer.metrics.run_metrics import RunMetrics
from streamer.sources import kafka as kafka_source
from streamer.sources import kafka_peek
from streamer.sources.errors import (
    BrokerUnreachable,
    GapCheckFailed,
    InvalidConsumer,
    RecordsWithheld,
)
from streamer.sources.kafka import KafkaSource
from streamer.sources.kafka_admin import KafkaAdmin
from streamer.sources.kafka_offsets import OffsetRange
from streamer.sources.kafka_peek import KafkaPeek
from streamer.sources.poll_size import MAX_RECORDS
from streamer.stream_failure import is_transient
from tests.fixtures.kafka import Kafka
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

LONG_BYTES = 900_000
SHORT = b'{"id": 1}'


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait longer for the broker, because the machine may be busy."""
    monkeypatch.setattr(kafka_peek, "ANSWER_WITHIN_S", 60.0)
    monkeypatch.setattr(kafka_source, "_SAMPLE_TIMEOUT_S", 60.0)


def source_of(
    spark: SparkSession, kafka: Kafka, topic: str, starting: str = "earliest", **consumer: str
) -> KafkaSource:
    source = {"bootstrap_servers": kafka.bootstrap, "topic": topic, "starting_offsets": starting}
    tree = {"source": {**source, "consumer": consumer}, "table": {"path": "p", "record_key": "k"}}
    config: KafkaSourceConfig = validated(tree).kafka
    return KafkaSource(spark, config)


def send_compressed(kafka: Kafka, topic: str, count: int) -> None:
    """Produce long records that are compressed to a few bytes."""
    settings = {"bootstrap.servers": kafka.bootstrap, "compression.type": "zstd", "log_level": 3}
    producer = Producer({**settings, "message.max.bytes": 2 * LONG_BYTES})
    for _ in range(count):
        producer.produce(topic, b"x" * LONG_BYTES)
    assert producer.flush(120) == 0


def test_a_poll_holds_no_more_long_records_than_fit_however_they_are_compressed(
    spark: SparkSession, kafka: Kafka
) -> None:
    topic = kafka.create_topic()
    with source_of(spark, kafka, topic) as source:
        unseen = source.poll_records(source.start_checkpoint(None))
        kafka.produce(topic, [(b"k", SHORT)] * 30)
        short = source.poll_records(source.start_checkpoint(None))
        send_compressed(kafka, topic, 1)
        long = source.poll_records(source.start_checkpoint(None))
    assert (unseen, short) == (500, MAX_RECORDS)
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    heap_bytes = int(jvm.java.lang.Runtime.getRuntime().maxMemory())
    assert heap_bytes // 64 < long * LONG_BYTES < heap_bytes // 32
    with source_of(spark, kafka, topic, **{"max.poll.records": "7"}) as source:
        assert source.poll_records(source.start_checkpoint(None)) == 7


def test_a_schema_is_inferred_from_what_is_there_wherever_the_run_starts(
    spark: SparkSession, kafka: Kafka
) -> None:
    topic = kafka.create_topic(partitions=2)
    for partition in (0, 1):
        records = [(b"k", b"%d" % number) for number in range(partition, 40, 2)]
        kafka.produce(topic, [*records, (b"k", None)], partition)
    with source_of(spark, kafka, topic, "latest") as source:
        assert sorted(source.sample(10).to_pylist()) == sorted(b"%d" % n for n in range(32, 40))
    with source_of(spark, kafka, topic) as source:
        assert sorted(source.sample(10).to_pylist()) == sorted(b"%d" % n for n in range(10))
        assert len(source.sample(1_000)) == 40


def test_few_long_values_are_enough(spark: SparkSession, kafka: Kafka) -> None:
    topic = kafka.create_topic()
    send_compressed(kafka, topic, 40)
    with source_of(spark, kafka, topic) as source:
        assert len(source.sample(1_000)) == -(-(16 << 20) // LONG_BYTES)


def test_a_schema_is_not_inferred_from_partitions_that_are_silent(
    spark: SparkSession, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.create_topic(partitions=2)
    kafka.produce(topic, [(b"k", SHORT)] * 3, partition=0)
    monkeypatch.setattr(kafka_peek, "ANSWER_WITHIN_S", 1.0)
    with (
        source_of(spark, kafka, topic) as source,
        closing(source.peek()) as peek,
        pytest.raises(BrokerUnreachable, match=r"partition 1 .* returned no records within 1 s"),
    ):
        peek.values({0: 0, 1: 0}, {0: 3, 1: 3}, 1 << 20)


def test_a_partition_that_passes_aborted_transactions_is_not_silent(
    spark: SparkSession, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, aborted = kafka.create_topic(), 8
    for _ in range(aborted):  # each more than a fetch takes
        with kafka.transaction(topic, [(b"k", b"x" * 100_000)], aborts=True):
            pass
    kafka.produce(topic, [(b"k", SHORT)])
    poll = KafkaPeek._poll

    def slow(peek: KafkaPeek) -> object:
        time.sleep(0.5)
        return poll(peek)

    monkeypatch.setattr(KafkaPeek, "_poll", slow)
    monkeypatch.setattr(kafka_peek, "ANSWER_WITHIN_S", 2.0)
    with source_of(spark, kafka, topic) as source, closing(source.peek()) as peek:
        assert peek.values({0: 0}, {0: 2 * aborted + 1}, 1 << 20) == [SHORT]


def test_gap_that_the_broker_does_not_answer_for_is_not_taken_for_empty(
    spark: SparkSession, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.create_topic(partitions=2)
    for partition in (0, 1):
        kafka.produce(topic, [(b"k", SHORT)] * 5, partition=partition)
    monkeypatch.setattr(kafka_peek, "ANSWER_WITHIN_S", 1.0)
    with source_of(spark, kafka, topic) as source:
        topic_id = source.start(None).topic_id
        beyond = [OffsetGap(0, 5, 8), OffsetGap(1, 4, 5)]
        with pytest.raises(RecordsWithheld, match="offset 4 of partition 1"):
            source.check_read(topic_id, beyond)
        with pytest.raises(GapCheckFailed, match="partition 0, offsets 5 to 7: no answer") as away:
            source.check_read(topic_id, beyond[:1])
        assert is_transient(away.value)

        kafka.delete_before(topic, 4)
        as_before = {n: OffsetRange(0, 5) for n in (0, 1)}
        monkeypatch.setattr(KafkaAdmin, "ranges", lambda _: as_before)
        with pytest.raises(GapCheckFailed, match="offsets 1 to 2: the broker no longer has"):
            source.check_read(topic_id, [OffsetGap(0, 1, 3)])
        assert not source.check_read(topic_id, [])


def test_gaps_of_all_partitions_are_asked_for_at_once(
    spark: SparkSession, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.create_topic(partitions=3)
    for partition in range(3):
        # Records at 0, 1, 3 and 4, aborted ones at 6 to 25, marks at 2, 5 and 26.
        for count, aborts in ((2, False), (2, False), (20, True)):
            with kafka.transaction(topic, [(b"k", SHORT)] * count, partition, aborts=aborts):
                pass
        kafka.produce(topic, [(b"k", SHORT)] * 40, partition)
    asked: list[int] = []
    assign = KafkaPeek._assign

    def counted(peek: KafkaPeek, offsets: dict[object, int]) -> None:
        asked.append(len(offsets))
        assign(peek, offsets)

    with source_of(spark, kafka, topic) as source:
        start = source.start(None)
        monkeypatch.setattr(KafkaPeek, "_assign", counted)
        gaps = [gap for n in range(3) for gap in (OffsetGap(n, 2, 3), OffsetGap(n, 5, 27))]
        assert not source.check_read(start.topic_id, gaps)
        assert asked == [3]
        for begin in (3, 27, 60):
            with pytest.raises(RecordsWithheld, match=f"offset {begin} of partition 2"):
                source.check_read(start.topic_id, [*gaps, OffsetGap(2, begin, begin + 2)])
        assert asked == [3] * 4


def test_metrics_of_the_lag_return_after_their_consumer_has_failed(
    spark: SparkSession, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example, because the password with which it logged in was replaced."""
    topic, opened = kafka.create_topic(), list[KafkaPeek]()
    kafka.produce(topic, [(None, SHORT)])
    metrics = RunMetrics("shop", topic)
    metrics(RunStarted("shop", topic, "orders", {0: 0}, False))
    with source_of(spark, kafka, topic) as source:
        peek = source.peek

        def open_peek() -> KafkaPeek:
            opened.append(peek())
            if len(opened) == 1:
                opened[0].close()
            return opened[-1]

        monkeypatch.setattr(source, "peek", open_peek)
        with poll_in_background(source, {}, metrics, 0.05, lambda: False, lambda: None):
            until(lambda: any(one.seconds is not None for one in metrics.lag), within_s=60)
    assert len(opened) == 2


def test_a_property_that_only_a_consumer_knows_is_checked(
    spark: SparkSession, kafka: Kafka
) -> None:
    with pytest.raises(InvalidConsumer, match=r"Invalid value abc for configuration max\.poll"):
        source_of(spark, kafka, "t", **{"max.poll.records": "abc"})
