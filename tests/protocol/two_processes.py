"""Two processes on one table: the first stands still before one of its requests, the second acts.

A case names the table, what each does, the request, and what happens until the first goes on. It
is deterministic, so that its name is enough to run it again.
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
    """Of a table."""

    table_type: TableType
    version: FormatVersion
    has_metadata: bool

    def __str__(self) -> str:
        short = "mor" if self.table_type is TableType.MERGE_ON_READ else "cow"
        return f"{short}{self.version:d}{'+metadata' if self.has_metadata else ''}"

    @property
    def other_version(self) -> FormatVersion:
        """One that the table can be taken to on an object store."""
        if self.version is FormatVersion.V6:
            return FormatVersion.V9
        is_merge_on_read = self.table_type is TableType.MERGE_ON_READ
        return FormatVersion.V8 if is_merge_on_read else FormatVersion.V6


KINDS = {
    str(kind): kind
    for table_type in TableType
    for version in (FormatVersion.V6, FormatVersion.V9)
    for has_metadata in (False, True)
    for kind in (Kind(table_type, version, has_metadata),)
}


class Stall(Enum):
    """What happens while the first process stands still.

    Attributes:
        AT_ONCE: the second acts.
        LEASE: the same, when the first has lost the lock.
        HEARTBEAT: the same, when the first counts as dead.
        ARCHIVAL: the same; then the table goes on until that is archived.
        LOST: the first is cut off for longer than a lease, and its request does not arrive.
        DONE: the same, and its request is carried out.
        DEATH: as ARCHIVAL; then the request of the first arrives, and the first never goes on.
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
        """Until the second process begins."""
        if self is Stall.AT_ONCE:
            return 0.0
        is_long = self in (Stall.HEARTBEAT, Stall.ARCHIVAL, Stall.DEATH)
        return A_HEARTBEAT_AND_MORE_S if is_long else A_LEASE_AND_MORE_S

    @property
    def fault(self) -> Fault:
        """What becomes of the requests of the first."""
        known = {Stall.LOST: Fault.LOST, Stall.DONE: Fault.DONE, Stall.DEATH: Fault.DEATH}
        return known.get(self, Fault.NONE)


@dataclass(frozen=True, slots=True)
class Case:
    """One interleaving.

    Attributes:
        kind: of the table.
        first: what the process does that stands still.
        second: what the other does.
        stop: number of the first's request before which it stands still.
        stall: what happens then.
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
        """What ``str`` made."""
        kind, first, second, stop, stall = text.split()
        return cls(KINDS[kind], first, second, int(stop), Stall(stall))


# What processes do


@dataclass
class Process:
    """One of them.

    Attributes:
        number: makes its rows different from those of others.
        to: its writer.
        kind: of the table.
        undoes: notes what may be undone, once the process undoes something.
        undoings: rollbacks and restores that were there when it began.
    """

    number: int
    to: TableWriter
    kind: Kind
    undoes: Callable[[History], None] | None = None
    undoings: frozenset[str] = frozenset()

    def rows(self) -> list[Row]:
        """Of a commit: a new value of an old key, and one in a bucket that has no file group.

        Those who let time pass write elsewhere: what the second did is to be archived, and no
        conflict with a later commit is to stand in for a conflict with that.
        """
        value = 10 * self.number + 100
        if self.number in _PASSING_TIME:
            return [Row(f"e{self.number}", value, value, "east")]
        return [Row("a", value, value), Row(f"w{self.number}", value, value, "west")]


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


#: Those of a pipeline, which recovers before.
_OF_PIPELINES: Mapping[str, Act] = {
    "commit": lambda process: actors.commit_rows(process.to, process.rows()),
    "compaction": lambda process: actors.compact(process.to),
    "clean": lambda process: actors.clean_up(process.to),
    "archive": lambda process: actors.put_away(process.to),
    "metadata": lambda process: actors.maintain_metadata(process.to),
}
#: Those of commands.
_OF_COMMANDS: Mapping[str, Act] = {
    "recovery": lambda process: actors.recover(process.to),
    "rollback": _roll_back,
    "restore": _restore,
    "savepoint": lambda process: actors.keep_newest(process.to),
    "upgrade": lambda process: actors.change_to(process.to, process.kind.other_version),
    "checkpoint": lambda process: actors.set_checkpoint(
        process.to, KafkaCheckpoint("orders", {0: process.number})
    ),
}
ACTS: Mapping[str, Act] = {**_OF_PIPELINES, **_OF_COMMANDS}

#: Refusals with which a process may end; it may be called again, or says what to do first.
REFUSALS = (Retriable, Fenced, OutcomeUnknown, Refused)
#: What a command was to undo or keep is not there, or another engine may be at work.
OF_COMMANDS = {
    "rollback": InvalidConfig,
    "restore": InvalidConfig,
    "savepoint": InvalidConfig,
    "checkpoint": WriterPending,
}
#: Acts that delete the metadata table.
DELETING_METADATA = ("restore", "upgrade")


# A table for them


@dataclass(frozen=True, slots=True)
class Laid:
    """A table with a past, and what is known of it."""

    store: ClockedStore
    history: History


@cache
def laid(kind: Kind, has_dead: bool) -> Laid:
    """There is something to compact, clean, archive, roll back and restore to.

    Args:
        kind: of the table.
        has_dead: whether a writer has died that wrote to it.
    """
    with on_virtual_time() as clock, _busy_metadata_table():
        random.seed(0)
        store, history = ClockedStore(clock), History()
        actors.lay_down(store, clock, kind.table_type, kind.version, has_metadata=kind.has_metadata)
        to = open_writer(store, clock, has_metadata=kind.has_metadata)
        for number in range(7):
            rows = [Row("a", number, number), Row("b", number, number, "south")]
            history.note(actors.commit_rows(to, rows))
            if number == 3:
                history.note(actors.compact(to))
                history.note(actors.set_checkpoint(to, KafkaCheckpoint("orders", {0: 100})))
        if has_dead:
            write_files(to, [Row("a", 90, 90), Row("d", 90, 90, "west")])
            clock.sleep(A_HEARTBEAT_AND_MORE_S)
        return Laid(store, history)


@cache
def requests_of(kind: Kind, act: str) -> int:
    """How many the act has when nobody comes in between."""
    base = laid(kind, act == "recovery")
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
        AssertionError: an invariant does not hold.
    """
    base = laid(case.kind, "recovery" in (case.first, case.second))
    with _begun(base, str(case)) as clock:
        store = base.store.copy(clock)
        _Run(case, clock, store, base.history.copy(), [Cursor.of(store)]).check()


@dataclass
class _Run:
    """One run of a case.

    Attributes:
        case: it.
        clock: of all.
        store: the table.
        history: what callers were told so far.
        cursors: of readers that look whenever something is done.
        under_way: commits that the first process may have undone as it stood still.
        late_file: of the first process; "" unless that died and its last request wrote a file.
    """

    case: Case
    clock: VirtualTime
    store: ClockedStore
    history: History
    cursors: list[Cursor]
    under_way: set[str] = field(default_factory=set)
    late_file: str = ""

    def check(self) -> None:
        """All of it."""
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
        is_told = self._do(
            started[0], case.first, may_be_cut_off=case.stall.fault is not Fault.NONE
        )
        if is_told:
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
        """A reader comes as far as it may; see ``_look``."""
        if not self._is_held_up():
            self.cursors.append(Cursor.of(self.store))

    def _is_held_up(self) -> bool:
        is_v6 = writer(self.store).table.version is FormatVersion.V6
        return is_v6 and bool(writer(self.store).table.timeline.pending())

    def _let_time_pass(self) -> None:
        """Until what was done is archived."""
        for number in _PASSING_TIME:
            try:
                other = _started(self.store, self.clock, self.case.kind, number, "commit")
            except REFUSALS:
                return
            for act in ("checkpoint", *_OF_PIPELINES):  # archival keeps the newest checkpoint
                self._do(other, act)

    def _do(self, process: Process, act: str, *, may_be_cut_off: bool = False) -> bool:
        """One act; whether its caller is told that it is done."""
        process.undoings = _undoings(self.store)
        try:
            told = ACTS[act](process)
        except SimulatedCrash:
            self._doubt(process, act)
        except (InvalidConfig, WriterPending) as error:
            if type(error) is not OF_COMMANDS.get(act):
                raise
        except REFUSALS as error:
            if isinstance(error, StorageUnavailable) and not may_be_cut_off:
                raise
            if isinstance(error, OutcomeUnknown) or act != "commit":
                self._doubt(process, act)
        else:
            self.history.note(told)
            return True
        return False

    def _doubt(self, process: Process, act: str) -> None:
        if act in ("commit", "checkpoint"):
            self.history.note_doubt(process.rows() if act == "commit" else [])
        self._note_undoing(process)

    def _note_undoing(self, process: Process) -> None:
        """If a rollback or restore was requested since the process began, it may be its own."""
        if process.undoes is not None and _undoings(self.store) - process.undoings:
            process.undoes(self.history)

    def _look(self) -> None:
        """In version 6 nobody reads on while an older instant is pending.

        A process that lost the lock may have deleted a file of the next metadata table. Queries
        fail until the next start makes it again.
        """
        try:
            check_seen(self.store, self.history, () if self._is_held_up() else self.cursors)
        except CorruptData as error:
            may_be_gone = self.case.first in DELETING_METADATA
            if not (may_be_gone and "builds the metadata table again" in str(error)):
                raise

    def _recover(self) -> None:
        """Others end what the two have left, once these are dead."""
        self.clock.sleep(A_HEARTBEAT_AND_MORE_S)
        to = self._opened()
        if to.table.timeline.pending(Action.RESTORE):
            self.history.note(actors.restore_to(to, None))
            to = self._opened()
        for act in (actors.recover, actors.finish_compactions, actors.clean_up):
            self.history.note(act(to))
        for savepoint in to.table.store.load().pending(Action.SAVEPOINT):
            delete_savepoint(to.table.context, savepoint.requested_at)  # by who asked for it
        self._delete_late_file()
        check_nothing_pending(self.store)
        check_savepoints(self.store)
        check_all(self.store, self.history, self.cursors)

    def _delete_late_file(self) -> None:
        """The operator deletes a data file that only storage has, as ``validate`` reports it.

        The process that wrote it is dead, and the rollback of its instant is archived by then.
        """
        found = metadata_differences(self._opened().table) if self.late_file else []
        if any((d.path, d.aspect, d.stored) == (self.late_file, "size", "absent") for d in found):
            self.store.delete([self.late_file])

    def _go_on(self) -> None:
        """The next process can do all that processes do."""
        to = self._opened()
        for number in (8, 9):
            process = Process(number, to, self.case.kind)
            for act in ("recovery", *_OF_PIPELINES):
                self.history.note(ACTS[act](process))
        check_nothing_pending(self.store)
        check_nothing_pending_in_metadata(self.store)
        check_savepoints(self.store)
        check_all(self.store, self.history, self.cursors)

    def _opened(self) -> TableWriter:
        return open_writer(self.store, self.clock, has_metadata=self.case.kind.has_metadata)


@contextmanager
def _begun(base: Laid, seed: str) -> Iterator[VirtualTime]:
    """Time from the end of the table's past on, and the same random numbers each time."""
    with on_virtual_time(base.store.clock.passed_ms) as clock, _busy_metadata_table():
        random.seed(seed)
        with _same_attempts():
            yield clock


@contextmanager
def _same_attempts() -> Iterator[None]:
    """Attempts at planned services get the same names each time: names of files depend on them."""
    with pytest.MonkeyPatch.context() as patch:
        name = lambda: UUID(int=random.getrandbits(128))  # noqa: E731
        patch.setattr("lakemark.transaction.attempt.uuid4", name)
        yield


@contextmanager
def _busy_metadata_table() -> Iterator[None]:
    """Its services are due after every second commit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lakemark.metadata.metadata_compaction.EVERY_DELTA_COMMITS", 2)
        yield


def _started(store: Storage, clock: VirtualTime, kind: Kind, number: int, act: str) -> Process:
    to = open_writer(store, clock, has_metadata=kind.has_metadata)
    if act in _OF_PIPELINES:
        to.recover()
    return Process(number, to, kind)


def _undoings(store: Storage) -> frozenset[str]:
    """Rollbacks and restores, as far as they are known."""
    kinds = (Action.ROLLBACK, Action.RESTORE)
    active = {i.requested_at for i in writer(store).table.timeline.instants if i.action in kinds}
    names = {action.value for action in kinds}
    return frozenset(
        {*active, *(name for name, action in archived_names(store) if action in names)}
    )
