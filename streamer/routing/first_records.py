"""The first records of a table to which a topic is routed."""

from __future__ import annotations

import pyarrow as pa

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.position import Position
from streamer.sources.kafka_offsets import Start


class RecordsOfTable:
    """The records of one table in a batch, from which its columns are inferred.

    They are ``FirstRecords``, but no source: they are not streamed, because the sink has them.

    Args:
        topic: the topic.
        records: the raw records.
    """

    def __init__(self, topic: str, records: pa.Table) -> None:
        self._topic, self._records = topic, records

    def start(self, checkpoint: Position | None, topic_id: str = "") -> Start:
        """See ``FirstRecords``. The records were read before."""
        return Start(KafkaCheckpoint(self._topic, {}))

    def sample(self, count: int) -> pa.Array:
        """See ``FirstRecords``."""
        values = self._records.column("value").drop_null().slice(0, count)
        return pa.concat_arrays([pa.array([], pa.binary()), *values.cast(pa.binary()).chunks])
