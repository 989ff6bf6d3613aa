"""Decides when the records of a batch count as rejected.

All attempts to write a batch have one time. A record that an earlier run has rejected, and whose
batch was not published, keeps its time. So a dead letter that is written again replaces the first
one, which is in the partition of its time.

The dead letters of such records of a topic are found by their offsets, which are not below the
checkpoint. Their times do not tell: a restart may publish some records of the batch, and read the
others again days after they were rejected. Positions in files and in tables have no offsets, so
their dead letters are found by the time of the last commit.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from checkpoints.checkpoint import KafkaCheckpoint
from lakemark.operations.table_writer import TableWriter
from sinks.hudi.sink_progress import SinkProgress
from sinks.letter_layout import EARLIER_COLUMNS, REJECTED_AT, WITHOUT_DAYS, LetterLayout
from sinks.open_letters import find_read

#: By how much the clocks of two machines that run the pipeline may differ at most.
_MARGIN = timedelta(days=1)

_COLUMNS = [*EARLIER_COLUMNS, "partition", "offset"]


def utc_now() -> datetime:
    """Return the current time."""
    return datetime.now(UTC)


class RejectionTimes:
    """The times of rejection of the batches of a stream.

    Args:
        rejects: the writer of the dead-letter table; None if there is no such table.
        progress: the progress of the streamer.
    """

    def __init__(self, rejects: TableWriter | None, progress: SinkProgress) -> None:
        self._rejects, self._progress = rejects, progress
        self._earlier: pa.Table | None = None
        self._rejected_at = utc_now()

    def begin_batch(self) -> None:
        """Set the time of rejection for all attempts to write a batch."""
        self._rejected_at = utc_now()

    def forget(self) -> None:
        """Read the dead letters of unpublished batches again, because a batch was not published."""
        self._earlier = None

    def layout(self) -> LetterLayout:
        """Return how the dead letters of the present batch are written.

        Raises:
            HudiError: the dead-letter table cannot be read.
        """
        if self._rejects is None:
            return WITHOUT_DAYS
        layout = LetterLayout.of(self._rejects.table.properties)
        if layout.by_day and self._earlier is None:
            self._earlier = self._read(self._rejects)
        return replace(layout, rejected_at=self._rejected_at, earlier=self._earlier)

    def _read(self, rejects: TableWriter) -> pa.Table | None:
        """Return the dead letters of records that may be read again; None if there are none.

        A batch commits its dead letters after the commit of the batch before it.
        """
        if rejects.table.schema is None:
            return None
        progress = self._progress.newest()
        checkpoint = None if progress is None else progress.checkpoint
        if isinstance(checkpoint, KafkaCheckpoint):
            found = _scan(rejects, _may_be_unread(checkpoint))
            return found.filter(pa.array(~find_read(found, checkpoint))).select(EARLIER_COLUMNS)
        since = self._progress.committed_at(progress) if progress and checkpoint else None
        where = None if since is None else f"{REJECTED_AT} >= '{(since - _MARGIN).isoformat()}'"
        return _scan(rejects, where).select(EARLIER_COLUMNS)


def _scan(rejects: TableWriter, where: str | None) -> pa.Table:
    found: pa.Table = rejects.table.scan(columns=_COLUMNS, where=where).to_reader().read_all()
    return found


def _may_be_unread(checkpoint: KafkaCheckpoint) -> str:
    """Return a condition on dead letters that skips files whose records are all read for good.

    A partition that the checkpoint does not contain is read from its start.
    """
    of_topic, offsets = f"topic = '{checkpoint.topic}'", checkpoint.offsets
    if not offsets:
        return of_topic
    last = max(offsets)
    lowest = min(offsets.get(partition, 0) for partition in range(last + 1))
    return f"{of_topic} and (offset >= {lowest} or partition > {last})"
