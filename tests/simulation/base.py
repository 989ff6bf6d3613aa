"""The tables that histories start with, created once for each kind of table and then copied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from lakemark.config.table_properties import TableType
from lakemark.model.format_version import FormatVersion
from lakemark.operations.table_writer import TableWriter
from tests.protocol import actors
from tests.protocol.clocked_store import ClockedStore
from tests.protocol.virtual_time import VirtualTime
from tests.simulation.scheduler import Scheduler
from tests.simulation.threads import simulated
from tests.tables import Row, commit

#: Keys that commits share, with their partitions.
SHARED = {"a": "north", "b": "north", "c": "south", "d": "south"}


@dataclass(frozen=True, slots=True)
class Kind:
    """The kind of a table.

    Attributes:
        table_type: copy-on-write or merge-on-read.
        version: the version of its format.
        has_metadata: whether it has a metadata table.
        is_old: whether it was compacted, cleaned and archived before the history begins.
    """

    table_type: TableType
    version: FormatVersion
    has_metadata: bool
    is_old: bool

    def __str__(self) -> str:
        age = "old" if self.is_old else "new"
        with_metadata = " with a metadata table" if self.has_metadata else ""
        return f"{age} {self.table_type.value} version {self.version:d}{with_metadata}"


@dataclass(frozen=True, slots=True)
class FirstCommit:
    """A commit of the table before the history.

    Attributes:
        rows: its rows; the first has a key that no other commit has.
        requested_at: the requested time of its instant.
        completed_at: its completion time.
    """

    rows: tuple[Row, ...]
    requested_at: str
    completed_at: str


@dataclass(frozen=True, slots=True)
class Base:
    """A table before a history.

    Attributes:
        store: the store that holds it; each history works on a copy.
        passed_ms: the time that has passed on the clock.
        commits: its commits of rows, oldest first.
        rewritten: requested times of its compactions.
    """

    store: ClockedStore
    passed_ms: int
    commits: Sequence[FirstCommit]
    rewritten: tuple[str, ...]


@cache
def base_of(kind: Kind) -> Base:
    """Return the table that histories of this kind start with; the same for each seed."""
    scheduler = Scheduler("base")
    with simulated(scheduler, f"base {kind}"):
        return _Builder(kind, scheduler.time).build()


class _Builder:
    def __init__(self, kind: Kind, time: VirtualTime) -> None:
        self._kind, self._time = kind, time
        self._store = ClockedStore(time)
        self._commits: list[FirstCommit] = []
        self._rewritten: list[str] = []

    def build(self) -> Base:
        kind = self._kind
        actors.create_table(
            self._store, self._time, kind.table_type, kind.version, has_metadata=kind.has_metadata
        )
        self._commit(*SHARED)
        if kind.is_old:
            self._grow_old()
        return Base(self._store, self._time.passed_ms, self._commits, tuple(self._rewritten))

    def _grow_old(self) -> None:
        """Commit, compact and archive until instants of each action are active and archived."""
        for _ in range(3):
            self._commit("a", "c")
            self._rewritten += actors.compact(self._opened()).rewritten
            actors.clean_up(self._opened())
        for act in (actors.archive_instants, actors.maintain_metadata):
            act(self._opened())
        self._commit("b")

    def _commit(self, *shared: str) -> None:
        value = len(self._commits) + 1
        own = Row(f"first{value}", value, value)
        rows = (own, *(Row(key, value, value, SHARED[key]) for key in shared))
        to = self._opened()
        to.recover()
        done = commit(to, rows)
        self._commits.append(FirstCommit(rows, done.requested_at, done.completed_at or ""))

    def _opened(self) -> TableWriter:
        return actors.open_writer(self._store, self._time, has_metadata=self._kind.has_metadata)
