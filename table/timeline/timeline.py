"""The active timeline at one moment: which instants there are, and which of them count."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from table.model.action import Action, State
from table.model.instant import Instant

_RANK = {State.REQUESTED: 0, State.INFLIGHT: 1, State.COMPLETED: 2}


@dataclass(frozen=True)
class Timeline:
    """Instants by requested time, each in the furthest state that storage shows.

    Attributes:
        instants: those that are active.
        has_history: whether older ones may have been archived.
    """

    instants: tuple[Instant, ...]
    has_history: bool = True

    @classmethod
    def of(cls, seen: Iterable[Instant], has_history: bool = True) -> Timeline:
        """The timeline of all files seen; an instant has one file for every state it reached."""
        furthest: dict[str, Instant] = {}
        for instant in seen:
            known = furthest.get(instant.requested_at)
            if known is None or _RANK[instant.state] > _RANK[known.state]:
                furthest[instant.requested_at] = instant
        return cls(tuple(furthest[t] for t in sorted(furthest)), has_history)

    def with_instant(self, instant: Instant) -> Timeline:
        """The timeline once the instant is in this state."""
        return Timeline.of([*self.instants, instant], self.has_history)

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
        """The instant of that name, in its furthest state."""
        return self._by_name.get(requested_at)

    def completed_at(self, requested_at: str) -> str | None:
        """When the instant became visible; None while it is pending, or when it never was.

        An instant requested before the first one of the active timeline (savepoints apart) was
        archived, so it did complete; its requested time stands in for the completion time, which
        is older than all others either way (``CompletionTimeQueryViewV2``). Where nothing was ever
        archived it was rolled back: what a late writer still leaves in its name stays unseen.
        """
        instant = self.find(requested_at)
        if instant is not None:
            return instant.completed_at
        is_older = self._start is not None and requested_at < self._start
        return requested_at if is_older and self.has_history else None

    def is_committed(self, requested_at: str) -> bool:
        """Whether files of that instant may be read."""
        return self.completed_at(requested_at) is not None

    @cached_property
    def newest_time(self) -> str | None:
        """The latest time, requested or completed, that the timeline knows; None when empty."""
        times = [t for i in self.instants for t in (i.requested_at, i.completed_at) if t]
        return max(times, default=None)

    @cached_property
    def _by_name(self) -> dict[str, Instant]:
        return {i.requested_at: i for i in self.instants}

    @cached_property
    def _start(self) -> str | None:
        return next(
            (i.requested_at for i in self.instants if i.action is not Action.SAVEPOINT), None
        )
