"""The programs of the processes of a history, which die, restart and handle errors."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import count

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.edit import WriterPending
from lakemark.config.table_properties import PROPERTIES_PATH, TableProperties
from lakemark.errors import Fenced, InvalidConfig, OutcomeUnknown, Refused, Retriable
from lakemark.model.action import COMMITS, Action
from lakemark.operations.open_table import OpenTable
from lakemark.operations.table_writer import TableWriter
from lakemark.read.queries import Incremental, Snapshot
from lakemark.storage import Storage
from lakemark.timeline.clock import UTC_CLOCK
from tests.protocol import actors
from tests.protocol.actors import Acknowledged, open_writer
from tests.protocol.virtual_time import VirtualTime, VirtualTimelineClock
from tests.simulation.base import SHARED
from tests.simulation.oracle import Attempt, Oracle
from tests.tables import Row, write_files_of

#: Errors after which a process restarts some time later. Any other error fails the history.
REFUSALS = (Retriable, Fenced, OutcomeUnknown, Refused)

REGIONS = ("north", "south")


class Role(StrEnum):
    """The role of a process."""

    WRITER = "writer"
    SERVICE = "service"
    ROLLBACK = "rollback"
    RESTORE = "restore"
    SAVEPOINT = "savepoint"
    CHECKPOINT = "checkpoint"
    READER = "reader"
    FOLLOWER = "follower"
    TRAVELLER = "traveller"


@dataclass
class World:
    """The objects that all processes of a history share.

    Attributes:
        time: their clock.
        oracle: records the results of their acts.
        has_metadata: whether they maintain a metadata table.
        note: adds a line to the trace.
        values: generates values that no row has yet.
    """

    time: VirtualTime
    oracle: Oracle
    has_metadata: bool
    note: Callable[[str, str, str], None]
    values: count[int]


@dataclass
class Program:
    """One process.

    Attributes:
        world: the objects that it shares with the other processes.
        role: its role.
        name: its name.
        storage: its connection to the table's root.
        draw: the source of its random choices.
    """

    world: World
    role: Role
    name: str
    storage: Storage
    draw: random.Random

    def run(self, acts: int) -> None:
        """Perform this many acts; an act that is refused counts."""
        begun = _ROLES[self.role](self)
        for _ in range(acts):
            try:
                begun()
            except REFUSALS as error:
                self._note("refused", error)
                begun = _ROLES[self.role](self)
                self.world.time.sleep(self.draw.choice((0.1, 1.0, 5.0, 30.0)))

    def _note(self, what: str, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        self.world.note(self.name, what, text)

    def opened(self) -> TableWriter:
        """Open a writer that has recovered nothing yet."""
        return open_writer(self.storage, self.world.time, has_metadata=self.world.has_metadata)

    def table(self) -> OpenTable:
        """Open the table for reading."""
        properties = TableProperties.parse(self.storage.read(PROPERTIES_PATH))
        clock = VirtualTimelineClock(UTC_CLOCK.zone, virtual=self.world.time)
        return OpenTable(self.storage, properties, clock=clock)

    def record(self, what: str, result: Acknowledged) -> None:
        """Record the result of an act that succeeded."""
        self.world.note(self.name, what, f"returned {result}")
        self.world.oracle.note(result)


# Pipelines


def _pipeline(program: Program, acts: dict[Callable[[Program, TableWriter], None], int]) -> Act:
    """Create a process that recovers before its first act, and after each refusal."""
    opened: list[TableWriter] = []

    def act() -> None:
        if not opened:
            to = program.opened()
            program.record("recover", actors.recover(to))
            opened.append(to)
        chosen = program.draw.choices([*acts], [*acts.values()])[0]
        chosen(program, opened[0])

    return act


def _commit(program: Program, to: TableWriter) -> None:
    oracle = program.world.oracle
    attempt = oracle.begin(program.name, _rows(program))
    try:
        _write(program, to, attempt)
    except REFUSALS as error:
        if not isinstance(error, OutcomeUnknown):
            oracle.fail(attempt)
        with suppress(Retriable):  # as a stream does
            to.abandon()
        raise


def _write(program: Program, to: TableWriter, attempt: Attempt) -> None:
    context = to.begin()
    attempt.requested_at = context.instant
    done = to.commit(write_files_of(to, context, attempt.rows), {})
    program.world.oracle.acknowledge(attempt, done.requested_at, done.completed_at or "")
    program.world.note(program.name, "commit", f"acknowledged {attempt}")


def _rows(program: Program) -> tuple[Row, ...]:
    """Create rows of a new value: one with a key of its own, and some with shared keys."""
    value, draw = next(program.world.values), program.draw
    own = Row(f"k{value}", value, value, draw.choice(REGIONS))
    shared = draw.sample([*SHARED], draw.choice((0, 1, 2)))
    return (own, *(Row(key, value, value, SHARED[key]) for key in shared))


def _act(act: Callable[[TableWriter], Acknowledged]) -> Callable[[Program, TableWriter], None]:
    def run(program: Program, to: TableWriter) -> None:
        program.world.note(program.name, act.__name__, "begins")
        program.record(act.__name__, act(to))

    return run


_SERVICES = {
    _act(actors.compact): 3,
    _act(actors.clean_up): 3,
    _act(actors.archive_instants): 3,
    _act(actors.maintain_metadata): 1,
    _act(actors.recover): 1,
}


# Commands


def _command(program: Program, act: Callable[[Program, TableWriter], None]) -> Act:
    """Create a process that runs for one act; the instant that it names may not exist."""

    def run() -> None:
        program.world.time.sleep(program.draw.choice((1.0, 10.0, 60.0)))
        try:
            act(program, program.opened())
        except (InvalidConfig, IndexError, WriterPending) as error:
            program._note("named nothing", error)

    return run


def _roll_back(program: Program, to: TableWriter) -> None:
    oracle = program.world.oracle
    name = list(to.table.timeline.completed(*COMMITS))[1:][-1].requested_at  # never the first
    with oracle.undoing(lambda requested_at: requested_at == name, is_restore=False):
        program.record(f"roll back {name}", actors.roll_back(to, name))


def _restore(program: Program, to: TableWriter) -> None:
    oracle = program.world.oracle
    pending = to.table.timeline.pending()
    target = None if any(i.action == "restore" for i in pending) else _target(program, to)
    with oracle.undoing(lambda requested_at: True, is_restore=True):
        program.world.note(program.name, "restore", f"to {target}")
        program.record(f"restore to {target}", actors.restore_to(to, target))


def _target(program: Program, to: TableWriter) -> str:
    return program.draw.choice(actors.ingests(to)[-3:]).requested_at


def _savepoint(program: Program, to: TableWriter) -> None:
    act = program.draw.choice((actors.savepoint_newest, actors.delete_oldest_savepoint))
    program.record(act.__name__, act(to))


def _set_checkpoint(program: Program, to: TableWriter) -> None:
    oracle = program.world.oracle
    checkpoint = KafkaCheckpoint("orders", {0: next(program.world.values)})
    attempt = oracle.begin_checkpoint(program.name, checkpoint)
    done = actors.set_checkpoint(to, checkpoint).commit
    assert done is not None
    oracle.acknowledge(attempt, done.requested_at, done.completed_at)
    program.world.note(program.name, "checkpoint", f"set {checkpoint} at {done.requested_at}")


# Readers


def _reader(program: Program) -> Act:
    """Create a process that runs snapshot queries."""

    def read() -> None:
        oracle = program.world.oracle
        program.world.time.sleep(program.draw.choice((0.1, 1.0, 20.0)))
        began = oracle.now()
        found = _contents(program.table())
        seen = oracle.check_snapshot(found, began)
        program.world.note(program.name, "snapshot", f"sees {sorted(seen)}")

    return read


def _traveller(program: Program) -> Act:
    """Create a process that runs time travel queries."""

    def read() -> None:
        oracle = program.world.oracle
        program.world.time.sleep(program.draw.choice((0.1, 1.0, 20.0)))
        began = oracle.now()
        table = program.table()
        commits = table.timeline.completed(*COMMITS)
        retained = [
            i
            for i in commits[-4:]
            if i.requested_at > _last_clean(table) and not _omits_rows(table, i.requested_at)
        ]
        if not retained:
            return
        name = program.draw.choice(retained).requested_at
        try:
            found = _contents(table, name)
        except InvalidConfig as error:  # not final, or cleaned
            program._note(f"as of {name}", error)
            return
        if name < _last_clean(program.table()):
            return
        program.world.note(program.name, f"as of {name}", f"finds {sorted(found)}")
        oracle.check_snapshot(found, began, name)

    return read


def _omits_rows(table: OpenTable, requested_at: str) -> bool:
    """Whether a commit up to this time has logs in the slice of a later compaction.

    Queries as of this time omit these logs, as in Apache Hudi.
    """
    timeline = table.timeline
    compactions = [*timeline.pending(Action.COMPACTION), *timeline.completed(Action.COMMIT)]
    later = [i.requested_at for i in compactions if i.requested_at > requested_at]
    return any(
        commit.requested_at <= requested_at and min(later) < (commit.completed_at or "")
        for commit in timeline.completed(Action.DELTA_COMMIT)
        if later
    )


def _last_clean(table: OpenTable) -> str:
    """Return the time of the newest clean, which may still be deleting files.

    Here a clean retains a number of file versions, and records no time before which states are
    incomplete. So a query as of an instant before the clean is not refused, and lacks the deleted
    files.
    """
    cleans = (i.requested_at for i in table.timeline.instants if i.action is Action.CLEAN)
    return max(cleans, default="")


def _follower(program: Program) -> Act:
    """Create a process that runs incremental queries, each from the end of the last."""
    seen: set[str] = set()
    cursor = [""]

    def read() -> None:
        program.world.time.sleep(program.draw.choice((0.1, 1.0, 20.0)))
        table = program.table()
        commits = table.timeline.completed(*COMMITS)
        newest = max(i.completed_at or "" for i in commits)
        if newest > cursor[0]:
            query = Incremental(cursor[0] or "earliest", newest)
            try:
                scan = table.scan(query, ["id"])
            except InvalidConfig as error:  # version 6: an older instant is pending
                program._note(f"after {cursor[0]}", error)
                return
            rows = scan.to_reader(1).read_all().to_pylist()
            seen.update(row["id"] for row in rows)
            program.world.note(
                program.name, f"after {cursor[0]}", f"to {newest} finds {sorted(seen)}"
            )
            cursor[0] = newest
        program.world.oracle.check_behind(seen, cursor[0])

    return read


def _contents(table: OpenTable, as_of: str | None = None) -> dict[str, tuple[int, int]]:
    found = table.scan(Snapshot(as_of), ["id", "ts", "v"]).to_reader(1).read_all().to_pylist()
    assert len({row["id"] for row in found}) == len(found), f"a key is there twice: {found}"
    return {row["id"]: (row["ts"], row["v"]) for row in found}


Act = Callable[[], None]

_ROLES: dict[Role, Callable[[Program], Act]] = {
    Role.WRITER: lambda program: _pipeline(program, {_commit: 10, **_SERVICES}),
    Role.SERVICE: lambda program: _pipeline(program, _SERVICES),
    Role.ROLLBACK: lambda program: _command(program, _roll_back),
    Role.RESTORE: lambda program: _command(program, _restore),
    Role.SAVEPOINT: lambda program: _command(program, _savepoint),
    Role.CHECKPOINT: lambda program: _command(program, _set_checkpoint),
    Role.READER: _reader,
    Role.FOLLOWER: _follower,
    Role.TRAVELLER: _traveller,
}
