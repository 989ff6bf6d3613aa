"""The requests about a topic that need no JVM, to a real broker or to none."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
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


def test_unknown_host_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    # A network whose name server does not answer needs longer to say so.
    monkeypatch.setattr(topic_client, "ANSWER_WITHIN_S", 90.0)
    with pytest.raises(BrokerUnreachable, match="Failed to resolve"):
        TopicClient("broker.invalid:9092", "orders", {}).describe()


def test_port_that_never_answers_is_reported(
    silent_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_client, "ANSWER_WITHIN_S", 1.0)
    with pytest.raises(BrokerUnreachable):
        TopicClient(f"127.0.0.1:{silent_port}", "orders", {}).describe()


@pytest.mark.kafka
@pytest.mark.usefixtures("patient")
def test_topic_that_is_there_passes_and_one_that_is_not_is_named(kafka: Kafka, topic: str) -> None:
    kafka.create_topic(topic)
    TopicClient(kafka.bootstrap, topic, {"fetch.max.bytes": "1000"}).describe()
    TopicClient(f"PLAINTEXT://{kafka.bootstrap}", topic, {}).describe()
    missing = f"there is no topic {topic}-x at {kafka.bootstrap}"
    with pytest.raises(TopicNotFound, match=f"{missing}.* --create --topic {topic}-x "):
        TopicClient(kafka.bootstrap, f"{topic}-x", {}).describe()


@pytest.mark.kafka
@pytest.mark.usefixtures("patient")
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
@pytest.mark.usefixtures("patient")
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
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})  # referenced until it has answered
    groups = admin.list_consumer_groups().result(120)
    assert not {"lakemark-doctor", "a-group-of-nobody"} & {one.group_id for one in groups.valid}


class Loading:
    """A client that gets an error once, because no broker has loaded the groups yet."""

    def __init__(self, code: int) -> None:
        self._errors = [KafkaException(KafkaError(code))]

    def describe_consumer_groups(self, groups: list[str], **_: object) -> dict[str, Future[Any]]:
        answer: Future[Any] = Future()
        if self._errors:
            answer.set_exception(self._errors.pop())
        else:
            answer.set_result(SimpleNamespace(authorized_operations=None))
        return dict.fromkeys(groups, answer)


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    ],
)
def test_group_is_asked_for_again_while_no_broker_has_loaded_it(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    client = TopicClient("127.0.0.1:1", "orders", {})
    monkeypatch.setattr(client, "_admin", Loading(code))
    client.check_group("monitoring")


@pytest.mark.kafka
@pytest.mark.usefixtures("patient")
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
