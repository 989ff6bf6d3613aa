"""The sequential model: the rows after each completed instant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from lakemark.model.action import COMMITS, Action
from lakemark.model.instant import Instant
from lakemark.timeline.timeline import Timeline
from tests.tables import Row

#: Ordering value and payload of each key.
Rows: TypeAlias = Mapping[str, tuple[int, int]]

#: The keys of each partition.
KEYS: Mapping[str, str] = {"a": "north", "b": "north", "c": "north", "d": "south", "e": "south"}
REGIONS = ("north", "south")


@dataclass
class Model:
    """The rows now, and after each completed instant.

    Attributes:
        rows: the rows that queries must find.
        past: the rows after each completed instant of the timeline, oldest first; None if several
            instants completed in one act, and another one followed.
        seen: all instants that have ever been completed, by requested time and action.
    """

    rows: Rows = field(default_factory=dict)
    past: list[tuple[Instant, Rows | None]] = field(default_factory=list)
    seen: set[tuple[str, Action]] = field(default_factory=set)

    def record(self, timeline: Timeline) -> None:
        """Add the instants that have completed, and forget those that were undone or archived."""
        completed = timeline.completed(*COMMITS)
        names = {instant.requested_at for instant in completed}
        if any(instant.requested_at < (timeline.start or "") for instant, _ in self.past):
            self._forget_overlaps()
        self.past = [(i, rows) for i, rows in self.past if i.requested_at in names]
        known = {instant.requested_at for instant, _ in self.past}
        new = [instant for instant in completed if instant.requested_at not in known]
        self.past += [(i, self.rows if i is new[-1] else None) for i in new]
        self.seen |= {(i.requested_at, i.action) for i in timeline.completed()}

    def _forget_overlaps(self) -> None:
        """Forget the rows after instants with which others overlap, before those are archived."""
        self.past = [
            (instant, rows if self.is_isolated(number) else None)
            for number, (instant, rows) in enumerate(self.past)
        ]

    def is_isolated(self, number: int) -> bool:
        """Whether no instant was requested before this one and completed after it, or reverse."""
        instant = self.past[number][0]
        earlier = all(i.requested_at <= instant.requested_at for i, _ in self.past[:number])
        done = instant.completed_at or ""
        return earlier and all(i.requested_at > done for i, _ in self.past[number + 1 :])


def upserted(before: Rows, rows: Iterable[Row]) -> Rows:
    """Return the rows after an upsert: the largest ordering value of each key wins."""
    after = dict(before)
    for row in rows:
        if row.id not in after or after[row.id][0] <= row.ts:
            after[row.id] = (row.ts, row.v)
    return after


def deleted(before: Rows, names: Iterable[str]) -> Rows:
    gone = set(names)
    return {key: row for key, row in before.items() if key not in gone}


def without_partition(before: Rows, region: str) -> Rows:
    return {key: row for key, row in before.items() if KEYS[key] != region}
