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

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial

from lakemark.config.property_check import check_allows
from lakemark.config.property_rule import Purpose
from lakemark.config.table_properties import TableProperties
from lakemark.errors import (
    Fenced,
    HudiError,
    InvalidConfig,
    Refused,
    SnapshotChanged,
)
from lakemark.metadata.bootstrap import all_finished_files, kinds_of_every_table
from lakemark.metadata.expressions.indexed_expression import COLUMN_STATS as COLUMN_STATS_KIND
from lakemark.metadata.expressions.indexed_expression import IndexedExpression
from lakemark.metadata.index_definition import (
    define_column_statistics,
    define_record_index,
)
from lakemark.metadata.index_partitions import add_partition, delete_files
from lakemark.metadata.index_sources import (
    BLOOM_FILTERS,
    COLUMN_STATS,
    RECORD_INDEX,
    SINGLE,
    Indexed,
    IndexSources,
    define_indexed,
    new_index_of,
    new_record_index,
)
from lakemark.metadata.metadata_store import FirstRecords
from lakemark.metadata.new_index import IndexContent, NewIndex, Source
from lakemark.metadata.secondary_columns import SecondaryColumn
from lakemark.metadata.secondary_index import index_version
from lakemark.metadata.spilled_entries import SpilledEntries
from lakemark.model.format_version import FormatVersion
from lakemark.model.index_plan import IndexPlan
from lakemark.model.instant import Instant
from lakemark.operations.index_checks import check_may_have, parse_index
from lakemark.operations.metadata_table import indexed_schema, rebuild_metadata_table, row_reader
from lakemark.operations.open_table import OpenTable
from lakemark.operations.table_indexes import expression_partition_of, name_of, partition_of
from lakemark.read.scan_planner import may_change_in_compaction
from lakemark.services import indexing
from lakemark.storage.properties_file import read_properties
from lakemark.timeline.locks.table_lock import Lease
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.rollback_checks import check_no_restore
from lakemark.transaction.table_context import LOCK_WAIT_S
from lakemark.view.file_lister import DataFile

_log = logging.getLogger(__name__)

#: How often the table is listed again because other writers deleted files meanwhile.
_READ_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class _Build:
    """An index that is being built: its plan on the timeline, and what was read so far."""

    pending: Instant
    plan: IndexPlan
    index: NewIndex
    indexed: Indexed | None


def create_index(
    table: OpenTable,
    name: str,
    column: str | None = None,
    *,
    expression: str | None = None,
    kind: str = COLUMN_STATS_KIND,
    partitioned: bool = False,
) -> str:
    """Create an index; do nothing if the table has it.

    If the table has no metadata table, it gets one.

    Args:
        table: the open table.
        name: ``record_index``, ``bloom_filters``, ``column_stats``, ``partition_stats``, or the
            name of a secondary index or an expression index.
        column: the column of a secondary index, which contains texts or integers.
        expression: the expression of an expression index, such as ``lower(name)``.
        kind: the type of an expression index: ``column_stats`` or ``bloom_filters``.
        partitioned: whether the keys of a record index are unique only within a partition.

    Returns:
        The partition of the metadata table that contains the index.

    Raises:
        InvalidConfig: the name or the expression is invalid; the table has such an index, but of
            another column or expression, or with keys that are unique elsewhere; or the table has
            no such column.
        Unsupported: the table may not have such an index, or lakemark does not update it.
        Refused: two file groups have the same record key; another process builds the index; the
            metadata table was dropped meanwhile; or Apache Hudi would fail at the values.
        StorageUnavailable: the disk of the temporary folder is full.
    """
    indexed = _named(table, name, column, expression, kind)
    index = _new_index(name, indexed, partitioned=partitioned)
    if isinstance(indexed, SecondaryColumn) and may_change_in_compaction(table.properties):
        _log.warning(
            "lakemark updates the index %s of %s, but its queries do not use it: a compaction may "
            "change values without updating the index, because late rows fill columns or the table "
            "has a custom merger; the queries of Apache Hudi use the index and may miss rows",
            name,
            table.location.url,
        )
    if not read_properties(table.storage).names_metadata_table:
        _has_index(table, table.store.load(), index, indexed)  # refuses before anything is made
        rebuild_metadata_table(table)
    with ExitStack() as alive:
        build = _announce(table, index, indexed, alive)
        if build is not None:
            _build(table, build)
    return index.partition


def plan_index(
    table: OpenTable,
    name: str,
    column: str | None = None,
    *,
    expression: str | None = None,
    kind: str = COLUMN_STATS_KIND,
    partitioned: bool = False,
) -> str | None:
    """Return the partition that ``create_index`` would build; None if the table has the index.

    Arguments and errors are as for ``create_index``; no row is read.
    """
    indexed = _named(table, name, column, expression, kind)
    index = _new_index(name, indexed, partitioned=partitioned)
    return None if _has_index(table, table.store.load(), index, indexed) else index.partition


def _named(
    table: OpenTable, name: str, column: str | None, expression: str | None, kind: str
) -> Indexed | None:
    """Return what an index with an own name indexes; None for an index of all keys or files."""
    if column is not None and expression is not None:
        message = f"index {name!r} has a column and an expression; name one of them"
        raise InvalidConfig(message)
    if expression is not None:
        partition = expression_partition_of(name)
        return parse_index(partition, expression, kind, table.version)
    if column is not None:
        return SecondaryColumn(partition_of(name, column), column, index_version(table.version))
    return None


def _new_index(name: str, indexed: Indexed | None, *, partitioned: bool) -> NewIndex:
    if partitioned and (indexed is not None or name != RECORD_INDEX.partition):
        message = (
            f"partitioned is for the index {RECORD_INDEX.partition} only, not for {name!r}; leave "
            "it out"
        )
        raise InvalidConfig(message)
    if indexed is not None:
        return new_index_of(indexed)
    partition = partition_of(name)
    if partition == RECORD_INDEX.partition:
        return new_record_index(partitioned=partitioned)
    return next(one for one in SINGLE if one.partition == partition)


def _announce(
    table: OpenTable, index: NewIndex, indexed: Indexed | None, alive: ExitStack
) -> _Build | None:
    """Announce an index on the timeline; return None if the table has it.

    Args:
        table: the open table.
        index: the index.
        indexed: what an index with an own name indexes.
        alive: keeps the heartbeat of the announced instant.
    """
    context = table.context
    with context.lock.hold(LOCK_WAIT_S) as lease:
        indexing.clear_dead_under_lock(context, context.timeline.load(), lease)
        timeline = context.timeline.load()
        if _has_index(table, timeline, index, indexed):
            return None
        requested = indexing.new_instant(context, timeline)
        alive.enter_context(context.alive(requested.requested_at))
        pending, plan = indexing.request(context, requested, index.partition, timeline, lease)
        return _Build(pending, plan, index, indexed)


def _has_index(
    table: OpenTable, timeline: Timeline, index: NewIndex, indexed: Indexed | None
) -> bool:
    """Check that a table may have an index, and return whether it has the index.

    The table is refreshed to the timeline.

    Raises:
        InvalidConfig, Unsupported, Refused: as for ``create_index``.
    """
    check_no_restore(timeline)
    partition = index.partition
    stored, url = read_properties(table.storage), table.location.url
    check_allows(stored, Purpose.MAINTAIN, url)
    table.store.clock.check()
    table.refresh(timeline)
    check_may_have(table, _with_metadata_table(stored), index, indexed)
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
        table.view().partitions,
        _files(table) if _reads_files(build) else (),
        row_reader(table),
        indexed_schema(table),
        table.known_schema,
    )
    return sources.of(build.index, build.indexed)


def _reads_files(build: _Build) -> bool:
    """Return whether an index has records of single files, also of older slices."""
    is_expression = isinstance(build.indexed, IndexedExpression)
    return is_expression or build.index in (BLOOM_FILTERS, COLUMN_STATS)


def _files(table: OpenTable) -> list[DataFile]:
    return all_finished_files(
        table.storage, table.view(), table.timeline, table.version, lambda: None
    )


def _definer(
    table: OpenTable, build: _Build, check_lease: Callable[[], None]
) -> Callable[[], None]:
    """Return a function that writes the definition of an index, if it has one."""
    storage = table.storage
    if build.indexed is not None:
        return partial(define_indexed, storage, build.indexed, check_lease)
    if build.index.partition == RECORD_INDEX.partition:
        partitioned = build.index.is_partitioned
        return partial(define_record_index, storage, check_lease, partitioned=partitioned)
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
        build.pending.requested_at,
        build.index,
        _definer(table, build, lease.check),
        records,
        timeline.newest_time,
        lease.check,
    )
    table.metadata_writer.forget(after)
    table.snapshot.forget_metadata_table(after)
    indexing.complete(context, build.pending, build.plan, lease)


def _discard(table: OpenTable, build: _Build) -> None:
    context = table.context
    with context.lock.hold(LOCK_WAIT_S) as lease:
        if build.pending in context.timeline.load().instants:
            indexing.finish(context, build.pending, build.plan, lease)
