"""The snapshot of a pipeline as a source: it knows where the topic is read afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from checkpoints.files_position import FilesPosition
from checkpoints.position import Position
from checkpoints.snapshot_position import SnapshotPosition
from checkpoints.table_position import TablePosition
from sinks.audit import OffsetGap
from sinks.batch import Batch
from streamer.sources.kafka import KafkaSource
from streamer.sources.kafka_offsets import LostRange
from streamer.sources.snapshots.errors import ForeignSnapshot, errors_of_snapshot
from streamer.sources.source import (
    CheckRead,
    RunningStream,
    Source,
    SourceStart,
    SourceStream,
    StreamSettings,
)


@dataclass(frozen=True, slots=True)
class SnapshotStart:
    """The start of a run; a ``SourceStart``.

    Attributes:
        checkpoint: how far the snapshot counts as read, and where the topic is read afterwards.
        rows: the start of the files or the table of the snapshot.
        lost: the records of the topic that were deleted before they could be read.
        topic_id: Kafka's id of the topic.
        needs_commit: True for the first run. The commit contains the offsets that were determined
            before any row of the snapshot was read.
    """

    checkpoint: SnapshotPosition
    rows: SourceStart
    lost: Sequence[LostRange]
    topic_id: str
    needs_commit: bool


class SnapshotSource(Source):
    """Reads a snapshot once, and keeps the offsets at which its topic is read afterwards.

    Args:
        rows: the files or the table of the snapshot.
        topic: the topic. Only its offsets are read.
    """

    def __init__(self, rows: Source, topic: KafkaSource) -> None:
        self._rows, self._topic = rows, topic

    def start(self, checkpoint: Position | None, topic_id: str = "") -> SnapshotStart:
        """See ``Source``. The offsets are determined before the snapshot is looked at.

        So each change that the snapshot lacks has an offset from there on, if the topic gets the
        changes that are made after the snapshot was taken.

        Raises:
            ForeignSnapshot: the position belongs to another source.
            SnapshotGone: the rest of the rows of a table can no longer be read.
            LostOffsets, TopicRecreated: the topic no longer has the records after its offsets, and
                ``source.on_offset_out_of_range`` is ``fail``.
        """
        if checkpoint is not None and not isinstance(checkpoint, SnapshotPosition):
            raise ForeignSnapshot(str(checkpoint))
        then = self._topic.start(None if checkpoint is None else checkpoint.then, topic_id)
        with errors_of_snapshot():
            rows = self._rows.start(None if checkpoint is None else checkpoint.read)
        return SnapshotStart(
            SnapshotPosition(read=_read(rows.checkpoint), then=then.checkpoint),
            rows,
            then.lost,
            then.topic_id,
            needs_commit=then.needs_commit or checkpoint is None,
        )

    def open_stream(
        self, begun: SourceStart, settings: StreamSettings, check_read: CheckRead
    ) -> SnapshotStream:
        """See ``Source``. The stream ends when the snapshot is read, also in ``continuous``."""
        assert isinstance(begun, SnapshotStart), begun
        then = begun.checkpoint.then

        def check(end: Position, gaps: Sequence[OffsetGap]) -> Sequence[Mapping[str, object]]:
            return check_read(SnapshotPosition(read=_read(end), then=then), gaps)

        stream = self._rows.open_stream(begun.rows, replace(settings, mode="once"), check)
        return SnapshotStream(stream, begun)

    def sample(self, count: int) -> pa.Array:
        """See ``Source``. The values are those of the snapshot."""
        return self._rows.sample(count)

    def lag(self, checkpoint: SnapshotPosition) -> Mapping[int, int]:
        """See ``Source``. The unread records are those of the topic."""
        return self._topic.lag(checkpoint.then)

    def ask_lag(self, checkpoint: SnapshotPosition) -> Callable[[], Mapping[int, int]]:
        """See ``Source``."""
        return self._topic.ask_lag(checkpoint.then)

    def forget_first_start(self) -> None:
        """See ``Source``."""
        self._topic.forget_first_start()

    def close(self) -> None:
        """See ``Source``. The caller closes the topic."""
        self._rows.close()


class SnapshotStream:
    """The batches of a snapshot; a ``SourceStream``.

    Args:
        rows: the batches of the files or the table.
        begun: where they begin.
    """

    def __init__(self, rows: SourceStream, begun: SnapshotStart) -> None:
        self._rows, self._begun = rows, begun

    def plan(self, given: Any, batch_id: int) -> Batch | None:
        """See ``SourceStream``. Each batch ends at a position that contains the offsets.

        Raises:
            BadSnapshot: a file is damaged, and ``snapshot.on_bad_file`` is ``fail``.
            SnapshotGone: rows of a table can no longer be read.
        """
        with errors_of_snapshot():
            batch = self._rows.plan(given, batch_id)
        if batch is None:
            return None
        start, end = self._position(batch.start), self._position(batch.end)
        return replace(batch, start=start, end=end, topic_id=self._begun.topic_id)

    def start(self, on_batch: Callable[[Any, int], None]) -> RunningStream:
        """See ``SourceStream``."""
        return self._rows.start(on_batch)

    def _position(self, read: Position) -> SnapshotPosition:
        return SnapshotPosition(read=_read(read), then=self._begun.checkpoint.then)


def _read(position: Position) -> FilesPosition | TablePosition:
    assert isinstance(position, FilesPosition | TablePosition), position
    return position
