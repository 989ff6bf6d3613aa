"""Builds the batches of a stream from the plans in Spark's offset log."""

from __future__ import annotations

from collections.abc import Mapping
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
        ending: the offsets up to which the partitions are read; others are not read. None to read
            everything that Spark plans. Spark's streams have no such limit.
    """

    def __init__(
        self,
        start: KafkaCheckpoint,
        topic_id: str,
        scratch: Path,
        check_read: CheckRead,
        ending: Mapping[int, int] | None = None,
    ) -> None:
        self._planned_to = self._read_to = start
        self._topic_id = topic_id
        self._scratch, self._check_read = scratch, check_read
        self._ending = ending

    def next(self, records: DataFrame, batch_id: int) -> KafkaBatch | None:
        """Return the next batch; None if there are no new offsets, as may happen at the start.

        Raises:
            TopicReplaced: the batch ends before the end of the previous batch.
        """
        planned = planned_end(self._scratch, batch_id)
        if not self._planned_to <= planned:
            reason = (
                f"the stream has read up to {self._planned_to}, but Kafka ends a batch at {planned}"
            )
            raise TopicReplaced(reason)
        self._planned_to = planned
        start, end = self._read_to, self._limit(planned)
        if end == start:
            return None
        self._read_to = end
        return KafkaBatch(
            records=records if end == planned else records.where(_before(end)),
            start=start,
            end=end,
            topic_id=self._topic_id,
            check_source=partial(self._check_read, end),
        )

    def _limit(self, planned: KafkaCheckpoint) -> KafkaCheckpoint:
        """Return where the batch ends, if Spark has planned it up to ``planned``."""
        if self._ending is None:
            return planned
        begins = self._read_to.offsets
        ends = {p: min(planned.offsets.get(p, end), end) for p, end in self._ending.items()}
        return KafkaCheckpoint(planned.topic, {**begins, **ends})


def _before(end: KafkaCheckpoint) -> str:
    """Return the condition on records that are before the end of a batch, in Spark SQL."""
    cases = " ".join(f"when {p} then {offset}L" for p, offset in end.offsets.items())
    return f"offset < case partition {cases} else 0L end"
