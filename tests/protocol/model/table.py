"""The table that readers and writers derive from the files and instants of a state."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from tests.protocol.model.state import WRITES, Action, File, Group, Instant, State


class Slice(NamedTuple):
    """A file slice: the instant that begins it, its base file and its logs."""

    start: int
    base: File | None
    logs: tuple[File, ...]

    @property
    def files(self) -> frozenset[File]:
        return frozenset((*self.logs, *((self.base,) if self.base else ())))

    @property
    def rows(self) -> frozenset[int]:
        return frozenset(row for file in self.files for row in file.rows)


@dataclass(frozen=True)
class Table:
    """A table as its timeline, its history and its folders show it.

    Attributes:
        timeline: the active timeline.
        archived: the instants of the history.
        files: the files in storage.
    """

    timeline: tuple[Instant, ...]
    archived: frozenset[Instant]
    files: frozenset[File]

    @property
    def start(self) -> int | None:
        """The first write of the active timeline; older writes are archived."""
        return next((i.name for i in self.timeline if i.action in WRITES), None)

    def completed_at(self, name: int) -> int:
        """Return when an instant completed; 0 if it did not, or was undone."""
        active = next((i for i in self.timeline if i.name == name), None)
        if active is not None:
            return active.completed_at
        history = next((i for i in self.archived if i.name == name and i.action in WRITES), None)
        if history is not None:
            return history.completed_at
        is_old = bool(self.archived) and self.start is not None and name < self.start
        return name if is_old and name not in self.undone else 0

    @property
    def undone(self) -> frozenset[int]:
        """Instants that a rollback or a restore, active or archived, undid."""
        done = [i for i in (*self.timeline, *self.archived) if i.is_completed]
        rolled_back = {i.target for i in done if i.action is Action.ROLLBACK}
        return frozenset(rolled_back.union(*(i.undone for i in done)))

    def committed(self) -> frozenset[File]:
        """Return the files that readers read; of two attempts at one base file, the later one."""
        found = [f for f in self.files if self.completed_at(f.instant)]
        newest = {(f.group, f.instant, f.is_base): f for f in sorted(found, key=_attempt)}
        return frozenset(newest.values())

    def groups(self) -> dict[Group, list[Slice]]:
        """The slices of each file group, oldest first."""
        files = self.committed()
        grouped = {f.group: [g for g in files if g.group == f.group] for f in files}
        return {group: self._slices(group, some) for group, some in sorted(grouped.items())}

    def latest(self) -> dict[Group, Slice]:
        """Return the slice of each file group that a query reads."""
        pending = {i.name for i in self.timeline if not i.is_completed}
        return {group: _merged(slices, pending) for group, slices in self.groups().items()}

    def batches(self) -> list[int]:
        """List the committed batches; a batch that was committed twice is listed twice."""
        instants = {i.name: i for i in (*self.archived, *self.timeline)}
        return [i.batch for i in instants.values() if i.is_completed and i.batch]

    def _slices(self, group: Group, files: Iterable[File]) -> list[Slice]:
        bases = {f.instant: f for f in files if f.is_base}
        plans = (i for i in self.timeline if i.action is Action.COMPACTION and not i.is_completed)
        planned = {i.name for i in plans if any(f.group == group for f in i.plan)}
        starts = sorted(bases.keys() | planned)
        logs: dict[int, list[File]] = {start: [] for start in starts}
        for log in sorted((f for f in files if not f.is_base), key=lambda f: f.instant):
            completed_at = self.completed_at(log.instant)
            start = max((s for s in starts if s <= completed_at), default=log.instant)
            logs.setdefault(start, []).append(log)
            if start not in starts:
                insort(starts, start)
        return [Slice(start, bases.get(start), tuple(logs[start])) for start in sorted(logs)]


@lru_cache(maxsize=200_000)
def _table(
    timeline: tuple[Instant, ...], archived: frozenset[Instant], files: frozenset[File]
) -> Table:
    return Table(timeline, archived, files)


def table_of(state: State) -> Table:
    """The table as any process sees it now."""
    return _table(state.timeline, state.archived(), state.files)


@lru_cache(maxsize=200_000)
def latest(table: Table) -> dict[Group, Slice]:
    """Return ``Table.latest``, cached because a search calls it again and again."""
    return table.latest()


def rows_of(table: Table) -> frozenset[int]:
    """Return every row that a query finds."""
    return frozenset(row for one in latest(table).values() for row in one.rows)


def _attempt(file: File) -> int:
    return file.attempt


def _merged(slices: list[Slice], pending: set[int]) -> Slice:
    """Merge the newest slice with the one before it if a pending compaction has begun it."""
    newest = slices[-1]
    if len(slices) == 1 or newest.start not in pending or newest.base is not None:
        return newest
    older = slices[-2]
    return Slice(older.start, older.base, (*older.logs, *newest.logs))
