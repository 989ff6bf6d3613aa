"""Incremental queries: the rows that commits of a span of time have written, as of the span's end.

What is read are the files that the commits wrote, the newest state of each file group among them,
and of its rows those whose commit is in the span. A row that a later commit of the span has changed
again comes once, a deleted one not at all. Commits after the span do not change the answer.

Files from before the span are not read, so a late row (event time) is returned even if it lost to
an older commit's row. If the span holds a compaction of the file group, the base file that it wrote
has the winner, and the late row is not returned. Apache Hudi 1.2.0 returns it: its reader applies
the condition on ``_hoodie_commit_time`` to the base file before it merges the logs, so the late row
meets no other. No snapshot ever showed that row, so lakemark merges first.

A span counts completion times, and requests in table version 6: later than ``begin``, up to and
with ``end``. Where commits of the span were archived, or files that the answer needs were cleaned,
the whole table is read instead. Files of older slices are not needed: the span's compaction or
replacement has the rows. Apache Hudi falls back to the whole table for any file that is gone, and
then lacks the rows that commits after the span changed. Two more things differ from Apache Hudi
1.2.0: ``earliest`` means all commits, not the last one; and a span of version 6 that begins in the
archive reads the whole table, where Hudi answers with a part unless ``…incr.fallback…`` is set.

Source: ``IncrementalQueryAnalyzer``, ``CompletionTimeQueryViewV2.getInstantTimes``,
``MergeOnReadIncrementalRelationV1`` and ``…V2`` (which serve copy-on-write tables, too);
``HoodieIncrementalRelationV2Trait.incrementalSpanRecordFilters`` and
``SparkFileFormatInternalRowReaderContext`` (``requiredFilters``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.errors import CorruptData, InvalidConfig
from lakemark.model.action import COMMITS
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.file_slice import FileGroupId, FileSlice
from lakemark.model.instant import Instant
from lakemark.model.meta_columns import COMMIT_TIME
from lakemark.read.instant_range import Span
from lakemark.read.written_files import file_at, written_paths
from lakemark.timeline.clock import add_to_instant
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.view.file_group import FileGroup
from lakemark.view.file_lister import DataFile, data_file
from lakemark.view.file_system_view import FileSystemView
from lakemark.view.visible_instants import VisibleInstants

#: How long before its completion an archived commit may have been requested.
_LONGEST_COMMIT = timedelta(days=1)


@dataclass(frozen=True)
class IncrementalPlan:
    """What an incremental query reads; pickles, and each slice may be read by another worker.

    Attributes:
        slices: what to read.
        instants: requested times of the commits in the span, oldest first.
        condition: the rows that these commits wrote.
        visible: which blocks of the slices' logs count.
        is_full_scan: whether the whole table is read, because files that the answer needs are gone.
    """

    slices: tuple[FileSlice, ...]
    instants: tuple[str, ...]
    condition: pc.Expression
    visible: VisibleInstants
    is_full_scan: bool = False


def plan(
    view: FileSystemView, store: TimelineStore, span: Span, *, may_scan_fully: bool = True
) -> IncrementalPlan:
    """What the commits of a span wrote.

    Args:
        view: the table's latest state.
        store: reads its instants.
        span: of completion times; of requested times in table version 6.
        may_scan_fully: whether the whole table is read if files that the answer needs are gone;
            with ``end``, rows that commits after the span changed are then missing.

    Raises:
        InvalidConfig: files are gone and the whole table may not be read; or, in table version 6,
            a commit is pending among those asked for, and would be missed for ever.
        CorruptData: an instant, or the archive, is damaged.
        SnapshotChanged: the timeline changed meanwhile; load the view again.
    """
    commits = _commits_in(view, span)
    archived = _archived_commits_in(view, store, span)
    if view.version.timeline_layout == 1:
        _check_no_holes(view, commits)
    instants = tuple(commit.requested_at for commit in (*archived, *commits))
    condition = _condition(view, span, instants)
    if not instants:
        return IncrementalPlan((), instants, condition, view.visible_instants)
    metadata = [store.read_commit(commit) for commit in commits]
    written = _written_slices(view, metadata, span)
    gone = [str(commit) for commit in archived] or _cleaned_files(view, written)
    if not gone:
        visible = replace(view.visible_instants, until=instants[-1])
        return IncrementalPlan(written, instants, condition, visible)
    if not may_scan_fully:
        message = (
            f"{gone[0]} is needed for the span from {span.begin} to {span.end or 'now'}, but was "
            "archived or cleaned; begin later, or allow a scan of the whole table"
        )
        raise InvalidConfig(message)
    slices = tuple(view.latest_slices())
    return IncrementalPlan(slices, instants, condition, view.visible_instants, is_full_scan=True)


def _commits_in(view: FileSystemView, span: Span) -> list[Instant]:
    """Commits of the active timeline, by requested time."""
    commits = view.timeline.completed(*COMMITS)
    return sorted(
        (commit for commit in commits if span.holds(_counted_time(view, commit))),
        key=lambda commit: commit.requested_at,
    )


def _counted_time(view: FileSystemView, commit: Instant) -> str:
    if view.version.timeline_layout == 1:
        return commit.requested_at
    return commit.completed_at or commit.requested_at


def _archived_commits_in(view: FileSystemView, store: TimelineStore, span: Span) -> list[Instant]:
    start, since = view.timeline.start, _requested_since(span.begin)
    if not view.timeline.has_history or start is None or since >= start:
        return []
    return [
        commit
        for commit in store.load_archived().instants(since, start)
        if commit.action in COMMITS and span.holds(_counted_time(view, commit))
    ]


def _requested_since(begin: str) -> str:
    """What was requested earlier completed before the span, too."""
    try:
        return add_to_instant(begin, -_LONGEST_COMMIT)
    except (ValueError, OverflowError):
        return ""


def _check_no_holes(view: FileSystemView, commits: Sequence[Instant]) -> None:
    """Requested times of version 6 are asked for once: what completes late would be missed."""
    clusterings = set(view.clusterings.values())
    pending = (i for i in view.timeline.pending(*COMMITS) if i.requested_at not in clusterings)
    hole = next(pending, None)
    if hole is not None and commits and hole.requested_at < commits[-1].requested_at:
        message = (
            f"{hole} is pending, but {commits[-1]} has completed: the next span would miss what "
            "the former writes; wait for it, or end the span before it"
        )
        raise InvalidConfig(message)


def _condition(view: FileSystemView, span: Span, instants: tuple[str, ...]) -> pc.Expression:
    written_by = pc.field(COMMIT_TIME)
    if view.version.timeline_layout == 2:
        return written_by.isin(pa.array(instants, pa.string()))
    # By the bounds: of version 6 the archive need not be there any more.
    after = written_by > span.begin
    return after if span.end is None else after & (written_by <= span.end)


def _cleaned_files(view: FileSystemView, slices: Iterable[FileSlice]) -> list[str]:
    """Paths of the files of these slices that were removed."""
    paths = [file.path for one in slices for file in (one.base, *one.logs) if file is not None]
    return [path for path in paths if file_at(view, path) is None]


def _written_slices(
    view: FileSystemView, metadata: Iterable[CommitMetadata], span: Span
) -> tuple[FileSlice, ...]:
    """The newest slice of every file group, made of the files of these commits alone.

    Files that were removed are among them, with a size of 0 bytes.
    """
    written: dict[FileGroupId, dict[str, DataFile]] = {}
    for commit in metadata:
        for path in written_paths(commit):
            file = file_at(view, path) or _named(path)
            name = FileGroupId(file.partition_path, file.name.file_id)
            written.setdefault(name, {})[path] = file
    slices = (
        _newest_slice(view, name, files.values())
        for name, files in sorted(written.items())
        if not _is_replaced(view, name, span)
    )
    return tuple(file_slice for file_slice in slices if file_slice is not None)


def _named(path: str) -> DataFile:
    folder, _, name = path.rpartition("/")
    file = data_file(folder, name, size_bytes=0)
    if file is None:
        raise CorruptData(path, None, "a write stat that names a data file", name)
    return file


def _is_replaced(view: FileSystemView, name: FileGroupId, span: Span) -> bool:
    """Whether the group was replaced by the end of the span, as its times are counted."""
    at = view.replaced.get(name)
    if at is None or span.end is None:
        return at is not None
    instant = view.timeline.find(at)
    return (at if instant is None else _counted_time(view, instant)) <= span.end


def _newest_slice(
    view: FileSystemView, name: FileGroupId, files: Iterable[DataFile]
) -> FileSlice | None:
    compaction = view.compactions.get(name)
    return FileGroup.of(name, files, view.timeline, view.version, compaction).for_readers
