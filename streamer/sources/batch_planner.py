"""Builds the batches of a stream from the plans in Spark's offset log."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame

from checkpoints.checkpoint import KafkaCheckpoint
from sinks.batch import KafkaBatch
from streamer.sources.errors import TopicReplaced
from streamer.sources.offset_log import planned_end
from streamer.sources.source import CheckRead


class BatchPlanner:
    """Builds the batches of one stream.

    Args:
        start: the offsets at which the stream starts.
        topic_id: the id of the topic.
        scratch: the folder of Spark's offset log.
        check_read: checks a batch before it is published.
    """

    def __init__(
        self, start: KafkaCheckpoint, topic_id: str, scratch: Path, check_read: CheckRead
    ) -> None:
        self._read_to, self._topic_id = start, topic_id
        self._scratch, self._check_read = scratch, check_read

    def next(self, records: DataFrame, batch_id: int) -> KafkaBatch | None:
        """Return the next batch; None if there are no new offsets, as may happen at the start.

        Raises:
            TopicReplaced: the batch ends before the end of the previous batch.
        """
        start, end = self._read_to, planned_end(self._scratch, batch_id)
        if not start <= end:
            reason = f"the stream has read up to {start}, but Kafka ends a batch at {end}"
            raise TopicReplaced(reason)
        if end == start:
            return None
        self._read_to = end
        return KafkaBatch(
            records=records,
            start=start,
            end=end,
            topic_id=self._topic_id,
            check_source=partial(self._check_read, end),
        )
