"""The requests about a topic that need no JVM, to a real broker or to none."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka.admin import AdminClient

from streamer.sources import topic_client
from streamer.sources.errors import BrokerRefused, BrokerUnreachable, TopicNotFound
from streamer.sources.kafka_offsets import OffsetRange
from streamer.sources.topic_client import TopicClient
from tests.fixtures.kafka import Kafka
from tests.waiting import until

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that accepts connections, but at which no broker answers."""
    with closing(socket.socket()) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


@pytest.fixture
def closed_port() -> int:
    """A port where nothing listens."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def test_wrong_port_is_reported_without_a_jvm(closed_port: int) -> None:
    with pytest.raises(BrokerUnreachable, match="Connection refused") as raised:
        TopicClient(f"127.0.0.1:{closed_port}", "orders", {}).describe()
    assert f"answered at 127.0.0.1:{closed_port}: " in str(raised.value)


def test_unknown_host_is_reported() -> None:
    with pytest.raises(BrokerUnreachable, match="Failed to resolve"):
        TopicClient("broker.invalid:9092", "orders", {}).describe()


def test_port_that_never_answers_is_reported(
    silent_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_client, "ANSWER_WITHIN_S", 1.0)
    with pytest.raises(BrokerUnreachable):
        TopicClient(f"127.0.0.1:{silent_port}", "orders", {}).describe()


@pytest.mark.kafka
def test_topic_that_is_there_passes_and_one_that_is_not_is_named(kafka: Kafka, topic: str) -> None:
    kafka.create_topic(topic)
    TopicClient(kafka.bootstrap, topic, {"fetch.max.bytes": "1000"}).describe()
    TopicClient(f"PLAINTEXT://{kafka.bootstrap}", topic, {}).describe()
    with pytest.raises(TopicNotFound, match=f"there is no topic {topic}-x at {kafka.bootstrap}"):
        TopicClient(kafka.bootstrap, f"{topic}-x", {}).describe()


@pytest.mark.kafka
def test_broker_without_sasl_is_reported(kafka: Kafka, topic: str) -> None:
    """Such a broker closes the connection when the client starts SASL."""
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{PLAIN} required username="u" password="p";',
    }
    with pytest.raises((BrokerRefused, BrokerUnreachable)):
        TopicClient(kafka.bootstrap, topic, properties).describe()


@pytest.mark.kafka
def test_newest_records_are_read_and_nothing_is_committed(kafka: Kafka, topic: str) -> None:
    kafka.create_topic(topic, partitions=3, settings={"retention.ms": "3600000"})
    kafka.produce(topic, [(b"k", b"old"), (b"k", b"newest")], partition=1)
    client = TopicClient(kafka.bootstrap, topic, {})
    assert client.count_brokers() == 1
    ranges = client.ranges(3, "read_committed")
    assert ranges == {0: OffsetRange(0, 0), 1: OffsetRange(0, 2), 2: OffsetRange(0, 0)}
    assert client.read_newest(ranges, "read_committed").sizes == [len(b"k" + b"newest")]
    assert (client.settings() or {})["retention.ms"] == "3600000"
    client.check_group("a-group-of-nobody")
    groups = AdminClient({"bootstrap.servers": kafka.bootstrap}).list_consumer_groups().result(60)
    assert not {"lakemark-doctor", "a-group-of-nobody"} & {one.group_id for one in groups.valid}


@pytest.mark.kafka
def test_empty_topic_and_end_of_an_aborted_transaction_can_be_read(
    kafka: Kafka, topic: str
) -> None:
    kafka.create_topic(topic)
    client = TopicClient(kafka.bootstrap, topic, {})
    assert client.read_newest({0: OffsetRange(0, 0)}, "read_committed").sizes == []
    with kafka.transaction(topic, [(b"k", b"v")], aborts=True):
        pass
    # The broker may answer before the mark of the end is stored.
    until(lambda: client.ranges(1, "read_committed")[0].end == 2)
    ranges = client.ranges(1, "read_committed")
    assert client.read_newest(ranges, "read_committed").sizes == []
