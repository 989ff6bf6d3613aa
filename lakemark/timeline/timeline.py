"""The active timeline as it was at one moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

from lakemark.model.action import Action, State
from lakemark.model.instant import Instant

#: Returns an archived instant's completion time for its requested time; None if it is unknown.
ArchivedTime: TypeAlias = Callable[[str], str | None]

_RANK = {State.REQUESTED: 0, State.INFLIGHT: 1, State.COMPLETED: 2}
_MILLIS_DIGITS, _OLD_TIME_END = 17, "999"
#: The instants that create a metadata table have numbers instead of times.
_NUMBERED = "0" * 14


def _unknown(requested_at: str) -> None:
    return None


@dataclass(frozen=True)
class Timeline:
    """The active instants, ordered by requested time, each in its latest state on storage.

    A savepoint has the same requested time as its commit; the timeline contains both instants.

    Attributes:
        instants: the active instants.
        has_history: whether older instants may have been archived.
        archived_time: returns completion times of archived instants; reads the archive on demand.
    """

    instants: tuple[Instant, ...]
    has_history: bool = True
    archived_time: ArchivedTime = field(default=_unknown, compare=False, repr=False)

    @classmethod
    def of(
        cls,
        seen: Iterable[Instant],
        has_history: bool = True,
        archived_time: ArchivedTime = _unknown,
    ) -> Timeline:
        """Build the timeline from all files, in any order.

        An instant has a file for every state that it reached.
        """
        latest: dict[tuple[str, Action], Instant] = {}
        for instant in seen:
            name = (instant.requested_at, instant.action.completes_as)
            known = latest.get(name)
            if known is None or _RANK[instant.state] > _RANK[known.state]:
                latest[name] = instant
        return cls(tuple(latest[n] for n in sorted(latest)), has_history, archived_time)

    def with_instant(self, instant: Instant) -> Timeline:
        """Return a timeline that also contains the instant, in its given state."""
        kept = self.instants
        if kept and _is_later_state(instant, kept[-1]):
            kept = kept[:-1]
        if kept and kept[-1].requested_at >= instant.requested_at:
            return Timeline.of([*self.instants, instant], self.has_history, self.archived_time)
        return Timeline((*kept, instant), self.has_history, self.archived_time)

    def without_archive(self) -> Timeline:
        """Return the timeline without access to the archive, so that it can be pickled."""
        return replace(self, archived_time=_unknown)

    def completed(self, *actions: Action) -> tuple[Instant, ...]:
        """Return completed instants, by default of all actions, ordered by completion time."""
        return tuple(i for i in self._completed if not actions or i.action in actions)

    def pending(self, *actions: Action) -> tuple[Instant, ...]:
        """Return requested and inflight instants, by default of all actions, oldest first."""
        pending = (i for i in self.instants if not i.is_completed)
        return tuple(i for i in pending if not actions or i.action in actions)

    def find(self, requested_at: str) -> Instant | None:
        """Find an instant, in its latest state, by its requested time; None if there is none.

        A savepoint has the requested time of its commit. A savepoint is returned only if the
        savepoint is completed and the commit is missing. An instant with an old time of 14 digits
        is also found by the 17 digits of the last millisecond of that second.
        """
        found = self._by_name.get(requested_at)
        if found is None and len(requested_at) == _MILLIS_DIGITS:
            if requested_at.endswith(_OLD_TIME_END):
                return self._by_name.get(requested_at.removesuffix(_OLD_TIME_END))
        return found

    def is_committed(self, requested_at: str) -> bool:
        """Return whether data files with that instant's requested time may be read.

        An instant may be missing from the active timeline because it was archived or because it was
        rolled back. If the instant was requested before the first active write, it was archived, so
        it has completed (``CompletionTimeQueryViewV2.isCompleted``). If no instant was ever
        archived, the instant was rolled back, so files that a late writer still writes for the
        instant are ignored. A pending instant may also have completed: a late writer can make a
        compaction inflight again that has completed and was archived (see ``start``).

        Raises:
            SnapshotChanged, CorruptData: the instant is pending and late, and the archive could not
                be read; see ``completed_at``.
        """
        instant = self.find(requested_at)
        if instant is None:
            return self.is_archived(requested_at)
        return instant.is_completed or self._late_time(requested_at) is not None

    def is_archived(self, requested_at: str) -> bool:
        """Return whether an instant of that time was archived, provided that it ever existed."""
        return self.has_history and self.start is not None and requested_at < self.start

    def completed_at(self, requested_at: str) -> str | None:
        """Return when the instant completed; None if the instant is pending or does not exist.

        The completion time of an archived instant is read from the archive. If the archive lacks
        the instant, the requested time is returned.

        Raises:
            SnapshotChanged: the archive was rewritten in the meantime; load the timeline again.
            CorruptData: the archive is damaged.
        """
        instant = self.find(requested_at)
        if instant is not None:
            return instant.completed_at or self._late_time(requested_at)
        if not self.is_archived(requested_at):
            return None
        return self.archived_time(requested_at) or requested_at

    def has_reappeared(self, instant: Instant) -> bool:
        """Return whether a pending instant has completed and was archived, and then appeared again.

        A store may execute a request twice, so a file of the instant is created again. The data
        files of the instant are those of a completed commit: queries may read them.

        Raises:
            SnapshotChanged, CorruptData: as for ``completed_at``.
        """
        return not instant.is_completed and self.completed_at(instant.requested_at) is not None

    def _late_time(self, requested_at: str) -> str | None:
        """Return a late pending instant's completion time in the archive, else None.

        A late instant was created after newer writes had been archived; see ``start``.
        """
        return self.archived_time(requested_at) if self.is_archived(requested_at) else None

    @cached_property
    def newest_time(self) -> str | None:
        """The latest requested or completion time on the timeline; None if it has no instants."""
        times = [t for i in self.instants for t in (i.requested_at, i.completed_at) if t]
        return max(times, default=None)

    @cached_property
    def start(self) -> str | None:
        """The requested time of the first active write; older writes were archived.

        Late pending writes do not count. A pending write is late if there is a history and the
        write is older than every completed write. An archival keeps the newest commit before a
        pending write. So a late write was created after the archival, by a writer that had lost the
        lock. If a late write counted, archived instants that are newer than the late write would
        not be recognised as archived. Apache Hudi counts late writes. For the same reason, writes
        with numbers do not count if there is a history: a partition that a writer of Apache Hudi
        adds to a metadata table has a number that is less than the times of archived writes.

        Cleans and rollbacks are ignored, because they may stay active after the commits around them
        were archived. Source: ``BaseHoodieTimeline.getFirstNonSavepointCommit`` of the write
        timeline.
        """
        writes = [i for i in self.instants if i.action.is_write]
        completed = [i.requested_at for i in writes if i.is_completed and self.has_history]
        timed = (time for time in completed if not time.startswith(_NUMBERED))
        return next(timed, next(iter(completed), writes[0].requested_at if writes else None))

    def is_in_doubt(self, requested_at: str) -> bool:
        """Return whether an instant that seems archived is newer than a pending write.

        There are two explanations. Either the pending write is late (see ``start``). Or the pending
        write is not late, but the commit before it, which archival had kept, was rolled back since.
        In the second case, the instant was also rolled back, and was not archived.
        """
        pending = next((i.requested_at for i in self.pending() if i.action.is_write), None)
        return pending is not None and requested_at > pending and self.is_archived(requested_at)

    @cached_property
    def _completed(self) -> tuple[Instant, ...]:
        done = (i for i in self.instants if i.is_completed)
        return tuple(sorted(done, key=lambda i: (i.completed_at or "", i.requested_at)))

    @cached_property
    def _by_name(self) -> dict[str, Instant]:
        # Savepoints come last, so that setdefault keeps their commits. A pending savepoint does not
        # prove that its commit is active: it may have been begun after the commit was archived.
        kept = (i for i in self.instants if i.is_completed or i.action is not Action.SAVEPOINT)
        ranked = sorted(kept, key=lambda i: i.action is Action.SAVEPOINT)
        named: dict[str, Instant] = {}
        for instant in ranked:
            named.setdefault(instant.requested_at, instant)
        return named


def _is_later_state(instant: Instant, known: Instant) -> bool:
    """Return whether an instant is a known one in a later state."""
    return (
        instant.requested_at == known.requested_at
        and instant.action.completes_as is known.action.completes_as
        and _RANK[instant.state] > _RANK[known.state]
    )
