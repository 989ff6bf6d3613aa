"""A stream of Kafka records: a query of Spark Structured Streaming."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from sinks.batch import KafkaBatch
from streamer.sources.batch_planner import BatchPlanner
from streamer.sources.source import StreamSettings


class KafkaStream:
    """Reads the records of one topic from a checkpoint on; a ``SourceStream``.

    Args:
        records: the records, as a streaming DataFrame.
        planner: builds the batches.
        settings: how the stream runs. Spark writes its offset log to the scratch folder.
    """

    def __init__(self, records: DataFrame, planner: BatchPlanner, settings: StreamSettings) -> None:
        self._records, self._planner, self._settings = records, planner, settings

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
