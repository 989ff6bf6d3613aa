"""A Kafka topic as a stream of raw records, from offsets that the table decides."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from types import TracebackType

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from checkpoints.checkpoint import KafkaCheckpoint
from sinks.audit import OffsetGap
from streamer.config import settings
from streamer.config.source import SourceConfig, StartingTime
from streamer.events import Listener, ignore
from streamer.executors import is_local
from streamer.sources import kafka_offsets
from streamer.sources.errors import (
    ForeignCheckpoint,
    LostOffsets,
    OffsetsWithoutRecord,
    RecordsWithheld,
    TopicRecreated,
    TopicReplaced,
    UnknownPartitions,
)
from streamer.sources.group_offsets import GroupOffsets
from streamer.sources.kafka_admin import KafkaAdmin
from streamer.sources.kafka_offsets import Fallback, LostRange, Start, Starting
from streamer.sources.kafka_peek import KafkaPeek
from streamer.sources.poll_size import looks, poll_records

#: Fewer, larger fetches: with ``poll_size``, a sixth to a quarter less time for a batch of small
#: records than with the consumer's own limits (1 MiB and 500 records). The pipeline file may set
#: others.
_FETCH_PROPERTIES = {"max.partition.fetch.bytes": str(8 << 20)}
_POLL_RECORDS = "max.poll.records"

#: Values that a schema is inferred from, together.
_SAMPLE_BYTES = 16 << 20

#: For each look at the lengths of records, in seconds.
_LOOK_WITHIN_S = 2.0


class KafkaSource:
    """One topic. Everything that can be wrong with it is found before a stream starts."""

    def __init__(
        self,
        spark: SparkSession,
        config: SourceConfig,
        listener: Listener = ignore,
        *,
        keeps_keys: bool = False,
    ) -> None:
        """Connects when it is first asked.

        Args:
            spark: a running session with the Kafka connector.
            config: the topic, and how to read it.
            listener: is told of offsets that Kafka did not take for a consumer group.
            keeps_keys: whether the key of every record is wanted, as dead letters do.

        Raises:
            ConfigError: a secret of ``source.consumer`` cannot be found.
            SourceError: the connector is missing, or a property is not accepted.
        """
        self._spark, self._config = spark, config
        self._keeps_keys = keeps_keys
        self._properties = {
            **_FETCH_PROPERTIES,
            **settings.resolve(config.consumer, "source.consumer"),
            "bootstrap.servers": config.bootstrap_servers,
            "isolation.level": config.isolation_level,
        }
        self._admin = KafkaAdmin(spark, self._properties, config.topic)
        group = config.commit_group
        self._group = None if group is None else GroupOffsets(self._admin, group, listener)
        self._is_first = False
        self._resolved: Mapping[int, int] | None = None
        self._gap_peek: KafkaPeek | None = None

    def start_checkpoint(self, checkpoint: KafkaCheckpoint | None) -> KafkaCheckpoint:
        """Where to start, whichever topic of its name it is; as ``start``."""
        return self.start(checkpoint).checkpoint

    def start(self, checkpoint: KafkaCheckpoint | None, topic_id: str = "") -> Start:
        """Where to start: every partition of the topic, new ones at their earliest record.

        Args:
            checkpoint: what the table has read; None for the first run, which starts at
                ``source.starting_offsets``.
            topic_id: of the topic that it has read; "" when unknown.

        Returns:
            The start, with the ranges that it skips; they are to be reported once the table has
            recorded it.

        Raises:
            TopicRecreated: the topic is another one, and that may not be passed over.
            LostOffsets: records that were not read are gone, and that may not be passed over.
            SourceError: the topic cannot be read; see the subclasses.
        """
        found_id = self._admin.topic_id()
        is_recreated = "" not in (topic_id, found_id) and topic_id != found_id
        start = self._first() if checkpoint is None else self._next(checkpoint, is_recreated)
        self._is_first = checkpoint is None
        if not self._is_first:
            self._resolved = None  # the table has recorded the first start
        if self._config.on_offset_out_of_range == "fail":
            if is_recreated:
                raise TopicRecreated(self._config.topic, topic_id, found_id)
            if start.lost:
                raise LostOffsets(self._config.topic, start.lost)
        return replace(start, topic_id=found_id)

    def check_same_topic(self, topic_id: str) -> None:
        """Pass when the topic is still the one that a run started from.

        Raises:
            TopicReplaced: it was created again meanwhile.
            SourceError: the topic cannot be asked.
        """
        found = self._admin.topic_id()
        if topic_id != found:
            reason = f"its id was {topic_id}, and is {found}"
            raise TopicReplaced(reason)

    def check_read(self, topic_id: str, gaps: Sequence[OffsetGap]) -> Sequence[LostRange]:
        """Judge the offsets of a batch at which no record was read, before it is published.

        Offsets below the partition's earliest count as lost: their records may have been deleted
        before they were read, and the topic can no longer say. At the others the broker is asked
        once more.

        Args:
            topic_id: of the topic that the run started from.
            gaps: without records; those of plain topics have none.

        Returns:
            The lost ranges, where ``source.on_offset_out_of_range`` permits losses. They are to be
            reported once the batch is committed: a batch that is written again asks again.

        Raises:
            TopicReplaced: the topic was created again meanwhile.
            LostOffsets: records may be lost, and the setting is ``fail``.
            RecordsWithheld: the topic has a record at one of these offsets.
            GapCheckFailed: the topic does not say whether it has; the batch is to be read again.
            OffsetsWithoutRecord: it has none, and ``source.on_missing_offsets`` is ``fail``.
            SourceError: the topic cannot be asked.
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
        """Resolve ``source.starting_offsets`` again at the next first start, which follows a reset.

        Call it when the table has recorded a checkpoint of this run.
        """
        self._is_first, self._resolved = False, None

    def commit_group_offsets(self, checkpoint: KafkaCheckpoint) -> None:
        """Show the consumer group of ``source.commit_group`` how far the table has read."""
        if self._group is not None:
            self._group.show(checkpoint)

    def flush_group_offsets(self, within_s: float) -> None:
        """Wait until that group has been shown the newest, for so many seconds at most."""
        if self._group is not None:
            self._group.close(within_s)

    def lag(self, checkpoint: KafkaCheckpoint) -> dict[int, int]:
        """Offsets of each partition that are in the topic and were not read.

        Raises:
            SourceError: the topic cannot be asked.
        """
        return kafka_offsets.lag(checkpoint, self._admin.ranges())

    def peek(self) -> KafkaPeek:
        """A connection of its own that looks at a few records; close it."""
        return KafkaPeek(self._spark, self._properties, self._config.topic)

    def max_message_bytes(self) -> int:
        """The longest message that the topic takes; Kafka's own default where we may not ask.

        Kafka measures messages as they are sent: compressed ones may be longer here.
        """
        return self._admin.max_message_bytes()

    def stream(self, start: KafkaCheckpoint) -> DataFrame:
        """The records from ``start`` on, as a streaming DataFrame.

        Columns: ``value`` binary, ``key`` binary (of tombstones only, unless keys are kept or it is
        a metadata column), ``partition`` int, ``offset`` bigint, ``timestamp``; and ``topic``
        string where it is a metadata column.

        Args:
            start: names every partition, as ``start_checkpoint`` returns it.

        Raises:
            SourceError: the topic cannot be asked how long its records are.
        """
        if self._is_first:
            # If the run starts again before its first commit, what was deleted meanwhile is a loss.
            self._resolved = start.offsets
        properties = {_POLL_RECORDS: str(self.poll_records(start)), **self._properties}
        reader = self._spark.readStream.format("kafka").options(
            **{f"kafka.{name}": value for name, value in properties.items()},
            subscribe=start.topic,
            startingOffsets=json.dumps({start.topic: dict(start.offsets)}),
            maxOffsetsPerTrigger=str(self._config.max_records_per_batch),
            # Whatever is to become of losses: a batch has all records of its offsets, or fails,
            # and the next start decides for each partition.
            failOnDataLoss="true",
        )
        return reader.load().select(*self._columns())

    def poll_records(self, start: KafkaCheckpoint) -> int:
        """How many records a consumer may hold at once: by their lengths, or as the file says.

        Raises:
            SourceError: the topic cannot be asked.
        """
        if _POLL_RECORDS in self._properties:
            return int(self._properties[_POLL_RECORDS])
        available = self._admin.ranges()
        asked = looks(start.offsets, available)
        with self._admin.translating(), closing(self.peek()) as peek:
            longest = max((peek.longest_bytes(look, _LOOK_WITHIN_S) for look in asked), default=0)
        return poll_records(_heap_bytes(self._spark), len(available), longest)

    def sample(self, count: int) -> pa.Array:
        """Values of about ``count`` records from where a first run starts, to infer a schema from.

        Where fewer follow, they are the last ones before; fewer, too, where they are long.

        Raises:
            SourceError: the topic cannot be asked.
        """
        start, available = self.start_checkpoint(None), self._admin.ranges()
        share = -(-count // max(len(available), 1))
        ends = {p: min(start.offsets[p] + share, r.end) for p, r in available.items()}
        begins = {p: max(ends[p] - share, r.earliest) for p, r in available.items()}
        with self._admin.translating(), closing(self.peek()) as peek:
            return pa.array(peek.values(begins, ends, _SAMPLE_BYTES), pa.binary())

    def close(self) -> None:
        """Ends the connection that answers questions; streams go on."""
        if self._group is not None:
            self._group.close()
        if self._gap_peek is not None:
            self._gap_peek.close()
        self._admin.close()

    def __enter__(self) -> KafkaSource:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _check_empty(self, gaps: Sequence[OffsetGap]) -> None:
        """Pass if the broker has no readable record in any of the gaps."""
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
        # After the times: what arrives in between lies within these ranges.
        available = self._admin.ranges()
        if isinstance(starting, dict) and not starting.keys() <= available.keys():
            unknown = starting.keys() - available.keys()
            raise UnknownPartitions(self._config.topic, unknown, len(available))
        start = kafka_offsets.first_start(self._config.topic, available, starting, self._fallback)
        if self._config.starting_offsets != "latest" and not isinstance(
            self._config.starting_offsets, StartingTime
        ):
            return start
        # If the run starts again before the table records this start, it must not skip what has
        # arrived meanwhile.
        self._resolved = start.checkpoint.offsets
        return replace(start, needs_commit=True)

    def _starting(self) -> Starting:
        """The setting, with a time resolved to offsets; or what this run has resolved before."""
        if self._resolved is not None:
            return self._resolved
        starting = self._config.starting_offsets
        if isinstance(starting, StartingTime):
            return self._admin.offsets_since(starting.timestamp)
        return starting

    def _next(self, checkpoint: KafkaCheckpoint, is_recreated: bool) -> Start:
        if checkpoint.topic != self._config.topic:
            raise ForeignCheckpoint(self._config.topic, str(checkpoint))
        available = self._admin.ranges()
        return kafka_offsets.next_start(
            checkpoint, available, self._fallback, is_recreated=is_recreated
        )

    @property
    def _fallback(self) -> Fallback:
        policy = self._config.on_offset_out_of_range
        return "earliest" if policy == "fail" else policy

    def _columns(self) -> list[Column]:
        value, key = F.col("value"), F.col("key")
        wanted = self._config.metadata_columns
        if not (self._keeps_keys or "key" in wanted):
            # A key is as long as its value in many topics, and only a tombstone is read by it.
            key = F.when(value.isNull(), key).alias("key")
        topic = [F.col("topic")] if "topic" in wanted else []
        return [value, key, F.col("partition"), F.col("offset"), F.col("timestamp"), *topic]


def _heap_bytes(spark: SparkSession) -> int:
    """Heap of the JVM in which the stream's consumers are: the driver's, or an executor's."""
    context = spark.sparkContext
    if not is_local(spark):
        return int(context._jsc.sc().executorMemory()) << 20
    jvm = context._jvm
    assert jvm is not None
    return int(jvm.java.lang.Runtime.getRuntime().maxMemory())
