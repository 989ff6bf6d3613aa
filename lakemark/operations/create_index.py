"""Creates an index of an open table while other writers commit.

1. under the lock: announce the index on the timeline (``lakemark.services.indexing``)
2. read the rows or files of the table, then what has changed meanwhile, and sort the records
3. under the lock: read what has changed since, sort again if anything has, write the index, and add
   it to the properties

Commits that were begun before step 3 do not contain what the index needs. They find the new index
under the lock, fail with ``WriteConflict``, and are written again. Writers of Apache Hudi may not
find it, so none may write meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from lakemark.config.property_check import check_allows
from lakemark.config.property_rule import Purpose
from lakemark.config.table_properties import TableProperties
from lakemark.errors import (
    Fenced,
    HudiError,
    InvalidConfig,
    Refused,
    SnapshotChanged,
    Unsupported,
)
from lakemark.metadata.bootstrap import all_finished_files, kinds_of_every_table
from lakemark.metadata.index_definition import (
    define_column_statistics,
    define_record_index,
    define_secondary_index,
)
from lakemark.metadata.index_partitions import add_partition, delete_files
from lakemark.metadata.index_sources import (
    BLOOM_FILTERS,
    COLUMN_STATS,
    PARTITION_STATS,
    RECORD_INDEX,
    SINGLE,
    IndexSources,
    new_secondary_index,
)
from lakemark.metadata.metadata_store import FirstRecords
from lakemark.metadata.new_index import IndexContent, NewIndex, Source
from lakemark.metadata.partition_kind import has_record_index
from lakemark.metadata.secondary_columns import SecondaryColumn, has_unambiguous_text
from lakemark.metadata.secondary_index import index_version
from lakemark.metadata.spilled_entries import SpilledEntries
from lakemark.model.format_version import FormatVersion
from lakemark.model.index_plan import IndexPlan
from lakemark.model.instant import Instant
from lakemark.model.meta_columns import META_COLUMNS
from lakemark.operations.metadata_table import indexed_schema, rebuild_metadata_table, row_reader
from lakemark.operations.open_table import OpenTable
from lakemark.operations.table_index import has_bucket_index
from lakemark.operations.table_indexes import name_of, partition_of
from lakemark.services import indexing
from lakemark.storage.properties_file import read_properties
from lakemark.timeline.locks.table_lock import Lease
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.rollback_checks import check_no_restore
from lakemark.transaction.table_context import LOCK_WAIT_S
from lakemark.view.file_lister import DataFile

#: How often the table is listed again because other writers deleted files meanwhile.
_READ_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class _Build:
    """An index that is being built: its plan on the timeline, and what was read so far."""

    pending: Instant
    plan: IndexPlan
    index: NewIndex
    column: SecondaryColumn | None


def create_index(table: OpenTable, name: str, column: str | None = None) -> str:
    """Create an index; do nothing if the table has it.

    If the table has no metadata table, it gets one.

    Args:
        table: the open table.
        name: ``record_index``, ``bloom_filters``, ``column_stats``, ``partition_stats``, or the
            name of a secondary index.
        column: the column of a secondary index, which contains texts or integers.

    Returns:
        The partition of the metadata table that contains the index.

    Raises:
        InvalidConfig: the name is invalid; the table has such an index, but of another column; or
            the table has no such column.
        Unsupported: the table may not have such an index, or lakemark does not update it.
        Refused: two file groups have the same record key; another process builds the index; or the
            metadata table was dropped meanwhile.
        StorageUnavailable: the disk of the temporary folder is full.
    """
    partition, indexed = _named(table, name, column)
    if not read_properties(table.storage).names_metadata_table:
        _has_index(table, table.store.load(), partition, indexed)  # refuses before anything is made
        rebuild_metadata_table(table)
    index = _index_of(partition, indexed)
    with ExitStack() as alive:
        build = _announce(table, index, indexed, alive)
        if build is not None:
            _build(table, build)
    return partition


def plan_index(table: OpenTable, name: str, column: str | None = None) -> str | None:
    """Return the partition that ``create_index`` would build; None if the table has the index.

    Arguments and errors are as for ``create_index``; no row is read.
    """
    partition, indexed = _named(table, name, column)
    return None if _has_index(table, table.store.load(), partition, indexed) else partition


def _named(table: OpenTable, name: str, column: str | None) -> tuple[str, SecondaryColumn | None]:
    partition = partition_of(name, column)
    if column is None:
        return partition, None
    return partition, SecondaryColumn(partition, column, index_version(table.version))


def _index_of(partition: str, column: SecondaryColumn | None) -> NewIndex:
    if column is not None:
        return new_secondary_index(column)
    return next(one for one in SINGLE if one.partition == partition)


def _announce(
    table: OpenTable, index: NewIndex, column: SecondaryColumn | None, alive: ExitStack
) -> _Build | None:
    """Announce an index on the timeline; return None if the table has it.

    Args:
        table: the open table.
        index: the index.
        column: the column of a secondary index.
        alive: keeps the heartbeat of the announced instant.
    """
    context = table.context
    with context.lock.hold(LOCK_WAIT_S) as lease:
        indexing.clear_dead_under_lock(context, context.timeline.load(), lease)
        timeline = context.timeline.load()
        if _has_index(table, timeline, index.partition, column):
            return None
        requested = indexing.new_instant(context, timeline)
        alive.enter_context(context.alive(requested.requested_at))
        pending, plan = indexing.request(context, requested, index.partition, timeline, lease)
        return _Build(pending, plan, index, column)


def _has_index(
    table: OpenTable, timeline: Timeline, partition: str, column: SecondaryColumn | None
) -> bool:
    """Return whether a table has an index; if not, check that it may have the index.

    Raises:
        InvalidConfig, Unsupported, Refused: as for ``create_index``.
    """
    check_no_restore(timeline)
    stored, url = read_properties(table.storage), table.location.url
    check_allows(stored, Purpose.MAINTAIN, url)
    table.store.clock.check()
    table.refresh(timeline)
    _check_may_have(table, _with_metadata_table(stored), partition, column)
    for pending, plan in table.store.pending_indexing(timeline):
        if partition in plan.partitions and not indexing.is_dead(table.context, pending, plan):
            message = (
                f"{pending} of table {url} builds the index {name_of(partition)!r}; wait until it "
                "has completed. If its process has died: lakemark table index drop "
                f"{url} {name_of(partition)} --run"
            )
            raise Refused(message)
    return partition in stored.stored_metadata_partitions


def _with_metadata_table(properties: TableProperties) -> TableProperties:
    """Return the properties that a table will have as soon as it has a metadata table."""
    if properties.names_metadata_table:
        return properties
    always = (kind.stored_name for kind in kinds_of_every_table(FormatVersion(properties.version)))
    return properties.with_metadata_partitions([*always, *properties.metadata_indexes])


def _check_may_have(
    table: OpenTable, properties: TableProperties, partition: str, column: SecondaryColumn | None
) -> None:
    """Check that a table with these properties may have an index; errors as for ``_has_index``."""
    if column is not None:
        _check_may_have_values(table, properties)
        _check_same_column(table, properties, column)
        _check_column(table, column)
    elif partition == PARTITION_STATS.partition:
        _check_may_have_partition_stats(table, properties)
    elif partition == RECORD_INDEX.partition:
        _check_may_have_locations(table)


def _check_may_have_locations(table: OpenTable) -> None:
    """Check that a table may have a record index.

    Raises:
        Unsupported: the hash of a key decides its file group.
    """
    is_hashed = table.first_ring_count is not None
    if is_hashed or has_bucket_index(table):
        kind = "consistent hashing" if is_hashed else "a bucket index"
        message = (
            f"table {table.location.url} has {kind}, so that writers find keys without a record "
            "index, and Apache Hudi would not add all keys to it; no record index is created"
        )
        raise Unsupported(message)


def _check_may_have_values(table: OpenTable, properties: TableProperties) -> None:
    """Check that a table may have a secondary index.

    Raises:
        Unsupported: the table has no record index, or has version 6.
    """
    url = table.location.url
    if not table.version >= FormatVersion.V8:
        message = (
            f"table {url} has version {int(table.version)}, in which tables have no secondary "
            "index; upgrade the table (lakemark table upgrade)"
        )
        raise Unsupported(message)
    if not has_record_index(properties):
        message = (
            f"table {url} has no record index, which a secondary index needs; create it first "
            f"(lakemark table index create {url} record_index --run)"
        )
        raise Unsupported(message)


def _check_may_have_partition_stats(table: OpenTable, properties: TableProperties) -> None:
    """Check that a table may have statistics of partitions.

    Raises:
        Unsupported: the table has no column statistics, or has version 6.
    """
    url = table.location.url
    if not table.version >= FormatVersion.V8:
        message = f"table {url} has version 6, in which tables have no partition_stats"
        raise Unsupported(message)
    if COLUMN_STATS.partition not in properties.stored_metadata_partitions:
        message = (
            f"table {url} has no column_stats, which partition_stats needs; create them first "
            f"(lakemark table index create {url} column_stats --run)"
        )
        raise Unsupported(message)


def _check_column(table: OpenTable, column: SecondaryColumn) -> None:
    """Check that a table has a column, and that lakemark knows the texts of its values.

    Raises:
        InvalidConfig: there is no such column.
        Unsupported: the values are neither texts nor integers.
    """
    url, schema = table.location.url, table.known_schema or pa.schema([])
    names = [name for name in schema.names if name not in META_COLUMNS]
    if column.name not in names:
        message = (
            f"table {url} has no column {column.name!r} that an index may have; its columns are: "
            f"{', '.join(names) or 'none yet'}"
        )
        raise InvalidConfig(message)
    kind = schema.field(column.name).type
    if not has_unambiguous_text(kind):
        message = (
            f"column {column.name!r} of table {url} is of type {kind}, but lakemark creates "
            "secondary indexes of texts and integers only; choose another column"
        )
        raise Unsupported(message)


def _check_same_column(
    table: OpenTable, properties: TableProperties, column: SecondaryColumn
) -> None:
    known = table.metadata_writer.secondary_columns(properties)
    same = next((one for one in known if one.partition == column.partition), None)
    if same is not None and same.name != column.name:
        message = (
            f"table {table.location.url} has an index {name_of(same.partition)!r} of column "
            f"{same.name!r}; drop it, or choose another name"
        )
        raise InvalidConfig(message)


def _build(table: OpenTable, build: _Build) -> None:
    """Build an announced index. After an error, what was written is removed."""
    try:
        with SpilledEntries() as entries:
            content = IndexContent(build.index, table.storage, entries)
            _read(table, build, content)
            table.refresh()
            _read(table, build, content)  # what was written during the first, long read
            records = content.encode()
            with table.context.lock.hold(LOCK_WAIT_S) as lease:
                _write(table, build, content, records, lease)
    except BaseException:
        with suppress(HudiError):  # otherwise the next process removes it
            _discard(table, build)
        raise


def _read(table: OpenTable, build: _Build, content: IndexContent) -> None:
    """Read the sources of an index while other writers commit.

    Raises:
        SnapshotChanged: other writers deleted files in each attempt.
    """
    for attempt in range(1, _READ_ATTEMPTS + 1):
        try:
            content.update(_sources(table, build), lambda: None)
        except SnapshotChanged:
            if attempt == _READ_ATTEMPTS:
                raise
            table.refresh()
        else:
            return


def _sources(table: OpenTable, build: _Build) -> Iterator[Source]:
    """Yield the sources of an index, as of the last refresh of the table."""
    sources = IndexSources(
        table.storage,
        table.store.clock,
        table.timeline,
        table.version,
        table.view().latest_slices(),
        _files(table) if build.index in (BLOOM_FILTERS, COLUMN_STATS) else (),
        row_reader(table),
        indexed_schema(table),
    )
    return sources.of(build.index, build.column)


def _files(table: OpenTable) -> list[DataFile]:
    return all_finished_files(
        table.storage, table.view(), table.timeline, table.version, lambda: None
    )


def _definer(
    table: OpenTable, build: _Build, check_lease: Callable[[], None]
) -> Callable[[], None]:
    """Return a function that writes the definition of an index, if it has one."""
    storage, column = table.storage, build.column
    if column is not None:
        return partial(
            define_secondary_index,
            storage, column.partition, column.name, column.version, check_lease,
        )  # fmt: skip
    if build.index is RECORD_INDEX:
        return partial(define_record_index, storage, check_lease)
    names = indexed_schema(table).names
    if build.index is COLUMN_STATS and names:
        version = table.version.column_statistics
        return partial(define_column_statistics, storage, names, version, check_lease)
    return lambda: None


def _write(
    table: OpenTable, build: _Build, content: IndexContent, records: FirstRecords, lease: Lease
) -> None:
    """Read what has changed, and write the index; the caller holds the lock.

    Args:
        table: the open table.
        build: the index.
        content: what was read before.
        records: its records.
        lease: the lease of the lock.

    Raises:
        Fenced: another process has removed the announcement.
        Refused: two file groups have the same record key; or the metadata table was dropped.
    """
    context, timeline = table.context, table.store.load()
    if build.pending not in timeline.instants:
        reason = "another process removed it"
        raise Fenced(build.pending.requested_at, reason)
    delete_files(table.storage, build.index.partition, table.store.clock, lease.check)
    store = table.metadata_writer.open_store(timeline)
    if store is None:
        message = (
            f"the metadata table of {table.location.url} was dropped while its index "
            f"{name_of(build.index.partition)!r} was built; create the index again"
        )
        raise Refused(message)
    table.refresh(timeline)
    if content.update(_sources(table, build), lease.check):
        records = content.encode()
    properties = read_properties(table.storage)
    after = add_partition(
        table.storage,
        store,
        properties,
        build.index,
        _definer(table, build, lease.check),
        records,
        timeline.newest_time,
        lease.check,
    )
    table.metadata_writer.forget()
    table.snapshot.forget_metadata_table(after)
    indexing.complete(context, build.pending, build.plan, lease)


def _discard(table: OpenTable, build: _Build) -> None:
    context = table.context
    with context.lock.hold(LOCK_WAIT_S) as lease:
        if build.pending in context.timeline.load().instants:
            indexing.finish(context, build.pending, build.plan, lease)
