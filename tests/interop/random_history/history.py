"""One random history: acts of lakemark's processes and of Apache Hudi on one table, and a model.

The acts are drawn from a seed. An act of lakemark belongs to a process of its own, which may die at
any of its writes, or get no answer to one. Commits of the pipelines ``ann`` and ``bob`` are open
while others act. After each act, queries must find the rows of the model.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from lakemark.errors import (
    InvalidConfig,
    OutcomeUnknown,
    Refused,
    Retriable,
    Unsupported,
)
from lakemark.metadata.difference import Difference
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.model.action import Action
from lakemark.model.commit_metadata import WriteStat
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.operations.table_writer import TableWriter
from lakemark.read.queries import Snapshot
from lakemark.storage import StorageLocation
from lakemark.table import Table
from lakemark.transaction.table_context import LOCK_WAIT_S
from tests.clocks import SharedClock
from tests.interop import lakemark
from tests.interop.hidden_logs import read_listed_snapshot
from tests.interop.oracle import Oracle, OracleError
from tests.interop.random_history.heartbeats import age_heartbeats
from tests.interop.random_history.kinds import Kind, Process
from tests.interop.random_history.model import KEYS, Model, Rows
from tests.interop.same_rows import assert_same_rows
from tests.storages import SimulatedCrash
from tests.storages.faulty_storage import When
from tests.tables import Row

#: How likely the process of an act dies, or gets no answer.
_FAULTS = 0.25
_MOST_WRITES = 60
_WHENS: tuple[When, ...] = ("before", "after", "lost", "doubtful")

#: An act of lakemark may fail with these errors; it then leaves the rows as they were.
_MAY_REFUSE = (Retriable, Refused, Unsupported, InvalidConfig)

#: Any act of Apache Hudi may fail for these reasons; it then leaves the rows as they were.
CONFLICTS = ("WriteConflict", "ConcurrentModification", "HoodieClusteringUpdateException")


@dataclass(frozen=True, slots=True)
class OpenCommit:
    """A commit whose files are written, and which is not published.

    Attributes:
        process: its process.
        to: the writer.
        files: the files that it has written.
        rows: its rows.
    """

    process: Process
    to: TableWriter
    files: list[WriteStat]
    rows: list[Row]


@dataclass
class History:
    """A table, the processes that write to it, and the model.

    Attributes:
        oracle: runs Apache Hudi.
        path: the path of the table.
        kind: the kind of the table.
        draw: the source of all random choices.
        model: the expected rows.
        clock: the clock of lakemark's locks.
        open: the open commits of pipelines, by name.
        trace: what has happened.
        ordering: the newest ordering value.
        has_remains: whether a process died while it deleted the metadata table. The next metadata
            table is then built by lakemark, or by Apache Hudi, which keeps the instants it finds.
    """

    oracle: Oracle
    path: Path
    kind: Kind
    draw: random.Random
    model: Model = field(default_factory=Model)
    clock: SharedClock = field(default_factory=SharedClock)
    open: dict[str, OpenCommit] = field(default_factory=dict)
    trace: list[str] = field(default_factory=list)
    ordering: int = 0
    has_remains: bool = False
    _number: int = 0

    # What acts draw

    def some_rows(self, region: str | None = None) -> list[Row]:
        """Draw rows with new values, one in six of which is older than the stored row."""
        keys = [key for key in KEYS if region in (None, KEYS[key])]
        chosen = self.draw.sample(keys, self.draw.randint(1, len(keys)))
        self.ordering += 1
        return [self._row(key) for key in chosen]

    def _row(self, key: str) -> Row:
        is_late = key in self.model.rows and self.draw.random() < 1 / 6
        self._number += 1
        ts = -self.ordering if is_late else self.ordering
        return Row(key, ts, self._number, KEYS[key])

    # Processes

    def opened(self) -> OpenTable:
        """Open the table for reading."""
        return open_table(StorageLocation(str(self.path)))

    def process(self, *, may_fail: bool = False) -> Process:
        """Start a process of lakemark; if ``may_fail``, a write of it may fail."""
        nth, when = None, self.draw.choice(_WHENS)
        if may_fail and self.draw.random() < _FAULTS:
            nth = int(self.draw.random() ** 2 * _MOST_WRITES)
            self.note(f"  write {nth} fails ({when})")
        return Process.start(self.kind, self.path, self.clock, nth, when)

    def act(
        self, name: str, do: Callable[[Table], object], after: Callable[[], Rows] | None = None
    ) -> None:
        """Let a new process act, and apply its result to the model.

        Args:
            name: what it does.
            do: the act.
            after: returns the rows after it; None if it changes none.
        """
        self.note(name)
        process, before = self.process(may_fail=True), self.model.rows
        expected = after() if after else before
        allowed = [before, expected]
        try:
            do(process.table())
        except (SimulatedCrash, OutcomeUnknown) as error:
            self.note(f"  {type(error).__name__}")
        except _MAY_REFUSE as error:
            self.note(f"  {type(error).__name__}: {str(error)[:200]}")
            allowed = [before]
        else:
            allowed = [expected]
        finally:
            process.storage.die()
        self.bury()
        if allowed[0] is not allowed[-1]:
            found = self.rows()
            assert found in allowed, f"{found} is none of {allowed}"
            self.model.rows = found
        else:
            self.model.rows = allowed[0]

    def ask_apache(
        self,
        name: str,
        do: Callable[[], object],
        after: Callable[[], Rows] | None = None,
        may_fail: Collection[str] = (),
    ) -> None:
        """Let Apache Hudi act, and apply its result to the model; see ``act``.

        Args:
            name: what it does.
            do: the act.
            after: returns the rows after it; None if it changes none.
            may_fail: texts of errors with which this act may fail, in addition to ``CONFLICTS``.
        """
        self.note(f"Apache: {name}")
        expected = after() if after else self.model.rows
        try:
            do()
        except OracleError as error:
            if not any(reason in str(error) for reason in (*CONFLICTS, *may_fail)):
                raise
            self.note(f"  {str(error)[:200]}")
        else:
            self.model.rows = expected
        self.bury()

    def bury(self) -> None:
        """Let the heartbeats and the lock of dead processes expire."""
        age_heartbeats(self.path, {one.to.pending_instant for one in self.open.values()})
        process = self.process()
        process.opened.context.lock.acquire(LOCK_WAIT_S).release()

    # Checks

    def rows(self) -> dict[str, tuple[int, int]]:
        """Read the rows with lakemark."""
        scan = self.opened().scan(columns=["id", "ts", "v"])
        found = scan.to_reader().read_all().to_pylist()
        assert len({row["id"] for row in found}) == len(found), f"a key is there twice: {found}"
        return {row["id"]: (row["ts"], row["v"]) for row in found}

    def check(self) -> None:
        """Check the rows and the metadata table after an act."""
        found = self.rows()
        assert found == self.model.rows, f"found {found}, expected {self.model.rows}"
        table = self.opened()
        self.model.record(table.timeline)
        differences = self._metadata_differences()
        if self.has_remains and table.properties.names_metadata_table:
            self.has_remains = False
            # Documented: queries list storage, and the start of a writer builds it again.
            if {one.aspect for one in differences} & {"timeline", "files"}:
                self.note("another process rebuilds the metadata table, which has old instants")
                self.process().table().rebuild_metadata_table()
                differences = self._metadata_differences()
        assert differences == [], differences
        self._look_for_remains()

    def _metadata_differences(self) -> list[Difference]:
        # Apache Hudi does not narrow the statistics of a partition.
        found = metadata_differences(self.opened())
        return [one for one in found if not one.path.endswith("/")]

    def _look_for_remains(self) -> None:
        if not self.opened().properties.names_metadata_table:
            self.has_remains = (self.path / METADATA_FOLDER).exists()

    def check_with_apache(self) -> None:
        """Check that Apache Hudi reads the same rows, by a listing and by the metadata table."""
        ours, has = lakemark.read_snapshot(self.path), self.opened().properties.metadata_partitions
        for through in {False, bool(has)}:
            enabled = str(through).lower()
            options = {"hoodie.metadata.enable": enabled, "hoodie.enable.data.skipping": enabled}
            theirs = self.oracle.read(self.path, options=options)
            # Documented: listings hide logs of slices that begin with a file of a pending commit.
            assert_same_rows(ours if through else read_listed_snapshot(self.path), theirs)

    def check_past(self) -> None:
        """Check the rows of time travel queries to instants with which no other overlaps."""
        table = self.opened()
        if table.timeline.pending(Action.COMPACTION):
            return
        for number, (instant, rows) in enumerate(self.model.past):
            if rows is None or not self.model.is_isolated(number):
                continue
            with suppress(InvalidConfig):  # its files were cleaned
                scan = table.scan(Snapshot(instant.requested_at), ["id", "ts", "v"])
                found = scan.to_reader().read_all().to_pylist()
                past = {row["id"]: (row["ts"], row["v"]) for row in found}
                assert past == rows, f"as of {instant}: {past}, expected {rows}"

    def note(self, what: str) -> None:
        """Add a line to the trace."""
        self.trace.append(what)

    def act_in_stages(self, name: str, do: Callable[[Table], object], after: Rows) -> None:
        """Let a process undo commits; another one finishes what it has begun."""
        self.note(name)
        process, before = self.process(may_fail=True), self.model.rows
        try:
            do(process.table())
        except (SimulatedCrash, OutcomeUnknown, *_MAY_REFUSE) as error:
            self.note(f"  {type(error).__name__}: {str(error)[:200]}")
        finally:
            process.storage.die()
        self.bury()
        other = Process.start(self.kind, self.path, self.clock)
        if self.opened().timeline.pending(Action.RESTORE):
            self.note("  another process finishes the restore")
            other.table().restore()
        elif self.opened().timeline.pending(Action.ROLLBACK):
            self.note("  another process finishes the rollback")
            other.writer().recover()
        found = self.rows()
        assert found in (before, after), f"{found} is neither {before} nor {after}"
        self.model.rows = found
