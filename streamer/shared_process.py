"""What the pipelines of one process share: the Spark session, slots, and the watch of topics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from streamer.config.pipeline import PipelineConfig
from streamer.schedule import SharedSchedule
from streamer.slots import Slots
from streamer.sources.topic_watch import TopicWatch

#: The number of streams that are open at the same time. An open stream costs a thread and a
#: connection, and asks its broker once per trigger.
_STREAMS: Final = 16


@dataclass(frozen=True)
class SharedProcess:
    """What the pipelines of one process share.

    Attributes:
        spark: the session.
        num_batches: how many batches may be read and written at the same time. They share the
            memory for batches.
    """

    spark: SparkSession
    num_batches: int
    _streams: Slots
    _batches: Slots
    _watch: TopicWatch

    def schedule_of(self, config: PipelineConfig) -> SharedSchedule:
        """Return the schedule of one of the pipelines."""
        return SharedSchedule(config.name, config.kafka, self._streams, self._batches, self._watch)

    def use_pool(self, pipeline: str) -> None:
        """Let the executors share their time fairly between this thread's jobs and others'.

        A stream that this thread starts inherits the pool.
        """
        self.spark.sparkContext.setLocalProperty("spark.scheduler.pool", pipeline)


@contextmanager
def share_process(
    spark: SparkSession, num_batches: int, num_streams: int = _STREAMS
) -> Iterator[SharedProcess]:
    """Share a session until the block ends.

    Args:
        spark: the session.
        num_batches: how many batches may be read and written at the same time.
        num_streams: how many streams may be open at the same time.
    """
    # PySpark starts this server with the first stream, and does not expect two at the same time.
    ensure_callback_server_started(spark.sparkContext._gateway)  # type: ignore[no-untyped-call]
    watch = TopicWatch()
    try:
        streams = Slots(max(num_streams, num_batches))
        yield SharedProcess(spark, num_batches, streams, Slots(num_batches), watch)
    finally:
        watch.close()
