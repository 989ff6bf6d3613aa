"""Every table command on every kind of table: it succeeds, or prints one line with the reason.

Operators find new tables, tables whose writer died, tables without any files, and partly restored
ones. An error that the code raises deliberately is printed as its message; any other error is
printed as ``unexpected``, which fails the test.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import pytest

from lakemark.config.table_properties import PROPERTIES_PATH, TableType
from lakemark.config.table_spec import TableSpec
from lakemark.errors import HudiError
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.model.action import COMMITS, Action, State
from lakemark.model.changes import ChangeKind
from lakemark.model.compaction_plan import CompactionPlan
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.model.meta_columns import without_meta_columns
from lakemark.operations.metadata_table import drop_metadata_table, metadata_differences
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.operations.table_writer import TableWriter
from lakemark.services.restore import plan_restore
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.timeline.clock import ClockSlot
from lakemark.timeline.content import (
    encode_compaction_plan,
    encode_restore_plan,
    encode_rollback_plan,
)
from lakemark.transaction.rollback import plan_rollback
from streamer.cli import FAILED, MISUSED, OK, main
from tests.depth import EVERYTHING
from tests.golden.golden_table import unpack
from tests.tables import Row, commit, spec, write_files, writer

MOR, COW = TableType.MERGE_ON_READ, TableType.COPY_ON_WRITE
V6, V8, V9 = FormatVersion.V6, FormatVersion.V8, FormatVersion.V9

#: What no table of these tests has.
NO_INSTANT = "20200101000000000"

#: So narrow that a few commits are too many.
CLEAN_ALL = "--retain-versions 1"
ARCHIVE_ALL = f"--min-commits 1 --max-commits 2 {CLEAN_ALL}"

#: They look, or print what they would do; {first}, {last} and {pending} are instants.
LOOKS = (
    "query {table}",
    f"query {{table}} --columns id --where id='a' --limit {2**64}",
    "query {table} --columns id,id",
    "query {table} --key a --json",
    "query {table} --as-of {first} --json",
    "query {table} --as-of 2020-01-01",
    "query {table} --type read_optimized --json",
    "query {table} --type incremental --begin earliest --json",
    "query {table} --type incremental --begin {first} --end {last}",
    "query {table} --type cdc --begin earliest --json",
    "table show {table}",
    "table show {table} --json",
    "table timeline {table}",
    "table timeline {table} --json",
    "table files {table}",
    "table files {table} --json",
    "table compact {table} --plan",
    "table clean {table} --plan",
    f"table clean {{table}} --plan {CLEAN_ALL} --json",
    "table clean {table} --plan --retain-hours 1",
    "table clean {table} --plan --retain-hours 99999999999",
    "table archive {table} --plan",
    f"table archive {{table}} --plan {ARCHIVE_ALL} --json",
    "table rollback {table} {last} --plan",
    "table rollback {table} {pending} --plan --json",
    "table savepoint {table}",
    "table savepoint {table} --create {first} --plan --json",
    "table savepoint {table} --delete {first} --plan",
    "table restore {table} --plan",
    "table restore {table} --to {first} --plan --json",
    "table upgrade {table} --to 9 --plan",
    "table downgrade {table} --to 8 --plan --json",
    "table downgrade {table} --to 6 --plan",
    "table check {table}",
    "checkpoint get {table}",
    "checkpoint get {table} --id other --json",
    "checkpoint set {table} t,0:5",
    "checkpoint reset {table} --plan --json",
)

#: They change the table, but not its rows.
SERVICES = (
    "table compact {table} --run --json",
    "table compact {table} --schedule",
    f"table clean {{table}} --run {CLEAN_ALL}",
    f"table clean {{table}} --schedule {CLEAN_ALL}",
    f"table archive {{table}} --run {ARCHIVE_ALL}",
    "table savepoint {table} --create {first} --run",
    "table savepoint {table} --delete {first} --run",
    "table upgrade {table} --to 9 --run",
    "table downgrade {table} --to 6 --run",
    "table check {table} --rebuild --run",
    "checkpoint reset {table} --id other --run --json",
    "checkpoint set {table} t,0:5 --run",
)

#: They take rows away.
UNDOING = (
    "table rollback {table} {last} --run",
    "table rollback {table} {pending} --run",
    "table restore {table} --run",
    "table restore {table} --to {first} --run",
)


@dataclass(frozen=True, slots=True)
class Kind:
    """The kind of a table, regardless of its history."""

    table_type: TableType = MOR
    version: FormatVersion = V9
    partition_by: tuple[str, ...] = ("region",)
    has_metadata: bool = True

    def __str__(self) -> str:
        words = ["mor" if self.table_type is MOR else "cow", str(int(self.version))]
        words += [] if self.partition_by else ["unpartitioned"]
        return "_".join(words if self.has_metadata else [*words, "listed"])

    @property
    def spec(self) -> TableSpec:
        made = spec(self.table_type, version=self.version)
        return replace(made, partition_by=self.partition_by)


MOR_9, COW_9, MOR_6, COW_6 = Kind(), Kind(COW), Kind(MOR, V6), Kind(COW, V6)
MOR_8_FLAT = Kind(MOR, V8, ())
COW_8_FLAT = Kind(COW, V8, ())
COW_6_FLAT = Kind(COW, V6, ())
MOR_9_LISTED = Kind(MOR, V9, has_metadata=False)
COW_9_LISTED = Kind(COW, V9, has_metadata=False)
MOR_6_LISTED = Kind(MOR, V6, (), has_metadata=False)


@dataclass(frozen=True, slots=True)
class Making:
    """Makes the history of a table; a new process makes each step."""

    folder: Path
    kind: Kind

    @property
    def storage(self) -> Storage:
        return open_storage(StorageLocation(str(self.folder)))

    def started(self) -> TableWriter:
        to = writer(self.storage)
        to.settings = replace(to.settings, metadata_table=self.kind.has_metadata)
        to.recover()
        return to

    def row(self, key: str, ts: int, kind: ChangeKind = ChangeKind.UPSERT) -> Row:
        return Row(key, ts, ts, "north" if self.kind.partition_by else "", kind)

    def commit(self, *rows: Row) -> None:
        commit(self.started(), rows, {"deltastreamer.checkpoint.key": f"t,0:{len(rows)}"})

    def request(self, action: Action, content: bytes = b"") -> Instant:
        """Request an instant, and leave it like a process that dies right after that."""
        store = open_named(self.folder).store
        name = store.clock.next_instant(store.load().newest_time, ClockSlot.SERVICE)
        requested = Instant(name, action, State.REQUESTED)
        store.create(requested, content)
        return requested

    def begin(self, requested: Instant) -> None:
        open_named(self.folder).store.create(requested.inflight())

    def run(self, command: str) -> None:
        assert main(words_of(command, self.folder)) == OK


#: What has happened to a table.
History = Callable[[Making], None]


def no_commit(_: Making) -> None:
    pass


def new_metadata_table(made: Making) -> None:
    made.started()


def dead_first_request(made: Making) -> None:
    made.started()
    made.request(Action.DELTA_COMMIT if made.kind.table_type is MOR else Action.COMMIT)


def dead_first_writer(made: Making) -> None:
    write_files(made.started(), [made.row("a", 1)])


def first_writer_rolled_back(made: Making) -> None:
    dead_first_writer(made)
    made.started()


def one_commit(made: Making) -> None:
    made.commit(made.row("a", 1))


def commit_without_rows(made: Making) -> None:
    made.commit()


def only_deletes(made: Making) -> None:
    made.commit(made.row("a", 1, ChangeKind.DELETE))


def no_row_left(made: Making) -> None:
    one_commit(made)
    made.commit(made.row("a", 2, ChangeKind.DELETE))


def three_commits(made: Making) -> None:
    for ts in (1, 2):
        made.commit(made.row("a", ts))
    made.commit(made.row("b", 3))


def no_row_left_compacted(made: Making) -> None:
    no_row_left(made)
    made.run("table compact {table} --run")


def all_but_the_newest_archived(made: Making) -> None:
    three_commits(made)
    if made.kind.table_type is MOR:
        made.run("table compact {table} --run")
    made.run(f"table archive {{table}} --run {ARCHIVE_ALL}")
    assert open_named(made.folder).timeline.has_history


def compacted_metadata_table(made: Making) -> None:
    for ts in range(11):
        made.commit(made.row("a", ts))


def pending_compaction(made: Making) -> None:
    three_commits(made)
    made.run("table compact {table} --schedule")
    assert open_named(made.folder).timeline.pending(Action.COMPACTION)


def pending_compaction_without_commits(made: Making) -> None:
    made.started()
    made.request(Action.COMPACTION, encode_compaction_plan(CompactionPlan(())))


def begun_compaction(made: Making) -> None:
    pending_compaction(made)
    made.begin(open_named(made.folder).timeline.pending()[0])
    made.commit(made.row("a", 4))


def pending_clean(made: Making) -> None:
    three_commits(made)
    if made.kind.table_type is MOR:
        made.run("table compact {table} --run")
    made.run(f"table clean {{table}} --schedule {CLEAN_ALL}")
    assert open_named(made.folder).timeline.pending(Action.CLEAN)


def begun_clean(made: Making) -> None:
    pending_clean(made)
    made.begin(open_named(made.folder).timeline.pending()[0])


def pending_rollback(made: Making) -> None:
    three_commits(made)
    pending_rollback_of_the_first(made)


def pending_rollback_of_the_first(made: Making) -> None:
    write_files(made.started(), [made.row("c", 5)])
    table = open_named(made.folder)
    plan = plan_rollback(table.context, table.timeline.pending()[0].requested_at)
    made.request(Action.ROLLBACK, encode_rollback_plan(plan))


def begun_rollback(made: Making) -> None:
    pending_rollback(made)
    made.begin(open_named(made.folder).timeline.pending(Action.ROLLBACK)[0])


def savepoint(made: Making) -> None:
    three_commits(made)
    made.run("table savepoint {table} --create {first} --run")


def begun_savepoint(made: Making) -> None:
    three_commits(made)
    first = open_named(made.folder).timeline.instants[0]
    made.begin(Instant(first.requested_at, Action.SAVEPOINT, State.REQUESTED))


def restored(made: Making) -> None:
    savepoint(made)
    made.run("table restore {table} --to {first} --run")


def pending_restore(made: Making) -> None:
    savepoint(made)
    table = open_named(made.folder)
    first, is_merge_on_read = table.timeline.instants[0], made.kind.table_type is MOR
    plan = plan_restore(table.timeline, first.requested_at, is_merge_on_read)
    made.request(Action.RESTORE, encode_restore_plan(plan))


def begun_restore(made: Making) -> None:
    pending_restore(made)
    table = open_named(made.folder)
    drop_metadata_table(table)
    made.begin(table.timeline.pending()[0])


def listing_gone(made: Making) -> None:
    three_commits(made)
    shutil.rmtree(made.folder / METADATA_FOLDER / PartitionKind.FILES.stored_name)


def metadata_table_gone(made: Making) -> None:
    three_commits(made)
    shutil.rmtree(made.folder / METADATA_FOLDER)


def new_metadata_table_gone(made: Making) -> None:
    made.started()
    shutil.rmtree(made.folder / METADATA_FOLDER)


HISTORIES: dict[History, tuple[Kind, ...]] = {
    no_commit: (MOR_9, COW_6_FLAT),
    new_metadata_table: (MOR_9, COW_8_FLAT, MOR_6),
    dead_first_request: (MOR_9, COW_6),
    dead_first_writer: (MOR_8_FLAT, COW_9_LISTED, MOR_6),
    first_writer_rolled_back: (MOR_9, COW_6_FLAT),
    one_commit: (COW_9, MOR_6_LISTED),
    commit_without_rows: (MOR_9, COW_6),
    only_deletes: (MOR_9, MOR_6_LISTED, COW_8_FLAT),
    no_row_left: (COW_9, MOR_6),
    no_row_left_compacted: (MOR_8_FLAT, MOR_6),
    all_but_the_newest_archived: (MOR_9_LISTED, COW_9_LISTED, MOR_6_LISTED),
    compacted_metadata_table: (COW_6_FLAT,),
    pending_compaction: (MOR_9, MOR_6),
    pending_compaction_without_commits: (MOR_6, MOR_9),
    begun_compaction: (MOR_8_FLAT,),
    pending_clean: (MOR_9, COW_6),
    begun_clean: (COW_8_FLAT,),
    pending_rollback: (MOR_9, COW_6),
    pending_rollback_of_the_first: (COW_9, MOR_6),
    begun_rollback: (MOR_8_FLAT,),
    savepoint: (MOR_9, COW_6),
    begun_savepoint: (MOR_8_FLAT,),
    restored: (COW_9, MOR_6),
    pending_restore: (MOR_9, COW_6),
    begun_restore: (COW_8_FLAT,),
    metadata_table_gone: (MOR_9, COW_6_FLAT),
    new_metadata_table_gone: (COW_9, MOR_6),
    listing_gone: (MOR_9, COW_6),
}

#: Tables that Apache Hudi wrote.
GOLDEN = ("v9_mor_compacted", "v6_mor_dead_writer", "v9_mor_archived")


@dataclass(frozen=True, slots=True)
class Case:
    """A table and its history.

    Attributes:
        number: number of the case. Consecutive cases run different commands.
        history: makes the history of the table; or the name of a golden table.
        kind: the kind of the table; ignored for a golden table.
    """

    number: int
    history: History | str
    kind: Kind = MOR_9

    def __str__(self) -> str:
        known = self.history
        return known if isinstance(known, str) else f"{known.__name__}-{self.kind}"

    def some(self, commands: Sequence[str], every: int) -> Sequence[str]:
        return commands if EVERYTHING else commands[self.number % every :: every]

    def make(self, folder: Path) -> Path:
        if isinstance(self.history, str):
            return unpack(self.history, folder).root
        making = Making(folder, self.kind)
        making.storage.create(PROPERTIES_PATH, self.kind.spec.to_properties().to_bytes())
        self.history(making)
        return folder


def cases() -> Iterator[Case]:
    number = count()
    for place, (history, kinds) in enumerate(HISTORIES.items()):
        for kind in kinds if EVERYTHING else [kinds[place % len(kinds)]]:
            yield Case(next(number), history, kind)
    for name in GOLDEN:
        yield Case(next(number), name)


@dataclass(frozen=True, slots=True)
class Answers:
    """The rows of a table, and whether its metadata table is right.

    Attributes:
        rows: the rows of a snapshot; None if it cannot be read.
        is_true: whether the metadata table agrees with the files in storage.
    """

    rows: list[str] | None
    is_true: bool

    @classmethod
    def by(cls, folder: Path) -> Answers:
        table = open_named(folder)
        try:
            return cls(rows_of(table), not metadata_differences(table))
        except HudiError:
            return cls(None, False)


def rows_of(table: OpenTable) -> list[str]:
    """Read the rows without meta columns."""
    rows = table.scan().to_reader().read_all()
    return sorted(map(str, rows.select(without_meta_columns(rows.schema).names).to_pylist()))


def open_named(folder: Path) -> OpenTable:
    return open_table(StorageLocation(str(folder)))


def words_of(command: str, folder: Path) -> list[str]:
    """Return the words of a command, in which instants of the table replace placeholders."""
    timeline = open_named(folder).timeline
    commits = [i.requested_at for i in timeline.completed(*COMMITS)] or [NO_INSTANT]
    pending = [i.requested_at for i in timeline.pending()] or [NO_INSTANT]
    named = {"first": commits[0], "last": commits[-1], "pending": pending[0]}
    words = [word.format(table=folder, **named) for word in command.split()]
    is_of_a_writer = any(word in ("--run", "--schedule", "set", "reset") for word in words)
    return [*words, "--clock-skew-ms", "0"] if is_of_a_writer else words


def tree(folder: Path) -> dict[Path, tuple[int, bytes]]:
    """Read every file of the table except its locks, with its modification time."""
    files = (path for path in folder.rglob("*") if path.is_file() and ".locks" not in path.parts)
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def run(command: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> int:
    """Run a command; check that it succeeds or prints one error line; return the exit code."""
    capsys.readouterr()
    code, reported = main(words_of(command, folder)), capsys.readouterr().err
    assert code in (OK, FAILED, MISUSED), command
    is_difference = command.startswith("table check") and code == FAILED and not reported
    if code != OK and not is_difference:
        assert reported.startswith("lakemark: "), (command, reported)
        assert reported.count("\n") == 1, (command, reported)
    for raw in ("unexpected", "Traceback", "Errno"):
        assert raw not in reported, (command, reported)
    return code


def change(command: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check that a refused command changes nothing.

    Only a refused change of version may change files, because it first completes pending plans.
    """
    there = tree(folder)
    is_done = run(command, folder, capsys) == OK
    assert is_done or "grade" in command or tree(folder) == there, command


@pytest.fixture(scope="module", params=cases(), ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    chosen: Case = request.param
    return chosen


@pytest.fixture(scope="module")
def made(case: Case, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The table, which no test changes."""
    return case.make(tmp_path_factory.mktemp("t") / "table")


@pytest.fixture(scope="module")
def before(made: Path) -> Answers:
    return Answers.by(made)


@pytest.fixture
def copies(made: Path, tmp_path: Path) -> Iterator[Path]:
    """Yield copies that a test may change.

    Modification times are kept, because in version 6 they are completion times.
    """
    return (Path(shutil.copytree(made, tmp_path / str(number))) for number in count())


def test_read_commands_change_nothing(
    case: Case, made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = tree(made)
    for command in case.some(LOOKS, 4):
        run(command, made, capsys)
        assert tree(made) == there, command


def test_table_services_keep_the_rows(
    case: Case, copies: Iterator[Path], before: Answers, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = [[command] for command in SERVICES] if EVERYTHING else []
    for commands in (case.some(SERVICES, 3), *alone):
        copy = next(copies)
        for command in commands:
            change(command, copy, capsys)
            assert before.rows is None or rows_of(open_named(copy)) == before.rows, command
        assert Answers.by(copy).is_true or not before.is_true, commands


def test_table_is_consistent_after_writes_are_undone(
    case: Case, copies: Iterator[Path], before: Answers, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in case.some(UNDOING, 4):
        copy = next(copies)
        change(command, copy, capsys)
        assert Answers.by(copy).is_true or not before.is_true, command


@pytest.mark.parametrize(
    "command", ["checkpoint set {table} t,0:5 --run", "checkpoint reset {table} --run"]
)
def test_a_table_whose_columns_were_renamed_gets_no_commit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """Such a commit would drop the old names, and values under them would be read as null."""
    folder = unpack("v9_cow_schema_on_read", tmp_path).root
    there = tree(folder)
    assert run(command, folder, capsys) == FAILED
    assert tree(folder) == there


def test_an_upgrade_does_compactions_that_are_pending(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Case(0, pending_compaction, MOR_8_FLAT).make(tmp_path / "t")
    rows = rows_of(open_named(folder))
    assert run("table upgrade {table} --to 9 --plan", folder, capsys) == OK
    assert run("table upgrade {table} --to 9 --run", folder, capsys) == OK
    table = open_named(folder)
    assert (table.version, table.timeline.pending(), rows_of(table)) == (V9, (), rows)


def test_a_listing_that_is_gone_hides_no_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Case(0, listing_gone).make(tmp_path / "t")
    assert run("query {table}", folder, capsys) == OK
    assert len(rows_of(open_named(folder))) == 2
    assert main(words_of("table check {table}", folder)) == FAILED
    assert ".hoodie/metadata/files" in capsys.readouterr().out
    assert run("table check {table} --rebuild --run", folder, capsys) == OK
    assert len(rows_of(open_named(folder))) == 2
