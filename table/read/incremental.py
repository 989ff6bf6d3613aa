"""Incremental queries: the rows that commits of a span of time have written, as they are now.

What is read are the files that the commits wrote, the newest state of each file group among them,
and of its rows those whose commit is in the span: a row that a later commit of the span has changed
again comes once, a deleted one not at all. What stood in a file group before the span has no say.

A span counts completion times, and requests in table version 6: later than ``begin``, up to and
with ``end``. Where commits of the span were archived, or files of theirs were cleaned, the whole
table is read instead. Two things are right here that are not so in Apache Hudi 1.2.0: ``earliest``
means all commits, not the last one; and a span of version 6 that begins in the archive reads the
whole table, too, where Hudi answers with a part unless it is told to (``…incr.fallback…``).

Source: ``IncrementalQueryAnalyzer``, ``CompletionTimeQueryViewV2.getInstantTimes``,
``MergeOnReadIncrementalRelationV1`` and ``…V2`` (which serve copy-on-write tables, too).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from table.errors import InvalidConfig
from table.model.action import COMMITS
from table.model.commit_metadata import CommitMetadata
from table.model.file_slice import FileGroupId, FileSlice
from table.model.instant import Instant
from table.model.meta_columns import COMMIT_TIME
from table.read.span import Span
from table.read.written_files import file_at, written_paths
from table.timeline.clock import format_instant, parse_instant
from table.timeline.timeline_store import TimelineStore
from table.view.file_group import FileGroup
from table.view.file_lister import DataFile
from table.view.file_system_view import FileSystemView
from table.view.visible_instants import VisibleInstants

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
        is_full_scan: whether the whole table is read, as files of the commits are gone.
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
        may_scan_fully: whether the whole table is read where files of the commits are gone;
            with ``end``, rows that later commits changed are then missing.

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
    gone = [str(commit) for commit in archived] or _cleaned_files(view, metadata)
    if not gone:
        slices = _written_slices(view, metadata, instants[-1])
        visible = replace(view.visible_instants, until=instants[-1])
        return IncrementalPlan(slices, instants, condition, visible)
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
        return format_instant(parse_instant(begin).astimezone(UTC) - _LONGEST_COMMIT)
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


def _cleaned_files(view: FileSystemView, metadata: Iterable[CommitMetadata]) -> list[str]:
    return [
        path for commit in metadata for path in written_paths(commit) if file_at(view, path) is None
    ]


def _written_slices(
    view: FileSystemView, metadata: Iterable[CommitMetadata], until: str
) -> tuple[FileSlice, ...]:
    """The newest slice of every file group, made of the files of these commits alone."""
    written: dict[FileGroupId, dict[str, DataFile]] = {}
    for commit in metadata:
        for path in written_paths(commit):
            file = file_at(view, path)
            assert file is not None, path
            name = FileGroupId(file.partition_path, file.name.file_id)
            written.setdefault(name, {})[path] = file
    slices = (
        _newest_slice(view, name, files.values())
        for name, files in sorted(written.items())
        if not _is_replaced(view.replaced, name, until)
    )
    return tuple(file_slice for file_slice in slices if file_slice is not None)


def _is_replaced(replaced: Mapping[FileGroupId, str], name: FileGroupId, until: str) -> bool:
    at = replaced.get(name)
    return at is not None and at <= until


def _newest_slice(
    view: FileSystemView, name: FileGroupId, files: Iterable[DataFile]
) -> FileSlice | None:
    compaction = view.compactions.get(name)
    return FileGroup.of(name, files, view.timeline, view.version, compaction).for_readers
