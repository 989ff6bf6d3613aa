"""The order stream arrives in Kafka complete and in order."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, TopicPartition

from streamer.broker.data_folder import free_ports
from streamer.demo import (
    OrderMix,
    TopicNotCreated,
    count_partitions,
    create_topic,
    orders,
    produce,
    producer,
)
from tests.fixtures.kafka import Kafka

MIX = OrderMix(tombstones=0.02)
PARTITIONS = 3


def consumed(bootstrap: str, topic: str, count: int) -> list[list[tuple[bytes, bytes | None]]]:
    """Read the keys and values of each partition."""
    settings = {"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False}
    consumer = Consumer(settings)
    partitions: list[list[tuple[bytes, bytes | None]]] = [[] for _ in range(PARTITIONS)]
    try:
        consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
        while sum(map(len, partitions)) < count:
            read = consumer.consume(count, 5)
            assert read, "messages are missing"
            for message in read:
                key, place = message.key(), message.partition()
                assert isinstance(key, bytes) and place is not None
                partitions[place].append((key, message.value()))
    finally:
        consumer.close()
    return partitions


@pytest.mark.kafka
def test_messages_arrive_once_and_in_the_order_of_their_keys(kafka: Kafka, topic: str) -> None:
    sent = [
        produce(kafka.bootstrap, topic, 3_000, seed=7, mix=MIX, partitions=PARTITIONS),
        produce(kafka.bootstrap, topic, 6_000, 7, 20_000, mix=MIX, first=3_000),
    ]
    assert [part.message_count for part in sent] == [3_000, 6_000]
    assert sent[1].elapsed_s >= 0.2, "the last part of a tenth of a second is due after 4,000"
    expected = orders(9_000, seed=7, mix=MIX)
    messages = list(zip(expected["key"].to_pylist(), expected["value"].to_pylist(), strict=True))
    assert sum(part.value_bytes for part in sent) == sum(len(value or b"") for _, value in messages)
    partitions = consumed(kafka.bootstrap, topic, 9_000)
    place_of_key = {key: p for p in range(PARTITIONS) for key, _ in partitions[p]}
    assert len(set(place_of_key.values())) == PARTITIONS
    for p in range(PARTITIONS):
        assert partitions[p] == [message for message in messages if place_of_key[message[0]] == p]


@pytest.mark.kafka
def test_a_topic_is_created_once_and_can_be_deleted(kafka: Kafka, topic: str) -> None:
    assert create_topic(kafka.bootstrap, topic, settings={"cleanup.policy": "compact"})
    assert not create_topic(kafka.bootstrap, topic)
    assert count_partitions(kafka.bootstrap, topic) == 4
    kafka.delete(topic)
    assert create_topic(kafka.bootstrap, topic)
    with pytest.raises(TopicNotCreated, match=r"'no such name' was not created at .*: Topic name"):
        create_topic(kafka.bootstrap, "no such name")


def test_a_broker_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer, "_ANSWER_TIMEOUT_S", 1.0)
    unused = free_ports().bootstrap
    with pytest.raises(TopicNotCreated, match=unused):
        produce(unused, "orders", 1)
