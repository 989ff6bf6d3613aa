"""Two processes on one table: the first pauses before one of its requests, and the second acts.

A case names the kind of table, the act of each process, the request, and the kind of pause. It is
deterministic, so that its name is enough to run it again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import TypeAlias
from uuid import UUID

import pytest

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.edit import WriterPending
from lakemark.config.table_properties import TableType
from lakemark.errors import (
    CorruptData,
    Fenced,
    InvalidConfig,
    OutcomeUnknown,
    Refused,
    Retriable,
    StorageUnavailable,
    WriteConflict,
)
from lakemark.model.action import Action
from lakemark.model.format_version import FormatVersion
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.table_writer import TableWriter
from lakemark.services.savepoint import delete_savepoint
from lakemark.storage import Storage
from tests.protocol import actors
from tests.protocol.actors import (
    A_HEARTBEAT_AND_MORE_S,
    A_LEASE_AND_MORE_S,
    Acknowledged,
    Index,
    open_writer,
)
from tests.protocol.clocked_store import ClockedStore
from tests.protocol.invariants import (
    Cursor,
    History,
    check_all,
    check_nothing_pending,
    check_nothing_pending_in_metadata,
    check_savepoints,
    check_seen,
)
from tests.protocol.stalled_store import Fault, StalledStore
from tests.protocol.virtual_time import VirtualTime, on_virtual_time
from tests.storages import SimulatedCrash
from tests.table_services import archived_names
from tests.tables import Row, write_files, writer


@dataclass(frozen=True, slots=True)
class Kind:
    """The kind of a table.

    Attributes:
        table_type, version: its type and its version.
        has_metadata: whether its writers maintain a metadata table.
        index: the index that the act ``index`` creates or drops.
        non_blocking: whether its writers are non-blocking.
    """

    table_type: TableType
    version: FormatVersion
    has_metadata: bool
    index: Index = Index.BLOOM_FILTERS
    non_blocking: bool = False

    def __str__(self) -> str:
        short = "mor" if self.table_type is TableType.MERGE_ON_READ else "cow"
        return "+".join(
            [
                f"{short}{self.version:d}",
                *(["metadata"] if self.has_metadata else []),
                *([] if self.index is Index.BLOOM_FILTERS else [self.index.value]),
                *(["non-blocking"] if self.non_blocking else []),
            ]
        )

    def open_writer(
        self, storage: Storage, clock: VirtualTime, *, blocks: bool = False
    ) -> TableWriter:
        """Open a writer of such a table, as a process does that has just started."""
        return open_writer(
            storage,
            clock,
            has_metadata=self.has_metadata,
            looks_up=self.index.looks_up,
            non_blocking=self.non_blocking and not blocks,
        )

    @property
    def other_version(self) -> FormatVersion:
        """A version that the table can be changed to on an object store."""
        if self.version is FormatVersion.V6:
            return FormatVersion.V9
        is_merge_on_read = self.table_type is TableType.MERGE_ON_READ
        return FormatVersion.V8 if is_merge_on_read else FormatVersion.V6


#: The kinds of tables whose bloom filters are created and dropped, and one for each other index.
_COW, _MOR, _V9 = TableType.COPY_ON_WRITE, TableType.MERGE_ON_READ, FormatVersion.V9
_OF_OTHER_INDEXES = (
    Kind(_MOR, _V9, True, Index.RECORD),
    Kind(_COW, _V9, True, Index.PARTITIONED_RECORD),
    Kind(_MOR, _V9, True, Index.SECONDARY),
    Kind(_COW, _V9, True, Index.EXPRESSION),
    Kind(_MOR, _V9, True, Index.COLUMN_STATS),
    Kind(_COW, _V9, True, Index.PARTITION_STATS),
)
KINDS = {
    str(kind): kind
    for kind in (
        *(
            Kind(table_type, version, has_metadata)
            for table_type in TableType
            for version in (FormatVersion.V6, FormatVersion.V9)
            for has_metadata in (False, True)
        ),
        *_OF_OTHER_INDEXES,
        Kind(TableType.MERGE_ON_READ, FormatVersion.V9, has_metadata=True, non_blocking=True),
    )
}


class Stall(Enum):
    """What happens while the first process is paused.

    Attributes:
        AT_ONCE: the second process acts at once.
        LEASE: the second acts after the lease of the first has expired.
        HEARTBEAT: the second acts after the heartbeat of the first has expired.
        ARCHIVAL: as HEARTBEAT; then others write until the act of the second is archived.
        LOST: the first is cut off for longer than a lease, and its request does not arrive.
        DONE: as LOST, but its request is carried out.
        DEATH: as ARCHIVAL; then the request of the first arrives, and the first never resumes.
    """

    AT_ONCE = "at-once"
    LEASE = "lease"
    HEARTBEAT = "heartbeat"
    ARCHIVAL = "archival"
    LOST = "lost"
    DONE = "done"
    DEATH = "death"

    @property
    def lasts_s(self) -> float:
        """How long the pause lasts before the second process begins."""
        if self is Stall.AT_ONCE:
            return 0.0
        is_long = self in (Stall.HEARTBEAT, Stall.ARCHIVAL, Stall.DEATH)
        return A_HEARTBEAT_AND_MORE_S if is_long else A_LEASE_AND_MORE_S

    @property
    def fault(self) -> Fault:
        """What happens to the requests of the first process."""
        known = {Stall.LOST: Fault.LOST, Stall.DONE: Fault.DONE, Stall.DEATH: Fault.DEATH}
        return known.get(self, Fault.NONE)


@dataclass(frozen=True, slots=True)
class Case:
    """One interleaving.

    Attributes:
        kind: the kind of the table.
        first: the act of the process that pauses.
        second: the act of the other process.
        stop: number of the request before which the first process pauses.
        stall: what happens during the pause.
    """

    kind: Kind
    first: str
    second: str
    stop: int
    stall: Stall

    def __str__(self) -> str:
        return f"{self.kind} {self.first} {self.second} {self.stop} {self.stall.value}"

    @classmethod
    def parse(cls, text: str) -> Case:
        """Parse the text that ``str`` returns."""
        kind, first, second, stop, stall = text.split()
        return cls(KINDS[kind], first, second, int(stop), Stall(stall))


# The acts of processes


@dataclass
class Process:
    """A process and its writer.

    Attributes:
        number: makes its rows different from those of other processes.
        to: the writer of the process.
        kind: the kind of the table.
        undoes: records which commits may be undone, once the process rolls back or restores.
        undoings: rollbacks and restores on the timeline when it began.
    """

    number: int
    to: TableWriter
    kind: Kind
    undoes: Callable[[History], None] | None = None
    undoings: frozenset[str] = frozenset()

    def rows(self) -> list[Row]:
        """The rows of a commit: a new value of an old key, and a key in a bucket without files.

        The processes that let time pass write to another partition. They only archive the act of
        the second process, and the first must conflict with that act, not with their commits.
        """
        value = 10 * self.number + 100
        if self.number in _PASSING_TIME:
            return [Row(f"e{self.number}", value, value, "east")]
        return [Row("a", value, value), Row(f"w{self.number}", value, value, "west")]

    def overwriting(self) -> list[Row]:
        """The rows of an overwrite: an old key with a lower ordering value, and a new key."""
        value = 10 * self.number + 105
        return [Row("a", 1, value), Row(f"n{self.number}", 1, value)]


#: Numbers of the processes that let time pass.
_PASSING_TIME = range(3, 6)

Act: TypeAlias = Callable[[Process], Acknowledged]


def _roll_back(process: Process) -> Acknowledged:
    newest = actors.commits(process.to)[-1].requested_at
    process.undoes = lambda history: history.maybe_undone.add(newest)
    return actors.roll_back(process.to, newest)


def _restore(process: Process) -> Acknowledged:
    target = actors.ingests(process.to)[-2].requested_at
    process.undoes = lambda history: history.note_maybe_undone(target)
    return actors.restore_to(process.to, target)


#: The acts of a pipeline, which recovers before it acts.
_OF_PIPELINES: Mapping[str, Act] = {
    "commit": lambda process: actors.commit_rows(process.to, process.rows()),
    "compaction": lambda process: actors.compact(process.to),
    "clean": lambda process: actors.clean_up(process.to),
    "archive": lambda process: actors.archive_instants(process.to),
    "metadata": lambda process: actors.maintain_metadata(process.to),
}
#: The acts of commands.
_OF_COMMANDS: Mapping[str, Act] = {
    "recovery": lambda process: actors.recover(process.to),
    "rollback": _roll_back,
    "restore": _restore,
    "savepoint": lambda process: actors.savepoint_newest(process.to),
    "upgrade": lambda process: actors.change_to(process.to, process.kind.other_version),
    "overwrite": lambda process: actors.overwrite(process.to, process.overwriting()),
    "deletion": lambda process: actors.delete_partition(process.to),
    "index": lambda process: actors.create_or_drop(process.to, process.kind.index),
    "checkpoint": lambda process: actors.set_checkpoint(
        process.to, KafkaCheckpoint("orders", {0: process.number})
    ),
}
ACTS: Mapping[str, Act] = {**_OF_PIPELINES, **_OF_COMMANDS}
#: Acts that leave no part of a commit in the table if they are refused.
_WRITES = ("commit", "overwrite", "deletion")
#: Acts that non-blocking writers do not support. They conflict with the commits of such writers.
_REPLACING = ("overwrite", "deletion")

#: Errors with which a process may end: they say to retry, or what to do first.
REFUSALS = (Retriable, Fenced, OutcomeUnknown, Refused)
#: Errors of a command if the named instant does not exist, or another engine may be writing.
OF_COMMANDS = {
    "rollback": InvalidConfig,
    "restore": InvalidConfig,
    "savepoint": InvalidConfig,
    "checkpoint": WriterPending,
}
#: Acts that delete the metadata table.
DELETING_METADATA = ("restore", "upgrade")


# The table at the start of a run


@dataclass(frozen=True, slots=True)
class StartingTable:
    """A table that has some commits, and the history of acknowledged results."""

    store: ClockedStore
    history: History


@cache
def starting_table(kind: Kind, has_dead: bool) -> StartingTable:
    """Create a table with something to compact, clean, archive, roll back and restore to.

    Args:
        kind: the kind of the table.
        has_dead: whether a writer died while it wrote to the table.
    """
    with on_virtual_time() as clock, _busy_metadata_table():
        random.seed(0)
        store, history = ClockedStore(clock), History()
        actors.create_table(
            store, clock, kind.table_type, kind.version, has_metadata=kind.has_metadata
        )
        to = kind.open_writer(store, clock)
        if kind.index.absent_statistics:
            actors.drop_statistics(to, kind.index.absent_statistics)
            to = kind.open_writer(store, clock)
        for number in range(7):
            rows = [Row("a", number, number), Row("b", number, number, "south")]
            history.note(actors.commit_rows(to, rows))
            if number == 3:
                history.note(actors.compact(to))
                history.note(actors.set_checkpoint(to, KafkaCheckpoint("orders", {0: 100})))
        if kind.index is Index.SECONDARY:
            actors.create_or_drop(to, Index.RECORD)
        if has_dead:
            write_files(to, [Row("a", 90, 90), Row("d", 90, 90, "west")])
            clock.sleep(A_HEARTBEAT_AND_MORE_S)
        return StartingTable(store, history)


@cache
def requests_of(kind: Kind, act: str) -> int:
    """Count the requests of an act while no other process acts."""
    base = starting_table(kind, act == "recovery")
    with _begun(base, str(kind)) as clock:
        store = StalledStore(base.store.copy(clock))
        process = _started(store, clock, kind, 1, act)
        store.begin()
        ACTS[act](process)
        return store.requests


# A run


def run(case: Case) -> None:
    """Check one interleaving.

    Raises:
        AssertionError: an invariant is broken.
    """
    base = starting_table(case.kind, "recovery" in (case.first, case.second))
    with _begun(base, str(case)) as clock:
        store = base.store.copy(clock)
        _Run(case, clock, store, base.history.copy(), [Cursor.of(store)]).check()


@dataclass
class _Run:
    """One run of a case.

    Attributes:
        case: the case that is run.
        clock: the clock of all processes.
        store: holds the table.
        history: the results acknowledged so far.
        cursors: the cursors of readers that read after each act.
        under_way: commits that the first process may have undone during its pause.
        late_file: a file that the last request of the first process wrote after the process had
            died; "" if there is none.
    """

    case: Case
    clock: VirtualTime
    store: ClockedStore
    history: History
    cursors: list[Cursor]
    under_way: set[str] = field(default_factory=set)
    late_file: str = ""

    def check(self) -> None:
        """Run the case, and check the table after each part."""
        self._run_first()
        self._look()
        self._recover()
        self._go_on()

    def _run_first(self) -> None:
        case, started = self.case, list[Process]()
        store = StalledStore(
            self.store, case.stop, lambda: self._meanwhile(started[0]), case.stall.fault
        )
        started.append(_started(store, self.clock, case.kind, 1, case.first))
        store.begin()
        has_succeeded = self._do(
            started[0], case.first, may_be_cut_off=case.stall.fault is not Fault.NONE
        )
        if has_succeeded:
            self.history.maybe_undone -= self.under_way
        if case.stall is Stall.DEATH and store.stopped_at is not None:
            self.late_file = store.stopped_at.partition(" ")[2]

    def _meanwhile(self, first: Process) -> None:
        self.clock.sleep(self.case.stall.lasts_s)
        before = set(self.history.maybe_undone)
        self._note_undoing(first)
        self.under_way = self.history.maybe_undone - before
        try:
            second = _started(self.store, self.clock, self.case.kind, 2, self.case.second)
        except REFUSALS:
            return
        self._do(second, self.case.second)
        self._read_on()
        if self.case.stall in (Stall.ARCHIVAL, Stall.DEATH):
            self._let_time_pass()
            self._read_on()

    def _read_on(self) -> None:
        """Have a reader read as far as it can; see ``_look``."""
        if not self._is_held_up():
            self.cursors.append(Cursor.of(self.store))

    def _is_held_up(self) -> bool:
        is_v6 = writer(self.store).table.version is FormatVersion.V6
        return is_v6 and bool(writer(self.store).table.timeline.pending())

    def _let_time_pass(self) -> None:
        """Have other processes commit until the act of the second process is archived."""
        for number in _PASSING_TIME:
            try:
                other = _started(self.store, self.clock, self.case.kind, number, "commit")
            except REFUSALS:
                return
            for act in ("checkpoint", *_OF_PIPELINES):  # archival keeps the newest checkpoint
                self._do(other, act)

    def _do(self, process: Process, act: str, *, may_be_cut_off: bool = False) -> bool:
        """Run one act, and return whether its caller learned that it succeeded."""
        process.undoings = _undoings(self.store)
        try:
            result = ACTS[act](process)
        except SimulatedCrash:
            self._doubt(process, act)
        except (InvalidConfig, WriterPending) as error:
            if type(error) is not OF_COMMANDS.get(act):
                raise
        except REFUSALS as error:
            if isinstance(error, StorageUnavailable) and not may_be_cut_off:
                raise
            if isinstance(error, WriteConflict) and act == "commit" and self._never_conflicts():
                raise
            if isinstance(error, OutcomeUnknown) or act not in _WRITES:
                self._doubt(process, act)
        else:
            self.history.note(result)
            return True
        return False

    def _never_conflicts(self) -> bool:
        acts = (self.case.first, self.case.second)
        return self.case.kind.non_blocking and not {*acts} & {*_REPLACING}

    def _doubt(self, process: Process, act: str) -> None:
        if act in ("commit", "checkpoint"):
            self.history.note_doubt(process.rows() if act == "commit" else [])
        if act in ("overwrite", "deletion"):
            rows = process.overwriting() if act == "overwrite" else []
            self.history.note_doubt(rows, overwrites=True)
        self._note_undoing(process)

    def _note_undoing(self, process: Process) -> None:
        """Record what may be undone if a rollback or restore was requested since it began."""
        if process.undoes is not None and _undoings(self.store) - process.undoings:
            process.undoes(self.history)

    def _look(self) -> None:
        """Check what readers see. In version 6, readers stop at an older pending instant.

        A process that lost the lock may have deleted a file of the next metadata table. Queries
        fail until the next start builds it again.
        """
        try:
            cursors = () if self._is_held_up() else self.cursors
            has_buckets = not self.case.kind.index.looks_up
            check_seen(self.store, self.history, cursors, has_buckets=has_buckets)
        except CorruptData as error:
            may_be_gone = self.case.first in DELETING_METADATA
            if not (may_be_gone and "builds the metadata table again" in str(error)):
                raise

    def _recover(self) -> None:
        """Have another process finish or undo what the two left, after their heartbeats expired."""
        self.clock.sleep(A_HEARTBEAT_AND_MORE_S)
        to = self._opened()
        if to.table.timeline.pending(Action.RESTORE):
            self.history.note(actors.restore_to(to, None))
            to = self._opened()
        for act in (actors.recover, actors.finish_compactions, actors.clean_up):
            self.history.note(act(to))
        for savepoint in to.table.store.load().pending(Action.SAVEPOINT):
            delete_savepoint(to.table.context, savepoint.requested_at)  # as its user would
        self._delete_late_file()
        check_nothing_pending(self.store)
        check_savepoints(self.store)
        self._check_all()

    def _delete_late_file(self) -> None:
        """Delete a data file that only storage lists, as an operator does after ``validate``.

        The process that wrote it is dead, and the rollback of its instant is archived by then.
        """
        found = metadata_differences(self._opened().table) if self.late_file else []
        if any((d.path, d.aspect, d.stored) == (self.late_file, "size", "absent") for d in found):
            self.store.delete([self.late_file])

    def _go_on(self) -> None:
        """Check that the next process can perform every act of a pipeline."""
        to = self._opened()
        for number in (8, 9):
            process = Process(number, to, self.case.kind)
            for act in ("recovery", *_OF_PIPELINES):
                self.history.note(ACTS[act](process))
        check_nothing_pending(self.store)
        check_nothing_pending_in_metadata(self.store)
        check_savepoints(self.store)
        self._check_all()

    def _check_all(self) -> None:
        has_buckets = not self.case.kind.index.looks_up
        check_all(self.store, self.history, self.cursors, has_buckets=has_buckets)

    def _opened(self) -> TableWriter:
        return self.case.kind.open_writer(self.store, self.clock)


@contextmanager
def _begun(base: StartingTable, seed: str) -> Iterator[VirtualTime]:
    """Run a block on a clock that continues that of the starting table.

    Random numbers depend only on ``seed``.
    """
    with on_virtual_time(base.store.clock.passed_ms) as clock, _busy_metadata_table():
        random.seed(seed)
        with _same_attempts():
            yield clock


@contextmanager
def _same_attempts() -> Iterator[None]:
    """Give attempts at planned services the same names each time, because file names have them."""
    with pytest.MonkeyPatch.context() as patch:
        name = lambda: UUID(int=random.getrandbits(128))  # noqa: E731
        patch.setattr("lakemark.transaction.attempt.uuid4", name)
        yield


@contextmanager
def _busy_metadata_table() -> Iterator[None]:
    """Make the services of the metadata table due after every second commit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lakemark.metadata.metadata_compaction.EVERY_DELTA_COMMITS", 2)
        yield


def _started(store: Storage, clock: VirtualTime, kind: Kind, number: int, act: str) -> Process:
    to = kind.open_writer(store, clock, blocks=act in _REPLACING)
    if act in _OF_PIPELINES:
        to.recover()
    return Process(number, to, kind)


def _undoings(store: Storage) -> frozenset[str]:
    """List the rollbacks and restores of the timeline and the history."""
    kinds = (Action.ROLLBACK, Action.RESTORE)
    active = {i.requested_at for i in writer(store).table.timeline.instants if i.action in kinds}
    names = {action.value for action in kinds}
    return frozenset(
        {*active, *(name for name, action in archived_names(store) if action in names)}
    )
