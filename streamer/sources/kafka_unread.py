"""When the oldest unread records were made: one small fetch from each partition that lags.

Through the Kafka client inside Spark's JVM, with the stream's own properties, as ``kafka_admin``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

#: All partitions together; those that have not answered by then are left out.
ANSWER_WITHIN_S: Final = 5.0

_POLL_MS: Final = 500

#: A broker gives at least one batch of records however small the limit is.
_PROPERTIES = {
    "enable.auto.commit": "false",
    "auto.offset.reset": "earliest",
    "max.partition.fetch.bytes": "1",
    "fetch.max.wait.ms": "100",
    "request.timeout.ms": "5000",
    "default.api.timeout.ms": "5000",
}


class UnreadRecords:
    """A consumer of its own, in no group; one thread asks it. Close it.

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

        Raises:
            Py4JJavaError: the broker does not answer, or refuses.
        """
        waiting = {self._partition(number): number for number in offsets}
        self._assign({partition: offsets[number] for partition, number in waiting.items()})
        found: dict[int, float] = {}
        until = time.monotonic() + ANSWER_WITHIN_S
        while waiting and time.monotonic() < until:
            records = self._consumer.poll(self._jvm.java.time.Duration.ofMillis(_POLL_MS))
            for partition in list(records.partitions()):
                number = int(partition.partition())
                if number not in found:
                    found[number] = records.records(partition).get(0).timestamp() / 1000
            answered = [one for one, number in waiting.items() if number in found]
            for partition in answered:
                del waiting[partition]
            self._consumer.pause(self._set_of(answered))
        return found

    def close(self) -> None:
        """Ends the connection; calling twice is harmless."""
        try:
            self._consumer.close(self._jvm.java.time.Duration.ofSeconds(1))
        except Py4JJavaError:  # it ends with the JVM
            return

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
