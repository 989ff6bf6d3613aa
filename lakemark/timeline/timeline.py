"""The active timeline at one time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

from lakemark.model.action import Action, State
from lakemark.model.instant import Instant

#: Returns the completion time of an archived instant by its requested time; None if unknown.
ArchivedTime: TypeAlias = Callable[[str], str | None]

_RANK = {State.REQUESTED: 0, State.INFLIGHT: 1, State.COMPLETED: 2}
_MILLIS_DIGITS, _OLD_TIME_END = 17, "999"


def _unknown(requested_at: str) -> None:
    return None


@dataclass(frozen=True)
class Timeline:
    """Instants by requested time, each in its latest state on storage.

    A savepoint has the requested time of its commit; both are included.

    Attributes:
        instants: the active ones.
        has_history: whether older instants may have been archived.
        archived_time: completion times of archived instants; reads the archive on demand.
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
        """The timeline of all files; an instant has a file for every state that it reached."""
        latest: dict[tuple[str, Action], Instant] = {}
        for instant in seen:
            name = (instant.requested_at, instant.action.completes_as)
            known = latest.get(name)
            if known is None or _RANK[instant.state] > _RANK[known.state]:
                latest[name] = instant
        return cls(tuple(latest[n] for n in sorted(latest)), has_history, archived_time)

    def with_instant(self, instant: Instant) -> Timeline:
        """Return the timeline with the instant in this state."""
        return Timeline.of([*self.instants, instant], self.has_history, self.archived_time)

    def without_archive(self) -> Timeline:
        """The same instants without access to the archive, which can be pickled to workers."""
        return replace(self, archived_time=_unknown)

    def completed(self, *actions: Action) -> tuple[Instant, ...]:
        """Completed instants (of these actions, or of all), oldest completion first."""
        chosen = (
            i for i in self.instants if i.is_completed and (not actions or i.action in actions)
        )
        return tuple(sorted(chosen, key=lambda i: (i.completed_at or "", i.requested_at)))

    def pending(self, *actions: Action) -> tuple[Instant, ...]:
        """Requested and inflight instants (of these actions, or of all), oldest first."""
        pending = (i for i in self.instants if not i.is_completed)
        return tuple(i for i in pending if not actions or i.action in actions)

    def find(self, requested_at: str) -> Instant | None:
        """Find an instant in its latest state; a completed savepoint if there is no other.

        A time of 14 digits is also found by 17 digits, which are the end of its second.
        """
        found = self._by_name.get(requested_at)
        if found is None and len(requested_at) == _MILLIS_DIGITS:
            if requested_at.endswith(_OLD_TIME_END):
                return self._by_name.get(requested_at.removesuffix(_OLD_TIME_END))
        return found

    def is_committed(self, requested_at: str) -> bool:
        """Return whether files of that instant may be read.

        An instant requested before the first write of the active timeline was archived, so it has
        completed (``CompletionTimeQueryViewV2.isCompleted``). If nothing was ever archived, it was
        rolled back, and files that a late writer still writes for it are ignored. A late writer may
        also make a compaction inflight again that has completed and was archived (``start``).

        Raises:
            SnapshotChanged, CorruptData: as ``completed_at``, if the instant is pending and late.
        """
        instant = self.find(requested_at)
        if instant is None:
            return self.is_archived(requested_at)
        return instant.is_completed or self._late_time(requested_at) is not None

    def is_archived(self, requested_at: str) -> bool:
        """Return whether the instant is old enough to be archived; also if it never existed."""
        return self.has_history and self.start is not None and requested_at < self.start

    def completed_at(self, requested_at: str) -> str | None:
        """When the instant became visible; None if it is pending or does not exist.

        The time of an archived instant is read from the archive. If the archive does not have it,
        the requested time is returned.

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

    def _late_time(self, requested_at: str) -> str | None:
        """When the archive says a pending instant completed; None unless the instant is late."""
        return self.archived_time(requested_at) if self.is_archived(requested_at) else None

    @cached_property
    def newest_time(self) -> str | None:
        """The latest time, requested or completed, on the timeline; None if it is empty."""
        times = [t for i in self.instants for t in (i.requested_at, i.completed_at) if t]
        return max(times, default=None)

    @cached_property
    def start(self) -> str | None:
        """Requested time of the first write; older writes were archived.

        An archival keeps the newest commit before a pending write. So if there is a history,
        pending writes that come before every completed one are late: a writer that had lost the
        lock created them after others had archived newer writes. They do not count, because those
        newer writes would seem never to have completed. Apache Hudi counts them.

        Cleans and rollbacks are ignored, because they may stay active after the commits around them
        were archived. Source: ``BaseHoodieTimeline.getFirstNonSavepointCommit`` of the write
        timeline.
        """
        writes = [i for i in self.instants if i.action.is_write]
        completed = (i.requested_at for i in writes if i.is_completed and self.has_history)
        return next(completed, writes[0].requested_at if writes else None)

    def is_in_doubt(self, requested_at: str) -> bool:
        """Return whether an archived instant is newer than a write that is still pending.

        Either that write is late, or it only seems so: the commit that an archival had kept for its
        sake was rolled back since. Then the instant was rolled back, too, and not archived.
        """
        pending = next((i.requested_at for i in self.pending() if i.action.is_write), None)
        return pending is not None and requested_at > pending and self.is_archived(requested_at)

    @cached_property
    def _by_name(self) -> dict[str, Instant]:
        # Savepoints last, so that setdefault keeps their commits. A pending savepoint does not
        # prove its commit: a process that dies may begin it after the commit was archived.
        kept = (i for i in self.instants if i.is_completed or i.action is not Action.SAVEPOINT)
        ranked = sorted(kept, key=lambda i: i.action is Action.SAVEPOINT)
        named: dict[str, Instant] = {}
        for instant in ranked:
            named.setdefault(instant.requested_at, instant)
        return named
