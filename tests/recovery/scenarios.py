"""What a process does to a table, and may be stopped at; ``test_every_write`` stops it everywhere.

A scenario's tables lie below one root, so that they can be copied together.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Protocol, TypeAlias
from uuid import uuid4

import pyarrow as pa
import pytest

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.edit import write_checkpoint
from checkpoints.lookup import find_progress
from lakemark.config.table_properties import TableType
from lakemark.config.table_spec import TableSpec
from lakemark.errors import Refused, TableNotFound
from lakemark.execution.runner import LocalRunner, Result, Task
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.model.action import COMMITS, Action
from lakemark.model.file_slice import FileSlice
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.operations.archive import archive, plan_archival
from lakemark.operations.change_version import change_table_version
from lakemark.operations.clean import clean
from lakemark.operations.create import create_on
from lakemark.operations.metadata_table import keep_metadata_table, rebuild_metadata_table
from lakemark.operations.open_table import OpenTable
from lakemark.operations.table_writer import TableWriter
from lakemark.operations.write import RowWriter
from lakemark.services.archival import metadata_compacted_at
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.cleaning_plan import CleaningPolicy, Retention
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.services.metadata_table_services import Maintained, maintain
from lakemark.services.restore import restore
from lakemark.services.savepoint import create_savepoint, delete_savepoint
from lakemark.storage import Storage, StorageLocation
from lakemark.storage.folder_storage import FolderStorage
from lakemark.storage.properties_file import read_properties
from lakemark.timeline.clock import UTC_CLOCK
from lakemark.timeline.layout import LayoutV1
from lakemark.timeline.locks.open_lock import open_lock
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.transaction.heartbeat import HeartbeatPolicy
from lakemark.transaction.multi_writer import MultiWriter
from lakemark.transaction.rollback import roll_back_named
from lakemark.transaction.streamer_progress import DEFAULT_IDENTITY
from streamer.async_compaction import AsyncCompactionPolicy, AsyncCompactor
from tests.clocks import SharedClock, on_clock
from tests.json_stream import JsonStream, Record
from tests.recovery.places import storage_at
from tests.storages import SimulatedCrash, WatchedStorage
from tests.tables import SCHEMA, Row, commit, contents, make, write_files, writer
from tests.upkeep import HISTORY, active_names, archived_names, copy_of, make_plain

TABLE = "table"
CLOCK = SharedClock()

#: What queries find; of a pipeline with its dead letters.
Rows: TypeAlias = dict[str, object]
#: What a process reaches its storages through.
Wrap: TypeAlias = Callable[[Storage], Storage]
Step: TypeAlias = Callable[[TableWriter], object]
Prepare: TypeAlias = Callable[[Storage], None]

COMMITTED = (
    [Row("a", 1, 1), Row("c", 1, 1, region="south")],
    [Row("a", 2, 2), Row("e", 2, 2, region="west")],
    [Row("c", 3, 3, region="south"), Row("f", 3, 3)],
)
#: The rows after each of these commits, by a model: the newest of each key.
STATES: list[Rows] = [
    {row.id: (row.ts, row.v) for rows in COMMITTED[: count + 1] for row in rows}
    for count in range(len(COMMITTED))
]
CHECKPOINT = KafkaCheckpoint("orders", {0: 7})
CLEANING = CleaningPolicy(commits=1)
ARCHIVAL = ArchivalPolicy(2, 3, delta_commits_to_compact=2)


@dataclass(frozen=True)
class _SinceItsStart(HeartbeatPolicy):
    """Of a process that starts so late that whoever beat before it is dead; nobody beats twice."""

    interval_s: float = 3600.0
    started_s: float = field(default_factory=time.time)

    @property
    def expires_after_s(self) -> float:
        return time.time() - self.started_s


def unchanged(storage: Storage) -> Storage:
    return storage


class Scenario(Protocol):
    """Something that a process does to tables below a root, once they are laid down there."""

    @property
    def states(self) -> Sequence[Rows]:
        """The rows before, those that queries may meet between, and those after, by a model.

        None for what leaves the rows as they are.
        """
        ...

    @property
    def has_metadata(self) -> bool:
        """Whether a metadata table is kept."""
        ...

    @property
    def makes_metadata(self) -> bool:
        """Whether the metadata table is made; one that is there goes on otherwise."""
        ...

    def lay_down(self, root: StorageLocation) -> None:
        """Make the tables."""
        ...

    def act(self, root: StorageLocation, wrap: Wrap) -> None:
        """A process from its start to its end, its storages wrapped."""
        ...

    def recover(self, root: StorageLocation, wrap: Wrap) -> None:
        """The start of the next process, and no more."""
        ...

    def go_on(self, root: StorageLocation, wrap: Wrap) -> None:
        """The next process from its start to its end."""
        ...

    def has_acted(self, root: StorageLocation) -> bool:
        """Whether what it is about has been done."""
        ...

    def rows(self, root: StorageLocation) -> Rows:
        """What queries find."""
        ...

    def write_more(self, root: StorageLocation) -> Rows:
        """A process that writes something else; what queries find then, by a model."""
        ...

    def tables(self, root: StorageLocation) -> Iterator[OpenTable]:
        """Each table, as a process that just opened it has it."""
        ...


@dataclass(frozen=True)
class OfTable:
    """What a writer does to one table; a ``Scenario``.

    Attributes:
        prepare: lays the table down.
        step: what a process does once it has started, that is, recovered.
        states: see ``Scenario``.
        proves: whether a table shows that an undisturbed step did what it is named after.
        finish: what a process does that starts after one was stopped; the step when left out.
        has_metadata: whether the process keeps a metadata table.
        makes_metadata: see ``Scenario``.
        is_shared: whether other writers are to be expected.
    """

    prepare: Prepare
    step: Step
    proves: Callable[[OpenTable], object]
    states: tuple[Rows, ...] = ()
    finish: Step | None = None
    has_metadata: bool = True
    makes_metadata: bool = False
    is_shared: bool = False

    def lay_down(self, root: StorageLocation) -> None:
        self.prepare(storage_at(root.child(TABLE)))

    def act(self, root: StorageLocation, wrap: Wrap) -> None:
        """A process, from its start to its end."""
        self.step(self._started(root, wrap))

    def recover(self, root: StorageLocation, wrap: Wrap) -> None:
        """The start of the next process, and no more."""
        self._started(root, wrap)

    def go_on(self, root: StorageLocation, wrap: Wrap) -> None:
        """The next process, from its start to its end."""
        (self.finish or self.step)(self._started(root, wrap))

    def has_acted(self, root: StorageLocation) -> bool:
        return bool(self.proves(writer(storage_at(root.child(TABLE))).table))

    def rows(self, root: StorageLocation) -> Rows:
        return dict(contents(storage_at(root.child(TABLE))))

    def write_more(self, root: StorageLocation) -> Rows:
        before = self.rows(root)
        commit(self._started(root, unchanged), [Row("z", 9, 9)])
        return {**before, "z": (9, 9)}

    def tables(self, root: StorageLocation) -> Iterator[OpenTable]:
        yield _opened(unchanged, root.child(TABLE))

    def _started(self, root: StorageLocation, wrap: Wrap) -> TableWriter:
        multi_writer = MultiWriter(_SinceItsStart(), clock_skew_ms=0) if self.is_shared else None
        to = writer(wrap(storage_at(root.child(TABLE))), multi_writer=multi_writer)
        to = on_clock(to, CLOCK)
        to.settings = replace(to.settings, metadata_table=self.has_metadata)
        if not to.table.timeline.pending(Action.RESTORE):
            to.recover()
        return to


@dataclass(frozen=True)
class Pipeline:
    """A pipeline from its start to the end of a batch of records, one of them rejected.

    Attributes:
        states: see ``Scenario``.
        laid_down: how many records the pipeline has read before; None before its first start.
        wanted: how many it has read in the end.
    """

    states: tuple[Rows, ...]
    laid_down: int | None
    wanted: int
    has_metadata: bool = True

    @property
    def makes_metadata(self) -> bool:
        return self.laid_down is None

    def lay_down(self, root: StorageLocation) -> None:
        if self.laid_down is not None:
            self._stream(root, unchanged).write(_RECORDS[: self.laid_down])

    def act(self, root: StorageLocation, wrap: Wrap) -> None:
        stream = self._stream(root, wrap)
        if stream.offset < self.wanted:
            stream.write(_RECORDS[stream.offset : self.wanted])

    def recover(self, root: StorageLocation, wrap: Wrap) -> None:
        self._stream(root, wrap)

    def go_on(self, root: StorageLocation, wrap: Wrap) -> None:
        self.act(root, wrap)

    def has_acted(self, root: StorageLocation) -> bool:
        tables = list(self.tables(root))
        are_made = len(tables) == len(_TABLES) and all(map(is_known, tables))
        return are_made and self._stream(root, unchanged).offset == self.wanted

    def rows(self, root: StorageLocation) -> Rows:
        assert all(map(has_timeline_folder, self.tables(root)))
        of = {table.properties.table_name: table.scan().to_reader() for table in self.tables(root)}
        of_table, of_rejects = (
            of[name].read_all().to_pylist() if name in of else [] for name in ("orders", "rejects")
        )
        rows: Rows = {row["id"]: row["n"] for row in of_table}
        assert len(rows) == len(of_table), "a key is there twice"
        return rows | {"rejects": [row["offset"] for row in of_rejects]}

    def write_more(self, root: StorageLocation) -> Rows:
        before = self.rows(root)
        self._stream(root, unchanged).write([{"id": "z", "ts": 9, "n": 9}])
        return {**before, "z": 9}

    def tables(self, root: StorageLocation) -> Iterator[OpenTable]:
        for name in _TABLES:
            with suppress(TableNotFound):
                yield _opened(unchanged, root.child(name))

    def _stream(self, root: StorageLocation, wrap: Wrap) -> JsonStream:
        opened = partial(_opened, wrap)
        return JsonStream(root.child(TABLE), metadata_table=self.has_metadata, opened=opened)


_TABLES = (TABLE, f"{TABLE}_rejects")
_RECORDS: tuple[Record, ...] = (
    {"id": "a", "ts": 1, "n": 1},
    b"no JSON",
    {"id": "a", "ts": 2, "n": 2},
    b"no JSON",
    {"id": "b", "ts": 1, "n": 3},
)


def _opened(
    wrap: Wrap,
    location: StorageLocation,
    spec: TableSpec | None = None,
    multi_writer: MultiWriter | None = None,
) -> OpenTable:
    """A table, made where there is none and a spec is given."""
    storage = wrap(storage_at(location))
    lock = open_lock(storage, clock=CLOCK)
    try:
        return OpenTable(storage, read_properties(storage), lock=lock, multi_writer=multi_writer)
    except TableNotFound:
        if spec is None:
            raise
        return create_on(storage, spec, lock=lock, multi_writer=multi_writer)


# Tables


def committed(count: int, table_type: TableType = TableType.MERGE_ON_READ) -> Prepare:
    """The first of ``COMMITTED``."""

    def prepare(storage: Storage) -> None:
        make(storage, table_type)
        for rows in COMMITTED[:count]:
            commit(writer(storage), rows)

    return prepare


def plain(
    count: int,
    table_type: TableType = TableType.MERGE_ON_READ,
    version: FormatVersion = FormatVersion.V9,
) -> Prepare:
    """The same without a metadata table."""

    def prepare(storage: Storage) -> None:
        make_plain(storage, table_type, version)
        for rows in COMMITTED[:count]:
            commit(writer(storage), rows)

    return prepare


def then(*steps: Prepare) -> Prepare:
    def prepare(storage: Storage) -> None:
        for step in steps:
            step(storage)

    return prepare


def compacted(storage: Storage) -> None:
    assert compact(writer(storage))


def third(storage: Storage) -> None:
    commit(writer(storage), COMMITTED[2])


def kept(storage: Storage) -> None:
    keep_second(writer(storage))


def left_by_the_dead(storage: Storage) -> None:
    """A commit that the metadata table was told of, and whose writer died before it published."""

    def die(method: str, path: str) -> None:
        if method == "publish" and path.startswith(".hoodie/timeline/"):
            raise SimulatedCrash

    with suppress(SimulatedCrash):
        commit(on_clock(writer(WatchedStorage(storage, die)), CLOCK), COMMITTED[1])


def changed_to(version: FormatVersion) -> Prepare:
    """Taken there from another version."""

    def prepare(storage: Storage) -> None:
        take_to(version)(writer(storage))

    return prepare


def with_metadata(storage: Storage) -> None:
    keep_metadata_table(writer(storage).table)


def archived(storage: Storage) -> None:
    """All commits but one."""
    assert archive(writer(storage).table, ArchivalPolicy(1, 2), None)


def without_logs(storage: Storage) -> None:
    compacted(storage)
    cleaning = CleaningPolicy(Retention.FILE_VERSIONS, file_versions=1)
    assert clean(writer(storage).table, cleaning)


def with_checkpoint(storage: Storage) -> None:
    set_checkpoint(writer(storage))


def to_be_cleaned(storage: Storage) -> None:
    """Each commit is compacted, so that the first slice is over."""
    make(storage)
    to = writer(storage)
    for number in range(1, 4):
        commit(to, [Row("a", number, number), Row("b", number, number, region="south")])
        compact(to)


def to_be_archived(storage: Storage) -> None:
    """As many commits as make an archival due, and a history that the next file makes too long.

    A rollback is among what goes.
    """
    make_plain(storage)
    to = on_clock(writer(storage), CLOCK)
    archivals = 0
    for number in range(100):
        commit(to, [Row("a", number, number)])
        if archivals == 9 and not to.table.timeline.completed(Action.ROLLBACK):
            write_files(to, [Row("a", 99, 99)])
            to.abandon()
        to.compact_if_due(CompactionPolicy(2), LocalRunner(1))
        clean(to.table, CLEANING)
        due = plan_archival(to.table, ARCHIVAL, CLEANING)
        if any(instant.action is Action.ROLLBACK for instant in due):
            return
        archivals += archivals < 9 and archive_it(to) is not None
    raise AssertionError


def to_be_compacted_within(storage: Storage) -> None:
    """As many commits as make the next compact the metadata table."""
    make(storage)
    to = writer(storage)
    trial = storage
    while not metadata_compacted_at(trial, UTC_CLOCK):
        commit(to, [Row("a", 1, 1)])
        trial = copy_of(storage)
        commit_second(writer(trial))


def to_be_tended(storage: Storage) -> None:
    """A metadata table that is to be cleaned, and whose timeline is too long."""
    make(storage)
    to = writer(storage)
    for number in range(100):
        commit(to, [Row("a", number, number)])
        to.compact_if_due(CompactionPolicy(2), LocalRunner(1))
        if to.table.metadata_writer.compacted_at:
            archive_it(to)
        done = tend_it(writer(copy_of(storage))) if number > 30 else None
        if done is not None and done.deleted and done.archived:
            return
    raise AssertionError


# Steps


def nothing(_: TableWriter) -> None:
    """What a process does that only starts."""


def commit_second(to: TableWriter) -> object:
    return commit(to, COMMITTED[1])


def upsert_and_delete(to: TableWriter) -> None:
    """What a Python program does: two commits, one after the other."""
    rows = [{"id": row.id, "region": row.region, "ts": row.ts, "v": row.v} for row in COMMITTED[1]]
    program = RowWriter(to.table, runner=LocalRunner(1))
    program.upsert(pa.Table.from_pylist(rows, schema=SCHEMA))
    program.delete(["c"], None)


def compact(to: TableWriter) -> object:
    return to.compact_if_due(CompactionPolicy(every_delta_commits=1), LocalRunner(1))


def clean_it(to: TableWriter) -> object:
    return clean(to.table, CLEANING)


def archive_it(to: TableWriter) -> object:
    return archive(to.table, ARCHIVAL, CLEANING)


def archive_again(to: TableWriter) -> object:
    """And once more, when there is more: layers are merged by the next archival at the latest."""
    archive_it(to)
    ((key, (ts, value)),) = contents(to.table.storage).items()
    for _ in range(2):
        commit(to, [Row(key, ts, value)])
    return archive_it(to)


def tend_it(to: TableWriter) -> Maintained | None:
    return maintain(to.table.context, own_timeline(to.table.storage), to.table.timeline)


def rebuild(to: TableWriter) -> None:
    rebuild_metadata_table(to.table)


def take_to(version: FormatVersion) -> Step:
    return lambda to: change_table_version(to.table, version, LocalRunner(1))


def set_checkpoint(to: TableWriter) -> object:
    return write_checkpoint(to.table, DEFAULT_IDENTITY, CHECKPOINT)


def reset_checkpoint(to: TableWriter) -> object:
    return write_checkpoint(to.table, DEFAULT_IDENTITY, None)


def give_up(to: TableWriter) -> None:
    """A batch that fails once its files are written."""
    if not to.table.timeline.completed(Action.ROLLBACK):
        write_files(to, COMMITTED[2])
        to.abandon()


class _Held(LocalRunner):
    """Begins only when it is let."""

    def __init__(self) -> None:
        super().__init__(1)
        self.is_asked, self.may_go = threading.Event(), threading.Event()

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        self.is_asked.set()
        assert self.may_go.wait(_SOON_S)
        return super().map(function, tasks)


def compact_async(to: TableWriter) -> None:
    """Batch by batch: one is committed while the new base files are written, in another thread."""
    runner = _Held()
    policy = AsyncCompactionPolicy(CompactionPolicy(every_delta_commits=1), backoff_s=0.0)
    compactor = AsyncCompactor(policy, runner, lambda _: None)
    try:
        with compactor.mutex:
            assert compactor.start_next(to)
        assert runner.is_asked.wait(_SOON_S)
        with compactor.mutex:
            commit(to, COMMITTED[2])
        runner.may_go.set()
        with compactor.mutex:
            assert compactor.mutex.wait_for(lambda: not to.table.timeline.pending(), _SOON_S)
    finally:
        runner.may_go.set()
        assert not compactor.end(_SOON_S)


def commit_and_compact(to: TableWriter) -> None:
    """What the next process does, all of it between its batches."""
    commit(to, COMMITTED[2])
    compact(to)


def undo_newest(to: TableWriter) -> None:
    """Once: what is newest then was there before."""
    if not to.table.timeline.completed(Action.ROLLBACK):
        roll_back_named(to.table.context, newest_commit(to).requested_at)


def keep_second(to: TableWriter) -> None:
    if not to.table.timeline.completed(Action.SAVEPOINT):
        name = ingests(to)[1].requested_at
        create_savepoint(to.table.context, name, slices_as_of(to), "ann", "before the change")


def keep_no_more(to: TableWriter) -> None:
    for savepoint in to.table.timeline.instants:
        if savepoint.action is Action.SAVEPOINT:
            delete_savepoint(to.table.context, savepoint.requested_at)
            return


def restore_first(to: TableWriter) -> None:
    is_merge_on_read = to.table.properties.is_merge_on_read
    if to.table.timeline.pending(Action.RESTORE):
        with pytest.raises(Refused, match="is pending"):
            to.recover()
        restore(to.table.context, None, is_merge_on_read)
    elif not to.table.timeline.completed(Action.RESTORE):
        restore(to.table.context, ingests(to)[0].requested_at, is_merge_on_read)


def ingests(to: TableWriter) -> list[Instant]:
    table = to.table
    found = table.timeline.completed(*COMMITS)
    return [i for i in found if not table.store.read_commit(i).compacted]


def newest_commit(to: TableWriter) -> Instant:
    return to.table.timeline.completed(*COMMITS)[-1]


def slices_as_of(of: TableWriter) -> Callable[[Timeline, str], Iterable[FileSlice]]:
    def found(timeline: Timeline, instant: str) -> Iterable[FileSlice]:
        of.table.refresh(timeline)
        return of.table.view().as_of(instant).latest_slices()

    return found


def own_timeline(storage: Storage) -> Timeline:
    """A metadata table's own."""
    return TimelineStore(FolderStorage(storage, METADATA_FOLDER)).load()


# What a table shows of a step


def count_of(*actions: Action) -> Callable[[OpenTable], int]:
    return lambda table: len(table.timeline.completed(*actions))


def has_ingested(count: int) -> Callable[[OpenTable], bool]:
    return lambda table: count_of(*COMMITS)(table) >= count


def is_compacted(table: OpenTable) -> bool:
    return not any(one.logs for one in table.view().latest_slices())


def is_merged(table: OpenTable) -> bool:
    """Whether the history has a file of the second layer, and each instant is in one place."""
    before = storage_at(laid_down("archival").child(TABLE))
    archived, active = archived_names(table.storage), active_names(table.storage)
    assert len(set(archived)) == len(archived)
    assert not set(archived) & set(active)
    assert {*archived_names(before), *active_names(before)} <= {*archived, *active}
    return any(info.name.endswith("_1.parquet") for info in table.storage.list_tree(HISTORY))


def is_of(version: FormatVersion, writes: int) -> Callable[[OpenTable], bool]:
    """Whether it is of that version, knows its past, and no other timeline is left.

    Args:
        version: of the table.
        writes: how many completed writes it knows, archived ones among them.
    """

    def shows(table: OpenTable) -> bool:
        names = {*archived_names(table.storage), *active_names(table.storage)}
        known = [action for _, action in names if Action(action).is_write]
        _, objects = table.storage.list_folder(".hoodie")
        layout_1 = [o for o in objects if LayoutV1().parse(o.name) is not None]
        layout_2 = table.storage.list_tree(".hoodie/timeline")
        other = layout_2 if version is FormatVersion.V6 else layout_1
        return table.version is version and len(known) == writes and not other

    return shows


def is_to_go_on_at(checkpoint: KafkaCheckpoint | None) -> Callable[[OpenTable], bool]:
    def shows(table: OpenTable) -> bool:
        progress = find_progress(table, table.timeline)
        return progress is not None and progress.checkpoint == checkpoint

    return shows


def is_let_go(table: OpenTable) -> bool:
    return not table.timeline.completed(Action.SAVEPOINT)


def has_timeline_folder(table: OpenTable) -> bool:
    """Whether Apache Hudi, which lists it first of all, can read the table; S3 has no folders."""
    folders, _ = table.storage.list_folder(".hoodie")
    return table.storage.supports_compare_and_swap or ".hoodie/timeline" in folders


def is_known(table: OpenTable) -> bool:
    return bool(table.properties.metadata_partitions)


def is_tended(table: OpenTable) -> bool:
    own = own_timeline(table.storage)
    return bool(own.completed(Action.CLEAN)) and own.has_history


_COW = TableType.COPY_ON_WRITE
_V6, _V8, _V9 = FormatVersion
_UNDONE = count_of(Action.ROLLBACK)
#: The rows before, between and after the two commits of a program.
_OF_PROGRAM: tuple[Rows, ...] = (
    STATES[0],
    STATES[1],
    {key: row for key, row in STATES[1].items() if key != "c"},
)

_SOON_S = 300.0

SCENARIOS: dict[str, Scenario] = {
    "first start of a pipeline": Pipeline(({"rejects": []},), None, 0),
    "pipeline": Pipeline(
        (
            {"a": 1, "rejects": [1]},
            {"a": 1, "rejects": [1, 3]},
            {"a": 2, "b": 3, "rejects": [1, 3]},
        ),
        2,
        len(_RECORDS),
    ),
    "commit": OfTable(
        committed(1), commit_second, has_ingested(2), (STATES[0], STATES[1]), is_shared=True
    ),
    "commit that compacts the metadata table": OfTable(
        to_be_compacted_within,
        commit_second,
        lambda table: bool(metadata_compacted_at(table.storage, table.store.clock)),
        ({"a": (1, 1)}, {"a": (2, 2), "e": (2, 2)}),
    ),
    "commit, copy-on-write": OfTable(
        plain(1, _COW),
        commit_second,
        has_ingested(2),
        (STATES[0], STATES[1]),
        has_metadata=False,
    ),
    "upsert and delete by a program": OfTable(
        committed(1), upsert_and_delete, has_ingested(3), _OF_PROGRAM
    ),
    "upsert and delete by a program, copy-on-write": OfTable(
        plain(1, _COW), upsert_and_delete, has_ingested(3), _OF_PROGRAM, has_metadata=False
    ),
    "upsert and delete by one of several programs": OfTable(
        plain(1),
        upsert_and_delete,
        has_ingested(3),
        _OF_PROGRAM,
        has_metadata=False,
        is_shared=True,
    ),
    "compaction": OfTable(committed(2), compact, is_compacted, is_shared=True),
    "asynchronous compaction during a batch": OfTable(
        plain(2),
        compact_async,
        lambda table: has_ingested(4)(table) and count_of(Action.COMMIT)(table),
        (STATES[1], STATES[2]),
        finish=commit_and_compact,
        has_metadata=False,
    ),
    "cleaning": OfTable(to_be_cleaned, clean_it, count_of(Action.CLEAN)),
    "archival": OfTable(
        to_be_archived, archive_it, is_merged, finish=archive_again, has_metadata=False
    ),
    "rollback of the dead": OfTable(
        then(committed(1), left_by_the_dead), nothing, _UNDONE, is_shared=True
    ),
    "rollback of a batch given up": OfTable(plain(2), give_up, _UNDONE, has_metadata=False),
    "rollback of a commit": OfTable(committed(3), undo_newest, _UNDONE, (STATES[2], STATES[1])),
    "rollback of a commit, copy-on-write": OfTable(
        plain(3, _COW), undo_newest, _UNDONE, (STATES[2], STATES[1]), has_metadata=False
    ),
    "rollback of a compaction": OfTable(
        then(plain(3), compacted), undo_newest, _UNDONE, has_metadata=False
    ),
    "savepoint": OfTable(plain(3), keep_second, count_of(Action.SAVEPOINT), has_metadata=False),
    "deletion of a savepoint": OfTable(
        then(plain(3), kept), keep_no_more, is_let_go, has_metadata=False
    ),
    "restore": OfTable(
        then(committed(2), compacted, third),
        restore_first,
        count_of(Action.RESTORE),
        (STATES[2], STATES[1], STATES[0]),
        makes_metadata=True,
    ),
    "restore, copy-on-write": OfTable(
        plain(3, _COW),
        restore_first,
        count_of(Action.RESTORE),
        (STATES[2], STATES[1], STATES[0]),
        has_metadata=False,
    ),
    "checkpoint set": OfTable(committed(1), set_checkpoint, is_to_go_on_at(CHECKPOINT)),
    "checkpoint reset": OfTable(
        then(plain(1, _COW), with_checkpoint),
        reset_checkpoint,
        is_to_go_on_at(None),
        has_metadata=False,
    ),
    "upgrade": OfTable(plain(2, version=_V6), take_to(_V9), is_of(_V9, 3), has_metadata=False),
    "upgrade, copy-on-write": OfTable(
        then(plain(3, _COW), archived, changed_to(_V6)),
        take_to(_V9),
        is_of(_V9, 3),
        has_metadata=False,
    ),
    "downgrade": OfTable(
        then(plain(2), without_logs), take_to(_V6), is_of(_V6, 3), has_metadata=False
    ),
    "downgrade, copy-on-write": OfTable(
        then(plain(3, _COW), archived), take_to(_V6), is_of(_V6, 3), has_metadata=False
    ),
    "upgrade from version 8": OfTable(
        then(plain(2, version=_V8), with_metadata), take_to(_V9), is_of(_V9, 2), makes_metadata=True
    ),
    "downgrade to version 8": OfTable(plain(2), take_to(_V8), is_of(_V8, 3), has_metadata=False),
    "making of the metadata table": OfTable(plain(2), nothing, is_known, makes_metadata=True),
    "metadata table made anew": OfTable(committed(2), rebuild, is_known, makes_metadata=True),
    "upkeep of the metadata table": OfTable(to_be_tended, tend_it, is_tended),
}


@cache
def laid_down(name: str) -> StorageLocation:
    """The tables of a scenario, in memory; made once."""
    root = StorageLocation(f"memory://{uuid4().hex}/prepared")
    SCENARIOS[name].lay_down(root)
    return root
