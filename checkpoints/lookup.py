"""Find the checkpoint to resume from: the newest one that any completed commit records.

Every commit of this project records the progress of all streamers (``progress``). Commits of other
writers, and those of Apache Hudi's streamer, record less, so the lookup reads commits from the
newest one back until no older commit can have anything newer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import TypeAlias

from checkpoints import commit_keys
from checkpoints.commit_keys import DamagedCheckpoint
from checkpoints.progress import DEFAULT_IDENTITY, Progress, TableProgress, decode_progress
from lakemark.model.action import COMMITS, Action
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.instant import Instant
from lakemark.table import Table
from lakemark.timeline.timeline import Timeline

#: Instants with the extra metadata of their commits, in any order. Pending instants, and those
#: that write no rows, are skipped. Extra metadata is read only as far back as it is needed.
Commits: TypeAlias = Iterable[tuple[Instant, Mapping[str, str]]]

#: Whether the commit with this requested time is effective: completed, and not undone by a rollback
#: or restore. Later commits may still record the progress of a commit that was undone.
IsEffective: TypeAlias = Callable[[str], bool]

#: Apache Hudi's streamer finds its checkpoint again if it is among this number of latest commits.
_APACHE_LOOKBACK_COMMITS = 500

#: Digits of an instant down to its second. A time cut there is before every time in that second.
_TO_THE_SECOND = 14


def find_progress(
    table: Table, timeline: Timeline, identity: str = DEFAULT_IDENTITY
) -> Progress | None:
    """Find the newest progress of one streamer.

    Reads commits from the newest one back, as far as needed. If the active timeline has no progress
    of the streamer, the archived timeline is read: writers that do not copy checkpoints may have
    caused the last commit with one to be archived.

    Raises:
        DamagedCheckpoint: the newest checkpoint is empty or unreadable.
        SnapshotChanged: the archived timeline was rewritten during the call; call again.
        CorruptData: the archived timeline is damaged.
    """
    is_effective = _effective_in(table, timeline)
    recorded = newest_table_progress(_active_commits(table, timeline), is_effective, identity)
    found = recorded.streamers.get(identity)
    if _may_lack_archived(recorded, timeline) or (found is None and timeline.has_history):
        found = newest_progress(_all_commits(table, timeline), identity, is_effective)
    return found


def find_table_progress(
    table: Table, timeline: Timeline, *, passes_damaged: bool = False
) -> TableProgress:
    """Find the newest progress of all streamers, for the next commit to record again.

    Args:
        table: the table.
        timeline: its timeline.
        passes_damaged: as for ``newest_table_progress``.

    Raises:
        DamagedCheckpoint: a commit that may record the newest progress cannot be read.
        SnapshotChanged, CorruptData: as for ``find_progress``.
    """
    is_effective = _effective_in(table, timeline)
    commits = _active_commits(table, timeline)
    found = newest_table_progress(commits, is_effective, passes_damaged=passes_damaged)
    if _may_lack_archived(found, timeline):
        commits = _all_commits(table, timeline)
        found = newest_table_progress(commits, is_effective, passes_damaged=passes_damaged)
    is_quiet = passes_damaged and not timeline.pending(*COMMITS)
    return TableProgress(found.streamers, _complete_up_to(timeline, is_quiet=is_quiet))


def find_commits_to_keep(table: Table, timeline: Timeline) -> frozenset[str]:
    """The commits that archival must keep active; see ``select_commits_to_keep``."""
    return select_commits_to_keep(_active_commits(table, timeline), _effective_in(table, timeline))


def _is_always_effective(_requested_at: str) -> bool:
    return True


def newest_progress(
    commits: Commits,
    identity: str = DEFAULT_IDENTITY,
    is_effective: IsEffective = _is_always_effective,
) -> Progress | None:
    """The newest progress of one streamer, or None if no commit records any.

    Delta commits count by completion time, newest first; those without a checkpoint are skipped. A
    compaction or clustering may have copied its checkpoint when it was planned, so it counts as of
    that time: a delta commit that completed later is newer, even if it was published earlier.

    Raises:
        DamagedCheckpoint: the newest checkpoint is empty or unreadable.
    """
    return newest_table_progress(commits, is_effective, identity).streamers.get(identity)


def newest_table_progress(
    commits: Commits,
    is_effective: IsEffective = _is_always_effective,
    wanted: str | None = None,
    *,
    passes_damaged: bool = False,
) -> TableProgress:
    """The newest progress of every streamer, and up to which time it is complete.

    Args:
        commits: of the table.
        is_effective: which commits count.
        wanted: the streamer to look for; commits are read only as far back as needed for it. None
            for all streamers.
        passes_damaged: whether a commit that cannot be read is skipped.

    Raises:
        DamagedCheckpoint: a commit that may record the newest progress cannot be read.
    """
    newest, as_of = _search_back(commits, wanted, is_effective, passes_damaged)
    return TableProgress({identity: found.progress for identity, found in newest.items()}, as_of)


def select_commits_to_keep(
    commits: Commits, is_effective: IsEffective = _is_always_effective
) -> frozenset[str]:
    """Requested times of the commits that record the newest progress of each streamer.

    Archival keeps these commits in the active timeline, so that no streamer loses its position.
    One newer commit of this project replaces them, because it records the progress of all.

    Apache Hudi's streamer does not read ``lakemark.checkpoints``. So the commit from which it would
    resume is kept, too, until the default streamer commits again, is reset, or is more than 500
    commits behind. Other streamers' commits cannot copy its keys: the copy may be older than
    its latest commit, and Apache Hudi's streamer would resume from the copy.

    Raises:
        DamagedCheckpoint: a commit that may record the newest progress cannot be read.
    """
    listed = list(commits)
    newest, _ = _search_back(listed, None, is_effective)
    kept = {found.recorded_in.requested_at for found in newest.values()}
    default = newest.get(DEFAULT_IDENTITY)
    if default is not None and default.progress.checkpoint is not None:
        kept |= _found_by_apache(listed, default.progress.commit)
    return frozenset(kept)


@dataclass(frozen=True, slots=True)
class _Found:
    """Progress, and the commit that records it."""

    progress: Progress
    recorded_in: Instant


def _search_back(
    commits: Commits, wanted: str | None, is_effective: IsEffective, passes_damaged: bool = False
) -> tuple[dict[str, _Found], str]:
    """Search from the newest commit back, until no older commit can record anything newer.

    A commit records nothing later than its own completion. A streamer that no commit has recorded
    yet is searched for to the end, because the writer of a commit may not have known the progress
    that was archived earlier.

    Returns:
        Progress by streamer, and the time up to which it covers all completed commits.
    """
    ingest = [(i, extra) for i, extra in commits if i.is_completed and i.action.is_ingest]
    has_delta_commits = any(i.action is Action.DELTA_COMMIT for i, _ in ingest)
    ingest.sort(key=lambda c: (c[0].completed_at or "", c[0].requested_at), reverse=True)
    found: dict[str, _Found] = {}
    as_of = ""
    for instant, extra in ingest:
        latest_here = instant.completed_at or ""
        known = found.get(wanted) if wanted is not None else None
        if latest_here <= as_of and (wanted is None or known):
            break
        if known and known.progress.known_at >= latest_here:
            break
        recorded = _recorded_in(instant, extra, has_delta_commits, passes_damaged)
        effective = {n: one for n, one in recorded.streamers.items() if is_effective(one.commit)}
        if len(effective) == len(recorded.streamers):  # if not, older progress counts again
            as_of = max(as_of, recorded.as_of)
        for identity, progress in effective.items():
            before = found.get(identity)
            if before is None or before.progress.known_at < progress.known_at:
                found[identity] = _Found(progress, instant)
    return found, as_of


def _found_by_apache(commits: Commits, newest: str) -> set[str]:
    """The newest commit, up to ``newest``, with a checkpoint under Apache Hudi's keys, if any.

    If the table has delta commits, Apache Hudi's streamer reads only these
    (``StreamerCheckpointUtils``), so a compaction that copied the checkpoint does not count.
    """
    ingest = [(i, extra) for i, extra in commits if i.is_completed and i.action.is_ingest]
    read = [c for c in ingest if c[0].action is Action.DELTA_COMMIT] or ingest
    read.sort(key=lambda c: c[0].requested_at, reverse=True)
    with_checkpoint = (
        i.requested_at
        for i, extra in read[:_APACHE_LOOKBACK_COMMITS]
        if i.requested_at <= newest and commit_keys.checkpoint_key(extra) is not None
    )
    return set(islice(with_checkpoint, 1))


def _recorded_in(
    instant: Instant, extra: Mapping[str, str], has_delta_commits: bool, passes_damaged: bool
) -> TableProgress:
    try:
        return decode_progress(extra, instant, _known_at(instant, has_delta_commits))
    except DamagedCheckpoint:
        if not passes_damaged:
            raise
        return TableProgress()


def _known_at(instant: Instant, has_delta_commits: bool) -> str:
    """As of when ``instant`` records the progress under Apache Hudi's keys.

    In a table with delta commits, a ``commit`` is a completed compaction. If the table has since
    become copy-on-write, it may be a later batch, which was requested after the last delta commit.
    """
    may_be_service = instant.action is Action.REPLACE_COMMIT or (
        has_delta_commits and instant.action is Action.COMMIT
    )
    if may_be_service or instant.completed_at is None:
        return instant.requested_at
    return instant.completed_at


def _complete_up_to(timeline: Timeline, *, is_quiet: bool) -> str:
    """The time up to which the timeline has every commit that completes.

    In layout 1 a store may report completion times in whole seconds, and another writer may still
    complete a commit in the same second.
    """
    completed = timeline.completed(*COMMITS)
    if not completed:
        return ""
    newest = completed[-1].completed_at or ""
    return newest[:_TO_THE_SECOND] if completed[-1].is_legacy and not is_quiet else newest


def _may_lack_archived(found: TableProgress, timeline: Timeline) -> bool:
    """Whether a commit may have been archived before any other commit recorded its progress.

    Archival of this project keeps such commits active. Archival of other writers does not, and may
    leave only commits that were written concurrently with the newest one.
    """
    return timeline.has_history and "" < found.as_of < (timeline.start or "")


def _active_commits(table: Table, timeline: Timeline) -> Commits:
    return ((i, _LazyExtraMetadata(i, table.store.read_commit)) for i in timeline.completed())


def _all_commits(table: Table, timeline: Timeline) -> Commits:
    return chain(_active_commits(table, timeline), _archived_commits(table))


def _archived_commits(table: Table) -> Commits:
    archive = table.store.load_archived()

    def read(instant: Instant) -> CommitMetadata:
        return archive.read_commit(instant) or CommitMetadata()

    return ((i, _LazyExtraMetadata(i, read)) for i in archive.instants())


def _effective_in(table: Table, timeline: Timeline) -> IsEffective:
    """A predicate for commits that no rollback or restore has undone.

    If a restore undoes a commit, a compaction that copied its checkpoint may remain.
    """

    def is_effective(requested_at: str) -> bool:
        found = timeline.find(requested_at)
        if found is not None:
            return found.is_completed
        if timeline.is_archived(requested_at) or not timeline.has_history:
            return timeline.has_history
        return table.store.load_archived().find(requested_at) is not None

    return is_effective


class _LazyExtraMetadata(Mapping[str, str]):
    """The extra metadata of a commit, read from the timeline at its first use."""

    def __init__(self, instant: Instant, read: Callable[[Instant], CommitMetadata]) -> None:
        self._instant, self._read = instant, read

    def __getitem__(self, key: str) -> str:
        return self._loaded[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaded)

    def __len__(self) -> int:
        return len(self._loaded)

    @cached_property
    def _loaded(self) -> Mapping[str, str]:
        return self._read(self._instant).extra_metadata
