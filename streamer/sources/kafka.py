"""A Kafka topic as a stream of raw records, from offsets that the table decides."""

from __future__ import annotations

import json
from types import TracebackType

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from checkpoints.checkpoint import KafkaCheckpoint
from streamer.config import settings
from streamer.config.source import SourceConfig
from streamer.events import Listener, OffsetsSkipped, ignore
from streamer.sources import kafka_offsets
from streamer.sources.errors import ForeignCheckpoint, LostOffsets, UnknownPartitions
from streamer.sources.kafka_admin import KafkaAdmin
from streamer.sources.kafka_offsets import Start

#: Fewer, larger fetches: a sixth to a quarter less time for a batch of small records than with
#: the consumer's own limits (1 MiB and 500 records). The pipeline file may set others.
_FETCH_PROPERTIES = {
    "max.partition.fetch.bytes": str(8 << 20),
    "max.poll.records": "10000",
}


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
            listener: is told of records that are lost.
            keeps_keys: whether the key of every record is wanted, as dead letters do.

        Raises:
            ConfigError: a secret of ``source.consumer`` cannot be found.
            SourceError: the connector is missing, or a property is not accepted.
        """
        self._spark, self._config, self._listener = spark, config, listener
        self._keeps_keys = keeps_keys
        self._properties = {
            **_FETCH_PROPERTIES,
            **settings.resolve(config.consumer, "source.consumer"),
            "bootstrap.servers": config.bootstrap,
            "isolation.level": config.isolation,
        }
        self._admin = KafkaAdmin(spark, self._properties, config.topic)

    def start_map(self, checkpoint: KafkaCheckpoint | None) -> KafkaCheckpoint:
        """Where to start: every partition of the topic, new ones at their earliest record.

        Args:
            checkpoint: what the table has read; None for the first run, which starts at
                ``source.starting``.

        Raises:
            LostOffsets: records that were not read are gone, and that may not be passed over.
            SourceError: the topic cannot be read; see the subclasses.
        """
        start = self._first() if checkpoint is None else self._next(checkpoint)
        if start.lost and self._config.fail_on_data_loss:
            raise LostOffsets(self._config.topic, start.lost)
        if start.lost:
            self._listener(OffsetsSkipped(self._config.topic, tuple(map(str, start.lost))))
        return start.checkpoint

    def lag(self, checkpoint: KafkaCheckpoint) -> dict[int, int]:
        """Offsets of each partition that are in the topic and were not read.

        Raises:
            SourceError: the topic cannot be asked.
        """
        return kafka_offsets.lag(checkpoint, self._admin.ranges())

    def tell_losses(self, start: KafkaCheckpoint, end: KafkaCheckpoint) -> None:
        """Tell the listener of records between two checkpoints that the topic has lost by now.

        To be asked where fewer records came than offsets lie between them, which compacted topics
        and transactions explain, too.

        Raises:
            SourceError: the topic cannot be asked.
        """
        lost = kafka_offsets.lost_between(start, end, self._admin.ranges())
        if lost:
            self._listener(OffsetsSkipped(self._config.topic, tuple(map(str, lost))))

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
            start: names every partition, as ``start_map`` returns it.
        """
        reader = self._spark.readStream.format("kafka").options(
            **self._options(start),
            maxOffsetsPerTrigger=str(self._config.max_records_per_batch),
            failOnDataLoss=str(self._config.fail_on_data_loss).lower(),
        )
        return reader.load().select(*self._columns())

    def sample(self, count: int) -> pa.Array:
        """Values of about ``count`` records from where a first run starts, to infer a schema from.

        Raises:
            SourceError: the topic cannot be asked.
        """
        start = self.start_map(None)
        available = self._admin.ranges()
        share = -(-count // max(len(available), 1))
        ends = {p: min(start.offsets[p] + share, r.end) for p, r in available.items()}
        reader = self._spark.read.format("kafka").options(
            **self._options(start),
            endingOffsets=json.dumps({start.topic: ends}),
        )
        rows = reader.load().select("value").where("value is not null").collect()
        return pa.array([bytes(row.value) for row in rows], pa.binary())

    def close(self) -> None:
        """Ends the connection that answers questions; streams go on."""
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

    def _first(self) -> Start:
        available, starting = self._admin.ranges(), self._config.starting
        if isinstance(starting, dict) and not starting.keys() <= available.keys():
            unknown = starting.keys() - available.keys()
            raise UnknownPartitions(self._config.topic, unknown, len(available))
        return kafka_offsets.first_start(self._config.topic, available, starting)

    def _next(self, checkpoint: KafkaCheckpoint) -> Start:
        if checkpoint.topic != self._config.topic:
            raise ForeignCheckpoint(self._config.topic, str(checkpoint))
        return kafka_offsets.next_start(checkpoint, self._admin.ranges())

    def _options(self, start: KafkaCheckpoint) -> dict[str, str]:
        """What every reader of the topic is told, stream or not."""
        return {
            **{f"kafka.{name}": value for name, value in self._properties.items()},
            "subscribe": start.topic,
            "startingOffsets": json.dumps({start.topic: dict(start.offsets)}),
        }

    def _columns(self) -> list[Column]:
        value, key = F.col("value"), F.col("key")
        wanted = self._config.metadata_columns
        if not (self._keeps_keys or "key" in wanted):
            # A key is as long as its value in many topics, and only a tombstone is read by it.
            key = F.when(value.isNull(), key).alias("key")
        topic = [F.col("topic")] if "topic" in wanted else []
        return [value, key, F.col("partition"), F.col("offset"), F.col("timestamp"), *topic]
