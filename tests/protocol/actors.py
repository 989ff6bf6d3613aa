"""The acts of a process on a table, and the result that each act acknowledges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias, TypedDict

import pyarrow as pa

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.edit import write_checkpoint
from lakemark.config.table_properties import PROPERTIES_PATH, TableProperties, TableType
from lakemark.errors import HudiError
from lakemark.execution.runner import LocalRunner
from lakemark.metadata.index_partitions import drop_partitions
from lakemark.model.action import COMMITS, Action
from lakemark.model.commit_metadata import Operation
from lakemark.model.file_slice import FileSlice
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.operations.archive import archive
from lakemark.operations.change_version import change_table_version
from lakemark.operations.clean import clean
from lakemark.operations.create_index import create_index
from lakemark.operations.drop_index import drop_index
from lakemark.operations.metadata_table import (
    compact_and_maintain_metadata_table,
    keep_metadata_table,
    rebuild_metadata_table,
)
from lakemark.operations.open_table import OpenTable
from lakemark.operations.partition_deletion import match_partitions
from lakemark.operations.table_indexes import list_indexes
from lakemark.operations.table_writer import TableWriter
from lakemark.operations.write import RowWriter
from lakemark.operations.writer_settings import WriterSettings
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.cleaning_plan import CleaningPolicy, Retention
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.services.metadata_table_services import MetadataPolicies
from lakemark.services.restore import restore
from lakemark.services.savepoint import create_savepoint, delete_savepoint
from lakemark.storage import Storage
from lakemark.storage.properties_file import read_properties
from lakemark.timeline.clock import UTC_CLOCK
from lakemark.timeline.locks.open_lock import open_lock
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.heartbeat import HeartbeatPolicy
from lakemark.transaction.multi_writer import MultiWriter
from lakemark.transaction.rollback import roll_back_named
from lakemark.transaction.streamer_progress import DEFAULT_IDENTITY
from lakemark.transaction.table_context import LOCK_WAIT_S
from tests.protocol.virtual_time import VirtualTime, VirtualTimelineClock
from tests.tables import INDEX, SCHEMA, Row, commit, spec

#: Ordering value and payload of a key.
Rows: TypeAlias = Mapping[str, tuple[int, int]]

SHARING = MultiWriter(HeartbeatPolicy(60.0, 2), clock_skew_ms=1)
NON_BLOCKING = replace(SHARING, non_blocking=True)
A_LEASE_AND_MORE_S = 61.0
A_HEARTBEAT_AND_MORE_S = 121.0

#: Keep as little as possible, so that the files a slow process relies on are deleted early.
CLEANING = CleaningPolicy(Retention.FILE_VERSIONS, file_versions=1)
ARCHIVAL = ArchivalPolicy(2, 3, delta_commits_to_compact=1)
METADATA = MetadataPolicies(CLEANING, ArchivalPolicy(2, 3, delta_commits_to_compact=1))
COMPACTION = CompactionPolicy(1)
ONLY_PENDING = CompactionPolicy(10**6)


class IndexArguments(TypedDict, total=False):
    """Arguments of ``create_index``."""

    column: str
    expression: str
    partitioned: bool


#: The partition that an overwrite replaces, and the first letters of the keys in this partition.
OVERWRITTEN, OVERWRITTEN_KEYS = "north", "an"


class Index(Enum):
    """An index that a process creates, or drops if it exists.

    Attributes:
        BLOOM_FILTERS, RECORD, PARTITIONED_RECORD, SECONDARY, EXPRESSION: indexes.
        COLUMN_STATS, PARTITION_STATS: statistics that the table lacks at first; nothing drops them.
    """

    BLOOM_FILTERS = "bloom_filters"
    RECORD = "record_index"
    PARTITIONED_RECORD = "partitioned"
    SECONDARY = "secondary"
    EXPRESSION = "expression"
    COLUMN_STATS = "column_stats"
    PARTITION_STATS = "partition_stats"

    @property
    def looks_up(self) -> bool:
        """Whether only tables without a bucket index may have it."""
        return self in (Index.RECORD, Index.PARTITIONED_RECORD, Index.SECONDARY)

    @property
    def name_in_table(self) -> str:
        """The name with which it is created and dropped."""
        return Index.RECORD.value if self is Index.PARTITIONED_RECORD else self.value

    @property
    def arguments(self) -> IndexArguments:
        """The other arguments of ``create_index``."""
        known: Mapping[Index, IndexArguments] = {
            Index.PARTITIONED_RECORD: {"partitioned": True},
            Index.SECONDARY: {"column": "v"},
            Index.EXPRESSION: {"expression": "from_unixtime(v, yyyy-MM-dd)"},
        }
        return known.get(self, {})

    @property
    def absent_statistics(self) -> tuple[str, ...]:
        """The statistics that the table lacks at first."""
        if self is Index.COLUMN_STATS:
            return (Index.COLUMN_STATS.value, Index.PARTITION_STATS.value)
        return (self.value,) if self is Index.PARTITION_STATS else ()


class Mode(Enum):
    """Whether a process expects to be the only writer, or one of several."""

    SINGLE = "single"
    MULTIPLE = "multiple"


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit of rows that was acknowledged to its writer.

    Attributes:
        requested_at: the requested time of the instant.
        completed_at: the completion time; readers see the commit from then on.
        rows: the rows that it wrote.
        checkpoint: the checkpoint that it sets for the default streamer.
        overwrites: whether it replaced all earlier rows of the partition ``OVERWRITTEN``.
    """

    requested_at: str
    completed_at: str
    rows: Rows
    checkpoint: KafkaCheckpoint | None = None
    overwrites: bool = False


@dataclass(frozen=True, slots=True)
class Restored:
    """A restore that was acknowledged to its caller.

    Attributes:
        requested_at: the requested time of the instant.
        completed_at: the completion time.
        target: requested time of the commit that the table was restored to; "" if another process
            had requested the restore.
    """

    requested_at: str
    completed_at: str
    target: str


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The result that an act reports to its caller; an act changes nothing that it does not report.

    Attributes:
        commit: the commit that was published.
        undone: requested times of instants that a rollback or restore undid.
        restored: the restore that undid them.
        rewritten: requested times of compactions that were completed.
        savepoint: requested time of the commit that a new savepoint keeps.
        deleted_savepoint: requested time of the commit whose savepoint was deleted.
        version: the table's new version.
    """

    commit: Committed | None = None
    undone: tuple[str, ...] = ()
    restored: Restored | None = None
    rewritten: tuple[str, ...] = ()
    savepoint: str | None = None
    deleted_savepoint: str | None = None
    version: FormatVersion | None = None


Act: TypeAlias = Callable[[TableWriter], Acknowledged]


# Tables and their writers


def create_table(
    storage: Storage,
    clock: VirtualTime,
    table_type: TableType,
    version: FormatVersion,
    *,
    has_metadata: bool,
) -> None:
    """Create an empty table."""
    made = spec(table_type, version=version)
    storage.create(PROPERTIES_PATH, made.to_properties().to_bytes())
    if has_metadata:
        keep_metadata_table(open_writer(storage, clock, has_metadata=True).table)


def open_writer(
    storage: Storage,
    clock: VirtualTime,
    mode: Mode = Mode.MULTIPLE,
    *,
    has_metadata: bool = False,
    looks_up: bool = False,
    non_blocking: bool = False,
    lease_s: float = 60.0,
) -> TableWriter:
    """Open a writer as a process does that has just started; nothing is recovered yet.

    ``looks_up``: whether the table has a lookup index instead of a bucket index.
    """
    properties = TableProperties.parse(storage.read(PROPERTIES_PATH))
    sharing = NON_BLOCKING if non_blocking else SHARING
    timeline_clock = VirtualTimelineClock(UTC_CLOCK.zone, virtual=clock)
    table = OpenTable(
        storage,
        properties,
        clock=timeline_clock,
        lock=open_lock(storage, lease_s=lease_s, clock=clock),
        multi_writer=sharing if mode is Mode.MULTIPLE else None,
    )
    index = None if looks_up else INDEX
    settings = WriterSettings(index, "parquet", metadata_table=has_metadata)
    return TableWriter(table, SCHEMA, settings)


# Acts


def commit_rows(to: TableWriter, rows: Sequence[Row]) -> Acknowledged:
    """Commit a batch; if that fails, undo it, as a stream does."""
    try:
        done = commit(to, rows)
    except HudiError:
        with suppress(HudiError):
            to.abandon()
        raise
    values = {row.id: (row.ts, row.v) for row in rows}
    return Acknowledged(commit=Committed(done.requested_at, done.completed_at or "", values))


def overwrite(to: TableWriter, rows: Sequence[Row]) -> Acknowledged:
    """Replace all rows of the partition ``OVERWRITTEN``, as a program does."""
    given = [{"id": row.id, "ts": row.ts, "v": row.v, "region": row.region} for row in rows]
    table = pa.Table.from_pylist(given, SCHEMA)
    done = RowWriter(to.table, runner=LocalRunner(1)).overwrite(table, Operation.INSERT_OVERWRITE)
    values = {row.id: (row.ts, row.v) for row in rows}
    instant, completed_at = done.instant or "", done.completed_at or ""
    return Acknowledged(commit=Committed(instant, completed_at, values, overwrites=True))


def delete_partition(to: TableWriter) -> Acknowledged:
    """Delete all rows of the partition ``OVERWRITTEN``; do nothing if it has none."""
    choose = match_partitions(to.table, [f"{OVERWRITTEN}*"])
    done = RowWriter(to.table, runner=LocalRunner(1)).delete_partitions(choose)
    instant = to.table.timeline.find(done.instant) if done.instant else None
    if instant is None:
        return Acknowledged()
    name, completed_at = instant.requested_at, instant.completed_at or ""
    return Acknowledged(commit=Committed(name, completed_at, {}, overwrites=True))


def compact(to: TableWriter) -> Acknowledged:
    """Execute pending compactions, and one more if there are log files."""
    return _rewritten(to, COMPACTION)


def finish_compactions(to: TableWriter) -> Acknowledged:
    """Execute only the pending compactions."""
    return _rewritten(to, ONLY_PENDING)


def clean_up(to: TableWriter) -> Acknowledged:
    clean(to.table, CLEANING)
    return Acknowledged()


def archive_instants(to: TableWriter) -> Acknowledged:
    """Archive all instants that may be archived."""
    archive(to.table, ARCHIVAL, None)
    return Acknowledged()


def recover(to: TableWriter) -> Acknowledged:
    """Undo what dead writers left, as a process does when it starts."""
    return Acknowledged(undone=tuple(to.recover()))


def roll_back_newest(to: TableWriter) -> Acknowledged:
    """Roll back the newest commit by name, as an operator does."""
    return roll_back(to, commits(to)[-1].requested_at)


def roll_back(to: TableWriter, requested_at: str) -> Acknowledged:
    return Acknowledged(undone=(roll_back_named(to.table.context, requested_at).instant,))


def restore_older(to: TableWriter) -> Acknowledged:
    """Restore to the last commit of rows but one."""
    return restore_to(to, ingests(to)[-2].requested_at)


def restore_to(to: TableWriter, requested_at: str | None) -> Acknowledged:
    """Restore to a commit, or finish the pending restore; then build the metadata table again."""
    had_metadata = bool(to.table.properties.metadata_partitions)
    is_merge_on_read = to.table.properties.is_merge_on_read
    done, undone = restore(to.table.context, requested_at, is_merge_on_read)
    if had_metadata:
        rebuild_metadata_table(to.table)
    restored = Restored(done.requested_at, done.completed_at or "", requested_at or "")
    return Acknowledged(undone=tuple(one.instant for one in undone), restored=restored)


def savepoint_newest(to: TableWriter) -> Acknowledged:
    """Create a savepoint of the newest commit."""
    name = commits(to)[-1].requested_at
    create_savepoint(to.table.context, name, slices_as_of(to), "ann", "")
    return Acknowledged(savepoint=name)


def delete_oldest_savepoint(to: TableWriter) -> Acknowledged:
    """Delete the oldest savepoint, completed or not."""
    found = [i for i in to.table.timeline.instants if i.action is Action.SAVEPOINT]
    name = found[0].requested_at
    delete_savepoint(to.table.context, name)
    return Acknowledged(deleted_savepoint=name)


def change_to(to: TableWriter, version: FormatVersion) -> Acknowledged:
    """Upgrade or downgrade the table to another version."""
    done = change_table_version(to.table, version, LocalRunner(1))
    return Acknowledged(undone=done.rolled_back, version=version)


def maintain_metadata(to: TableWriter) -> Acknowledged:
    """Compact, clean and archive the metadata table, if these services are due."""
    compact_and_maintain_metadata_table(to.table, METADATA)
    return Acknowledged()


def drop_statistics(to: TableWriter, names: Sequence[str]) -> None:
    """Drop statistics from the metadata table, which Apache Hudi may have written without them."""
    storage = to.table.storage
    with to.table.context.lock.hold(LOCK_WAIT_S) as lease:
        clock = to.table.store.clock
        drop_partitions(storage, read_properties(storage), names, clock, lease.check)


def create_or_drop(to: TableWriter, index: Index) -> Acknowledged:
    """Create an index; drop it if the table has it."""
    name = index.name_in_table
    if name in {one.name for one in list_indexes(to.table)}:
        drop_index(to.table, name)
    else:
        create_index(to.table, name, **index.arguments)
    return Acknowledged()


def set_checkpoint(to: TableWriter, checkpoint: KafkaCheckpoint) -> Acknowledged:
    """Set the checkpoint of the default streamer."""
    done = write_checkpoint(to.table, DEFAULT_IDENTITY, checkpoint)
    committed = Committed(done.requested_at, done.completed_at or "", {}, checkpoint)
    return Acknowledged(commit=committed)


# Queries of the timeline that acts use


def ingests(to: TableWriter) -> list[Instant]:
    """List the completed commits that are not compactions."""
    store = to.table.store
    return [i for i in commits(to) if not store.read_commit(i).compacted]


def slices_as_of(of: TableWriter) -> Callable[[Timeline, str], Iterable[FileSlice]]:
    """Return a function that lists the slices that a savepoint keeps."""

    def found(timeline: Timeline, instant: str) -> Iterable[FileSlice]:
        of.table.refresh(timeline)
        return of.table.view().as_of(instant).latest_slices()

    return found


def commits(to: TableWriter) -> list[Instant]:
    """List the completed commits, compactions included."""
    return list(to.table.timeline.completed(*COMMITS))


def _rewritten(to: TableWriter, policy: CompactionPolicy) -> Acknowledged:
    done = to.compact_if_due(policy, LocalRunner(1))
    return Acknowledged(rewritten=tuple(instant.requested_at for instant, _ in done))
