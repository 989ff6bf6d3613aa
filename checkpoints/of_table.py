"""How far the streamers of a table have read, as its timeline tells."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from itertools import chain

from checkpoints.progress import DEFAULT_IDENTITY, Progress, TableProgress
from checkpoints.resume import (
    Commits,
    Stands,
    commits_to_keep,
    newest_progress,
    newest_table_progress,
)
from lakemark.model.action import COMMITS
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.instant import Instant
from lakemark.table import Table
from lakemark.timeline.timeline import Timeline

#: Digits of an instant down to its second; a time that is cut there is before all of that second.
_TO_THE_SECOND = 14


def progress_of(
    table: Table, timeline: Timeline, identity: str = DEFAULT_IDENTITY
) -> Progress | None:
    """The newest progress of one streamer; reads commits from the newest back, as far as needed.

    Where the active timeline knows of none, the archive is asked: writers that carry no checkpoints
    may have pushed out the last commit that did.

    Raises:
        DamagedCheckpoint: the newest checkpoint is empty or unreadable.
        SnapshotChanged: the archive was rewritten meanwhile; call again.
        CorruptData: the archive is damaged.
    """
    stands = _standing(table, timeline)
    told = newest_table_progress(_active(table, timeline), stands, identity)
    found = told.streamers.get(identity)
    if _may_lack_archived(told, timeline) or (found is None and timeline.has_history):
        found = newest_progress(_all(table, timeline), identity, stands)
    return found


def table_progress_of(
    table: Table, timeline: Timeline, *, passes_damaged: bool = False
) -> TableProgress:
    """What the timeline tells of all streamers, for the next commit to carry on.

    Args:
        table: the table.
        timeline: its timeline.
        passes_damaged: as for ``newest_table_progress``.

    Raises:
        DamagedCheckpoint: a commit that may tell the newest cannot be read.
        SnapshotChanged, CorruptData: as for ``progress_of``.
    """
    stands = _standing(table, timeline)
    told = newest_table_progress(_active(table, timeline), stands, passes_damaged=passes_damaged)
    if _may_lack_archived(told, timeline):
        told = newest_table_progress(_all(table, timeline), stands, passes_damaged=passes_damaged)
    is_quiet = passes_damaged and not timeline.pending(*COMMITS)
    return TableProgress(told.streamers, _known_up_to(timeline, is_quiet=is_quiet))


def commits_kept_active(table: Table, timeline: Timeline) -> frozenset[str]:
    """The commits that archival must leave; see ``commits_to_keep``."""
    return commits_to_keep(_active(table, timeline), _standing(table, timeline))


def _known_up_to(timeline: Timeline, *, is_quiet: bool) -> str:
    """Up to when all that completes is on a timeline.

    In layout 1 a store may tell no more than the second, and others may complete in the same one.
    """
    completed = timeline.completed(*COMMITS)
    if not completed:
        return ""
    newest = completed[-1].completed_at or ""
    return newest[:_TO_THE_SECOND] if completed[-1].is_legacy and not is_quiet else newest


def _may_lack_archived(told: TableProgress, timeline: Timeline) -> bool:
    """Whether a commit may have been archived before any book had it.

    Ours leaves those in the active timeline. Other writers' archival knows nothing of them, and may
    leave no commit but such as were written beside the newest one that counts.
    """
    return timeline.has_history and "" < told.as_of < (timeline.start or "")


def _active(table: Table, timeline: Timeline) -> Commits:
    return ((i, _ExtraMetadata(i, table.store.read_commit)) for i in timeline.completed())


def _all(table: Table, timeline: Timeline) -> Commits:
    return chain(_active(table, timeline), _archived(table))


def _archived(table: Table) -> Commits:
    archive = table.store.load_archived()

    def read(instant: Instant) -> CommitMetadata:
        return archive.read_commit(instant) or CommitMetadata()

    return ((i, _ExtraMetadata(i, read)) for i in archive.instants())


def _standing(table: Table, timeline: Timeline) -> Stands:
    """A compaction outlives a commit whose checkpoint it took over, when a restore undoes that."""

    def stands(requested_at: str) -> bool:
        found = timeline.find(requested_at)
        if found is not None:
            return found.is_completed
        if timeline.is_archived(requested_at) or not timeline.has_history:
            return timeline.has_history
        return table.store.load_archived().find(requested_at) is not None

    return stands


class _ExtraMetadata(Mapping[str, str]):
    """A commit's extra metadata, read when it is asked for."""

    def __init__(self, instant: Instant, read: Callable[[Instant], CommitMetadata]) -> None:
        self._instant, self._read = instant, read

    def __getitem__(self, key: str) -> str:
        return self._asked[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._asked)

    def __len__(self) -> int:
        return len(self._asked)

    @cached_property
    def _asked(self) -> Mapping[str, str]:
        return self._read(self._instant).extra_metadata
