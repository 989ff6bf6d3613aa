"""The topic of a pipeline with a snapshot."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import SparkSession

from checkpoints.position import Position
from checkpoints.snapshot_position import SnapshotPosition
from streamer.config.kafka_source import KafkaSourceConfig
from streamer.events import Listener, ignore
from streamer.sources.errors import SnapshotUnread
from streamer.sources.kafka import KafkaSource
from streamer.sources.kafka_offsets import Start


class TopicAfterSnapshot(KafkaSource):
    """A topic that is read only after a snapshot, from the offsets that the snapshot kept."""

    def __init__(
        self,
        spark: SparkSession,
        config: KafkaSourceConfig,
        listener: Listener = ignore,
        *,
        keeps_keys: bool = False,
        is_snapshot_read: bool,
    ) -> None:
        """Create the source; see ``KafkaSource``.

        Args:
            spark: a running session with the Kafka connector.
            config: the topic, and how to read it.
            listener: receives an event if the broker refuses offsets for a consumer group.
            keeps_keys: whether to read the key of every record.
            is_snapshot_read: whether this process has just read the snapshot completely.

        Raises:
            ConfigError: a secret of ``source.consumer`` cannot be found.
            SourceError: the connector is missing, or Kafka's client does not accept a property.
        """
        super().__init__(spark, config, listener, keeps_keys=keeps_keys)
        self._is_snapshot_read = is_snapshot_read

    def start(self, checkpoint: Position | None, topic_id: str = "") -> Start:
        """See ``KafkaSource``. The first start after the snapshot is committed without records.

        This commit is the end of the snapshot: later runs find offsets of Kafka, and do not read
        the snapshot again.

        Raises:
            SnapshotUnread: the snapshot was not read completely.
        """
        if checkpoint is None:
            raise SnapshotUnread(self._config.topic, None)
        if isinstance(checkpoint, SnapshotPosition) and self._is_snapshot_read:
            return replace(super().start(checkpoint.then, topic_id), needs_commit=True)
        return super().start(checkpoint, topic_id)
