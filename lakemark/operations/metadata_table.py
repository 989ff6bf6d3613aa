"""Builds, drops, compacts, cleans, archives and checks the metadata table of an open table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.config.table_properties import TableProperties
from lakemark.errors import TableNotFound, Unsupported
from lakemark.execution.runner import LocalRunner, Runner
from lakemark.index.key_search import rows_after_compaction
from lakemark.metadata import bootstrap
from lakemark.metadata.difference import Difference
from lakemark.metadata.expressions.file_values import FileValues
from lakemark.metadata.expressions.indexed_expression import (
    IndexedExpression,
    check_expressions,
    indexed_expressions,
    is_expression_index,
)
from lakemark.metadata.index_definition import remove_definitions
from lakemark.metadata.index_partitions import stale_definitions
from lakemark.metadata.index_sources import Indexed
from lakemark.metadata.metadata_table import MetadataTable
from lakemark.metadata.partition_kind import has_record_index
from lakemark.metadata.secondary_columns import SecondaryColumn, check_types, readable_columns
from lakemark.metadata.secondary_index import index_version
from lakemark.metadata.stored_locations import ReadKeys, no_keys
from lakemark.metadata.stored_values import ReadRows, no_rows
from lakemark.metadata.validation import find_differences
from lakemark.model.action import Action
from lakemark.model.column_ranges import indexed_columns
from lakemark.model.file_slice import FileSlice
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.operations.lookup_assigner import searched_groups
from lakemark.operations.open_table import OpenTable
from lakemark.services import indexing
from lakemark.services.metadata_table_services import Maintained, MetadataPolicies, maintain
from lakemark.storage.properties_file import read_properties
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.table_context import LOCK_WAIT_S


def keep_metadata_table(table: OpenTable) -> str | None:
    """Build the metadata table, unless it exists and is up to date.

    If a later change finds that the metadata table is behind the timeline, the change raises
    ``MetadataTableBehind``. Then call this function again.

    Returns:
        The reason why the metadata table was built; None if it was not built.

    Raises:
        Unsupported: the metadata table has partitions that lakemark does not write.
    """
    writer = table.metadata_writer
    writer.rebuild_at_start()
    schema = table.schema or pa.schema([])
    _finish_indexing(table)
    if writer.find_reason_to_rebuild(table.store.load(), schema) is None:
        return None
    with table.context.lock.hold(LOCK_WAIT_S) as lease:
        timeline = table.store.load()
        reason = writer.find_reason_to_rebuild(timeline, schema)
        if reason is not None:
            build_metadata_table(table, timeline, lease.check)
    return reason


def _finish_indexing(table: OpenTable) -> None:
    """Finish what dead processes have left of the creation or the drop of an index."""
    if table.timeline.pending(Action.INDEXING):
        indexing.clear_dead(table.context)
    elif stale_definitions(table.storage):
        with table.context.lock.hold(LOCK_WAIT_S) as lease:
            stale = stale_definitions(table.storage)
            remove_definitions(table.storage, stale, lease.check)


def rebuild_metadata_table(table: OpenTable) -> None:
    """Build the metadata table again, even if it is up to date."""
    with table.context.lock.hold(LOCK_WAIT_S) as lease:
        build_metadata_table(table, table.store.load(), lease.check)


def drop_metadata_table(table: OpenTable) -> None:
    """Remove the metadata table and its indexes, so that readers list storage again."""
    with table.context.lock.hold(LOCK_WAIT_S) as lease:
        properties = bootstrap.drop_metadata_table(
            table.storage, read_properties(table.storage), lease.check, keeps_indexes=False
        )
    table.metadata_writer.forget(properties)
    table.snapshot.forget_metadata_table(properties)


def compact_metadata_table(table: OpenTable) -> None:
    """Load the timeline of the metadata table, and compact the metadata table if this is due.

    Raises:
        MetadataTableBehind, Unsupported: lakemark cannot continue the metadata table.
    """
    context = table.context
    with context.lock.hold(LOCK_WAIT_S) as lease:
        table.metadata_writer.compact(table.store.load(), lease.check)
        if context.multi_writer is not None:
            context.multi_writer.let_clocks_pass()


def maintain_metadata_table(table: OpenTable, policies: MetadataPolicies) -> Maintained | None:
    """Clean and archive the metadata table; return None if neither is due.

    The metadata table's timeline as of this process's last commit decides what is due. Before the
    first commit of this process, nothing is done.
    """
    own = table.metadata_writer.timeline
    if own is None:
        return None
    try:
        maintained = maintain(table.context, own, table.timeline, policies)
    except TableNotFound:
        return None  # another process dropped the metadata table; the next commit detects this
    if maintained is not None:
        table.metadata_writer.note_table_services(maintained.timeline)
    return maintained


def compact_and_maintain_metadata_table(
    table: OpenTable, policies: MetadataPolicies
) -> Maintained | None:
    """Compact, clean and archive the metadata table, even before this process has committed."""
    if not table.properties.metadata_partitions:
        return None
    compact_metadata_table(table)
    return maintain_metadata_table(table, policies)


def metadata_differences(table: OpenTable, runner: Runner | None = None) -> list[Difference]:
    """Return the differences between the metadata table and the files.

    The list is empty if there is no metadata table.

    Raises:
        SnapshotChanged: another writer changed the table meanwhile; call again.
        CorruptData, Unsupported: a file cannot be read.
    """
    table.refresh()
    view, timeline = table.view(), table.timeline
    metadata = table.metadata_opener.open(table.properties, timeline, table.store.clock)
    if metadata is None:
        return []
    columns, latest = indexed_schema(table), view.latest_slices()
    schema = table.schema or pa.schema([])
    secondary = readable_columns(metadata.partitions, metadata.definitions, schema)
    return find_differences(
        table.storage,
        table.store,
        metadata,
        timeline,
        columns,
        latest,
        runner or LocalRunner(),
        _key_reader(table) if has_record_index(table.properties) else no_keys,
        secondary,
        row_reader(table) if secondary else no_rows,
        _readable_expressions(table, metadata),
    )


def _readable_expressions(table: OpenTable, metadata: MetadataTable) -> list[FileValues]:
    """Return the expressions with a usable index that lakemark computes."""
    found = []
    for partition in filter(is_expression_index, sorted(metadata.partitions)):
        with suppress(Unsupported):  # lakemark does not update this index
            definitions = metadata.definitions
            (one,) = indexed_expressions([partition], definitions, table.location.url)
            found.append(FileValues.of(table.storage, one, table.known_schema or pa.schema([])))
    return found


def build_metadata_table(
    table: OpenTable,
    timeline: Timeline,
    check_lease: Callable[[], None],
    indexes: Sequence[str] | None = None,
) -> None:
    """Build the metadata table; the caller holds the table's lock.

    The former metadata table is kept until nothing can refuse the new one.

    Args:
        table: the open table.
        timeline: the table's timeline, just loaded.
        check_lease: raises if the lock was lost.
        indexes: the indexes of the new metadata table; None for those that it has, or had before it
            was dropped.

    Raises:
        Unsupported: lakemark does not update one of the indexes.
        Refused: an index cannot be built; see ``bootstrap.prepare_metadata_table``.
        WriteConflict: another process has changed the properties in the meantime.
    """
    table.store.clock.check()
    table.refresh(timeline)
    columns, stored = indexed_schema(table), read_properties(table.storage)
    table.metadata_writer.check_record_index(stored)
    wanted = stored if indexes is None else stored.with_dropped_indexes(indexes)
    prepared = bootstrap.prepare_metadata_table(
        table.storage,
        stored,
        timeline,
        columns,
        check_lease,
        table.store.clock,
        wanted.metadata_indexes,
        _indexed(table, wanted),
        table.known_schema,
        row_reader(table) if has_record_index(wanted) else no_rows,
    )
    with prepared as content:
        bare = bootstrap.drop_metadata_table(table.storage, stored, check_lease, indexes=indexes)
        properties = content.write(bare, check_lease)
    table.metadata_writer.forget(properties)
    table.snapshot.forget_metadata_table(properties)


def _indexed(table: OpenTable, properties: TableProperties) -> list[Indexed]:
    """Return what the indexes with own names index that a new metadata table must have."""
    return [*_secondary_columns(table, properties), *_expressions(table, properties)]


def _expressions(table: OpenTable, properties: TableProperties) -> list[IndexedExpression]:
    """Return the expressions with an index.

    Raises:
        Unsupported: lakemark does not update one of the indexes.
    """
    known = table.metadata_writer.expressions(properties)
    schema, version = table.known_schema, table.version.column_statistics
    if schema is not None:
        check_expressions(known, schema, table.location.url)
    return [replace(one, version=version) for one in known]


def _secondary_columns(
    table: OpenTable, properties: TableProperties
) -> tuple[SecondaryColumn, ...]:
    """Return the columns of the secondary indexes that a new metadata table must have.

    Raises:
        Unsupported: lakemark does not update one of the indexes.
    """
    known = table.metadata_writer.secondary_columns(properties)
    schema = table.known_schema
    if schema is not None:
        check_types(known, schema, table.location.url)
    version = index_version(table.version)
    return tuple(replace(column, version=version) for column in known)


def row_reader(table: OpenTable) -> ReadRows:
    """Return a function that reads the live rows of file slices, as of the last refresh.

    A row is also live if queries will read it only after a pending compaction. Indexes need such
    rows, because a compaction changes no index.
    """
    if table.schema is None:
        return no_rows
    reader = table.scan(columns=[RECORD_KEY]).reader
    view = table.view()
    groups = searched_groups(view) if view.compactions else []
    compacted = {
        one.readable.group: one for one in groups if one.readable.group in view.compactions
    }

    def read_rows(file_slice: FileSlice, columns: Sequence[str]) -> Iterator[pa.Table]:
        yield from reader.read(file_slice, columns)
        if file_slice.group in compacted:
            yield from rows_after_compaction(reader, compacted[file_slice.group], columns)

    return read_rows


def _key_reader(table: OpenTable) -> ReadKeys:
    """Return a function that reads the record keys of live rows, as ``row_reader`` reads them."""
    if table.schema is None:
        return no_keys
    read_rows = row_reader(table)

    def read_keys(file_slice: FileSlice) -> pa.Array:
        columns = (rows.column(RECORD_KEY) for rows in read_rows(file_slice, [RECORD_KEY]))
        chunks = [chunk for column in columns for chunk in column.chunks]
        return pc.unique(pa.chunked_array(chunks, pa.string()))

    return read_keys


def indexed_schema(table: OpenTable) -> pa.Schema:
    """Return the columns with statistics; no columns before the first commit."""
    schema = table.schema or pa.schema([])
    names = indexed_columns(schema, table.version, table.properties.statistics_columns)
    return pa.schema([schema.field(name) for name in names])
