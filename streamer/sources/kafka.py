"""Reads a Kafka topic as a stream of raw records, beginning at the table's offsets."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.position import Position
from sinks.audit import OffsetGap
from sinks.batch import KafkaBatch
from streamer.config.kafka_source import KafkaSourceConfig, StartingTime
from streamer.events import Listener, ignore
from streamer.executors import is_local
from streamer.sources import kafka_offsets, start_rules
from streamer.sources.batch_planner import BatchPlanner
from streamer.sources.consumer_properties import ConsumerProperties
from streamer.sources.errors import (
    LostOffsets,
    OffsetsWithoutRecord,
    RecordsWithheld,
    TopicReplaced,
)
from streamer.sources.group_offsets import GroupOffsets
from streamer.sources.kafka_admin import KafkaAdmin
from streamer.sources.kafka_offsets import LostRange, Start, Starting
from streamer.sources.kafka_peek import KafkaPeek
from streamer.sources.kafka_stream import KafkaStream
from streamer.sources.poll_size import poll_records, sample_offsets
from streamer.sources.source import CheckRead, Source, SourceStart, StreamSettings
from transforms.raw_records import HEADERS

#: Properties of the consumers. The pipeline file may override them.
FETCH_PROPERTIES = {
    # Fewer and larger fetches than the consumer's defaults (1 MiB and 500 records). Together with
    # ``poll_size``, this reduces the time of a batch of small records by a sixth to a quarter.
    "max.partition.fetch.bytes": str(8 << 20),
    # A consumer sends its next fetch before it returns records. If the partition has no more of
    # them, the broker holds this fetch for this time, and answers no later request before. The
    # connector then asks for the range of offsets, so with Kafka's default, each task that reads
    # the end of a partition took 500 ms longer. Waiting has no use, because Spark only reads
    # offsets that the partition already has.
    "fetch.max.wait.ms": "10",
}
_POLL_RECORDS = "max.poll.records"

#: The largest total size of the values from which a schema is inferred.
_SAMPLE_BYTES = 16 << 20

#: The size of a record in addition to its key and value, and a margin for somewhat longer records.
_RECORD_OVERHEAD_BYTES = 128

#: The timeout, in seconds, when the lengths of records are sampled.
_SAMPLE_TIMEOUT_S = 2.0


class KafkaSource(Source):
    """One Kafka topic. Most of its errors are found before a stream starts.

    Attributes:
        sampled_record_bytes: the size of the longest record that was sampled when the stream
            started; 0 if no record was sampled.
    """

    def __init__(
        self,
        spark: SparkSession,
        config: KafkaSourceConfig,
        listener: Listener = ignore,
        *,
        keeps_keys: bool = False,
        budget_bytes: int | None = None,
    ) -> None:
        """Create the source, which connects when it makes its first request.

        Args:
            spark: a running session with the Kafka connector.
            config: the topic, and how to read it.
            listener: receives an event if the broker refuses offsets for a consumer group.
            keeps_keys: whether to read the key of every record, which dead letters need.
            budget_bytes: the size of a batch if each record is as long as the longest one that was
                sampled; None for no limit.

        Raises:
            ConfigError: a secret of ``source.consumer`` cannot be found.
            SourceError: the connector is missing, or Kafka's client does not accept a property.
        """
        self._spark, self._config = spark, config
        self._keeps_keys, self._budget_bytes = keeps_keys, budget_bytes
        self.sampled_record_bytes = 0
        self._consumer = ConsumerProperties(config)
        self._admin = KafkaAdmin(spark, self._properties, config.topic)
        self._admin_is_former = False  # whether it has secrets that were replaced
        group = config.commit_group
        self._group = None if group is None else GroupOffsets(self._admin, group, listener)
        self._is_first = False
        self._resolved: Mapping[int, int] | None = None
        self._gap_peek: KafkaPeek | None = None

    @property
    def _properties(self) -> dict[str, str]:
        return {**FETCH_PROPERTIES, **self._consumer.current}

    @property
    def has_new_secrets(self) -> bool:
        """Whether a secret of ``source.consumer`` was replaced; the next ``start`` uses it."""
        return self._consumer.has_changed

    def start_checkpoint(self, checkpoint: Position | None) -> KafkaCheckpoint:
        """Return the checkpoint of ``start``, without checking the topic id."""
        return self.start(checkpoint).checkpoint

    def start(self, checkpoint: Position | None, topic_id: str = "") -> Start:
        """Determine where to start each partition; new partitions start at their earliest record.

        Args:
            checkpoint: the table's checkpoint; None for the first run, which starts at
                ``source.starting_offsets``.
            topic_id: the id of the topic that the table has read; "" if it is not known.

        Returns:
            The start, and the lost ranges that it skips. The caller reports these ranges after the
            table has recorded the start.

        Raises:
            TopicRecreated: the topic was created again, and ``source.on_offset_out_of_range`` is
                ``fail``.
            LostOffsets: unread records were deleted, and this setting is ``fail``.
            EndingPassed, EndingNotReached: see ``start_rules.check_ending``.
            SourceError: the topic cannot be read; see the subclasses.
        """
        if self._consumer.has_changed or self._admin_is_former:
            self._connect_again()
        found_id = self._admin.topic_id()
        is_recreated = start_rules.is_recreated(topic_id, found_id)
        start = self._first() if checkpoint is None else self._next(checkpoint, is_recreated)
        self._is_first = checkpoint is None
        if not self._is_first:
            self._resolved = None  # the table has recorded the first start
        start_rules.check_losses(self._config, start, topic_id, found_id)
        if self._config.ending_offsets is not None:
            start_rules.check_ending(self._config, start.checkpoint, self._admin.ranges())
        return replace(start, topic_id=found_id)

    def check_same_topic(self, topic_id: str) -> None:
        """Check that the topic was not created again since the run started.

        Raises:
            TopicReplaced: the topic was created again.
            SourceError: the broker does not answer.
        """
        found = self._admin.topic_id()
        if topic_id != found:
            reason = f"its id was {topic_id} and is now {found}"
            raise TopicReplaced(reason)

    def check_read(self, topic_id: str, gaps: Sequence[OffsetGap]) -> Sequence[LostRange]:
        """Check the offsets of a batch that have no record, before the batch is published.

        Offsets below the partition's earliest offset count as lost, because their records may have
        been deleted before they were read. At the other offsets, the topic is read again.

        Args:
            topic_id: the id of the topic when the run started.
            gaps: ranges of offsets without records. Without transactions and log compaction, a
                topic has no gaps.

        Returns:
            The lost ranges, if ``source.on_offset_out_of_range`` permits losses. The caller reports
            these ranges after the batch is committed, because a batch that is retried is checked
            again.

        Raises:
            TopicReplaced: the topic was created again.
            LostOffsets: records may be lost, and ``source.on_offset_out_of_range`` is ``fail``.
            RecordsWithheld: the topic has a record at one of these offsets.
            GapCheckFailed: the broker does not answer, so the batch must be read again.
            OffsetsWithoutRecord: the topic has no record at these offsets, and
                ``source.on_missing_offsets`` is ``fail``.
            SourceError: the broker does not answer.
        """
        self.check_same_topic(topic_id)
        if not gaps:
            return ()
        lost, others = kafka_offsets.lost_in(gaps, self._admin.ranges())
        if lost and self._config.on_offset_out_of_range == "fail":
            raise LostOffsets(self._config.topic, lost)
        self._check_empty(others)
        if others and self._config.on_missing_offsets == "fail":
            raise OffsetsWithoutRecord(self._config.topic, others)
        return lost

    def forget_first_start(self) -> None:
        """Resolve ``source.starting_offsets`` again at the next start without a checkpoint.

        Call this when the table has recorded a checkpoint of this run. If the checkpoint is reset
        later, the next start then chooses new offsets.
        """
        self._is_first, self._resolved = False, None

    def report_position(self, checkpoint: KafkaCheckpoint) -> None:
        """Commit the offsets to the consumer group ``source.commit_group``, if one is set."""
        if self._group is not None:
            self._group.commit(checkpoint)

    def flush_positions(self, within_s: float) -> None:
        """Wait at most ``within_s`` seconds until the newest offsets are committed to the group."""
        if self._group is not None:
            self._group.close(within_s)

    def lag(self, checkpoint: KafkaCheckpoint) -> dict[int, int]:
        """Count the unread offsets of each partition.

        Raises:
            SourceError: the broker does not answer.
        """
        return kafka_offsets.lag(checkpoint, self._admin.ranges())

    def check_reachable(self) -> None:
        """Check that the broker answers questions about the topic.

        Raises:
            SourceError: it does not.
        """
        self._admin.ranges()

    def ask_lag(self, checkpoint: KafkaCheckpoint) -> Callable[[], Mapping[int, int]]:
        """Ask for the lag of the checkpoint's partitions now, without waiting for the answer.

        Returns:
            A function that waits for the answer, and returns it as ``lag_if_known`` does.
        """
        try:
            asked = self._admin.ask_ranges(checkpoint.offsets)
        except Exception:  # as in ``lag_if_known``
            return dict

        def answer() -> Mapping[int, int]:
            try:
                return kafka_offsets.lag(checkpoint, asked.answer())
            except Exception:
                return {}

        return answer

    def peek(self) -> KafkaPeek:
        """Open a separate consumer that reads a few records; the caller closes it."""
        return KafkaPeek(self._spark, self._properties, self._config.topic)

    def max_message_bytes(self) -> int:
        """Return the topic's ``max.message.bytes``, or Kafka's default if it cannot be read.

        Kafka compares this limit with messages as they are sent. A compressed message may be longer
        after it is read.
        """
        return self._admin.max_message_bytes()

    def open_stream(
        self, begun: SourceStart, settings: StreamSettings, check_read: CheckRead
    ) -> KafkaStream:
        """See ``Source``. The stream is one of Spark Structured Streaming.

        Raises:
            SourceError: the lengths of records cannot be sampled.
        """
        start, topic_id = begun.checkpoint, begun.topic_id
        assert isinstance(start, KafkaCheckpoint), start
        planner = BatchPlanner(
            start, topic_id, settings.scratch, check_read, self._config.ending_offsets
        )
        return KafkaStream(self.stream(start), planner, settings)

    def stream(self, start: KafkaCheckpoint) -> DataFrame:
        """Return the records from ``start`` on, as a streaming DataFrame.

        Its columns are ``value`` (binary), ``key`` (binary), ``partition`` (int), ``offset``
        (bigint), ``timestamp``, and ``topic`` (string) if it is a metadata column. If keys are
        neither kept nor a metadata column, only tombstones have a ``key``; for all other records it
        is null.

        Args:
            start: an offset for every partition, as ``start_checkpoint`` returns it.

        Raises:
            SourceError: the lengths of records cannot be sampled.
        """
        if self._is_first:
            # A restart before the first commit must use these offsets again, so that records that
            # are deleted in the meantime are noticed as lost.
            self._resolved = start.offsets
        options = self._reader_options(start)  # samples the lengths of records
        reader = self._spark.readStream.format("kafka").options(
            **options, maxOffsetsPerTrigger=str(self._most_records())
        )
        return reader.load().select(*self._columns())

    def _most_records(self) -> int:
        """Return the largest number of offsets of a batch."""
        most, longest = self._config.max_records_per_batch, self.sampled_record_bytes
        if self._budget_bytes is None or not longest:
            return most
        return max(1, min(most, self._budget_bytes // (longest + _RECORD_OVERHEAD_BYTES)))

    def newest(self, count: int) -> KafkaBatch:
        """Return the newest records of the topic as a batch, which is not part of a stream.

        Args:
            count: how many offsets the batch has at most, in equal shares of the partitions.

        Raises:
            SourceError: the topic cannot be read; see the subclasses.
        """
        available, topic = self._admin.ranges(), self._config.topic
        start = KafkaCheckpoint(topic, kafka_offsets.newest_offsets(available, count))
        end = KafkaCheckpoint(topic, {number: held.end for number, held in available.items()})
        reader = self._spark.read.format("kafka").options(
            **self._reader_options(start), endingOffsets=json.dumps({topic: dict(end.offsets)})
        )
        return KafkaBatch(records=reader.load().select(*self._columns()), start=start, end=end)

    def _reader_options(self, start: KafkaCheckpoint) -> dict[str, str]:
        """Return the options of Spark's Kafka source to read from ``start`` on."""
        properties = {_POLL_RECORDS: str(self.poll_records(start)), **self._properties}
        return {
            **{f"kafka.{name}": value for name, value in properties.items()},
            "subscribe": start.topic,
            "startingOffsets": json.dumps({start.topic: dict(start.offsets)}),
            # A batch contains all records of its offsets, or fails. After a failure, the next start
            # handles the losses of each partition.
            "failOnDataLoss": "true",
            "includeHeaders": str(bool(self._config.header_columns)).lower(),
        }

    def poll_records(self, start: KafkaCheckpoint) -> int:
        """Return the largest number of records of one poll.

        The number comes from the pipeline file or, by default, from the lengths of sampled records.

        Raises:
            SourceError: the broker does not answer.
        """
        if _POLL_RECORDS in self._properties:
            return int(self._properties[_POLL_RECORDS])
        available = self._admin.ranges()
        samples = sample_offsets(start.offsets, available)
        with self._admin.translating(), closing(self.peek()) as peek:
            lengths = (peek.longest_bytes(offsets, _SAMPLE_TIMEOUT_S) for offsets in samples)
            longest = max(lengths, default=0)
        self.sampled_record_bytes = longest
        return poll_records(_heap_bytes(self._spark), len(available), longest)

    def sample(self, count: int) -> pa.Array:
        """Read about ``count`` values, from which a schema is inferred.

        The values begin at the offsets at which the first run starts. If fewer records follow, the
        last records before these offsets are read, too. If values are long, fewer are read.

        Raises:
            SourceError: the broker does not answer.
        """
        start, available = self.start_checkpoint(None), self._admin.ranges()
        share = -(-count // max(len(available), 1))
        ends = {p: min(start.offsets[p] + share, r.end) for p, r in available.items()}
        begins = {p: max(ends[p] - share, r.earliest) for p, r in available.items()}
        with self._admin.translating(), closing(self.peek()) as peek:
            return pa.array(peek.values(begins, ends, _SAMPLE_BYTES), pa.binary())

    def close(self) -> None:
        """Close the connections of this object. A running stream has a separate connection."""
        if self._group is not None:
            self._group.close()
        if self._gap_peek is not None:
            self._gap_peek.close()
        self._admin.close()

    def _connect_again(self) -> None:
        """Read the secrets, and replace the connections that were opened with the former ones.

        Raises:
            ConfigError: a secret cannot be found.
            SourceError: Kafka's client does not accept a property.
        """
        self._admin_is_former = True
        self._consumer.refresh()
        former, self._admin = (
            self._admin,
            KafkaAdmin(self._spark, self._properties, self._config.topic),
        )
        self._admin_is_former = False
        if self._group is not None:
            self._group.use(self._admin)
        if self._gap_peek is not None:
            self._gap_peek.close()
            self._gap_peek = None
        former.close()

    def _check_empty(self, gaps: Sequence[OffsetGap]) -> None:
        """Check that the topic has no readable record in any of the gaps."""
        if not gaps:
            return
        topic = self._config.topic
        if self._gap_peek is None:
            self._gap_peek = KafkaPeek(self._spark, self._properties, topic, missing_offset="none")
        with self._admin.translating():
            found = self._gap_peek.find_record(gaps)
        if found is not None:
            raise RecordsWithheld(topic, *found)

    def _first(self) -> Start:
        starting = self._starting()
        # The ranges are read after the start time was resolved, so that they include the records
        # that arrived in between.
        available = self._admin.ranges()
        start = start_rules.first_start(self._config, starting, available)
        if self._config.starting_offsets != "latest" and not isinstance(
            self._config.starting_offsets, StartingTime
        ):
            return start
        # If the run restarts before the table has recorded this start, it must use the same
        # offsets. Otherwise it would skip the records that have arrived in the meantime.
        self._resolved = start.checkpoint.offsets
        return replace(start, needs_commit=True)

    def _starting(self) -> Starting:
        """Return ``source.starting_offsets``, or the offsets to which it was resolved."""
        if self._resolved is not None:
            return self._resolved
        starting = self._config.starting_offsets
        if isinstance(starting, StartingTime):
            return self._admin.offsets_since(starting.timestamp)
        return starting

    def _next(self, position: Position, is_recreated: bool) -> Start:
        checkpoint = start_rules.check_own_topic(self._config, position)
        available = self._admin.ranges()
        fallback = start_rules.fallback_of(self._config)
        return kafka_offsets.next_start(checkpoint, available, fallback, is_recreated=is_recreated)

    def _columns(self) -> list[Column]:
        value, key = F.col("value"), F.col("key")
        wanted = self._config.metadata_columns
        if not (self._keeps_keys or "key" in wanted):
            # In many topics, keys are as long as values. Only tombstones need the key.
            key = F.when(value.isNull(), key).alias("key")
        others = [F.col("topic")] if "topic" in wanted else []
        names = [*self._config.header_columns.values()]
        if names:
            others.append(F.filter(HEADERS, lambda one: one["key"].isin(names)).alias(HEADERS))
        return [value, key, F.col("partition"), F.col("offset"), F.col("timestamp"), *others]


def _heap_bytes(spark: SparkSession) -> int:
    """Return the heap size of the JVM that runs the consumers: the driver's or an executor's."""
    context = spark.sparkContext
    if not is_local(spark):
        return int(context._jsc.sc().executorMemory()) << 20
    jvm = context._jvm
    assert jvm is not None
    return int(jvm.java.lang.Runtime.getRuntime().maxMemory())
