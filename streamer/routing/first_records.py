"""The first records of a table, as the source from which its columns are inferred."""

from __future__ import annotations

import pyarrow as pa

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.position import Position
from streamer.sources.kafka_offsets import Start
from streamer.sources.source import CheckRead, Source, SourceStart, SourceStream, StreamSettings


class FirstRecords(Source):
    """The records of a table in one batch. They are not streamed, because the sink has them.

    Args:
        topic: the topic.
        records: the raw records.
    """

    def __init__(self, topic: str, records: pa.Table) -> None:
        self._topic, self._records = topic, records

    def start(self, checkpoint: Position | None, topic_id: str = "") -> Start:
        """See ``Source``. The records were read before."""
        return Start(KafkaCheckpoint(self._topic, {}))

    def open_stream(
        self, begun: SourceStart, settings: StreamSettings, check_read: CheckRead
    ) -> SourceStream:
        """Raise an error: see the class."""
        raise NotImplementedError

    def sample(self, count: int) -> pa.Array:
        """See ``Source``."""
        values = self._records.column("value").drop_null().slice(0, count)
        return pa.concat_arrays([pa.array([], pa.binary()), *values.cast(pa.binary()).chunks])
