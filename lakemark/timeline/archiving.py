"""Moves instants from the active timeline into the archive, for every table version.

An instant becomes one row, with the content of the completed file and with the plan if there is
one. The row is written before any file of the instant is deleted. So after a crash, an instant may
be both active and archived, with the same content; the next archival adds no second row. Source:
``TimelineArchiverV2``, ``MetadataConversionUtils.createLSMTimelineInstant`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from lakemark.errors import WriteConflict
from lakemark.model.action import REPLACING, Action, State
from lakemark.model.instant import Instant
from lakemark.storage.storage import NotFound, Storage
from lakemark.timeline.layout import TimelineLayout
from lakemark.timeline.lsm_writer import ArchivedInstant

#: Actions whose plan, the content of the requested file, is archived.
_PLANNED = (
    Action.CLEAN,
    Action.COMPACTION,
    Action.LOG_COMPACTION,
    Action.RESTORE,
    Action.INDEXING,
)


class ArchiveWriter(Protocol):
    """Adds instants to an archive; one object is used for one archival."""

    def find_archived(self, first: str, last: str) -> tuple[Instant, ...]:
        """Find the instants of a range of requested times that are already archived.

        Args:
            first: the earliest time.
            last: the latest time.
        """
        ...

    def add(self, instants: Iterator[ArchivedInstant], first: str, last: str) -> None:
        """Add at least one instant, oldest first.

        Args:
            instants: the instants; each is consumed only when it is written.
            first: the requested time of the first instant.
            last: the requested time of the last instant.

        Raises:
            WriteConflict: another archiver added instants at the same time.
        """
        ...

    def merge_files(self) -> None:
        """Merge small files of the archive, and delete files that are no longer used."""
        ...

    def clear(self) -> None:
        """Make the archive empty, and delete its files.

        No later archival creates a file with the name of a deleted one. So a request that the store
        executes late deletes nothing else.

        Raises:
            WriteConflict: another archiver added instants at the same time.
            CorruptData: the list of the archive's files is damaged.
        """
        ...


class TimelineArchive:
    """Moves instants from the active timeline of one table to its archive.

    Args:
        storage: the table's storage.
        layout: the layout of the table's timeline.
    """

    def __init__(self, storage: Storage, layout: TimelineLayout) -> None:
        self._storage, self._layout = storage, layout

    def move(
        self, instants: Sequence[Instant], writer: ArchiveWriter, check: Callable[[], None]
    ) -> None:
        """Move completed instants to the archive. The caller holds the table's lock.

        Args:
            instants: the instants to move, oldest first, at least one.
            writer: the writer of the archive.
            check: called before each change that needs the lock; raises if the lock was lost.

        Raises:
            WriteConflict: another archiver moved some of the instants at the same time.
        """
        states = self._states(instants)
        first, last = instants[0].requested_at, instants[-1].requested_at
        known = {(i.requested_at, i.action) for i in writer.find_archived(first, last)}
        new = [i for i in instants if (i.requested_at, i.action) not in known]
        if new:
            rows = (self._row(i, states[i.requested_at, i.action]) for i in new)
            writer.add(rows, new[0].requested_at, new[-1].requested_at)
        self._storage.make_durable()
        check()
        pending = [
            i for i in instants for i in states[i.requested_at, i.action] if not i.is_completed
        ]
        self._storage.delete([self._path(i) for i in pending])
        self._storage.make_durable()  # a commit without its completed file would be rolled back
        for instant in instants:
            self._storage.delete([self._path(instant)])  # model: delete archived
        writer.merge_files()

    def _states(self, instants: Sequence[Instant]) -> Mapping[tuple[str, Action], list[Instant]]:
        """Return all states of the instants for which a file exists.

        The keys are the requested time and the action as which the instant completes.
        """
        found: dict[tuple[str, Action], list[Instant]] = {
            (i.requested_at, i.action): [] for i in instants
        }
        for info in self._storage.list_folder(self._layout.folder)[1]:
            seen = self._layout.parse(info.name)
            if seen is not None:
                found.get((seen.requested_at, seen.action.completes_as), []).append(seen)
        return found

    def _row(self, instant: Instant, states: Sequence[Instant]) -> ArchivedInstant:
        return ArchivedInstant(
            instant.requested_at,
            instant.completed_at or instant.requested_at,
            instant.action.value,
            self._content(instant),
            self._plan(states),
        )

    def _content(self, instant: Instant) -> bytes:
        try:
            return self._storage.read(self._path(instant))
        except NotFound as error:
            message = f"{instant} was archived or rolled back by another writer; start again"
            raise WriteConflict(message) from error

    def _plan(self, states: Sequence[Instant]) -> bytes | None:
        """Return the plan of an instant; None if there is no plan, or if the plan's file is empty.

        The plan of a replace commit is the content of the last pending file that is not empty.
        """
        plan = None
        for pending in sorted((i for i in states if not i.is_completed), key=_progress):
            is_plan = pending.action in _PLANNED and pending.state is State.REQUESTED
            if is_plan or pending.action in REPLACING:
                with suppress(NotFound):
                    plan = self._storage.read(self._path(pending)) or plan
        return plan

    def _path(self, instant: Instant) -> str:
        return f"{self._layout.folder}/{self._layout.name_of(instant)}"


def _progress(pending: Instant) -> bool:
    return pending.state is State.INFLIGHT
