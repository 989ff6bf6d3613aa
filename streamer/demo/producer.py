"""Sends the order stream to Kafka: the broker stores every message once, and in order."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from lakemark.errors import Permanent
from streamer.demo.order_messages import DEFAULT_MIX, order_messages
from streamer.demo.order_stream import OrderMix

_FLUSH_TIMEOUT_S = 60.0
_ANSWER_TIMEOUT_S = 10.0

#: How many messages are passed to the client at once; if there is a rate, for how many seconds.
_CHUNK = 20_000
_QUEUE_MESSAGES = 400_000
_CHUNK_S = 0.1

_SETTINGS: dict[str, str | int | bool] = {
    "enable.idempotence": True,
    "linger.ms": 20,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": _QUEUE_MESSAGES,
    "queue.buffering.max.kbytes": 262_144,
    "partitioner": "murmur2_random",  # chooses the same partitions as Kafka's Java client
    "delivery.report.only.error": True,
    "log_level": 3,  # errors only, without warnings about retries
}


class ProduceFailed(Permanent):
    """The broker did not acknowledge messages."""

    def __init__(self, bootstrap: str, topic: str, reason: str) -> None:
        super().__init__(f"could not produce to {topic!r} at {bootstrap}: {reason}")
        self.bootstrap, self.topic = bootstrap, topic


class TopicNotCreated(Permanent):
    """The broker refused to create a topic, or did not answer."""

    def __init__(self, bootstrap: str, topic: str, reason: str) -> None:
        super().__init__(f"topic {topic!r} was not created at {bootstrap}: {reason}")
        self.bootstrap, self.topic = bootstrap, topic


@dataclass(frozen=True, slots=True)
class Produced:
    """How many messages and bytes were acknowledged, and how long this took."""

    message_count: int
    value_bytes: int
    elapsed_s: float


def create_topic(
    bootstrap: str, topic: str, partitions: int = 4, settings: Mapping[str, str] | None = None
) -> bool:
    """Create a topic; return False if it exists.

    Args:
        bootstrap: the address of the broker, ``host:port``.
        topic: the name of the topic.
        partitions: the number of partitions.
        settings: settings of the topic, such as ``cleanup.policy``.

    Raises:
        TopicNotCreated: the broker refused to create the topic, or did not answer.
    """
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    wanted = NewTopic(topic, partitions, 1, config=dict(settings or {}))
    try:
        client.create_topics([wanted], request_timeout=_ANSWER_TIMEOUT_S)[topic].result()
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        raise TopicNotCreated(bootstrap, topic, error.args[0].str()) from error
    return True


def count_partitions(bootstrap: str, topic: str) -> int:
    """Return the number of partitions of a topic that exists.

    Raises:
        KafkaException: the broker does not answer.
    """
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    return len(client.list_topics(topic, _ANSWER_TIMEOUT_S).topics[topic].partitions)


def produce(
    bootstrap: str,
    topic: str,
    count: int,
    seed: int = 0,
    rate_per_s: float | None = None,
    *,
    keys: int = 10_000,
    mix: OrderMix = DEFAULT_MIX,
    first: int = 0,
    partitions: int = 4,
    is_ended: Callable[[], bool] = bool,
) -> Produced:
    """Send the ``count`` messages of a stream that begin at ``first``, and wait for the broker.

    Args:
        bootstrap: the address of the broker, ``host:port``.
        topic: the name of the topic, which is created if it does not exist.
        count: the number of messages.
        seed: identifies the stream; ``expected_orders`` returns its rows for the same seed.
        rate_per_s: messages per second; None to send as fast as possible.
        keys: the number of orders.
        mix: the shares of late events, repeats, deletes and broken records.
        first: the number of the first message, to continue after an earlier call.
        partitions: the number of partitions, if the topic is created.
        is_ended: checked between messages; if it returns true, no more messages are sent.

    Raises:
        TopicNotCreated: the broker refused to create the topic, or did not answer.
        ProduceFailed: the broker did not acknowledge all messages.
    """
    create_topic(bootstrap, topic, partitions)
    sending = _Sending(bootstrap, topic, rate_per_s, is_ended)
    for batch in order_messages(count, keys, seed, mix, first):
        sending.send(batch)
        if is_ended():
            break
    return sending.finish()


class _Sending:
    """A producer that limits the rate of messages and remembers its first failure."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        rate_per_s: float | None,
        is_ended: Callable[[], bool],
    ) -> None:
        settings = {**_SETTINGS, "bootstrap.servers": bootstrap}
        self._producer = Producer(settings)
        self._bootstrap, self._topic, self._rate_per_s = bootstrap, topic, rate_per_s
        self._is_ended = is_ended
        self._failure: str | None = None
        self._message_count = self._value_bytes = 0
        self._began_s = time.monotonic()

    def send(self, batch: pa.RecordBatch) -> None:
        """Send messages at the requested rate."""
        rows = _CHUNK if self._rate_per_s is None else round(self._rate_per_s * _CHUNK_S)
        for start in range(0, batch.num_rows, max(1, rows)):
            part = batch.slice(start, max(1, rows))
            self._wait_for_rate()
            if self._is_ended():
                return
            self._enqueue(part)
            self._message_count += part.num_rows
            self._value_bytes += pc.sum(pc.binary_length(part["value"])).as_py() or 0

    def finish(self) -> Produced:
        """Wait until the broker has acknowledged all messages."""
        unsent = self._producer.flush(_FLUSH_TIMEOUT_S)
        if unsent and self._failure is None:
            self._failure = (
                f"{unsent} messages were not acknowledged within {_FLUSH_TIMEOUT_S:.0f} s"
            )
        self._raise_failure()
        return Produced(self._message_count, self._value_bytes, time.monotonic() - self._began_s)

    def _wait_for_rate(self) -> None:
        """Wait for the rate and for space in the queue, because a full queue breaks the order."""
        if self._rate_per_s is not None:
            due_s = self._began_s + self._message_count / self._rate_per_s
            time.sleep(max(0.0, due_s - time.monotonic()))
        while len(self._producer) > _QUEUE_MESSAGES - _CHUNK and self._failure is None:
            self._producer.poll(0.05)
        self._producer.poll(0)
        self._raise_failure()

    def _enqueue(self, part: pa.RecordBatch) -> None:
        keys, values = part["key"].to_pylist(), part["value"].to_pylist()
        messages = [{"key": key, "value": value} for key, value in zip(keys, values, strict=True)]
        queued = self._producer.produce_batch(self._topic, messages, on_delivery=self._note_failure)
        if queued != len(messages):
            refused = next(message["_error"] for message in messages if "_error" in message)
            self._failure = str(refused)
            self._raise_failure()

    def _note_failure(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None and self._failure is None:
            self._failure = str(error)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise ProduceFailed(self._bootstrap, self._topic, self._failure)
