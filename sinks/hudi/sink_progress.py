"""The progress of a sink's streamer, as recorded in the commits of the sink's table.

Progress is recorded only in the table. A commit contains the offsets of its rows. The commit is
published only if the table still has the checkpoint at which the batch started.
"""

from __future__ import annotations

from datetime import datetime

from checkpoints.lookup import find_progress, find_table_progress
from checkpoints.position import Position
from checkpoints.progress import Progress, encode_progress
from lakemark.errors import Fenced
from lakemark.operations.table_writer import TableWriter
from lakemark.timeline.timeline import Timeline


class SinkProgress:
    """The progress of one streamer in one table.

    Args:
        rows: writes the rows of the table; another writer writes the dead letters.
        identity: the name under which commits record the streamer's progress
            (``checkpoints.progress``).
    """

    def __init__(self, rows: TableWriter, identity: str) -> None:
        self._rows, self._identity = rows, identity
        #: The checkpoint that the table must have when the next batch is committed.
        self._checkpoint: Position | None = None

    def find(self) -> Progress | None:
        """Return the newest progress in the table; the next batch is committed on top of it."""
        table = self._rows.table
        progress = find_progress(table, table.timeline, self._identity)
        self._checkpoint = None if progress is None else progress.checkpoint
        return progress

    def newest(self) -> Progress | None:
        """Return the newest progress in the table; None at the start.

        In contrast to ``find``, the next batch is still committed on top of the known checkpoint.
        """
        return find_progress(self._rows.table, self._rows.table.timeline, self._identity)

    def committed_at(self, progress: Progress) -> datetime | None:
        """Return when the commit that moved the streamer was requested; None if it is not known."""
        return self._rows.table.store.clock.parse(progress.commit) if progress.commit else None

    def metadata(self, end: Position, topic_id: str) -> dict[str, str]:
        """Return the metadata of a commit: the progress of this streamer and of all others.

        Args:
            end: how far the source has been read after the commit.
            topic_id: Kafka's id of the topic.
        """
        known = find_table_progress(self._rows.table, self._rows.table.timeline)
        before = known.streamers.get(self._identity)
        progress = Progress(
            checkpoint=end,
            commit=self._rows.pending_instant,
            topic_id=topic_id,
            applied=before.applied if before else {},
        )
        return encode_progress(known.with_progress(self._identity, progress), self._identity)

    def check(self, timeline: Timeline) -> None:
        """Check that the table still has the checkpoint at which the batch started.

        Otherwise rows would be lost or written twice.

        Raises:
            Fenced: another writer moved the checkpoint.
        """
        progress = find_progress(self._rows.table, timeline, self._identity)
        stored = None if progress is None else progress.checkpoint
        if stored != self._checkpoint:
            reason = f"the table has read up to {stored}; this run continued at {self._checkpoint}"
            raise Fenced(self._rows.pending_instant, reason)

    def advance(self, end: Position) -> None:
        """Record that ``end`` was published, so that the next batch is committed on top of it."""
        self._checkpoint = end
