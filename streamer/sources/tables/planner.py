"""Reads a table in batches: the rows of a snapshot, then the changes of one commit after another.

A batch ends within a file slice or a commit if it is full. Its position then contains the number of
the rows that were read, and a digest of their keys. A run that continues there reads these rows
again and skips them. If the digest shows that the rows have another order, for example because a
compaction has rewritten the slice, the slice or the commit is read from its beginning. This is
harmless, because its rows replace the same rows.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from zlib import crc32

from checkpoints.table_position import PartRead, SnapshotRead, TablePosition
from lakemark.model.file_slice import FileSlice
from lakemark.model.instant import Instant
from lakemark.read.scan import Scan
from sinks.batch import RecordsBatch
from streamer.sources.batch_records import BatchRecords
from streamer.sources.source import CheckRead
from streamer.sources.tables.upstream import Rows, Upstream

_LOG = logging.getLogger(__name__)

#: Rows are added to a batch in pieces of this size, so that a batch exceeds its limit by one piece.
_PIECE_BYTES = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """How large a batch may be.

    Attributes:
        commits: the largest number of commits with changes.
        size_bytes: about how many bytes of rows it has.
    """

    commits: int
    size_bytes: int


class _OpenPart:
    """A commit, or a file slice of a snapshot, whose next rows can be read.

    Attributes:
        done: what was read of it.
        origin: the name of the part, for dead letters.
        time_us: when its rows were committed, in microseconds since 1970.
        after: the position after the part, if it is read completely.

    Args:
        name: the name of the part in a position.
        origin: see above.
        time_us: see above.
        after: see above.
        read: opens the rows of the part, from the first one.
        piece_bytes: about how many bytes of rows are returned at a time.
    """

    def __init__(
        self,
        name: str,
        origin: str,
        time_us: int,
        after: TablePosition,
        read: Callable[[], Iterator[Rows]],
        piece_bytes: int,
    ) -> None:
        self.origin, self.time_us, self.after = origin, time_us, after
        self.done = PartRead(name, 0, 0)
        self._read, self._piece_bytes = read, piece_bytes
        self._rows = self._pieces()
        self._waiting: Rows | None = None

    def next_rows(self) -> Rows | None:
        """Return the next rows; None at the end."""
        rows = self._take()
        if rows is not None:
            self.done = self._done_after(rows)
        return rows

    def has_ended(self) -> bool:
        """Return whether there are no more rows."""
        self._waiting = self._take()
        return self._waiting is None

    def skip(self, read: PartRead) -> None:
        """Skip the rows that were read, or none if they have another order now."""
        while self.done.rows < read.rows:
            rows = self._take()
            if rows is None:
                break
            wanted = rows.slice(0, read.rows - self.done.rows)
            self.done = self._done_after(wanted)
            if len(wanted) < len(rows):
                self._waiting = rows.slice(len(wanted))
        if self.done != read:
            text = "%s: the rows have another order than when %d of them were read; read again"
            _LOG.warning(text, self.origin, read.rows)
            self.done = PartRead(self.done.name, 0, 0)
            self._rows, self._waiting = self._pieces(), None

    def _take(self) -> Rows | None:
        rows, self._waiting = self._waiting, None
        return next(self._rows, None) if rows is None else rows

    def _done_after(self, rows: Rows) -> PartRead:
        done = self.done
        return PartRead(done.name, done.rows + len(rows), rows.digest(done.digest))

    def _pieces(self) -> Iterator[Rows]:
        for rows in self._read():
            row_bytes = max(rows.values.nbytes // max(len(rows), 1), 1)
            count = max(self._piece_bytes // row_bytes, 1)
            for first in range(0, len(rows), count):
                yield rows.slice(first, count)


class TablePlanner:
    """Plans the batches of one stream.

    Args:
        upstream: the table that is read.
        limits: how large a batch may be.
        position: how far the table has been read.
        check_read: see ``Source.open_stream``.
        reads_once: whether only the commits are read that exist when the stream starts.
        reads_commits: whether commits are read after the rows of the first run.
    """

    def __init__(
        self,
        upstream: Upstream,
        limits: BatchLimits,
        position: TablePosition,
        check_read: CheckRead,
        *,
        reads_once: bool,
        reads_commits: bool = True,
    ) -> None:
        self._upstream, self._limits, self._check_read = upstream, limits, check_read
        self._reads_once, self._has_listed = reads_once, False
        self._reads_commits = reads_commits
        self._position = self._reached = position
        self._snapshot: Scan | None = None
        self._unread: deque[Instant] = deque()
        self._open: _OpenPart | None = None
        self._awaited = ""

    def next(self) -> RecordsBatch | None:
        """Read the next batch; return None if all commits are read.

        Raises:
            UnreadChangesLost: unread changes were removed.
            ReadChangesUndone: the last commit that was read was undone.
            HudiError: the table cannot be read.
        """
        records = self._read_batch()
        tables = records.tables()
        if not tables:
            return None
        start, end = self._reached, self._position
        self._reached = end
        return RecordsBatch(
            tables=tables,
            start=start,
            end=end,
            check_source=lambda gaps: self._check_read(end, gaps),
        )

    def close(self) -> None:
        """End reading."""
        self._open = None

    def _read_batch(self) -> BatchRecords:
        records, limits = BatchRecords(), self._limits
        while records.size_bytes < limits.size_bytes:
            if self._position.snapshot is None and records.parts >= limits.commits:
                break
            part = self._open = self._open or self._next_part()
            if part is None:
                break
            if self._read_part(part, records):
                self._position, self._open = part.after, None
            else:
                self._position = replace(self._position, part=part.done)
        return records

    def _read_part(self, part: _OpenPart, records: BatchRecords) -> bool:
        """Read a part to its end, or until the batch is full; return whether it has ended."""
        has_begun = False
        while records.size_bytes < self._limits.size_bytes:
            first_row, rows = part.done.rows, part.next_rows()
            if rows is None:
                return True
            if not has_begun:
                records.begin_part(part.origin, part.time_us)
                has_begun = True
            records.add(rows.values, first_row)
        return part.has_ended()

    def _next_part(self) -> _OpenPart | None:
        """Open the next slice or commit; None if there is none."""
        part = self._next_slice()
        if part is None and (self._unread or self._list()):
            part = self._open_commit(self._unread.popleft())
        read = self._position.part
        if part is not None and read is not None and read.name == part.done.name:
            part.skip(read)
        return part

    def _next_slice(self) -> _OpenPart | None:
        """Open the next slice of the snapshot; None if it is read, or not wanted."""
        wanted = self._position.snapshot
        if wanted is None:
            return None
        scan = self._snapshot = self._snapshot or self._upstream.plan_snapshot(wanted.as_of)
        wanted = self._same_snapshot(wanted, scan.slices)
        if wanted.slices == len(scan.slices):
            self._position, self._snapshot = replace(self._position, snapshot=None, part=None), None
            return None
        file_slice, name = scan.slices[wanted.slices], _name_of(scan.slices[wanted.slices])
        is_last = wanted.slices + 1 == len(scan.slices)
        done = None if is_last else replace(wanted, slices=wanted.slices + 1)
        return _OpenPart(
            name,
            f"{self._upstream.url}/{name}@{wanted.as_of}",
            self._upstream.time_us(wanted.as_of),
            replace(self._position, snapshot=done, part=None),
            lambda: self._upstream.rows_in(scan, file_slice),
            self._piece_bytes,
        )

    def _same_snapshot(self, wanted: SnapshotRead, slices: Sequence[FileSlice]) -> SnapshotRead:
        """Return what was read of the snapshot: nothing if it has other file groups now."""
        digest = crc32("\n".join(map(_name_of, slices)).encode())
        if wanted.digest == digest:
            return wanted
        if wanted.digest:
            text = "%s: the file groups as of %s were rewritten while they were read; read again"
            _LOG.warning(text, self._upstream.url, wanted.as_of)
        same = SnapshotRead(wanted.as_of, digest)
        self._position = replace(self._position, snapshot=same, part=None)
        return same

    def _list(self) -> bool:
        """Load the commits; return whether there are unread ones."""
        if not self._reads_commits:
            return False
        if self._has_listed:
            if self._reads_once:
                return False
            self._upstream.feed.refresh()
        self._has_listed = True
        self._unread = deque(self._upstream.commits_after(self._position))
        self._report_awaited()
        return bool(self._unread)

    def _report_awaited(self) -> None:
        """Report a pending commit once."""
        awaited = self._upstream.feed.awaited
        if awaited is not None and awaited.requested_at != self._awaited:
            self._awaited = awaited.requested_at
            text = "%s: later commits are read when %s has completed or was rolled back"
            _LOG.warning(text, self._upstream.url, awaited)

    def _open_commit(self, commit: Instant) -> _OpenPart:
        upstream, name = self._upstream, commit.requested_at
        after = upstream.feed.position_after(commit, self._position.after)
        return _OpenPart(
            name,
            f"{upstream.url}@{name}",
            upstream.time_us(after.completed_at),
            TablePosition(table=self._position.table, after=after),
            lambda: upstream.rows_of(commit),
            self._piece_bytes,
        )

    @property
    def _piece_bytes(self) -> int:
        return min(_PIECE_BYTES, self._limits.size_bytes)


def _name_of(file_slice: FileSlice) -> str:
    group = file_slice.group
    return f"{group.partition_path}/{group.file_id}" if group.partition_path else group.file_id
