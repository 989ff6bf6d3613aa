"""Reads a few records of a topic, at any offsets, with limited memory.

This uses the Kafka client in Spark's JVM with the stream's properties, as ``kafka_admin`` does.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from sinks.audit import OffsetGap
from streamer.sources.errors import BrokerUnreachable, GapCheckFailed

#: Seconds without progress in any partition after which the broker counts as not answering.
ANSWER_WITHIN_S: Final = 5.0

_POLL_MS: Final = 500

#: Limits of a fetch. A broker returns at least one batch of records, even beyond the limit, and
#: more batches if they are small. The limit applies to compressed batches, so the uncompressed
#: records may be much longer.
_PROPERTIES = {
    "enable.auto.commit": "false",
    "max.partition.fetch.bytes": str(64 << 10),
    "max.poll.records": "10",
    "fetch.max.wait.ms": "10",
    "request.timeout.ms": "5000",
    "default.api.timeout.ms": "5000",
}


class KafkaPeek:
    """A separate consumer without a consumer group, for use by one thread. The caller closes it.

    Every method raises ``Py4JJavaError`` if the broker refuses or a property is not accepted.

    Args:
        spark: a running session with the Kafka connector.
        properties: the properties of Kafka's consumer, as for the stream.
        topic: the name of the topic.
        missing_offset: what to do for an offset that the partition does not have: read from its
            earliest record (``earliest``), or fail (``none``).
    """

    def __init__(
        self,
        spark: SparkSession,
        properties: Mapping[str, str],
        topic: str,
        missing_offset: Literal["earliest", "none"] = "earliest",
    ) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        self._topic, self._bootstrap = topic, properties["bootstrap.servers"]
        own = {**_PROPERTIES, "auto.offset.reset": missing_offset}
        self._consumer = self._open({**properties, **own})
        self._poll_time = self._milliseconds(_POLL_MS)

    def timestamps(self, offsets: Mapping[int, int]) -> dict[int, float]:
        """Read the timestamp of the first record at or after each offset, in seconds since 1970.

        Args:
            offsets: an offset for each partition. The result omits partitions that have no readable
                record at or after the offset, because their transactions were aborted.
        """
        first = self._first_records(offsets, ANSWER_WITHIN_S)
        return {number: records.get(0).timestamp() / 1000 for number, records in first}

    def longest_bytes(self, offsets: Mapping[int, int], within_s: float) -> int:
        """Read a few records at and after each offset; return the size of the longest, in bytes.

        The size is that of the uncompressed key and value. It is 0 if no record was found.

        Args:
            offsets: an offset for each partition.
            within_s: the timeout in seconds. Partitions that have not answered by then are omitted.
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
        """Read the values in these ranges, without tombstones.

        Args:
            offsets: the first offset of each range, by partition.
            ends: the offset after each range, by partition.
            max_bytes: reading stops after the value with which the total size reaches this limit.

        Raises:
            BrokerUnreachable: a partition did not answer, so values may be missing.
        """
        open_partitions = {n: self._partition(n) for n in offsets if offsets[n] < ends[n]}
        self._assign({one: offsets[number] for number, one in open_partitions.items()})
        values: list[bytes] = []
        positions: dict[int, int] = {}
        until = time.monotonic() + ANSWER_WITHIN_S
        while open_partitions and time.monotonic() < until:
            records = self._poll()
            answered = {int(one.partition()) for one in records.partitions()} or {*open_partitions}
            for record in records.iterator():
                if record.offset() < ends[record.partition()] and record.value() is not None:
                    values.append(bytes(record.value()))
                    max_bytes -= len(values[-1])
                if max_bytes <= 0:
                    return values
            # Only for partitions that answered, because reading a position is a call to the JVM.
            for number in answered & open_partitions.keys():
                at = int(self._consumer.position(open_partitions[number]))
                if positions.get(number) != at:  # this also advances over aborted transactions
                    positions[number], until = at, time.monotonic() + ANSWER_WITHIN_S
                if at >= ends[number]:
                    self._consumer.pause(self._set_of([open_partitions.pop(number)]))
        if open_partitions:
            silent = f"partition {min(open_partitions)} of topic {self._topic} returned no records"
            raise BrokerUnreachable(self._bootstrap, f"{silent} within {ANSWER_WITHIN_S:g} s")
        return values

    def find_record(self, gaps: Sequence[OffsetGap]) -> tuple[OffsetGap, int] | None:
        """Find a gap in which the topic has a readable record; return the gap and the offset.

        All partitions are read at once, because a fetch request for several partitions costs as
        much as a request for one. Within a partition, the gaps are read in ascending order. A gap
        has no record if the consumer passes the end of the gap without returning one.

        Args:
            gaps: the gaps; those of one partition must not overlap.

        Raises:
            GapCheckFailed: a partition returned no records and did not advance; or, if
                ``missing_offset`` is ``none``, a partition does not have the offsets.
        """
        waiting = _by_partition(gaps)
        with self._held_offsets(gaps):
            # Created only once, because this takes several calls to the JVM.
            asked = {number: self._partition(number) for number in waiting}
            self._assign({asked[n]: mine[0].begin for n, mine in waiting.items()})
            positions: dict[int, int] = {}
            until = time.monotonic() + ANSWER_WITHIN_S
            while waiting:
                found = _record_in(waiting, self._poll())
                if found is not None:
                    return found
                if self._pass_gaps(waiting, positions, asked):
                    until = time.monotonic() + ANSWER_WITHIN_S
                elif time.monotonic() > until:
                    silent = [gap for mine in waiting.values() for gap in mine]
                    reason = f"no answer within {ANSWER_WITHIN_S:g} s"
                    raise GapCheckFailed(self._topic, silent, reason)
        return None

    def close(self) -> None:
        """Close the connection; further calls have no effect."""
        try:
            self._consumer.close(self._jvm.java.time.Duration.ofSeconds(1))
        except Py4JError:  # the connection is already closed if the JVM has exited
            return

    def _first_records(
        self, offsets: Mapping[int, int], within_s: float
    ) -> Iterator[tuple[int, JavaObject]]:
        """Yield a few records of each partition at or after an offset, as partitions answer."""
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

    def _pass_gaps(
        self,
        waiting: dict[int, deque[OffsetGap]],
        positions: dict[int, int],
        asked: Mapping[int, JavaObject],
    ) -> bool:
        """Remove passed gaps, and seek to the next gap; return whether any partition advanced.

        Args:
            waiting: the gaps of each partition; partitions without remaining gaps are removed.
            positions: the last position of each partition; updated here.
            asked: the Java objects of the partitions, by number.
        """
        before = dict(positions)
        for number, mine in list(waiting.items()):
            partition = asked[number]
            positions[number] = at = int(self._consumer.position(partition))
            while mine and mine[0].end <= at:
                mine.popleft()
            if not mine:
                del waiting[number]
                self._consumer.pause(self._set_of([partition]))
            elif at < mine[0].begin:
                self._consumer.seek(partition, mine[0].begin)
        return positions != before

    @contextmanager
    def _held_offsets(self, gaps: Sequence[OffsetGap]) -> Iterator[None]:
        """Translate the error that the client raises if a partition does not have an offset."""
        try:
            yield
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() != "OffsetOutOfRangeException":
                raise
            reason = "the broker no longer has these offsets"
            raise GapCheckFailed(self._topic, gaps, reason) from None

    def _milliseconds(self, count: int) -> JavaObject:
        return self._jvm.java.time.Duration.ofMillis(count)

    def _poll(self) -> JavaObject:
        return self._consumer.poll(self._poll_time)

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


def _by_partition(gaps: Sequence[OffsetGap]) -> dict[int, deque[OffsetGap]]:
    """Group the gaps by partition, each in ascending order."""
    found: dict[int, deque[OffsetGap]] = {}
    for gap in sorted(gaps, key=lambda gap: gap.begin):
        found.setdefault(gap.partition, deque()).append(gap)
    return found


def _record_in(
    waiting: Mapping[int, Sequence[OffsetGap]], records: JavaObject
) -> tuple[OffsetGap, int] | None:
    """Return a gap that contains one of the records, and the record's offset; None if none does."""
    for partition in records.partitions():
        gaps = waiting.get(int(partition.partition()), ())
        for record in records.records(partition):
            offset = int(record.offset())
            gap = next((gap for gap in gaps if offset < gap.end), None)
            if gap is None:
                break  # all further records are after the gaps, and each one is a call to the JVM
            if gap.begin <= offset:
                return gap, offset
    return None
