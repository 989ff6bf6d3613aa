"""Plans incremental queries: the rows that a range of commits wrote, as of the range's end.

The query reads only files that these commits wrote. It merges the newest slice of these files in
each file group, and returns the rows whose commit is in the range. A row that several commits of
the range changed is returned once. A row that the range deleted is not returned. Unless the whole
table is read (see below), commits after the range do not change the result.

Files of commits before the range are not read. So a late row (by event time) is returned even if it
lost to a row of an older commit. If a compaction of the file group is in the range, its base file
has the winning row, and the late row is not returned. In this case Apache Hudi 1.2.0 does return
the late row. Its reader applies the condition on ``_hoodie_commit_time`` to the base file before it
merges the logs, so no row competes with the late row. But no snapshot ever contained the late row,
so lakemark merges first.

The range consists of the completion times (in table version 6, the requested times) later than
``begin``, up to and including ``end``. If commits of the range were archived, or required files
were cleaned, the whole table is read. Files of older slices are not required, because a compaction
or replacement in the range has rewritten their rows. Apache Hudi reads the whole table if any file
no longer exists. A result that is read from the whole table lacks rows that commits after the range
changed.

There are two more differences from Apache Hudi 1.2.0. In lakemark, ``earliest`` means all commits;
in Apache Hudi it means only the last one. In table version 6, if a range begins in the archive,
lakemark reads the whole table. Apache Hudi then returns only a part of the rows, unless
``…incr.fallback…`` is set.

Source: ``IncrementalQueryAnalyzer``, ``CompletionTimeQueryViewV2.getInstantTimes``,
``MergeOnReadIncrementalRelationV1`` and ``…V2`` (which also read copy-on-write tables);
``HoodieIncrementalRelationV2Trait.incrementalSpanRecordFilters`` and
``SparkFileFormatInternalRowReaderContext`` (``requiredFilters``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.errors import CorruptData, InvalidConfig
from lakemark.model.action import COMMITS, Action
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.file_slice import FileGroupId, FileSlice
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.model.meta_columns import COMMIT_TIME
from lakemark.read.instant_range import InstantRange
from lakemark.read.lost_changes import LostChanges
from lakemark.read.pending_in_range import check_none_pending
from lakemark.timeline.clock import add_to_instant
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.view.file_group import FileGroup
from lakemark.view.file_lister import DataFile, data_file
from lakemark.view.file_system_view import FileSystemView
from lakemark.view.visible_instants import VisibleInstants

#: The longest time that is assumed between request and completion of an archived commit.
_LONGEST_COMMIT = timedelta(days=1)


@dataclass(frozen=True)
class IncrementalPlan:
    """The files that an incremental query reads; can be pickled, and any worker may read a slice.

    Attributes:
        slices: file slices to read.
        instants: requested times of the commits in the range, oldest first.
        condition: selects the rows that these commits wrote.
        visible: decides which blocks of the slices' logs are visible.
        is_full_scan: whether the whole table is read, because required files no longer exist.
    """

    slices: tuple[FileSlice, ...]
    instants: tuple[str, ...]
    condition: pc.Expression
    visible: VisibleInstants
    is_full_scan: bool = False


def plan(
    view: FileSystemView,
    store: TimelineStore,
    instant_range: InstantRange,
    *,
    may_scan_fully: bool = True,
) -> IncrementalPlan:
    """Plan an incremental query.

    Args:
        view: the table's latest state.
        store: reads the table's instants.
        instant_range: range of completion times, or of requested times in table version 6.
        may_scan_fully: whether to read the whole table if required files no longer exist. If the
            range has an end, the result then misses rows that commits after the range changed.

    Raises:
        InvalidConfig: required files no longer exist, and the whole table may not be read; or, in
            table version 6, a commit in the range is pending. Later ranges would never return the
            rows of such a commit.
        CorruptData: an instant or the archive is damaged.
        SnapshotChanged: the timeline changed in the meantime; load the view again.
    """
    commits = _commits_in(view, instant_range)
    archived = archived_commits(view.timeline, view.version, store, instant_range)
    if view.version.timeline_layout == 1:
        check_none_pending(view, commits, instant_range)
    instants = tuple(commit.requested_at for commit in (*archived, *commits))
    condition = _condition(view, instant_range, instants)
    if not instants:
        return IncrementalPlan((), instants, condition, view.visible_instants)
    metadata = [store.read_commit(commit) for commit in commits]
    written = _written_slices(view, metadata, instant_range)
    missing = [str(commit) for commit in archived] or _cleaned_files(view, written)
    if not missing:
        visible = replace(view.visible_instants, until=instants[-1])
        return IncrementalPlan(written, instants, condition, visible)
    if not may_scan_fully:
        message = (
            f"{missing[0]} is required for the range from {instant_range.begin} to "
            f"{instant_range.end or 'now'}, but was archived or cleaned; begin later, or allow a "
            "scan of the whole table"
        )
        raise InvalidConfig(message)
    slices = tuple(view.latest_slices())
    return IncrementalPlan(slices, instants, condition, view.visible_instants, is_full_scan=True)


def plan_commit(view: FileSystemView, store: TimelineStore, commit: Instant) -> IncrementalPlan:
    """Plan to read the rows that one commit wrote, as of this commit.

    Args:
        view: the table's latest state.
        store: reads the table's instants.
        commit: a completed commit on the active timeline.

    Raises:
        LostChanges: files that the commit wrote were removed.
        CorruptData: the commit is damaged.
    """
    name = commit.requested_at
    until = InstantRange("", counted_time(view.version, commit))
    condition = pc.field(COMMIT_TIME) == name
    metadata = store.read_commit(commit)
    written = _written_slices(view, [metadata] if metadata.may_change_schema else [], until)
    missing = _cleaned_files(view, written)
    if missing:
        reason = f"{missing[0]} was removed, so the rows of {commit} can no longer be read"
        raise LostChanges(reason, name)
    visible = replace(view.visible_instants, until=name)
    return IncrementalPlan(written, (name,), condition, visible)


def _commits_in(view: FileSystemView, instant_range: InstantRange) -> list[Instant]:
    """Return the commits of the range on the active timeline, sorted by requested time."""
    commits = view.timeline.completed(*COMMITS)
    return sorted(
        (
            commit
            for commit in commits
            if instant_range.contains(counted_time(view.version, commit))
        ),
        key=lambda commit: commit.requested_at,
    )


def counted_time(version: FormatVersion, commit: Instant) -> str:
    """Return the time that decides to which range a completed commit belongs."""
    if version.timeline_layout == 1:
        return commit.requested_at
    return commit.completed_at or commit.requested_at


def archived_commits(
    timeline: Timeline, version: FormatVersion, store: TimelineStore, instant_range: InstantRange
) -> list[Instant]:
    """Return the archived commits of a range, oldest first.

    Args:
        timeline: the active timeline.
        version: the version of the table.
        store: reads the table's instants.
        instant_range: range of times, see ``counted_time``.

    Raises:
        SnapshotChanged: the archive was rewritten in the meantime; load the timeline again.
        CorruptData: the archive is damaged.
    """
    until, since = archived_until(timeline), _requested_since(instant_range.begin)
    if not timeline.has_history or until is None or since >= until:
        return []
    return [
        commit
        for commit in store.load_archived().instants(since, until)
        if commit.action in COMMITS
        and instant_range.contains(counted_time(version, commit))
        and timeline.find(commit.requested_at) is None
    ]


def archived_until(timeline: Timeline) -> str | None:
    """Return the requested time before which commits may have been archived; None if there is none.

    With ``hoodie.archive.beyond.savepoint``, Apache Hudi keeps commits with a savepoint active, and
    archives commits after them.
    """
    saved = {savepoint.requested_at for savepoint in timeline.completed(Action.SAVEPOINT)}
    if timeline.start is None or timeline.start not in saved:
        return timeline.start
    kept = (one.requested_at for one in timeline.instants if one.is_completed)
    later = (time for time in kept if time >= timeline.start and time not in saved)
    return next(later, None)


def _requested_since(begin: str) -> str:
    """Return the earliest requested time of a commit that may have completed after ``begin``."""
    try:
        return add_to_instant(begin, -_LONGEST_COMMIT)
    except (ValueError, OverflowError):
        return ""


def _condition(
    view: FileSystemView, instant_range: InstantRange, instants: tuple[str, ...]
) -> pc.Expression:
    written_by = pc.field(COMMIT_TIME)
    if view.version.timeline_layout == 2:
        return written_by.isin(pa.array(instants, pa.string()))
    # Compare commit times with the bounds of the range, because archived commits of version 6 may
    # be unknown.
    after = written_by > instant_range.begin
    return after if instant_range.end is None else after & (written_by <= instant_range.end)


def _cleaned_files(view: FileSystemView, slices: Iterable[FileSlice]) -> list[str]:
    """Return the paths of the files of these slices that no longer exist."""
    paths = [file.path for one in slices for file in (one.base, *one.logs) if file is not None]
    return [path for path in paths if view.find_file(path) is None]


def _written_slices(
    view: FileSystemView, metadata: Iterable[CommitMetadata], instant_range: InstantRange
) -> tuple[FileSlice, ...]:
    """Return the newest slice of each file group, made only of files that these commits wrote.

    File groups that were replaced up to the end of the range are left out.

    Removed files are included, with a size of 0 bytes.
    """
    written: dict[FileGroupId, dict[str, DataFile]] = {}
    for commit in metadata:
        for path in (stat.path for stat in commit.write_stats if stat.path):
            file = view.find_file(path) or _parse_path(path)
            name = FileGroupId(file.partition_path, file.name.file_id)
            written.setdefault(name, {})[path] = file
    slices = (
        _newest_slice(view, name, files.values())
        for name, files in sorted(written.items())
        if not _is_replaced(view, name, instant_range)
    )
    return tuple(file_slice for file_slice in slices if file_slice is not None)


def _parse_path(path: str) -> DataFile:
    folder, _, name = path.rpartition("/")
    file = data_file(folder, name, size_bytes=0)
    if file is None:
        raise CorruptData(path, None, "a write stat that names a data file", name)
    return file


def _is_replaced(view: FileSystemView, name: FileGroupId, instant_range: InstantRange) -> bool:
    """Return whether the file group was replaced before or at the end of the range."""
    at = view.replaced.get(name)
    if at is None or instant_range.end is None:
        return at is not None
    instant = view.timeline.find(at)
    return (at if instant is None else counted_time(view.version, instant)) <= instant_range.end


def _newest_slice(
    view: FileSystemView, name: FileGroupId, files: Iterable[DataFile]
) -> FileSlice | None:
    compaction = view.compactions.get(name)
    return FileGroup.of(name, files, view.timeline, view.version, compaction).for_readers
