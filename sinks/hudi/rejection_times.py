"""Decides when the records of a batch count as rejected.

All attempts to write a batch have one time. A record that an earlier run has rejected, and whose
batch was not published, keeps its time. So a dead letter that is written again replaces the first
one, which is in the partition of its time.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from lakemark.model.meta_columns import RECORD_KEY
from lakemark.operations.table_writer import TableWriter
from sinks.hudi.sink_progress import SinkProgress
from sinks.letter_layout import REJECTED_AT, WITHOUT_DAYS, LetterLayout

#: By how much the clocks of two machines that run the pipeline may differ at most.
_MARGIN = timedelta(days=1)

_COLUMNS = [RECORD_KEY, REJECTED_AT]


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

    def _read(self, rejects: TableWriter) -> pa.Table:
        """Return the records that were rejected since the last commit of the streamer.

        A batch commits its dead letters after the commit of the batch before it.
        """
        table, since = rejects.table, self._progress.committed_at()
        if table.schema is None:
            return pa.table({RECORD_KEY: pa.array([], pa.string()), REJECTED_AT: pa.array([])})
        where = None if since is None else f"{REJECTED_AT} >= '{(since - _MARGIN).isoformat()}'"
        found = table.scan(columns=_COLUMNS, where=where).to_reader().read_all()
        return found.select(_COLUMNS)
