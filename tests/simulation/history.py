"""One history: its processes, its faults and its schedule are drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count

from lakemark.config.table_properties import TableType
from lakemark.errors import Refused
from lakemark.model.action import Action
from lakemark.model.format_version import FormatVersion
from lakemark.operations.table_writer import TableWriter
from lakemark.services.savepoint import delete_savepoint
from tests.protocol import actors
from tests.protocol.actors import Acknowledged
from tests.protocol.invariants import (
    check_buckets,
    check_checkpoint,
    check_known,
    check_metadata,
    check_nothing_pending,
    check_nothing_pending_in_metadata,
    check_savepoints,
)
from tests.simulation.base import Kind, base_of
from tests.simulation.faulty_store import Fault, Faults, FaultyStore, Step, StoreTime
from tests.simulation.oracle import Oracle
from tests.simulation.processes import Program, Role, World
from tests.simulation.scheduler import Killed, Process, Scheduler
from tests.simulation.threads import simulated
from tests.tables import Row, contents, write_files_of

#: How likely a role is in a history, and how many processes may have it.
_ROLES: Mapping[Role, tuple[float, int]] = {
    Role.WRITER: (1.0, 3),
    Role.SERVICE: (0.6, 2),
    Role.ROLLBACK: (0.2, 1),
    Role.RESTORE: (0.15, 1),
    Role.SAVEPOINT: (0.15, 1),
    Role.CHECKPOINT: (0.15, 1),
    Role.READER: (0.5, 1),
    Role.FOLLOWER: (0.4, 1),
    Role.TRAVELLER: (0.2, 1),
}
#: How likely a fault is in a history; its rate is drawn, too.
_FAULTS: Mapping[Fault, float] = {
    Fault.PAUSE: 0.6,
    Fault.SLOW: 0.3,
    Fault.KILL: 0.4,
    Fault.CUT_OFF: 0.3,
    Fault.LOST: 0.3,
    Fault.UNANSWERED: 0.3,
    Fault.LATE: 0.3,
    Fault.REPEATED: 0.15,
    Fault.SPREAD: 0.2,
}
#: The acts of the process that follows the history.
_ACTS = (
    actors.recover,
    actors.compact,
    actors.clean_up,
    actors.archive_instants,
    actors.maintain_metadata,
)
_RATES = (0.002, 0.005, 0.01, 0.03)
_MOST_LIVES = 3
_VERSION_CHANGES = 0.15
_A_HEARTBEAT_MS = 121_000


@dataclass(frozen=True, slots=True)
class Drawn:
    """The parameters of a history.

    Attributes:
        seed: the seed of everything that is drawn.
        kind: the kind of the table.
        processes: the role of each process, and how often it acts.
        rates: the rates of the faults.
        stickiness: how likely a process continues when another could run.
        version: the version that the table is changed to at the end; None to keep its own.
    """

    seed: int
    kind: Kind
    processes: tuple[tuple[Role, int], ...]
    rates: Mapping[Fault, float]
    stickiness: float
    version: FormatVersion | None

    @classmethod
    def of(cls, seed: int) -> Drawn:
        """Draw the parameters from a seed."""
        draw = random.Random(f"{seed} history")
        roles = [
            (role, draw.randint(2, 4))
            for role, (likely, most) in _ROLES.items()
            for _ in range(draw.randint(1, most) if draw.random() < likely else 0)
        ]
        kind = Kind(
            draw.choice([*TableType]),
            draw.choice((FormatVersion.V6, FormatVersion.V9, FormatVersion.V9)),
            has_metadata=draw.random() < 0.35,
            is_old=draw.random() < 0.5,
        )
        rates = {f: draw.choice(_RATES) for f, likely in _FAULTS.items() if draw.random() < likely}
        return cls(
            seed,
            kind,
            tuple(roles),
            rates,
            draw.choice((0.5, 0.9, 0.97, 0.99)),
            draw.choice((FormatVersion.V6, FormatVersion.V8, FormatVersion.V9))
            if draw.random() < _VERSION_CHANGES
            else None,
        )

    def __str__(self) -> str:
        roles = ", ".join(f"{role} x{acts}" for role, acts in self.processes)
        faults = ", ".join(f"{fault} {rate:g}" for fault, rate in self.rates.items())
        change = f"; to version {self.version:d}" if self.version else ""
        return f"seed {self.seed}: {self.kind}; {roles}; {faults or 'no faults'}{change}"


class History:
    """The run of one history.

    Attributes:
        drawn: its parameters.
        trace: all steps so far.
        steps: how many choices the scheduler made.
    """

    def __init__(self, drawn: Drawn) -> None:
        self.drawn = drawn
        self._scheduler = Scheduler(f"{drawn.seed} schedule", drawn.stickiness)
        self._base = base_of(drawn.kind)
        self._store = self._base.store.copy(StoreTime(self._scheduler))
        self._faults = Faults(dict(drawn.rates))
        self._oracle = Oracle()
        self._world = World(
            self._scheduler.time,
            self._oracle,
            drawn.kind.has_metadata,
            self._note,
            count(len(self._base.commits) + 1),
        )

    @property
    def trace(self) -> list[Step]:
        """All steps so far."""
        return self._faults.trace

    @property
    def steps(self) -> int:
        """How many choices the scheduler made."""
        return self._scheduler.steps

    def run(self) -> None:
        """Run the history to its end.

        Raises:
            AssertionError: a reader saw rows that it must not see, or the table is broken.
        """
        with simulated(self._scheduler, f"{self.drawn.seed} identifiers"):
            self._remember_base()
            for number, (role, acts) in enumerate(self.drawn.processes):
                self._start(f"{role}-{number}", role, acts)
            self._scheduler.run()
            self._faults.rates.clear()
            self._recover()
            self._go_on()

    def _remember_base(self) -> None:
        """Set the clock to the end of the base, and record its commits."""
        self._scheduler.time.passed_ms = self._base.passed_ms
        for one in self._base.commits:
            attempt = self._oracle.begin("base", one.rows)
            self._oracle.acknowledge(attempt, one.requested_at, one.completed_at)
        self._oracle.note(Acknowledged(rewritten=self._base.rewritten))

    def _start(self, name: str, role: Role, acts: int, times: int = 1) -> None:
        """Start a process; if it is killed, start another one like it some time later."""
        process = Process(name)
        storage = FaultyStore(self._store, self._scheduler, self._faults, process)
        draw = random.Random(f"{self.drawn.seed} {name}")
        program = Program(self._world, role, name, storage, draw)

        def run() -> None:
            try:
                program.run(acts)
            except Killed:
                if times < _MOST_LIVES and not self._scheduler.has_failed:
                    delay_ms = draw.choice((1_000, 30_000, 100_000, 200_000))
                    at_ms = self._scheduler.time.passed_ms + delay_ms
                    begin_again = partial(self._start, f"{name}*", role, acts, times + 1)
                    self._scheduler.at(at_ms, begin_again)
            finally:
                process.is_killed = True  # with its threads

        self._scheduler.start(process, run)

    def _recover(self) -> None:
        """Have another process finish or undo the instants of dead processes."""
        self._scheduler.move_clock_to(self._scheduler.time.passed_ms + 2 * _A_HEARTBEAT_MS)
        self._store.delete(sorted(self._faults.brought_back))
        to = self._opened()
        # Requests of several restores may land late. An operator finishes one after the other.
        for _ in to.table.timeline.pending(Action.RESTORE):
            with suppress(Refused):  # it appeared after a clean, and was removed
                self._oracle.note(actors.restore_to(to, None))
            to = self._opened()
        for act in (actors.recover, actors.finish_compactions, actors.clean_up):
            self._note("end", act.__name__, "")
            self._oracle.note(act(to))
        for savepoint in to.table.store.load().pending(Action.SAVEPOINT):
            delete_savepoint(to.table.context, savepoint.requested_at)
        self._check()
        check_metadata(self._store)

    def _go_on(self) -> None:
        """Check that the next process can perform every act."""
        self._commit("last")
        to = self._opened()
        for act in _ACTS:
            self._note("end", act.__name__, "")
            self._oracle.note(act(to))
        self._check()
        check_nothing_pending_in_metadata(self._store)
        if self.drawn.version is not None:
            self._change_version(self.drawn.version)

    def _change_version(self, version: FormatVersion) -> None:
        """Change the table's version, as operators do after they have stopped all writers."""
        self._note("end", "change version", f"to {version:d}")
        try:
            self._oracle.note(actors.change_to(self._opened(), version))
        except Refused as error:  # logs that version 6 would assign to other slices
            self._note("end", "refused", str(error))
        self._check()
        check_metadata(self._store)

    def _check(self) -> None:
        self._note("end", "check", "")
        check_nothing_pending(self._store)
        self._oracle.check_snapshot(contents(self._store), self._oracle.now())
        check_buckets(self._store)
        check_known(self._store, self._oracle.history())
        check_checkpoint(self._store, self._oracle.history())
        check_savepoints(self._store)

    def _commit(self, key: str) -> None:
        value = next(self._world.values)
        attempt = self._oracle.begin("end", (Row(key, value, value),))
        to = self._opened()
        self._oracle.note(actors.recover(to))
        context = to.begin()
        done = to.commit(write_files_of(to, context, attempt.rows), {})
        self._oracle.acknowledge(attempt, done.requested_at, done.completed_at or "")

    def _opened(self) -> TableWriter:
        return actors.open_writer(
            self._store, self._world.time, has_metadata=self.drawn.kind.has_metadata
        )

    def _note(self, name: str, what: str, outcome: str) -> None:
        self.trace.append(Step(self._scheduler.time.passed_ms, name, what, "", outcome))
