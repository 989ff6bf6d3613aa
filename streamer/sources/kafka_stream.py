"""A stream of Kafka records: a query of Spark Structured Streaming."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from checkpoints.checkpoint import KafkaCheckpoint
from sinks.batch import KafkaBatch
from streamer.sources.batch_planner import BatchPlanner
from streamer.sources.source import CheckRead, StreamSettings


class KafkaStream:
    """Reads the records of one topic from a checkpoint on; a ``SourceStream``.

    Args:
        records: the records, as a streaming DataFrame.
        start: the offsets at which the stream starts.
        topic_id: the id of the topic.
        settings: how the stream runs. Spark writes its offset log to the scratch folder.
        check_read: checks a batch before it is published.
    """

    def __init__(
        self,
        records: DataFrame,
        start: KafkaCheckpoint,
        topic_id: str,
        settings: StreamSettings,
        check_read: CheckRead,
    ) -> None:
        self._records, self._settings = records, settings
        self._planner = BatchPlanner(start, topic_id, settings.scratch, check_read)

    def plan(self, given: DataFrame, batch_id: int) -> KafkaBatch | None:
        """See ``BatchPlanner.next``."""
        return self._planner.next(given, batch_id)

    def start(self, on_batch: Callable[[DataFrame, int], None]) -> StreamingQuery:
        """Start the query."""
        settings = self._settings
        writer = self._records.writeStream.foreachBatch(on_batch)
        writer = writer.option("checkpointLocation", settings.scratch.as_uri())
        if settings.mode == "once":
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{settings.trigger_interval_s} seconds").start()
