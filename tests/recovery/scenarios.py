"""The scenarios: acts of a process on a table, which ``test_every_write`` stops at every write.

All tables of a scenario are below one root, so that they can be copied together.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import Protocol, TypeAlias
from uuid import uuid4

import pyarrow as pa
import pytest

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.edit import write_checkpoint
from checkpoints.lookup import find_progress
from lakemark.config import keys
from lakemark.config.table_properties import (
    EXPRESSION_INDEX_PREFIX,
    MAINTAINED_INDEXES,
    PROPERTIES_PATH,
    SECONDARY_INDEX_PREFIX,
    LoggingMode,
    TableProperties,
    TableType,
)
from lakemark.config.table_spec import TableSpec
from lakemark.errors import Refused, Retriable, TableNotFound
from lakemark.execution.runner import LocalRunner, Result, Task
from lakemark.index.ring_files import load_ring
from lakemark.metadata.index_partitions import drop_partitions
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.model.action import COMMITS, Action
from lakemark.model.commit_metadata import Operation
from lakemark.model.file_slice import FileSlice
from lakemark.model.format_version import WRITTEN, FormatVersion
from lakemark.model.instant import Instant
from lakemark.model.restore_plan import EMPTY_TABLE
from lakemark.model.row_order import RowOrder
from lakemark.operations.archive import archive, plan_archival
from lakemark.operations.change_version import change_table_version
from lakemark.operations.clean import clean
from lakemark.operations.cluster import cluster_table
from lakemark.operations.compact import request_compaction
from lakemark.operations.compact_logs import compact_logs
from lakemark.operations.create import create_on
from lakemark.operations.create_index import create_index
from lakemark.operations.drop_index import drop_index
from lakemark.operations.duplicate_keys import Duplicates
from lakemark.operations.erasure import erase_records
from lakemark.operations.group_replacement import execute_replacement
from lakemark.operations.key_traces import find_traces
from lakemark.operations.metadata_table import keep_metadata_table, rebuild_metadata_table
from lakemark.operations.open_table import OpenTable
from lakemark.operations.orphan_removal import find_orphans, remove_orphans
from lakemark.operations.partition_deletion import match_partitions
from lakemark.operations.prepared_clustering import begin_preparation as begin_clustering
from lakemark.operations.prepared_resize import begin_preparation
from lakemark.operations.table_index import PartitionChange
from lakemark.operations.table_indexes import list_indexes
from lakemark.operations.table_writer import TableWriter
from lakemark.operations.write import RowWriter
from lakemark.services.archival import metadata_compacted_at
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.cleaning_plan import CleaningPolicy, Retention
from lakemark.services.clustering_plan import ClusteringPolicy
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.services.metadata_table_services import Maintained, maintain
from lakemark.services.partition_lifetime import PartitionLifetime
from lakemark.services.restore import restore
from lakemark.services.savepoint import create_savepoint, delete_savepoint
from lakemark.storage import Storage, StorageLocation
from lakemark.storage.folder_storage import FolderStorage
from lakemark.storage.properties_file import read_properties
from lakemark.storage.scratch import scratch_folder
from lakemark.timeline.clock import UTC_CLOCK
from lakemark.timeline.layout import LayoutV1
from lakemark.timeline.locks.open_lock import open_lock
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.transaction.heartbeat import HEARTBEAT_FOLDER, HeartbeatPolicy
from lakemark.transaction.instant_files import has_all_files
from lakemark.transaction.multi_writer import MultiWriter
from lakemark.transaction.rollback import roll_back_named
from lakemark.transaction.streamer_progress import DEFAULT_IDENTITY
from lakemark.transaction.table_context import LOCK_WAIT_S
from lakemark.write.markers import MARKERS_FOLDER
from lakemark.write.sorted_runs import SortMode
from sinks.hudi.partition_rule import PartitionChange as SinkPartitionChange
from streamer.async_compaction import AsyncCompactionPolicy, AsyncCompactor
from streamer.clustering import ClusteringRules, PendingPlans, TableClustering
from streamer.events import Event, Listener, ServiceFailed
from streamer.partition_expiry import PartitionExpiry
from tests.clocks import SharedClock, on_clock
from tests.json_stream import COLUMNS, JsonStream, Record
from tests.recovery.stores import storage_at
from tests.rings import FIRST_BUCKETS, MERGE_ALL, SPLIT_ALL, assert_in_buckets, ring_writer
from tests.storages import SimulatedCrash, WatchedStorage
from tests.table_services import HISTORY, active_names, archived_names, copy_of, make_plain
from tests.tables import (
    INDEXES,
    SCHEMA,
    Row,
    commit,
    contents,
    lookup_writer,
    make,
    spec,
    write_files,
    writer,
)
from tests.waiting import until
from transforms.decode.schema_policy import SchemaPolicy

TABLE = "table"
CLOCK = SharedClock()

#: The rows that queries find; those of a pipeline include its dead letters.
Rows: TypeAlias = dict[str, object]
#: Wraps the storages of a process.
Wrap: TypeAlias = Callable[[Storage], Storage]
Step: TypeAlias = Callable[[TableWriter], object]
Prepare: TypeAlias = Callable[[Storage], None]

COMMITTED = (
    [Row("a", 1, 1), Row("c", 1, 1, region="south")],
    [Row("a", 2, 2), Row("e", 2, 2, region="west")],
    [Row("c", 3, 3, region="south"), Row("f", 3, 3)],
)
#: The expected rows after each of these commits: the newest of each key.
STATES: list[Rows] = [
    {row.id: (row.ts, row.v) for rows in COMMITTED[: count + 1] for row in rows}
    for count in range(len(COMMITTED))
]
#: Rows of a partition that replace its older ones.
OVERWRITING = [Row("a", 0, 7), Row("g", 1, 8)]
CHECKPOINT = KafkaCheckpoint("orders", {0: 7})
CLEANING = CleaningPolicy(commits=1)
ARCHIVAL = ArchivalPolicy(2, 3, delta_commits_to_compact=2)


@dataclass(frozen=True)
class _ExpiredAtStart(HeartbeatPolicy):
    """For a process that starts so late that all earlier heartbeats have expired.

    The interval is so long that no writer renews its heartbeat.
    """

    interval_s: float = 3600.0
    started_s: float = field(default_factory=time.time)

    @property
    def expires_after_s(self) -> float:
        return time.time() - self.started_s


def unchanged(storage: Storage) -> Storage:
    return storage


class Scenario(Protocol):
    """An act of a process on the tables below a root."""

    @property
    def states(self) -> Sequence[Rows]:
        """The rows that queries may find: before the act, at each stage of it, and after it.

        Empty if the act does not change the rows.
        """
        ...

    @property
    def has_metadata(self) -> bool:
        """Whether the tables have a metadata table."""
        ...

    @property
    def makes_metadata(self) -> bool:
        """Whether the act builds the metadata table. If not, it must keep an existing one."""
        ...

    def create_tables(self, root: StorageLocation) -> None:
        """Create the tables."""
        ...

    def act(self, root: StorageLocation, wrap: Wrap) -> None:
        """Run a process from its start to its end, with wrapped storages."""
        ...

    def recover(self, root: StorageLocation, wrap: Wrap) -> None:
        """Start the next process, which recovers the tables, and stop before it does its work."""
        ...

    def run_next_process(self, root: StorageLocation, wrap: Wrap) -> None:
        """Run the next process from its start to its end."""
        ...

    def has_acted(self, root: StorageLocation) -> bool:
        """Whether the tables show the result of the act."""
        ...

    def rows(self, root: StorageLocation) -> Rows:
        """Query the rows."""
        ...

    def write_more(self, root: StorageLocation) -> Rows:
        """Run a process that writes other rows; return the rows expected after it."""
        ...

    def tables(self, root: StorageLocation) -> Iterator[OpenTable]:
        """Open each table."""
        ...


@dataclass(frozen=True)
class TableScenario:
    """An act of a writer on one table; a ``Scenario``.

    Attributes:
        prepare: creates the table.
        step: the act of a process after its recovery.
        states: see ``Scenario``.
        proves: returns whether a table shows the result of the step.
        finish: the act of a process that starts after one was stopped; by default the step.
        has_metadata: whether the process maintains a metadata table.
        makes_metadata: see ``Scenario``.
        is_shared: whether the process expects other writers.
        non_blocking: whether others may write the same file groups meanwhile.
        looks_up: whether the table has a lookup index instead of a bucket index.
        global_keys: whether the keys of a table with a lookup index are unique in the whole table.
        has_rings: whether the table has consistent hashing instead of a bucket index.
    """

    prepare: Prepare
    step: Step
    proves: Callable[[OpenTable], object]
    states: tuple[Rows, ...] = ()
    finish: Step | None = None
    has_metadata: bool = True
    makes_metadata: bool = False
    is_shared: bool = False
    non_blocking: bool = False
    looks_up: bool = False
    global_keys: bool = False
    has_rings: bool = False

    def create_tables(self, root: StorageLocation) -> None:
        self.prepare(storage_at(root.child(TABLE)))

    def act(self, root: StorageLocation, wrap: Wrap) -> None:
        """Run a process from its start to its end."""
        self.step(self._started(root, wrap))

    def recover(self, root: StorageLocation, wrap: Wrap) -> None:
        """Start the next process, which recovers the tables, and stop before it does its work."""
        self._started(root, wrap)

    def run_next_process(self, root: StorageLocation, wrap: Wrap) -> None:
        """Run the next process from its start to its end."""
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
        sharing = MultiWriter(_ExpiredAtStart(), clock_skew_ms=0, non_blocking=self.non_blocking)
        multi_writer = sharing if self.is_shared else None
        to = writer(wrap(storage_at(root.child(TABLE))), multi_writer=multi_writer)
        to = on_clock(to, CLOCK)
        to.settings = replace(to.settings, metadata_table=self.has_metadata)
        if self.looks_up:
            to.settings = replace(to.settings, index=None, global_keys=self.global_keys)
        if self.has_rings:
            to.settings = replace(to.settings, index=None, first_ring_count=FIRST_BUCKETS)
        if to.table.version.is_written and not to.table.timeline.pending(Action.RESTORE):
            to.recover()
        return to


_RECORDS: tuple[Record, ...] = (
    {"id": "a", "ts": 1, "n": 1},
    b"no JSON",
    {"id": "a", "ts": 2, "n": 2},
    b"no JSON",
    {"id": "b", "ts": 1, "n": 3},
)
_MOVING: tuple[Record, ...] = (
    {"id": "a", "ts": 1, "n": 1, "region": "x"},
    b"no JSON",
    {"id": "a", "ts": 2, "n": 2, "region": "y"},
    b"no JSON",
    {"id": "b", "ts": 1, "n": 3, "region": "x"},
)


#: The last record is only accepted if unknown fields are.
_REPLAYED: tuple[Record, ...] = (
    {"id": "a", "ts": 1, "n": 1},
    b"no JSON",
    {"id": "b", "ts": 1, "n": 2, "other": 3},
)
_AFTER_REPLAY: tuple[Rows, ...] = (
    {"a": 1, "rejects": [1, 2], "resolved": []},
    {"a": 1, "b": 2, "rejects": [1, 2], "resolved": []},
    {"a": 1, "b": 2, "rejects": [1, 2], "resolved": [2]},
)
_NO_POLICY = SchemaPolicy()
_KEYLESS = (*_RECORDS[:2], *_RECORDS[3:])
_EXPIRING: tuple[Record, ...] = (
    {"id": "a", "ts": 1, "n": 1, "region": "x"},
    b"no JSON",
    {"id": "b", "ts": 1, "n": 2, "region": "y"},
    b"no JSON",
)


@dataclass(frozen=True)
class Pipeline:
    """A pipeline from its start to the end of a batch of records, one of them rejected.

    Attributes:
        states: see ``Scenario``.
        earlier: how many records the pipeline has read before; None before its first start.
        wanted: how many records it has read at the end.
        records: the records of its topic.
        moves: whether rows move to other partitions, in a table without buckets.
        is_keyless: whether rows are inserted with automatic record keys.
    """

    states: tuple[Rows, ...]
    earlier: int | None
    wanted: int
    has_metadata: bool = True
    records: tuple[Record, ...] = _RECORDS
    moves: bool = False
    is_keyless: bool = False

    @property
    def makes_metadata(self) -> bool:
        return self.earlier is None

    def create_tables(self, root: StorageLocation) -> None:
        if self.earlier is not None:
            self._stream(root, unchanged).write(self.records[: self.earlier])

    def act(self, root: StorageLocation, wrap: Wrap) -> None:
        stream = self._stream(root, wrap)
        if stream.offset < self.wanted:
            stream.write(self.records[stream.offset : self.wanted])

    def recover(self, root: StorageLocation, wrap: Wrap) -> None:
        self._stream(root, wrap)

    def run_next_process(self, root: StorageLocation, wrap: Wrap) -> None:
        self.act(root, wrap)

    def has_acted(self, root: StorageLocation) -> bool:
        tables = list(self.tables(root))
        are_made = len(tables) == len(_TABLES)
        if self.has_metadata:
            are_made = are_made and all(map(is_known, tables))
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

    def _stream(
        self, root: StorageLocation, wrap: Wrap, policy: SchemaPolicy = _NO_POLICY
    ) -> JsonStream:
        stream = partial(
            JsonStream,
            root.child(TABLE),
            policy,
            metadata_table=self.has_metadata,
            opened=partial(_opened, wrap),
        )
        if self.is_keyless:
            return stream(record_key=(), index=None, duplicates=Duplicates.ALLOW)
        if not self.moves:
            return stream()
        return stream(
            columns={**COLUMNS, "region": "string"},
            partition_by=("region",),
            partition_change=SinkPartitionChange.MOVE,
            index=None,
        )


@dataclass(frozen=True)
class ServedPipeline(Pipeline, ABC):
    """A pipeline that writes a batch, and then runs a table service that replaces files."""

    @abstractmethod
    def serve(self, rows: TableWriter, listener: Listener) -> None:
        """Run the service on the table of the pipeline."""

    def act(self, root: StorageLocation, wrap: Wrap) -> None:
        """Run the process; raise ``Retriable`` if the service failed, which ends no stream."""
        stream, failures = self._stream(root, wrap), list[ServiceFailed]()
        if stream.offset < self.wanted:
            stream.write(self.records[stream.offset : self.wanted])

        def listen(event: Event) -> None:
            if isinstance(event, ServiceFailed):
                failures.append(event)

        self.serve(stream.rows, listen)
        if failures:
            raise Retriable(failures[0].error)

    def has_acted(self, root: StorageLocation) -> bool:
        table = next(self.tables(root))
        return super().has_acted(root) and bool(table.timeline.completed(Action.REPLACE_COMMIT))


@dataclass(frozen=True)
class ExpiringPipeline(ServedPipeline):
    """A pipeline that writes a batch, and then deletes the partition of its first batch."""

    def serve(self, rows: TableWriter, listener: Listener) -> None:
        began = UTC_CLOCK.parse(rows.table.timeline.completed(*COMMITS)[0].requested_at)
        lifetime = PartitionLifetime(timedelta(hours=1))
        ended = began + lifetime.older_than + timedelta(milliseconds=1)
        expiry = PartitionExpiry(rows, lifetime, 60.0, LocalRunner(1), listener, lambda: ended)
        expiry.run_if_due()

    def write_more(self, root: StorageLocation) -> Rows:
        """Write a late record of the deleted partition."""
        before = self.rows(root)
        self._stream(root, unchanged).write([{"id": "a", "ts": 9, "n": 9, "region": "x"}])
        return {**before, "a": 9}

    def _stream(
        self, root: StorageLocation, wrap: Wrap, policy: SchemaPolicy = _NO_POLICY
    ) -> JsonStream:
        return JsonStream(
            root.child(TABLE),
            policy,
            columns={**COLUMNS, "region": "string"},
            partition_by=("region",),
            metadata_table=self.has_metadata,
            opened=partial(_opened, wrap),
        )


@dataclass(frozen=True)
class ClusteringPipeline(ServedPipeline):
    """A pipeline that writes a batch, and then clusters its table, which has no buckets.

    Attributes:
        in_background: whether the clustering is prepared by a thread.
    """

    in_background: bool = False

    def serve(self, rows: TableWriter, listener: Listener) -> None:
        policy = ClusteringPolicy(order=RowOrder(("n",)))
        rules = ClusteringRules(
            policy, 1, lambda path: True, PendingPlans.KEEP, in_background=self.in_background
        )
        now_s = 0.0
        clustering = TableClustering(rows, rules, LocalRunner(1), listener, lambda: now_s)
        clustering.run()  # removes the plan of a process that died while it executed the plan
        now_s = 3600.0
        clustering.run()  # then a new plan is made only after a pause
        if clustering.is_preparing:
            job = clustering._preparation._job
            until(lambda: job is not None and not job.is_running)
            clustering.run()


@dataclass(frozen=True)
class ReplayingPipeline(Pipeline):
    """A replay of dead letters, of which one passes because the policy has changed.

    The table has automatic keys, so that a row that is written twice is in the table twice. The
    state includes which dead letters are resolved.
    """

    def create_tables(self, root: StorageLocation) -> None:
        stream = self._stream(root, unchanged, SchemaPolicy(unknown_fields="reject"))
        stream.write(self.records)

    def act(self, root: StorageLocation, wrap: Wrap) -> None:
        self._stream(root, wrap).replay().run(None)

    def has_acted(self, root: StorageLocation) -> bool:
        return self.rows(root) == self.states[-1]

    def rows(self, root: StorageLocation) -> Rows:
        *_, letters = self.tables(root)
        resolved = letters.scan(columns=["offset"], where="resolved_at is not null")
        offsets = resolved.to_reader().read_all().column("offset").to_pylist()
        return super().rows(root) | {"resolved": offsets}


_TABLES = (TABLE, f"{TABLE}_rejects")


def _opened(
    wrap: Wrap,
    location: StorageLocation,
    spec: TableSpec | None = None,
    multi_writer: MultiWriter | None = None,
) -> OpenTable:
    """Open a table; create it if it does not exist and a spec is given."""
    storage = wrap(storage_at(location))
    lock = open_lock(storage, clock=CLOCK)
    try:
        return OpenTable(storage, read_properties(storage), lock=lock, multi_writer=multi_writer)
    except TableNotFound:
        if spec is None:
            raise
        return create_on(storage, spec, lock=lock, multi_writer=multi_writer)


# Tables before an act


def committed(
    count: int,
    table_type: TableType = TableType.MERGE_ON_READ,
    indexes: Sequence[str] = (),
) -> Prepare:
    """Create a table with the first commits of ``COMMITTED``."""

    def prepare(storage: Storage) -> None:
        make(storage, table_type, indexes)
        for rows in COMMITTED[:count]:
            commit(writer(storage), rows)

    return prepare


def plain(
    count: int,
    table_type: TableType = TableType.MERGE_ON_READ,
    version: FormatVersion = FormatVersion.V9,
) -> Prepare:
    """Create such a table without a metadata table."""

    def prepare(storage: Storage) -> None:
        make_plain(storage, table_type, version)
        for rows in COMMITTED[:count]:
            commit(writer(storage), rows)

    return prepare


def looked_up(
    count: int,
    table_type: TableType = TableType.MERGE_ON_READ,
    indexes: Sequence[str] = (),
    *,
    partitioned: bool = False,
) -> Prepare:
    """Create a table with a lookup index and the first commits of ``COMMITTED``."""

    def prepare(storage: Storage) -> None:
        make(storage, table_type, indexes, partitioned=partitioned)
        for rows in COMMITTED[:count]:
            commit(lookup_writer(storage), rows)

    return prepare


def change_data(count: int) -> Prepare:
    """Create a copy-on-write table with ``.cdc`` files and the first commits of ``COMMITTED``."""

    def prepare(storage: Storage) -> None:
        logged = replace(spec(TableType.COPY_ON_WRITE), cdc=LoggingMode.DATA_BEFORE_AFTER)
        storage.create(PROPERTIES_PATH, logged.to_properties().to_bytes())
        keep_metadata_table(writer(storage).table)
        for rows in COMMITTED[:count]:
            commit(writer(storage), rows)

    return prepare


def hashed(version: FormatVersion = FormatVersion.V9, *, has_metadata: bool = False) -> Prepare:
    """Create a table with consistent hashing, one of whose two buckets has logs."""

    def prepare(storage: Storage) -> None:
        if has_metadata:
            make(storage, version=version)
        else:
            make_plain(storage, version=version)
        commit(ring_writer(storage), [Row(f"k{n}", 1, 1) for n in range(8)])
        commit(ring_writer(storage), [Row("k0", 2, 2)])

    return prepare


def keyless(count: int, table_type: TableType = TableType.MERGE_ON_READ) -> Prepare:
    """Create a table without meta columns and the first commits of ``COMMITTED``."""

    def prepare(storage: Storage) -> None:
        properties = replace(spec(table_type), meta_columns=False).to_properties()
        storage.create(PROPERTIES_PATH, properties.to_bytes())
        keep_metadata_table(writer(storage).table)
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


def split(storage: Storage) -> None:
    assert ring_writer(storage).resize_if_due(SPLIT_ALL, LocalRunner(1))


def third(storage: Storage) -> None:
    commit(writer(storage), COMMITTED[2])


def more_logs(storage: Storage) -> None:
    for ts in (3, 4):
        commit(writer(storage), [Row("a", ts, ts), Row("c", ts, ts, region="south")])


def logs_compacted(storage: Storage) -> None:
    compact_logs_once(writer(storage))


def two_by_lookup(storage: Storage) -> None:
    for rows in COMMITTED[:2]:
        commit(lookup_writer(storage), rows)


def planned_compaction(storage: Storage) -> None:
    assert request_compaction(writer(storage).table)


def with_deleted_partition(storage: Storage) -> None:
    to = writer(storage)
    to.recover()
    delete_partition_once(to)


def with_savepoint(storage: Storage) -> None:
    savepoint_second(writer(storage))


def left_by_dead_writer(storage: Storage) -> None:
    """Leave a commit in the metadata table whose writer died before it published the instant."""

    def die(method: str, path: str) -> None:
        if method == "publish" and path.startswith(".hoodie/timeline/"):
            raise SimulatedCrash

    with suppress(SimulatedCrash):
        commit(on_clock(writer(WatchedStorage(storage, die)), CLOCK), COMMITTED[1])


def without_statistics(*names: str) -> Prepare:
    """Drop statistics from the metadata table, which Apache Hudi may have written without them."""

    def drop(storage: Storage) -> None:
        table, properties = writer(storage).table, read_properties(storage)
        with table.context.lock.hold(LOCK_WAIT_S) as lease:
            drop_partitions(storage, properties, names, table.store.clock, lease.check)

    return drop


def changed_to(version: FormatVersion) -> Prepare:
    """Change the table to another version."""

    def prepare(storage: Storage) -> None:
        change_version_to(version)(writer(storage))

    return prepare


def as_old_version(storage: Storage) -> None:
    """Give a table of version 6 the properties of version 4, and a copy of a compaction plan."""
    for home in (storage, FolderStorage(storage, METADATA_FOLDER)):
        values = read_properties(home).values
        old = TableProperties({**values, keys.TABLE_VERSION: "4"})
        home.put(PROPERTIES_PATH, old.to_bytes())
    storage.put(_PLAN_COPY, b"plan")


def with_metadata(storage: Storage) -> None:
    keep_metadata_table(writer(storage).table)


def archived(storage: Storage) -> None:
    """Archive all commits but one."""
    assert archive(writer(storage).table, ArchivalPolicy(1, 2), None)


def with_orphans(storage: Storage) -> None:
    """Leave files of a batch that was rolled back, and its marker and heartbeat."""
    to = writer(storage)
    files = [stat.path for stat in write_files(to, [Row("c", 8, 8, region="south")]) if stat.path]
    late = {path: storage.read(path) for path in files}
    markers = {one.path: b"" for one in storage.list_tree(MARKERS_FOLDER)}
    to.abandon()
    (undone,) = to.table.store.load().completed(Action.ROLLBACK)
    name = to.table.store.read_rollback(undone).instant
    for path, content in {**late, **markers, f"{HEARTBEAT_FOLDER}/{name}": b""}.items():
        storage.put(path, content)


def without_logs(storage: Storage) -> None:
    compacted(storage)
    cleaning = CleaningPolicy(Retention.FILE_VERSIONS, file_versions=1)
    assert clean(writer(storage).table, cleaning)


def with_checkpoint(storage: Storage) -> None:
    set_checkpoint(writer(storage))


def due_for_cleaning(storage: Storage, indexes: Sequence[str] = ()) -> None:
    """Compact after each commit, so that the first slices may be cleaned."""
    make(storage, indexes=indexes)
    to = writer(storage)
    for number in range(1, 4):
        commit(to, [Row("a", number, number), Row("b", number, number, region="south")])
        compact(to)


def due_for_archival(storage: Storage) -> None:
    """Commit until an archival is due, and the next file of the history makes it too long.

    A rollback is among the instants that will be archived.
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


def due_for_metadata_compaction(storage: Storage) -> None:
    """Commit until the next commit compacts the metadata table."""
    make(storage)
    to = writer(storage)
    trial = storage
    while not metadata_compacted_at(trial, UTC_CLOCK):
        commit(to, [Row("a", 1, 1)])
        trial = copy_of(storage)
        commit_second(writer(trial))


def due_for_metadata_services(storage: Storage) -> None:
    """Commit until the metadata table must be cleaned, and its timeline must be archived."""
    make(storage)
    to = writer(storage)
    for number in range(100):
        commit(to, [Row("a", number, number)])
        to.compact_if_due(CompactionPolicy(2), LocalRunner(1))
        if to.table.metadata_writer.compacted_at:
            archive_it(to)
        done = maintain_metadata(writer(copy_of(storage))) if number > 30 else None
        if done is not None and done.deleted and done.archived:
            return
    raise AssertionError


# Steps


def nothing(_: TableWriter) -> None:
    """Do nothing: the process only starts and recovers."""


def commit_second(to: TableWriter) -> object:
    return commit(to, COMMITTED[1])


def move_row(to: TableWriter) -> None:
    """Move a row to another partition, as a Python program does."""
    rows = [{"id": "a", "region": "south", "ts": 2, "v": 2}]
    program = RowWriter(to.table, runner=LocalRunner(1), partition_change=PartitionChange.MOVE)
    program.upsert(pa.Table.from_pylist(rows, schema=SCHEMA))


def upsert_and_delete(to: TableWriter) -> None:
    """Upsert and delete rows, as a Python program does, in two commits."""
    program = RowWriter(to.table, runner=LocalRunner(1))
    program.upsert(_as_given(COMMITTED[1]))
    program.delete(["c"], None)


def insert_unless_stored(to: TableWriter) -> None:
    """Insert a stored and a new key, as a Python program does; the stored one is skipped."""
    program = RowWriter(to.table, runner=LocalRunner(1))
    program.insert(_as_given(COMMITTED[1]), Duplicates.DROP)


def bulk_insert_once(to: TableWriter) -> None:
    """Insert new keys in bulk, unless an earlier process has done it."""
    if not has_ingested(2)(to.table):
        program = RowWriter(to.table, runner=LocalRunner(1))
        new = [COMMITTED[1][1], COMMITTED[2][1]]
        program.bulk_insert(_as_given(new), SortMode.GLOBAL)


def overwrite_once(to: TableWriter) -> None:
    """Overwrite a partition, unless an earlier process has done it."""
    if not to.table.timeline.completed(Action.REPLACE_COMMIT):
        program = RowWriter(to.table, runner=LocalRunner(1))
        program.overwrite(_as_given(OVERWRITING), Operation.INSERT_OVERWRITE)


def cluster_once(to: TableWriter) -> None:
    """Sort the rows of all partitions, unless an earlier process has done it."""
    if not to.table.timeline.completed(Action.REPLACE_COMMIT):
        to.table.runner = LocalRunner(1)
        cluster_table(to.table, ClusteringPolicy(order=RowOrder(("v",))))


def publish_prepared_clustering(to: TableWriter) -> None:
    """Sort the rows of all partitions with files that were prepared.

    A process whose preparation is lost executes a pending plan, or clusters inline.
    """
    pending = bool(to.table.timeline.pending(Action.REPLACE_COMMIT, Action.CLUSTERING))
    if pending or to.table.timeline.completed(Action.REPLACE_COMMIT):
        cluster_once(to)
        return
    preparation = begin_clustering(to.table, ClusteringPolicy(order=RowOrder(("v",))))
    assert preparation is not None
    with scratch_folder("clustering") as folder:
        # The stores are copied before each write, so no other thread may write at this time.
        prepared = replace(preparation.run(folder), copies=1)
        request = partial(prepared.request, to.table)
        assert execute_replacement(to.table, request, LocalRunner(1))


def delete_partition_once(to: TableWriter) -> None:
    """Delete a partition, unless an earlier process has done it."""
    if not to.table.timeline.completed(Action.REPLACE_COMMIT):
        program = RowWriter(to.table, runner=LocalRunner(1))
        program.delete_partitions(match_partitions(to.table, ["north"]))


def erase_record(to: TableWriter) -> None:
    program = RowWriter(to.table, runner=LocalRunner(1))
    erase_records(to.table, program, ["a"])


def has_erased_record(table: OpenTable) -> bool:
    return not find_traces(table.storage, ["a"], LocalRunner(1)).traces


def _as_given(rows: Iterable[Row]) -> pa.Table:
    listed = [{"id": row.id, "region": row.region, "ts": row.ts, "v": row.v} for row in rows]
    return pa.Table.from_pylist(listed, schema=SCHEMA)


def compact(to: TableWriter) -> object:
    return to.compact_if_due(CompactionPolicy(after_commits=1), LocalRunner(1))


def compact_logs_once(to: TableWriter) -> None:
    """Execute a pending log compaction; plan one unless an earlier process has done it."""
    compact_logs(to.table, LocalRunner(1), min_logs=2)


def is_log_compacted(table: OpenTable) -> bool:
    commits = table.store.read_commits(table.timeline.completed(Action.DELTA_COMMIT))
    return any(commit.operation == Operation.LOG_COMPACT for commit in commits)


def split_buckets_once(to: TableWriter) -> None:
    """Execute a pending resize; split all buckets unless an earlier process has done it."""
    to.resize_if_due(None, LocalRunner(1))
    if not to.table.timeline.completed(Action.REPLACE_COMMIT):
        to.resize_if_due(SPLIT_ALL, LocalRunner(1))


def publish_prepared_split(to: TableWriter) -> None:
    """Split all buckets with files that were prepared before the newest commits.

    A process whose preparation is lost executes a pending resize, or splits the buckets inline.
    """
    pending = bool(to.table.timeline.pending(Action.REPLACE_COMMIT, Action.CLUSTERING))
    if pending or to.table.timeline.completed(Action.REPLACE_COMMIT):
        split_buckets_once(to)
        return
    preparation = begin_preparation(to.table, SPLIT_ALL)
    assert preparation is not None
    older = tuple(
        replace(one, slices=tuple(map(_first_log, one.slices))) for one in preparation.tasks
    )
    with scratch_folder("buckets") as folder:
        prepared = replace(preparation, tasks=older).run(folder)
        # The stores are copied before each write, so no other thread may write at this time.
        assert to.publish_prepared_resize(replace(prepared, copies=1))


def _first_log(file_slice: FileSlice) -> FileSlice:
    """Return the slice as it was before its last log."""
    return replace(file_slice, logs=file_slice.logs[:-1])


def merge_buckets(to: TableWriter) -> None:
    to.resize_if_due(MERGE_ALL, LocalRunner(1))


def clean_it(to: TableWriter) -> object:
    return clean(to.table, CLEANING)


def archive_it(to: TableWriter) -> object:
    return archive(to.table, ARCHIVAL, CLEANING)


def archive_again(to: TableWriter) -> object:
    """Archive, commit and archive again: the next archival merges the layers at the latest."""
    archive_it(to)
    ((key, (ts, value)),) = contents(to.table.storage).items()
    for _ in range(2):
        commit(to, [Row(key, ts, value)])
    return archive_it(to)


def maintain_metadata(to: TableWriter) -> Maintained | None:
    return maintain(to.table.context, own_timeline(to.table.storage), to.table.timeline)


def rebuild(to: TableWriter) -> None:
    rebuild_metadata_table(to.table)


def change_version_to(version: FormatVersion) -> Step:
    return lambda to: change_table_version(to.table, version, LocalRunner(1))


def set_checkpoint(to: TableWriter) -> object:
    return write_checkpoint(to.table, DEFAULT_IDENTITY, CHECKPOINT)


def reset_checkpoint(to: TableWriter) -> object:
    return write_checkpoint(to.table, DEFAULT_IDENTITY, None)


def abandon_batch(to: TableWriter) -> None:
    """Abandon a batch after its files are written."""
    if not to.table.timeline.completed(Action.ROLLBACK):
        write_files(to, COMMITTED[2])
        to.abandon()


class _Held(LocalRunner):
    """Begins only when a test permits it."""

    def __init__(self) -> None:
        super().__init__(1)
        self.is_asked, self.may_go = threading.Event(), threading.Event()

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        self.is_asked.set()
        assert self.may_go.wait(_SOON_S)
        return super().map(function, tasks)


def compact_async(to: TableWriter) -> None:
    """Compact in another thread, and commit a batch before the new base files are written."""
    runner = _Held()
    policy = AsyncCompactionPolicy(CompactionPolicy(after_commits=1), backoff_s=0.0)
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
    """Commit, and compact between batches, as the next process does."""
    commit(to, COMMITTED[2])
    compact(to)


def roll_back_newest(to: TableWriter) -> None:
    """Roll back the newest commit, unless a rollback was completed before."""
    if not to.table.timeline.completed(Action.ROLLBACK):
        roll_back_named(to.table.context, newest_commit(to).requested_at)


def savepoint_second(to: TableWriter) -> None:
    if not to.table.timeline.completed(Action.SAVEPOINT):
        name = ingests(to)[1].requested_at
        create_savepoint(to.table.context, name, slices_as_of(to), "ann", "before the change")


def delete_first_savepoint(to: TableWriter) -> None:
    for savepoint in to.table.timeline.instants:
        if savepoint.action is Action.SAVEPOINT:
            delete_savepoint(to.table.context, savepoint.requested_at)
            return


def restore_first(to: TableWriter) -> None:
    restore_once(to, lambda: ingests(to)[0].requested_at)


def restore_to_empty(to: TableWriter) -> None:
    restore_once(to, lambda: EMPTY_TABLE)


def restore_once(to: TableWriter, target: Callable[[], str]) -> None:
    """Restore the table, or complete the restore of a dead process."""
    is_merge_on_read = to.table.properties.is_merge_on_read
    if to.table.timeline.pending(Action.RESTORE):
        with pytest.raises(Refused, match="is pending"):
            to.recover()
        restore(to.table.context, None, is_merge_on_read)
    elif not to.table.timeline.completed(Action.RESTORE):
        restore(to.table.context, target(), is_merge_on_read)


def remove_all_orphans(to: TableWriter) -> None:
    remove_orphans(to.table, now=datetime.now(UTC) + timedelta(days=9))


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
    """Load the timeline of the metadata table."""
    return TimelineStore(FolderStorage(storage, METADATA_FOLDER)).load()


# The result of a step


def count_of(*actions: Action) -> Callable[[OpenTable], int]:
    return lambda table: len(table.timeline.completed(*actions))


def has_ingested(count: int) -> Callable[[OpenTable], bool]:
    return lambda table: count_of(*COMMITS)(table) >= count


def is_compacted(table: OpenTable) -> bool:
    return not any(one.logs for one in table.view().latest_slices())


def has_buckets(count: int) -> Callable[[OpenTable], bool]:
    """Check that the partition ``north`` has so many buckets, and each row is in its bucket."""

    def shows(table: OpenTable) -> bool:
        assert_in_buckets(table)
        ring = load_ring(table.storage, "north", table.timeline)
        return ring is not None and len(ring.file_ids) == count

    return shows


def has_no_orphans(table: OpenTable) -> bool:
    """Whether no file is left that no instant names, and the commits still have theirs."""
    assert all(has_all_files(table.context, one) for one in table.timeline.completed(*COMMITS))
    return not find_orphans(table, now=datetime.now(UTC) + timedelta(days=9))


def is_merged(table: OpenTable) -> bool:
    """Whether the history has a file of the second layer, and lists each instant once."""
    before = storage_at(prepared_tables("archival").child(TABLE))
    archived, active = archived_names(table.storage), active_names(table.storage)
    assert len(set(archived)) == len(archived)
    assert not set(archived) & set(active)
    assert {*archived_names(before), *active_names(before)} <= {*archived, *active}
    return any(info.name.endswith("_1.parquet") for info in table.storage.list_tree(HISTORY))


def is_of(version: FormatVersion, writes: int) -> Callable[[OpenTable], bool]:
    """Check that a table has a version, all its instants, and no timeline of another layout.

    Args:
        version: the expected version.
        writes: the expected number of completed writes, archived ones included.
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


def is_upgraded_to_6(table: OpenTable) -> bool:
    is_copied = table.storage.head(_PLAN_COPY) is not None
    return is_of(FormatVersion.V6, 2)(table) and not is_copied


def resumes_at(checkpoint: KafkaCheckpoint | None) -> Callable[[OpenTable], bool]:
    def shows(table: OpenTable) -> bool:
        progress = find_progress(table, table.timeline)
        return progress is not None and progress.checkpoint == checkpoint

    return shows


def has_no_savepoint(table: OpenTable) -> bool:
    return not table.timeline.completed(Action.SAVEPOINT)


def has_timeline_folder(table: OpenTable) -> bool:
    """Whether the timeline folder exists, which Apache Hudi lists first; S3 has no folders."""
    folders, _ = table.storage.list_folder(".hoodie")
    return table.storage.supports_compare_and_swap or ".hoodie/timeline" in folders


def is_known(table: OpenTable) -> bool:
    return bool(table.properties.metadata_partitions)


def has_index(name: str, *, is_there: bool = True) -> Callable[[OpenTable], bool]:
    def shows(table: OpenTable) -> bool:
        return (name in {one.name for one in list_indexes(table)}) is is_there

    return shows


def has_statistics(name: str) -> Callable[[OpenTable], bool]:
    return lambda table: name in read_properties(table.storage).metadata_partitions


def drop_secondary_index(to: TableWriter) -> None:
    if has_index("v")(to.table):
        drop_index(to.table, "v")


def is_metadata_maintained(table: OpenTable) -> bool:
    own = own_timeline(table.storage)
    return bool(own.completed(Action.CLEAN)) and own.has_history


_COW = TableType.COPY_ON_WRITE
_INDEXES = (*MAINTAINED_INDEXES, f"{SECONDARY_INDEX_PREFIX}v")
_EXPRESSIONS = (f"{EXPRESSION_INDEX_PREFIX}of_v", f"{EXPRESSION_INDEX_PREFIX}filters_of_v")
_V6, _V8, _V9 = WRITTEN
_UNDONE, _REPLACED = count_of(Action.ROLLBACK), count_of(Action.REPLACE_COMMIT)
_PLAN_COPY = ".hoodie/.aux/20260101000000000.compaction.requested"
#: The rows before, between and after the two commits of a program.
_OF_PROGRAM: tuple[Rows, ...] = (
    STATES[0],
    STATES[1],
    {key: row for key, row in STATES[1].items() if key != "c"},
)

_OF_DELETION: tuple[Rows, ...] = (
    STATES[1],
    {key: row for key, row in STATES[1].items() if key != "a"},
)
_OF_OVERWRITE: tuple[Rows, ...] = (STATES[1], {**STATES[1], "a": (0, 7), "g": (1, 8)})

_OF_MOVE: tuple[Rows, ...] = (STATES[0], {**STATES[0], "a": (2, 2)})

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
    "replay of dead letters": ReplayingPipeline(
        _AFTER_REPLAY, 0, 3, False, _REPLAYED, is_keyless=True
    ),
    "pipeline that moves rows": Pipeline(
        (
            {"a": 1, "rejects": [1]},
            {"a": 1, "rejects": [1, 3]},
            {"a": 2, "b": 3, "rejects": [1, 3]},
        ),
        2,
        len(_MOVING),
        has_metadata=False,
        records=_MOVING,
        moves=True,
    ),
    "pipeline without record keys": Pipeline(
        (
            {"a": 1, "rejects": [1]},
            {"a": 1, "rejects": [1, 2]},
            {"a": 1, "b": 3, "rejects": [1, 2]},
        ),
        2,
        len(_KEYLESS),
        has_metadata=False,
        records=_KEYLESS,
        is_keyless=True,
    ),
    "pipeline that clusters its table": ClusteringPipeline(
        (
            {"a": 1, "rejects": [1]},
            {"a": 1, "rejects": [1, 2]},
            {"a": 1, "b": 3, "rejects": [1, 2]},
        ),
        2,
        len(_KEYLESS),
        has_metadata=False,
        records=_KEYLESS,
        is_keyless=True,
    ),
    "pipeline that prepares a clustering": ClusteringPipeline(
        (
            {"a": 1, "rejects": [1]},
            {"a": 1, "rejects": [1, 2]},
            {"a": 1, "b": 3, "rejects": [1, 2]},
        ),
        2,
        len(_KEYLESS),
        has_metadata=False,
        records=_KEYLESS,
        is_keyless=True,
        in_background=True,
    ),
    "pipeline that deletes an expired partition": ExpiringPipeline(
        (
            {"a": 1, "rejects": [1]},
            {"a": 1, "rejects": [1, 3]},
            {"a": 1, "b": 2, "rejects": [1, 3]},
            {"b": 2, "rejects": [1, 3]},
        ),
        2,
        len(_EXPIRING),
        has_metadata=False,
        records=_EXPIRING,
    ),
    "commit": TableScenario(
        committed(1), commit_second, has_ingested(2), (STATES[0], STATES[1]), is_shared=True
    ),
    "commit of a non-blocking writer": TableScenario(
        committed(1),
        commit_second,
        has_ingested(2),
        (STATES[0], STATES[1]),
        has_metadata=False,
        is_shared=True,
        non_blocking=True,
    ),
    "commit that compacts the metadata table": TableScenario(
        due_for_metadata_compaction,
        commit_second,
        lambda table: bool(metadata_compacted_at(table.storage, table.store.clock)),
        ({"a": (1, 1)}, {"a": (2, 2), "e": (2, 2)}),
    ),
    "commit with a lookup index": TableScenario(
        looked_up(1),
        commit_second,
        has_ingested(2),
        (STATES[0], STATES[1]),
        is_shared=True,
        looks_up=True,
    ),
    "new keys in a small file": TableScenario(
        looked_up(2),
        lambda to: commit(to, COMMITTED[2]),
        has_ingested(3),
        (STATES[1], STATES[2]),
        looks_up=True,
    ),
    "insert with a lookup index": TableScenario(
        looked_up(1),
        insert_unless_stored,
        has_ingested(2),
        (STATES[0], {**STATES[0], "e": (2, 2)}),
        is_shared=True,
        looks_up=True,
    ),
    "bulk insert with a lookup index": TableScenario(
        looked_up(1),
        bulk_insert_once,
        has_ingested(2),
        (STATES[0], {**STATES[0], "e": (2, 2), "f": (3, 3)}),
        looks_up=True,
    ),
    "bulk insert with a bucket index, copy-on-write": TableScenario(
        committed(1, _COW),
        bulk_insert_once,
        has_ingested(2),
        (STATES[0], {**STATES[0], "e": (2, 2), "f": (3, 3)}),
    ),
    "commit with a record index": TableScenario(
        looked_up(1, indexes=_INDEXES),
        commit_second,
        has_ingested(2),
        (STATES[0], STATES[1]),
        is_shared=True,
        looks_up=True,
    ),
    "commit to a new partition with a partitioned record index": TableScenario(
        looked_up(1, indexes=("record_index",), partitioned=True),
        commit_second,
        has_ingested(2),
        (STATES[0], STATES[1]),
        is_shared=True,
        looks_up=True,
    ),
    "commit with a record index, copy-on-write": TableScenario(
        looked_up(2, _COW, _INDEXES),
        lambda to: commit(to, COMMITTED[2]),
        has_ingested(3),
        (STATES[1], STATES[2]),
        looks_up=True,
    ),
    "compaction with a record index": TableScenario(
        looked_up(2, indexes=_INDEXES), compact, is_compacted, looks_up=True
    ),
    "creation of a secondary index": TableScenario(
        looked_up(2, indexes=MAINTAINED_INDEXES),
        lambda to: create_index(to.table, "v", "v"),
        has_index("v"),
        looks_up=True,
    ),
    "commit with expression indexes, copy-on-write": TableScenario(
        looked_up(2, _COW, _EXPRESSIONS),
        lambda to: commit(to, COMMITTED[2]),
        has_ingested(3),
        (STATES[1], STATES[2]),
        looks_up=True,
    ),
    "rollback of a commit with expression indexes": TableScenario(
        looked_up(3, indexes=_EXPRESSIONS),
        roll_back_newest,
        _UNDONE,
        (STATES[2], STATES[1]),
        looks_up=True,
    ),
    "creation of an expression index": TableScenario(
        looked_up(2),
        lambda to: create_index(to.table, "v", expression="from_unixtime(v, yyyy-MM-dd)"),
        has_index("v"),
        looks_up=True,
    ),
    "creation of a record index": TableScenario(
        looked_up(2),
        lambda to: create_index(to.table, "record_index"),
        has_index("record_index"),
        is_shared=True,
        looks_up=True,
    ),
    "creation of a partitioned record index": TableScenario(
        looked_up(2),
        lambda to: create_index(to.table, "record_index", partitioned=True),
        has_index("record_index"),
        looks_up=True,
    ),
    "creation of bloom filters, copy-on-write": TableScenario(
        committed(2, _COW),
        lambda to: create_index(to.table, "bloom_filters"),
        has_index("bloom_filters"),
    ),
    "creation of column statistics": TableScenario(
        then(committed(2), without_statistics("column_stats", "partition_stats")),
        lambda to: create_index(to.table, "column_stats"),
        has_statistics("column_stats"),
    ),
    "creation of partition statistics, copy-on-write": TableScenario(
        then(committed(2, _COW), without_statistics("partition_stats")),
        lambda to: create_index(to.table, "partition_stats"),
        has_statistics("partition_stats"),
        is_shared=True,
    ),
    "drop of a secondary index": TableScenario(
        looked_up(2, indexes=_INDEXES),
        drop_secondary_index,
        has_index("v", is_there=False),
        looks_up=True,
    ),
    "rollback of a commit with a record index": TableScenario(
        looked_up(3, indexes=_INDEXES),
        roll_back_newest,
        _UNDONE,
        (STATES[2], STATES[1]),
        looks_up=True,
    ),
    "commit, copy-on-write": TableScenario(
        plain(1, _COW),
        commit_second,
        has_ingested(2),
        (STATES[0], STATES[1]),
        has_metadata=False,
    ),
    "upsert and delete by a program": TableScenario(
        committed(1), upsert_and_delete, has_ingested(3), _OF_PROGRAM
    ),
    "upsert and delete without meta columns": TableScenario(
        keyless(1), upsert_and_delete, has_ingested(3), _OF_PROGRAM
    ),
    "compaction without meta columns": TableScenario(keyless(2), compact, is_compacted),
    "upsert and delete by a program, copy-on-write with change data": TableScenario(
        change_data(1), upsert_and_delete, has_ingested(3), _OF_PROGRAM
    ),
    "upsert and delete by a program, copy-on-write": TableScenario(
        plain(1, _COW), upsert_and_delete, has_ingested(3), _OF_PROGRAM, has_metadata=False
    ),
    "upsert and delete by one of several programs": TableScenario(
        plain(1),
        upsert_and_delete,
        has_ingested(3),
        _OF_PROGRAM,
        has_metadata=False,
        is_shared=True,
    ),
    "overwrite of a partition": TableScenario(
        committed(2), overwrite_once, _REPLACED, _OF_OVERWRITE, is_shared=True
    ),
    "overwrite of a partition, copy-on-write": TableScenario(
        plain(2, _COW), overwrite_once, _REPLACED, _OF_OVERWRITE, has_metadata=False
    ),
    "overwrite of a partition in version 6": TableScenario(
        plain(2, version=_V6), overwrite_once, _REPLACED, _OF_OVERWRITE, has_metadata=False
    ),
    "overwrite of a partition with a record index": TableScenario(
        looked_up(2, indexes=_INDEXES), overwrite_once, _REPLACED, _OF_OVERWRITE, looks_up=True
    ),
    "overwrite of a partition in a pending compaction": TableScenario(
        then(committed(2), planned_compaction), overwrite_once, _REPLACED, _OF_OVERWRITE
    ),
    "deletion of a partition": TableScenario(
        committed(2), delete_partition_once, _REPLACED, _OF_DELETION, is_shared=True
    ),
    "deletion of a partition with a record index": TableScenario(
        looked_up(2, indexes=_INDEXES),
        delete_partition_once,
        _REPLACED,
        _OF_DELETION,
        looks_up=True,
    ),
    "rollback of the deletion of a partition with a record index": TableScenario(
        then(looked_up(2, indexes=_INDEXES), with_deleted_partition),
        roll_back_newest,
        _UNDONE,
        _OF_DELETION[::-1],
        looks_up=True,
    ),
    "cleaning of a deleted partition": TableScenario(
        then(committed(2, indexes=INDEXES), with_deleted_partition, third),
        clean_it,
        count_of(Action.CLEAN),
    ),
    "erasure of a record with a record index": TableScenario(
        looked_up(2, indexes=_INDEXES),
        erase_record,
        has_erased_record,
        _OF_DELETION,
        makes_metadata=True,
        looks_up=True,
    ),
    "row moves to another partition": TableScenario(
        looked_up(1), move_row, has_ingested(2), _OF_MOVE, looks_up=True, global_keys=True
    ),
    "row moves to another partition, copy-on-write": TableScenario(
        looked_up(1, _COW), move_row, has_ingested(2), _OF_MOVE, looks_up=True, global_keys=True
    ),
    "move to another partition with a record index": TableScenario(
        looked_up(1, indexes=MAINTAINED_INDEXES),
        move_row,
        has_ingested(2),
        _OF_MOVE,
        looks_up=True,
        global_keys=True,
    ),
    "compaction": TableScenario(committed(2), compact, is_compacted, is_shared=True),
    "log compaction": TableScenario(
        then(committed(2), more_logs), compact_logs_once, is_log_compacted, is_shared=True
    ),
    "log compaction in version 6": TableScenario(
        then(plain(2, version=FormatVersion.V6), more_logs),
        compact_logs_once,
        is_log_compacted,
        has_metadata=False,
    ),
    "rollback of a log compaction": TableScenario(
        then(plain(2), more_logs, logs_compacted), roll_back_newest, _UNDONE, has_metadata=False
    ),
    "asynchronous compaction during a batch": TableScenario(
        plain(2),
        compact_async,
        lambda table: has_ingested(4)(table) and count_of(Action.COMMIT)(table),
        (STATES[1], STATES[2]),
        finish=commit_and_compact,
        has_metadata=False,
    ),
    "split of buckets": TableScenario(
        hashed(),
        split_buckets_once,
        has_buckets(4),
        has_metadata=False,
        is_shared=True,
        has_rings=True,
    ),
    "split of buckets in version 6": TableScenario(
        hashed(_V6), split_buckets_once, has_buckets(4), has_metadata=False, has_rings=True
    ),
    "split of buckets with a metadata table": TableScenario(
        hashed(has_metadata=True), split_buckets_once, has_buckets(4), has_rings=True
    ),
    "prepared split of buckets": TableScenario(
        hashed(),
        publish_prepared_split,
        has_buckets(4),
        has_metadata=False,
        is_shared=True,
        has_rings=True,
    ),
    "prepared split of buckets with a metadata table": TableScenario(
        hashed(has_metadata=True), publish_prepared_split, has_buckets(4), has_rings=True
    ),
    "merge of buckets": TableScenario(
        then(hashed(), split),
        merge_buckets,
        has_buckets(FIRST_BUCKETS),
        has_metadata=False,
        has_rings=True,
    ),
    "clustering with a record index": TableScenario(
        looked_up(2, indexes=_INDEXES), cluster_once, _REPLACED, is_shared=True, looks_up=True
    ),
    "prepared clustering with a record index": TableScenario(
        looked_up(2, indexes=_INDEXES), publish_prepared_clustering, _REPLACED, looks_up=True
    ),
    "clustering in version 6": TableScenario(
        then(plain(0, version=_V6), two_by_lookup),
        cluster_once,
        _REPLACED,
        has_metadata=False,
        looks_up=True,
    ),
    "cleaning": TableScenario(due_for_cleaning, clean_it, count_of(Action.CLEAN)),
    "commit, copy-on-write, with indexes": TableScenario(
        committed(1, _COW, INDEXES),
        commit_second,
        has_ingested(2),
        (STATES[0], STATES[1]),
        is_shared=True,
    ),
    "compaction with indexes": TableScenario(committed(2, indexes=INDEXES), compact, is_compacted),
    "cleaning with indexes": TableScenario(
        partial(due_for_cleaning, indexes=INDEXES), clean_it, count_of(Action.CLEAN)
    ),
    "rollback of a commit with indexes": TableScenario(
        committed(3, indexes=INDEXES),
        roll_back_newest,
        _UNDONE,
        (STATES[2], STATES[1]),
    ),
    "archival": TableScenario(
        due_for_archival, archive_it, is_merged, finish=archive_again, has_metadata=False
    ),
    "rollback of a dead writer": TableScenario(
        then(committed(1), left_by_dead_writer), nothing, _UNDONE, is_shared=True
    ),
    "rollback of an abandoned batch": TableScenario(
        plain(2), abandon_batch, _UNDONE, has_metadata=False
    ),
    "rollback of a commit": TableScenario(
        committed(3), roll_back_newest, _UNDONE, (STATES[2], STATES[1])
    ),
    "rollback of a commit, copy-on-write": TableScenario(
        plain(3, _COW), roll_back_newest, _UNDONE, (STATES[2], STATES[1]), has_metadata=False
    ),
    "rollback of a compaction": TableScenario(
        then(plain(3), compacted), roll_back_newest, _UNDONE, has_metadata=False
    ),
    "savepoint": TableScenario(
        plain(3), savepoint_second, count_of(Action.SAVEPOINT), has_metadata=False
    ),
    "deletion of a savepoint": TableScenario(
        then(plain(3), with_savepoint), delete_first_savepoint, has_no_savepoint, has_metadata=False
    ),
    "restore": TableScenario(
        then(committed(2), compacted, third),
        restore_first,
        count_of(Action.RESTORE),
        (STATES[2], STATES[1], STATES[0]),
        makes_metadata=True,
    ),
    "restore, copy-on-write": TableScenario(
        plain(3, _COW),
        restore_first,
        count_of(Action.RESTORE),
        (STATES[2], STATES[1], STATES[0]),
        has_metadata=False,
    ),
    "restore to the empty table": TableScenario(
        then(plain(3, _COW), archived),
        restore_to_empty,
        count_of(Action.RESTORE),
        (STATES[2], STATES[1], {}),
        has_metadata=False,
    ),
    "restore to the empty table, version 6": TableScenario(
        then(plain(3, _COW, _V6), archived),
        restore_to_empty,
        count_of(Action.RESTORE),
        (STATES[2], STATES[1], {}),
        has_metadata=False,
    ),
    "removal of orphans": TableScenario(
        then(plain(2), with_orphans), remove_all_orphans, has_no_orphans, has_metadata=False
    ),
    "checkpoint set": TableScenario(committed(1), set_checkpoint, resumes_at(CHECKPOINT)),
    "checkpoint reset": TableScenario(
        then(plain(1, _COW), with_checkpoint),
        reset_checkpoint,
        resumes_at(None),
        has_metadata=False,
    ),
    "upgrade": TableScenario(
        plain(2, version=_V6), change_version_to(_V9), is_of(_V9, 3), has_metadata=False
    ),
    "upgrade, copy-on-write": TableScenario(
        then(plain(3, _COW), archived, changed_to(_V6)),
        change_version_to(_V9),
        is_of(_V9, 3),
        has_metadata=False,
    ),
    "downgrade": TableScenario(
        then(plain(2), without_logs), change_version_to(_V6), is_of(_V6, 3), has_metadata=False
    ),
    "downgrade, copy-on-write": TableScenario(
        then(plain(3, _COW), archived), change_version_to(_V6), is_of(_V6, 3), has_metadata=False
    ),
    "upgrade from version 8": TableScenario(
        then(plain(2, version=_V8), with_metadata),
        change_version_to(_V9),
        is_of(_V9, 2),
        makes_metadata=True,
    ),
    "upgrade from version 4": TableScenario(
        then(plain(2, version=_V6), with_metadata, as_old_version),
        change_version_to(_V6),
        is_upgraded_to_6,
        makes_metadata=True,
    ),
    "downgrade to version 8": TableScenario(
        plain(2), change_version_to(_V8), is_of(_V8, 3), has_metadata=False
    ),
    "bootstrap of the metadata table": TableScenario(
        plain(2), nothing, is_known, makes_metadata=True
    ),
    "rebuild of the metadata table": TableScenario(
        committed(2), rebuild, is_known, makes_metadata=True
    ),
    "services of the metadata table": TableScenario(
        due_for_metadata_services, maintain_metadata, is_metadata_maintained
    ),
}


@cache
def prepared_tables(name: str) -> StorageLocation:
    """Return the tables of a scenario, in memory; they are created once."""
    root = StorageLocation(f"memory://{uuid4().hex}/prepared")
    SCENARIOS[name].create_tables(root)
    return root
