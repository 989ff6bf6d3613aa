"""The commits of a table, one after another, each with the changes that it made.

A reader of a feed remembers its position: the last commit that it has read. The next commits are
those that completed later. In table version 6, whose commits are ordered by requested time, they
are those that were requested later; the feed waits for a pending commit before it returns commits
that were requested after it. So no commit is missed, and none is returned twice.

A compaction or clustering is a commit without changes. A pending commit that is rolled back never
appears. If the commit of the position is undone by a rollback or restore, the feed refuses to
continue, because its reader has changes that the table no longer has. If that commit changed no row
(a compaction, for example), the feed only refuses to continue if the last commit before it that
changed rows is undone, too. If writers overlapped, a restore may also undo an older commit, which
completed before the commit of the position although it was requested later. The feed does not
notice this.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from lakemark.config import keys
from lakemark.config.table_properties import LoggingMode
from lakemark.errors import InvalidConfig, Refused
from lakemark.model.action import COMMITS
from lakemark.model.feed_position import FeedPosition
from lakemark.model.instant import Instant
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY, without_meta_columns
from lakemark.operations.open_table import OpenTable
from lakemark.read import cdc
from lakemark.read.cdc.deletes_first import read_deletes_first
from lakemark.read.incremental import archived_commits, archived_until, counted_time
from lakemark.read.instant_range import EARLIEST, InstantRange
from lakemark.read.lost_changes import LostChanges
from lakemark.read.queries import Incremental, Snapshot
from lakemark.read.query_instant import GivenTime
from lakemark.timeline.clock import add_to_instant

if TYPE_CHECKING:
    from lakemark.keygen.key_generator import KeyGenerator
    from lakemark.read.cdc.scan import CdcScan
    from lakemark.read.scan import Scan

#: A position after all commits that exist when the feed starts.
NEWEST = "latest"

#: The operation of each change in an incremental feed, which does not know whether a row is new.
UPSERT = "upsert"


class FeedType(StrEnum):
    """What a feed returns of each commit.

    ``INCREMENTAL``: the rows that the commit wrote, as an incremental query returns them; deletes
    are not returned. ``CDC``: each change, with the row before and after it.
    """

    INCREMENTAL = "incremental"
    CDC = "cdc"


@dataclass(frozen=True, slots=True)
class FeedSnapshot:
    """A state of the table from which a reader of its rows continues with the feed.

    Attributes:
        as_of: the instant of the state, for time travel.
        position: the commits after this position are not in the state, and all others are.
    """

    as_of: str
    position: FeedPosition


class ChangesRemoved(Refused):
    """The files of a commit, or the commit itself, no longer exist, so its changes are lost.

    Attributes:
        reason: which commit, and why.
        begin: the time from which all commits can be read, unless more files are removed.
    """

    def __init__(self, reason: str, begin: str) -> None:
        super().__init__(f"{reason}; continue without them after {begin}")
        self.reason, self.begin = reason, begin


class CommitUndone(Refused):
    """The last commit that was read was undone by a rollback or restore.

    A restore undoes several commits, so earlier commits that were read may be undone, too.

    Attributes:
        requested_at: the requested time of the commit.
        begin: the time after which all commits are unread.
        newest_kept: the requested time of the newest commit of the active timeline that was read
            and still exists; None if there is none.
        undone: which of the changes that were read are undone, for a message.
    """

    def __init__(self, requested_at: str, begin: str, newest_kept: str | None) -> None:
        undone = (
            f"all changes that were read after those of commit {newest_kept}"
            if newest_kept
            else "all changes that were read, except those of commits that were archived before"
        )
        super().__init__(
            f"commit {requested_at}, whose changes were already read, was undone by a rollback or "
            f"restore, so the table no longer has {undone}; undo them, too, and continue after "
            f"{begin}"
        )
        self.requested_at, self.begin = requested_at, begin
        self.newest_kept, self.undone = newest_kept, undone


class OrderChanged(Refused):
    """The table was upgraded, and its commits are now in an order in which some would be missed.

    Attributes:
        reason: what has happened.
        begin: the time after which all unread commits follow, and some that were already read.
    """

    def __init__(self, commit: Instant, begin: str) -> None:
        reason = (
            f"the table was upgraded from version 6, so that commits are read by completion time; "
            f"{commit} completed in another order than it was requested"
        )
        super().__init__(f"{reason}; continue after {begin}, where some commits are read again")
        self.reason, self.begin = reason, begin


class ChangeFeed:
    """Returns the commits of a table after a position, and the changes of each commit."""

    def __init__(self, table: OpenTable, feed_type: FeedType) -> None:
        """Create a feed.

        Args:
            table: the open table, which only this feed uses.
            feed_type: what is returned of each commit.

        Raises:
            InvalidConfig: the table keeps no change data, or no record keys in it, but the feed
                needs them.
        """
        if feed_type is FeedType.CDC:
            _check_shows_keys(table, cdc.check_logs(table.properties))
        self._table, self._type = table, feed_type
        self._archived_until: str | None = None
        self._last: tuple[str, str] | None = None
        self._known_archived: str | None = None

    def refresh(self) -> None:
        """Load the timeline. Raises what ``OpenTable.refresh`` raises.

        A store may list a large folder in several requests. So a listing may lack a commit that
        completed before another commit that it contains. If there are new commits, the timeline is
        loaded a second time, which cannot lack such a commit any more. Commits that only the second
        listing shows are left for the next call.
        """
        self._table.refresh()
        newest = max(map(self._order_of, self._completed()), default=("", ""))
        if newest != self._last:
            self._last = newest
            self._table.refresh()

    def find_start(self, given: GivenTime) -> FeedPosition:
        """Return the position at which a new reader starts.

        Args:
            given: ``earliest``, ``latest``, or a time in one of the forms of an incremental query.
                The first commit is then the first one after the time.

        Raises:
            InvalidConfig: it is not such a time.
        """
        if given == NEWEST:
            commits = self._ready()
            return self._position_after_all(commits) if commits else FeedPosition("", "")
        time = InstantRange.of(given, clock=self._table.store.clock).begin
        return FeedPosition(time, time)

    def find_snapshot(self) -> FeedSnapshot | None:
        """Return the newest state that contains exactly the commits up to a position.

        Time travel compares requested times, and the feed completion times. So a state is only
        suitable if no older write is pending, and if no later commit completed before one of its
        own commits. If writers overlap, this may not be the newest commit.

        Returns:
            None if there is no such state, as of the last ``refresh``.
        """
        table = self._table
        pending = [one.requested_at for one in table.store.pending_writes(table.timeline)]
        end, completed = min(pending, default=None), table.timeline.completed(*COMMITS)
        commits = sorted(completed, key=lambda one: one.requested_at)
        places = [self._order_of(one) for one in commits]
        for count in range(len(commits), 0, -1):
            as_of, newest = commits[count - 1].requested_at, max(places[:count])
            is_final = end is None or as_of < end
            is_cut = all(newest < place for place in places[count:])
            if is_final and is_cut and (self._last is None or newest <= self._last):
                included = sorted(commits[:count], key=self._order_of)
                return FeedSnapshot(as_of, self._position_after_all(included))
        return None

    def scan_snapshot(self, as_of: str) -> Scan:
        """Plan to read the rows of a state that ``find_snapshot`` has returned.

        The slices of the scan are sorted by partition and file group. They are the same each time,
        unless a clustering or compaction that was pending has completed since.

        Returns:
            The scan of the record key, if the rows store it, and of the table's columns.

        Raises:
            InvalidConfig: files of the state were removed.
            HudiError: as for ``Table.scan``.
        """
        scan = self._table.scan(Snapshot(as_of))
        names = without_meta_columns(scan.schema).names
        keys = [RECORD_KEY] if self._table.properties.populates_meta_columns else []
        return scan.with_columns([*keys, *names])

    def commits_after(self, position: FeedPosition, begun: str | None = None) -> list[Instant]:
        """Return the completed commits after a position, in order, as of the last ``refresh``.

        Args:
            position: the position of the reader.
            begun: the requested time of a commit after it of which some changes were read; None
                without one.

        Raises:
            ChangesRemoved: a commit with changes after the position was archived.
            CommitUndone: the commit of the position, or ``begun``, was undone.
            OrderChanged: the table was upgraded from version 6 since the position was read.
            SnapshotChanged: the archive was rewritten meanwhile; refresh and call again.
        """
        self._check_not_undone(position)
        if begun is not None:
            self._check_is_complete(begun, position)
        self._check_not_archived(position)
        self._check_same_order(position)
        return [one for one in self._ready() if self._order_of(one) > self._place(position)]

    def position_after(self, commit: Instant, before: FeedPosition) -> FeedPosition:
        """Return the position after a commit.

        Args:
            commit: a commit that ``commits_after`` has returned.
            before: the position of the reader before it read the commit.
        """
        after = FeedPosition.after(commit)
        if self._table.store.read_commit(commit).changes_no_row:
            return replace(after, changed_by=before.last_change)
        return after

    def _position_after_all(self, commits: Sequence[Instant]) -> FeedPosition:
        """Return the position after the last of some commits, which are all that are active."""
        after = FeedPosition.after(commits[-1])
        read = self._table.store.read_commit
        changing = (one for one in reversed(commits) if not read(one).changes_no_row)
        changed = next(changing, commits[-1])
        is_last = changed.requested_at == after.requested_at
        return after if is_last else replace(after, changed_by=changed.requested_at)

    def newest_after(self, position: FeedPosition) -> FeedPosition:
        """Return the position after the newest commit, or ``position`` if that is later.

        The commits in between are not checked; ``commits_after`` does that.
        """
        newest = self.find_start(NEWEST)
        return newest if self._place(newest) > self._place(position) else position

    def commits_between(self, first: FeedPosition, end: FeedPosition) -> list[Instant]:
        """Return the commits after a position, up to another one, as ``commits_after`` does.

        Raises:
            InvalidConfig: the end is before the first position.
            ChangesRemoved, CommitUndone, SnapshotChanged: as for ``commits_after``.
        """
        commits = self.commits_after(first)
        if self._place(end) < self._place(first):
            message = (
                f"the commits up to {end.completed_at} were asked for, but the commits up to "
                f"{first.completed_at} were already read; begin again, with a new checkpoint"
            )
            raise InvalidConfig(message)
        return [one for one in commits if self._order_of(one) <= self._place(end)]

    def range_query(self, first: FeedPosition, end: FeedPosition) -> Incremental:
        """Return the incremental query of the commits between two positions, as one range."""
        begin, last = (self._order(one.requested_at, one.completed_at)[0] for one in (first, end))
        return Incremental(begin or EARLIEST, last)

    def changes(self, commit: Instant, threads: int | None = None) -> Iterator[pa.RecordBatch]:
        """Return the changes of a commit; no batch is empty.

        The columns are ``op`` (``i``, ``u``, ``d``; ``upsert`` in an incremental feed),
        ``partition`` (the partition path), ``key`` (the record key), ``before`` and ``after``
        (the row as a struct without meta columns, or null). Deletes come first. A key occurs at
        most twice in a partition: deleted, then inserted.

        Args:
            commit: a commit that ``commits_after`` has returned.
            threads: for an incremental feed, see ``ArrowStream.batches``. With one thread, the rows
                have the same order each time.

        Raises:
            ChangesRemoved: files that the commit needs were removed.
            SnapshotChanged: a file was removed while it was read; refresh and call again.
            HudiError: the table cannot be read; see ``Table.scan``.
        """
        if self._type is FeedType.INCREMENTAL:
            return self._rows_of(commit, threads)
        schema = self._table.schema
        assert schema is not None, commit
        form = cdc.TypedChanges(schema, self._compute_keys)
        return read_deletes_first(self.scan_changes([commit], form))

    def scan_changes(self, commits: Sequence[Instant], form: cdc.ChangeFormat) -> CdcScan:
        """Plan a CDC query of some commits.

        Args:
            commits: commits that ``commits_after`` has returned.
            form: the columns of the changes.

        Raises:
            ChangesRemoved: files that a commit needs were removed.
        """
        try:
            return self._table.changes_of(commits, form)
        except LostChanges as error:
            raise self._removed(self._find_lost(commits, form), error) from error

    def _find_lost(self, commits: Sequence[Instant], form: cdc.ChangeFormat) -> Instant:
        """Return the first of some commits whose changes are lost."""
        for commit in commits:
            try:
                self._table.changes_of([commit], form)
            except LostChanges:
                return commit
        return commits[-1]

    def _removed(self, commit: Instant, error: LostChanges) -> ChangesRemoved:
        """Return the error for a lost commit, with the last of the lost commits after it."""
        lost = commit
        for later in self.commits_after(FeedPosition.after(commit)):
            try:
                if self._count_parts(later):
                    break  # a commit without changes does not show that later ones can be read
            except LostChanges:
                lost = later
        return ChangesRemoved(error.reason, self._order_of(lost)[0])

    def _count_parts(self, commit: Instant) -> int:
        if self._type is FeedType.INCREMENTAL:
            return len(self._table.rows_of(commit).slices)
        return len(self._table.changes_of([commit], cdc.AS_TEXT).plan.splits)

    def _rows_of(self, commit: Instant, threads: int | None) -> Iterator[pa.RecordBatch]:
        try:
            scan = self._table.rows_of(commit)
        except LostChanges as error:
            raise self._removed(commit, error) from error
        wanted = cdc.change_schema(scan.schema)
        names = [field.name for field in wanted.field("after").type]
        return (
            pa.record_batch(
                [
                    pa.repeat(pa.scalar(UPSERT), batch.num_rows),
                    batch.column(PARTITION_PATH),
                    batch.column(RECORD_KEY),
                    pa.nulls(batch.num_rows, wanted.field("before").type),
                    batch.select(names).to_struct_array(),
                ],
                schema=wanted,
            )
            for batch in scan.batches(threads)
        )

    def _compute_keys(self, rows: pa.Table) -> pa.Array:
        return self._key_generator.record_keys(rows)

    @cached_property
    def _key_generator(self) -> KeyGenerator:
        from lakemark.index.stored_rows import detect_key_generator
        from lakemark.operations.stored_rows import stored_rows

        table = self._table
        return detect_key_generator(table.properties, stored_rows(table), table.location.url)

    def _completed(self) -> list[Instant]:
        return sorted(self._table.timeline.completed(*COMMITS), key=self._order_of)

    def _ready(self) -> list[Instant]:
        """Return the completed commits before which no pending commit can appear."""
        commits = self._completed()
        if self._last is not None:
            commits = [one for one in commits if self._order_of(one) <= self._last]
        pending = self.awaited
        if pending is None:
            return commits
        return [one for one in commits if one.requested_at < pending.requested_at]

    @property
    def awaited(self) -> Instant | None:
        """The pending commit before which the feed waits, in table version 6; None without one."""
        if self._table.version.timeline_layout != 1:
            return None
        pending = self._table.timeline.pending(*COMMITS)
        return next((one for one in pending if not self._is_service(one)), None)

    def _is_service(self, pending: Instant) -> bool:
        """Return whether a pending replacement is a clustering, which changes no row."""
        return pending.requested_at in self._table.view().clusterings.values()

    def _check_not_undone(self, position: FeedPosition) -> None:
        changed = position.last_change
        if position.is_commit and not self._is_complete(position.requested_at) and changed:
            self._check_is_complete(changed, position)

    def _check_is_complete(self, name: str, position: FeedPosition) -> None:
        """Check that a commit that was read, at least in part, is a completed one."""
        if not self._is_complete(name):
            raise CommitUndone(name, self._place(position)[0], self._newest_kept(position))

    def _is_complete(self, name: str) -> bool:
        """Return whether an instant that was a completed commit still is one."""
        table = self._table
        known = table.timeline.find(name)
        if known is not None and known.is_completed:
            return True
        # An archived commit is before the first active one, but so is one that was undone earlier.
        is_known = name == self._known_archived or (
            table.timeline.is_archived(name) and table.store.load_archived().find(name) is not None
        )
        if is_known:
            self._known_archived = name
        return is_known

    def _newest_kept(self, position: FeedPosition) -> str | None:
        """Return the newest completed commit of the active timeline up to a position, if any."""
        place = self._place(position)
        kept = [one for one in self._completed() if self._order_of(one) <= place]
        return kept[-1].requested_at if kept else None

    def _check_not_archived(self, position: FeedPosition) -> None:
        """Check that no changes after the position were archived since this was last checked."""
        table = self._table
        until = archived_until(table.timeline)
        if until == self._archived_until:
            return
        begin = InstantRange(self._order(position.requested_at, position.completed_at)[0])
        archived = archived_commits(table.timeline, table.version, table.store, begin)
        lost = self._find_changing(archived, position)
        if lost is not None:
            newest = max(counted_time(table.version, one) for one in archived)
            reason = f"{lost} was archived, so its changes can no longer be read"
            raise ChangesRemoved(reason, newest)
        self._archived_until = until

    def _find_changing(self, archived: Sequence[Instant], position: FeedPosition) -> Instant | None:
        """Return an archived commit that may have changed rows; None if no commit has.

        An archive is shortened from its beginning. So unless it contains the commit of the
        position, or one that was read before it, it may lack the first commits after the position.
        """
        if not archived or not self._has_known_commit(position):
            return next(iter(archived), None)
        unknown = dict.fromkeys(archived)
        for commit, metadata in self._table.store.load_archived().read_commits(archived):
            if not metadata.changes_no_row:
                return commit
            del unknown[commit]
        return next(iter(unknown), None)

    def _has_known_commit(self, position: FeedPosition) -> bool:
        """Return whether a commit that was read exists, at least in the archive."""
        names = (position.requested_at, position.last_change) if position.is_commit else ()
        return any(map(self._is_complete, filter(None, names)))

    def _check_same_order(self, position: FeedPosition) -> None:
        """Check that a position by requested time is also one by completion time."""
        if not position.is_legacy or self._table.version.timeline_layout == 1:
            return
        moved = [
            one
            for one in self._completed()
            if (one.requested_at > position.requested_at)
            != (self._order_of(one) > self._place(position))
        ]
        if moved:
            first = min([*map(self._order_of, moved), self._place(position)])[0]
            raise OrderChanged(moved[0], add_to_instant(first, timedelta(milliseconds=-1)))

    def _place(self, position: FeedPosition) -> tuple[str, str]:
        """Return the place of a position among the commits, to compare with ``_order_of``."""
        time, requested_at = self._order(position.requested_at, position.completed_at)
        # A time excludes all commits of this time.
        return (time, requested_at if position.is_commit else "9" * 17)

    def _order(self, requested_at: str, completed_at: str) -> tuple[str, str]:
        is_old = self._table.version.timeline_layout == 1
        return (requested_at if is_old else completed_at, requested_at)

    def _order_of(self, commit: Instant) -> tuple[str, str]:
        return self._order(commit.requested_at, commit.completed_at or commit.requested_at)


def _check_shows_keys(table: OpenTable, mode: LoggingMode) -> None:
    """Check that the record key of each change is stored, or can be computed from its row.

    Raises:
        InvalidConfig: keys are automatic, and the ``.cdc`` files contain only rows.
    """
    properties = table.properties
    logs_rows = not properties.is_merge_on_read and mode is LoggingMode.DATA_BEFORE_AFTER
    if logs_rows and properties.has_automatic_keys:
        message = (
            f"table {table.location.url} has automatic record keys, which its change data does not "
            f"contain ({keys.CDC_LOGGING_MODE} is {mode.value}); read the changes with the type "
            f"{FeedType.INCREMENTAL}, or create a table with cdc={LoggingMode.DATA_BEFORE.value!r}"
        )
        raise InvalidConfig(message)
