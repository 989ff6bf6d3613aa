"""Idle pipelines wait for records of their topics, with one client for each cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from checkpoints.checkpoint import KafkaCheckpoint
from streamer.broker import EmbeddedBroker
from streamer.config.kafka_source import KafkaSourceConfig
from streamer.sources.topic_client import TopicClient
from streamer.sources.topic_watch import TopicWatch
from tests.fixtures.kafka import Kafka, Message
from tests.waiting import until

pytestmark = pytest.mark.kafka

RECORD: Message = (b"a", b"1")


@pytest.fixture
def watch() -> Iterator[TopicWatch]:
    watch = TopicWatch(interval_s=0.02)
    yield watch
    watch.close()


class Waiting:
    """A pipeline that has read some records of a topic, and waits for more."""

    def __init__(
        self, watch: TopicWatch, kafka: Kafka, topic: str, read_to: dict[int, int]
    ) -> None:
        given = {"bootstrap_servers": kafka.bootstrap, "topic": topic, "consumer": {}}
        source = KafkaSourceConfig.model_validate(given)
        topic_of_source = watch.of(source)
        assert topic_of_source.can_be_watched
        topic_id = TopicClient(kafka.bootstrap, topic, {}).topic_id()
        self._gives_up, self.polls = threading.Event(), 0

        def gives_up() -> bool:
            self.polls += 1
            return self._gives_up.is_set()

        def run() -> None:
            topic_of_source.wait(KafkaCheckpoint(topic, read_to), topic_id, gives_up)

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()

    @property
    def is_woken(self) -> bool:
        return not self.thread.is_alive()

    def give_up(self) -> None:
        self._gives_up.set()
        self.thread.join(60)


def _produce(kafka: Kafka, topic: str) -> None:
    kafka.produce(topic, [RECORD], partition=1)


def _add_partition(kafka: Kafka, topic: str) -> None:
    kafka.add_partitions(topic, 3)


def _create_again(kafka: Kafka, topic: str) -> None:
    kafka.delete(topic)
    kafka.create_again(topic, partitions=2)
    kafka.produce(topic, [RECORD], partition=0)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("change", [_produce, _add_partition, Kafka.delete, _create_again])
def test_pipeline_wakes_when_its_own_topic_changes(
    watch: TopicWatch, kafka: Kafka, change: Callable[[Kafka, str], None]
) -> None:
    topics = [kafka.create_topic(partitions=2) for _ in range(3)]
    kafka.produce(topics[0], [RECORD], partition=0)
    others_threads = set(threading.enumerate())
    changed = Waiting(watch, kafka, topics[0], {0: 1, 1: 0})
    others = [Waiting(watch, kafka, topic, {0: 0, 1: 0}) for topic in topics[1:]]
    until(lambda: changed.polls > 1)
    assert not any(one.is_woken for one in (changed, *others))
    change(kafka, topics[0])
    until(lambda: changed.is_woken)
    until(lambda: all(one.polls > 2 for one in others))
    assert not any(one.is_woken for one in others)
    own_threads = [one.name for one in {*threading.enumerate()} - others_threads]
    assert own_threads.count("lakemark-topic-watch") == 1, "one client for the cluster"
    for one in others:
        one.give_up()


def test_pipeline_wakes_if_records_came_before_it_began_to_wait(
    watch: TopicWatch, kafka: Kafka
) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, [RECORD])
    behind = Waiting(watch, kafka, topic, {0: 0})
    until(lambda: behind.is_woken)


@pytest.mark.usefixtures("patient")
def test_open_transaction_does_not_wake_a_pipeline(watch: TopicWatch, kafka: Kafka) -> None:
    topic = kafka.create_topic()
    waiting = Waiting(watch, kafka, topic, {0: 0})
    with kafka.transaction(topic, [RECORD], aborts=False):
        until(lambda: waiting.polls > 2)
        assert not waiting.is_woken, "read_committed reads nothing yet"
    until(lambda: waiting.is_woken)


def test_pipelines_wake_if_the_broker_goes_away(
    watch: TopicWatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with EmbeddedBroker(tmp_path_factory.mktemp("broker")) as broker:
        kafka = Kafka(broker.bootstrap)
        waiting = Waiting(watch, kafka, kafka.create_topic(), {0: 0})
        until(lambda: waiting.polls > 1)
    until(lambda: waiting.is_woken)
