"""Finds orphan files: files that no instant names, and that no query needs.

Task attempts that failed, and writers that were paused while another process rolled back their
instants, leave such files behind. A file is an orphan in one of these cases:

- Its instant was undone: the instant is on neither timeline, and a rollback or restore names it.
- Its instant has completed, but the metadata of the commit does not name the file, although it
  names other files that exist.
- It is a marker, a heartbeat or prepared content, and its instant is not pending.

The files of pending instants are kept: a rollback deletes them. So are files that the metadata
table lists, or that a savepoint or the plan of a pending table service names. If it is unclear
whether an instant has completed, because the archive was shortened, for example, its files are
kept, too. Readers may treat them as committed, and they may belong to another table.

The names of logs of table version 6 do not show who wrote them, so the blocks of these logs are
read. Logs with rollback blocks are kept, because the blocks hide rows of other logs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, StrEnum
from functools import cached_property
from typing import TypeAlias

from lakemark.errors import CorruptData
from lakemark.log.log_writers import read_instants
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.file_slice import BaseFile, LogFile
from lakemark.services.orphan_candidates import OrphanCandidates
from lakemark.storage.storage import NotFound, ObjectInfo, Storage
from lakemark.timeline.archived_timeline import ArchivedTimeline, just_after
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.timeline.undone_instants import find_completed, find_undone
from lakemark.view.file_lister import DataFile

#: A data file with its parsed name.
_Written: TypeAlias = tuple[ObjectInfo, DataFile]


class Reason(StrEnum):
    """Why a file is an orphan, or why it is unclear; the value completes "because …"."""

    UNDONE = "its instant was undone"
    UNNAMED = "its commit does not name it"
    FINISHED = "its instant is not pending"
    UNKNOWN = "no rollback names its instant, which may have completed"
    NOTHING_NAMED = "its commit names no file that exists"

    @property
    def is_clear(self) -> bool:
        """Whether a file with this reason is an orphan."""
        return self not in (Reason.UNKNOWN, Reason.NOTHING_NAMED)


class _Fate(Enum):
    PENDING = "pending"
    COMPLETED = "completed"
    UNDONE = "undone"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Orphan:
    """A file that no instant names.

    Attributes:
        path: the path of the file, relative to the table's root.
        size_bytes: the size of the file.
        modified_at: when the file was written.
        instant: the requested time of the instant that wrote the file.
        reason: why the file is an orphan; see ``Reason.is_clear``.
    """

    path: str
    size_bytes: int
    modified_at: datetime
    instant: str
    reason: Reason


@dataclass(frozen=True)
class OrphanSearch:
    """Searches one table, or one metadata table, for orphans.

    Attributes:
        storage: the root of the table.
        store: reads the instants of the table.
        timeline: the active timeline, loaded after the candidates were listed. A writer requests
            its instant before it writes files, so an instant that is not on this timeline was
            archived or undone.
        kept: the names of files that are kept, whatever the timeline shows.
        listed: the paths of the files that the metadata table lists.
        may_name_slices: whether the names of logs may contain the instant of their slice.
        reads_commits: whether files are orphans that a completed commit does not name. In a
            metadata table, commits do not name the first logs of new file groups.
        also_pending: requested times of instants that count as pending: for a metadata table, the
            pending instants of the data table.
        also_undone: returns which instants were undone elsewhere: for a metadata table, in the data
            table. It is asked only about instants whose files no reader treats as committed.
    """

    storage: Storage
    store: TimelineStore
    timeline: Timeline
    kept: Collection[str] = frozenset()
    listed: Collection[str] = frozenset()
    may_name_slices: bool = False
    reads_commits: bool = True
    also_pending: Collection[str] = frozenset()
    also_undone: Callable[[Collection[str]], set[str]] = lambda _: set()

    def find(self, candidates: OrphanCandidates) -> list[Orphan]:
        """Return the orphans among the candidates, and the unclear files, in order of their paths.

        Raises:
            SnapshotChanged: the archive or a commit was changed meanwhile; call again.
            CorruptData: the archive or the metadata of a commit is damaged.
        """
        found = [*self._data(candidates), *self._scratch(candidates)]
        return sorted(found, key=lambda orphan: orphan.path)

    def _data(self, candidates: OrphanCandidates) -> Iterator[Orphan]:
        by_instant: defaultdict[str, list[_Written]] = defaultdict(list)
        for info, file in candidates.data:
            if info.path not in self.listed and info.name not in self.kept:
                writers = self._writers_of(info, file)
                for writer in writers[:1]:
                    by_instant[writer].append((info, file))
        fates = self._fates(by_instant)
        reasons = {_Fate.UNDONE: Reason.UNDONE, _Fate.UNKNOWN: Reason.UNKNOWN}
        for instant, written in by_instant.items():
            if fates[instant] in reasons:
                reason = reasons[fates[instant]]
                yield from (_orphan(info, instant, reason) for info, _ in written)
        if self.reads_commits:
            completed = {i: by_instant[i] for i in fates if fates[i] is _Fate.COMPLETED}
            yield from self._unnamed(completed, candidates.present)

    def _writers_of(self, info: ObjectInfo, file: DataFile) -> list[str]:
        """Return the instant that wrote a file; none if several did, or if it must be kept."""
        if not (isinstance(file, LogFile) and self.may_name_slices):
            return [file.name.instant]
        with suppress(NotFound, CorruptData):  # it was cleaned meanwhile, or queries report it
            writers, targets = read_instants(self.storage, file)
            if not targets and len(writers) == 1:
                return list(writers)
        return []

    def _unnamed(
        self, written: Mapping[str, Sequence[_Written]], present: Collection[str]
    ) -> Iterator[Orphan]:
        """Yield the files that the commits of completed instants do not name.

        Names without folders are compared, because programs may write paths differently. So a copy
        of a file of the commit is kept, too.
        """
        is_certain = (BaseFile,) if self.may_name_slices else (BaseFile, LogFile)
        certain = {
            instant: [(info, file) for info, file in some if isinstance(file, is_certain)]
            for instant, some in written.items()
        }
        for instant, named in self._named_by([name for name, some in certain.items() if some]):
            reason = Reason.NOTHING_NAMED if named.isdisjoint(present) else Reason.UNNAMED
            others = [one for one in certain[instant] if one[0].name not in named]
            yield from (
                _orphan(info, instant, reason)
                for info, file in others
                if isinstance(file, BaseFile) or self._wrote_alone(instant, file)
            )

    def _wrote_alone(self, instant: str, log: LogFile) -> bool:
        """Return whether no other instant wrote a log.

        Otherwise the log is named after the instant of its slice (``lakemark.view.resized_logs``),
        so another commit may name it.
        """
        with suppress(NotFound, CorruptData):
            return read_instants(self.storage, log).writers <= {instant}
        return False

    def _named_by(self, instants: Iterable[str]) -> Iterator[tuple[str, set[str]]]:
        """Yield each completed instant, and the names of the files that its commit names."""
        archived = set[str]()
        for name in instants:
            active = self.timeline.find(name)
            if active is None:
                archived.add(name)
            else:
                yield name, _names(self.store.read_commit(active))
        if archived:
            known = self._archived.instants(min(archived), just_after(max(archived)))
            writes = (i for i in known if i.action.is_write and i.requested_at in archived)
            for instant, commit in self._archived.read_commits(writes):
                yield instant.requested_at, _names(commit)

    def _scratch(self, candidates: OrphanCandidates) -> Iterator[Orphan]:
        pending = {*self.also_pending, *(i.requested_at for i in self.timeline.pending())}
        for file in candidates.scratch:
            if file.instant not in pending:
                yield _orphan(file.info, file.instant, Reason.FINISHED)

    def _fates(self, instants: Collection[str]) -> dict[str, _Fate]:
        fates = {instant: self._active_fate(instant) for instant in instants}
        gone = {instant for instant, fate in fates.items() if fate is None}
        completed = find_completed(self._archived, gone) if gone else set()
        undone = self._undone_here_or_elsewhere(gone - completed)

        def fate_of(instant: str) -> _Fate:
            if instant in completed:
                return _Fate.COMPLETED
            return _Fate.UNDONE if instant in undone else _Fate.UNKNOWN

        return {instant: fate or fate_of(instant) for instant, fate in fates.items()}

    def undone(self, instants: Collection[str]) -> set[str]:
        """Return which instants a rollback or a restore of this table has undone for good."""
        gone = {name for name in instants if self.timeline.find(name) is None}
        return find_undone(self.store, gone, self.timeline, self._archived) if gone else set()

    def _undone_here_or_elsewhere(self, gone: Collection[str]) -> set[str]:
        undone = self.undone(gone)
        later = {name for name in gone if name not in undone and not self._may_be_archived(name)}
        return undone | (self.also_undone(later) if later else set())

    def _active_fate(self, instant: str) -> _Fate | None:
        """Return the fate of an instant that is on the active timeline; None if it is not."""
        found = self.timeline.find(instant)
        if found is None:
            return _Fate.PENDING if instant in self.also_pending else None
        if not found.action.is_write:
            return _Fate.UNKNOWN
        return _Fate.COMPLETED if found.is_completed else _Fate.PENDING

    def _may_be_archived(self, instant: str) -> bool:
        """Return whether some reader treats files of an instant as committed.

        Apache Hudi does so before the first active write, even if the table has no archive.
        """
        return self.timeline.start is None or instant < self.timeline.start

    @cached_property
    def _archived(self) -> ArchivedTimeline:
        return self.store.load_archived()


def _names(commit: CommitMetadata) -> set[str]:
    paths = (path for stat in commit.write_stats for path in stat.sizes_bytes)
    return {path.rpartition("/")[2] for path in paths}


def _orphan(info: ObjectInfo, instant: str, reason: Reason) -> Orphan:
    return Orphan(info.path, info.size_bytes, info.modified_at, instant, reason)
