"""Sends the records of a workload to a topic: all of them once, and in order."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from confluent_kafka import KafkaError, Message, Producer

from benchmarks.workloads.workload import KAFKA_PARTITIONS, Workload
from streamer.demo.producer import create_topic

_CHUNK = 10_000
_MOST_QUEUED = 50_000
_FLUSH_TIMEOUT_S = 120.0
_SETTINGS: dict[str, str | int | bool] = {
    "enable.idempotence": True,
    "linger.ms": 20,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 2 * _MOST_QUEUED,
    "queue.buffering.max.kbytes": 1_000_000,
    "partitioner": "murmur2_random",  # chooses the same partitions as Kafka's Java client
    "delivery.report.only.error": True,
    "log_level": 3,
}


def send(bootstrap: str, topic: str, workload: Workload, first: int, count: int) -> None:
    """Send records ``first`` to ``first + count``; create the topic if it does not exist.

    Raises:
        RuntimeError: the broker did not acknowledge all records.
    """
    send_messages(bootstrap, topic, workload.messages(first, count))


def send_messages(bootstrap: str, topic: str, batches: Iterable[pa.RecordBatch]) -> None:
    """Send messages, which have a key and a value; create the topic if it does not exist.

    Raises:
        RuntimeError: the broker did not acknowledge all records.
    """
    create_topic(bootstrap, topic, KAFKA_PARTITIONS)
    failures: list[KafkaError] = []

    def note_failure(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer({**_SETTINGS, "bootstrap.servers": bootstrap})
    for batch in batches:
        for start in range(0, batch.num_rows, _CHUNK):
            messages = batch.slice(start, _CHUNK).to_pylist()
            producer.produce_batch(topic, messages, on_delivery=note_failure)
            while len(producer) > _MOST_QUEUED:
                producer.poll(0.05)
    unsent = producer.flush(_FLUSH_TIMEOUT_S)
    if unsent or failures:
        message = f"{topic}: {unsent} records were not acknowledged; errors: {failures[:3]}"
        raise RuntimeError(message)
