"""Looks at a few records of a topic, wherever they lie, in memory that does not depend on them.

Through the Kafka client inside Spark's JVM, with the stream's own properties, as ``kafka_admin``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

#: All partitions together; those that have not answered by then are left out.
ANSWER_WITHIN_S: Final = 5.0

_POLL_MS: Final = 500

#: A broker gives at least one batch of records however small the limit is, and some more of those
#: that are small as it has them: compressed, they may be the longest.
_PROPERTIES = {
    "enable.auto.commit": "false",
    "auto.offset.reset": "earliest",
    "max.partition.fetch.bytes": str(64 << 10),
    "max.poll.records": "10",
    "fetch.max.wait.ms": "100",
    "request.timeout.ms": "5000",
    "default.api.timeout.ms": "5000",
}


class KafkaPeek:
    """A consumer of its own, in no group; one thread asks it. Close it.

    Every method raises ``Py4JJavaError`` where the broker refuses or a property is not accepted.

    Args:
        spark: a running session with the Kafka connector.
        properties: of Kafka's consumer, as the stream has them.
        topic: the topic.
    """

    def __init__(self, spark: SparkSession, properties: Mapping[str, str], topic: str) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        self._topic = topic
        self._consumer = self._open({**properties, **_PROPERTIES})

    def timestamps(self, offsets: Mapping[int, int]) -> dict[int, float]:
        """Kafka's timestamp of the first record from an offset on, in seconds since 1970.

        Args:
            offsets: of each partition that is asked for. One without a readable record from there
                on (all are of aborted transactions) is not in the answer.
        """
        first = self._first_records(offsets, ANSWER_WITHIN_S)
        return {number: records.get(0).timestamp() / 1000 for number, records in first}

    def longest_bytes(self, offsets: Mapping[int, int], within_s: float) -> int:
        """Key and value, uncompressed, of the longest of the first few records from there on.

        Args:
            offsets: of each partition that is asked for.
            within_s: partitions that have not answered by then, in seconds, are left out.

        Returns 0 where no record was found.
        """
        return max(
            (
                record.serializedKeySize() + record.serializedValueSize()
                for _, records in self._first_records(offsets, within_s)
                for record in records
            ),
            default=0,
        )

    def values(
        self, offsets: Mapping[int, int], ends: Mapping[int, int], max_bytes: int
    ) -> list[bytes]:
        """Values of the records in these ranges, without tombstones; enough to see what they are.

        Args:
            offsets: where the range of each partition begins.
            ends: where it ends; that offset is not part of it.
            max_bytes: the value with which the values reach this size is the last.
        """
        open_partitions = {n: self._partition(n) for n in offsets if offsets[n] < ends[n]}
        self._assign({one: offsets[number] for number, one in open_partitions.items()})
        values: list[bytes] = []
        until = time.monotonic() + ANSWER_WITHIN_S
        while open_partitions and time.monotonic() < until:
            records = self._poll()
            answered = {int(one.partition()) for one in records.partitions()} or {*open_partitions}
            for record in records.iterator():
                if record.offset() < ends[record.partition()] and record.value() is not None:
                    values.append(bytes(record.value()))
                    max_bytes -= len(values[-1])
                    until = time.monotonic() + ANSWER_WITHIN_S
                if max_bytes <= 0:
                    return values
            # Of those that did not answer only now and then: each is a call to the JVM.
            for number in answered & open_partitions.keys():
                if self._consumer.position(open_partitions[number]) >= ends[number]:
                    self._consumer.pause(self._set_of([open_partitions.pop(number)]))
        return values

    def first_offset(self, partition: int, begin: int, end: int) -> int | None:
        """The first offset of a range at which the topic has a readable record.

        None if it has none, or does not answer in time.

        Args:
            partition: of the topic.
            begin: the first offset of the range.
            end: the offset after the last.
        """
        asked = self._partition(partition)
        self._assign({asked: begin})
        until = time.monotonic() + ANSWER_WITHIN_S
        while time.monotonic() < until and self._consumer.position(asked) < end:
            for record in self._poll().records(asked):
                return int(record.offset()) if record.offset() < end else None
        return None

    def close(self) -> None:
        """Ends the connection; calling twice is harmless."""
        try:
            self._consumer.close(self._jvm.java.time.Duration.ofSeconds(1))
        except Py4JJavaError:  # it ends with the JVM
            return

    def _first_records(
        self, offsets: Mapping[int, int], within_s: float
    ) -> Iterator[tuple[int, JavaObject]]:
        """A few records of each partition from an offset on, as partitions answer."""
        waiting = {number: self._partition(number) for number in offsets}
        self._assign({partition: offsets[number] for number, partition in waiting.items()})
        until = time.monotonic() + within_s
        while waiting and time.monotonic() < until:
            records = self._poll()
            answered = list(records.partitions())
            for partition in answered:
                number = int(partition.partition())
                if waiting.pop(number, None) is not None:
                    yield number, records.records(partition)
            self._consumer.pause(self._set_of(answered))

    def _poll(self) -> JavaObject:
        return self._consumer.poll(self._jvm.java.time.Duration.ofMillis(_POLL_MS))

    def _assign(self, offsets: Mapping[JavaObject, int]) -> None:
        self._consumer.assign(self._set_of(offsets))
        for partition, offset in offsets.items():
            self._consumer.seek(partition, offset)
        self._consumer.resume(self._set_of(offsets))

    def _open(self, properties: Mapping[str, str]) -> Any:
        kafka = self._jvm.org.apache.kafka
        given = self._jvm.java.util.HashMap()
        for name, value in properties.items():
            given.put(name, value)
        decoders = [kafka.common.serialization.ByteArrayDeserializer() for _ in range(2)]
        return kafka.clients.consumer.KafkaConsumer(given, *decoders)

    def _partition(self, number: int) -> JavaObject:
        return self._jvm.org.apache.kafka.common.TopicPartition(self._topic, number)

    def _set_of(self, partitions: Any) -> JavaObject:
        held = self._jvm.java.util.HashSet()
        for partition in partitions:
            held.add(partition)
        return held
