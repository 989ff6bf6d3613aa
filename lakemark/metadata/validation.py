"""Validates a metadata table: compares its listings, statistics and indexes with the data files.

Source: ``HoodieMetadataTableValidator`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import suppress

import pyarrow as pa

from lakemark.execution.runner import Runner
from lakemark.log.log_block import CHANGING
from lakemark.log.log_writers import writers_in
from lakemark.metadata.bloom_filter_validation import bloom_filter_differences
from lakemark.metadata.bootstrap import visible_files
from lakemark.metadata.column_stats.derive import derive_file_ranges, files_of, may_be_too_wide
from lakemark.metadata.column_stats.lookup import ColumnStatistics, PartitionStatistics
from lakemark.metadata.difference import Difference
from lakemark.metadata.expressions.file_values import FileValues
from lakemark.metadata.expressions.validation import expression_differences
from lakemark.metadata.metadata_file_lister import MetadataFileLister
from lakemark.metadata.metadata_table import MetadataTable
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.metadata.partition_kind import PartitionKind, find_missing_statistics
from lakemark.metadata.record_index import RecordIndex
from lakemark.metadata.secondary_columns import SecondaryColumn
from lakemark.metadata.stored_locations import ReadKeys, record_index_differences
from lakemark.metadata.stored_values import ReadRows, no_rows, secondary_index_differences
from lakemark.model.bounds import bounds_of
from lakemark.model.column_ranges import ColumnRanges
from lakemark.model.file_slice import FileSlice, LogFile, join
from lakemark.model.format_version import FormatVersion
from lakemark.storage.storage import NotFound, Storage
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.view.file_lister import DataFile, StorageFileLister
from lakemark.view.retention import files_being_cleaned
from lakemark.view.view_loader import list_without_rolled_back


def find_differences(
    storage: Storage,
    store: TimelineStore,
    metadata: MetadataTable,
    timeline: Timeline,
    columns: pa.Schema,
    latest: Iterable[FileSlice],
    runner: Runner,
    read_keys: ReadKeys,
    secondary: Sequence[SecondaryColumn] = (),
    read_rows: ReadRows = no_rows,
    expressions: Sequence[FileValues] = (),
) -> list[Difference]:
    """Return all differences; this reads the footer or the rows of every data file.

    Missing file statistics do not count as a difference if the index does not include the column.
    Missing partition statistics do not count if no partition has statistics of the column.
    Partition statistics may be wider than the rows, unless they are marked as tight (exact).
    Bounds of a column of nulls may be zero, as Apache Hudi records them.
    The metadata table may describe files that an inflight clean has already deleted.
    Bloom filters must equal those in the footers of the base files. The record index must have the
    file group of each record key that queries read, and no other keys. A secondary index must have
    the value of each row that queries read, and no other values. An expression index must have the
    bounds, or a filter with the values, of each file.

    Args:
        storage: the data table's root.
        store: reads the data table's timeline.
        metadata: the metadata table as of ``timeline``.
        timeline: the data table's timeline.
        columns: the columns with statistics, with their current types.
        latest: the slices that queries read; partition statistics need not cover other slices.
        runner: reads the files.
        read_keys: reads the record keys of a slice, if the metadata table has a record index.
        secondary: the columns with a secondary index.
        read_rows: reads the rows of a slice, if there are such columns.
        expressions: the expressions with an index.

    Raises:
        SnapshotChanged: the table was changed in the meantime; call again.
        CorruptData, Unsupported: a file cannot be read.
    """
    found = list(_timeline_differences(metadata))
    damaged = list(_partition_file_differences(metadata))
    if damaged:
        return found + damaged  # the remaining checks may not be able to read it
    version = store.version
    on_storage = list_without_rolled_back(store, timeline, StorageFileLister(storage), version)
    existing = [file for some in on_storage.values() for file in some]
    listed, cleaned = _partly_cleaned(metadata, existing, files_being_cleaned(timeline, store))
    known = {file.path for file in listed}
    files = [
        file
        for some in visible_files(on_storage, timeline, version).values()
        for file in some
        if file.path in known or _has_committed_data(storage, file, timeline, version)
    ]
    found += _listing_differences(listed, files)
    names = {str(file.name) for file in (*existing, *cleaned)}
    if metadata.partitions_of_kind(PartitionKind.BLOOM_FILTERS):
        found += bloom_filter_differences(storage, metadata, files, (*existing, *cleaned))
    slices = list(latest)
    if metadata.partitions_of_kind(PartitionKind.RECORD_INDEX):
        found += record_index_differences(RecordIndex(metadata), slices, read_keys)
    found += secondary_index_differences(metadata, secondary, slices, read_rows)
    found += expression_differences(metadata, expressions, files, names, slices)
    if not metadata.partitions_of_kind(PartitionKind.COLUMN_STATS):
        return found
    read = runner.map(lambda file: derive_file_ranges(storage, file, columns), files)
    recomputed = dict(zip((file.path for file in files), read, strict=True))
    found += _column_differences(metadata, files, names, columns, recomputed, version)
    if metadata.partitions_of_kind(PartitionKind.PARTITION_STATS):
        found += _partition_differences(metadata, slices, timeline, recomputed, columns)
    return found


def _partly_cleaned(
    metadata: MetadataTable, existing: Iterable[DataFile], being_cleaned: Container[str]
) -> tuple[list[DataFile], list[DataFile]]:
    """Return the listed files, apart from those that an inflight clean has already deleted.

    A clean is recorded in the metadata table after all of its files were deleted.
    """
    on_storage = {file.path for file in existing}
    listed, cleaned = list[DataFile](), list[DataFile]()
    for some in MetadataFileLister(metadata).list_files().values():
        for file in some:
            is_cleaned = file.path in being_cleaned and file.path not in on_storage
            (cleaned if is_cleaned else listed).append(file)
    return listed, cleaned


def _has_committed_data(
    storage: Storage, file: DataFile, timeline: Timeline, version: FormatVersion
) -> bool:
    """Return whether a visible file contains rows or deletes of a completed commit.

    A log of table version 6 may contain only blocks of commits that are pending or were undone.
    """
    if not (isinstance(file, LogFile) and version.logs_name_their_slice):
        return True
    with suppress(NotFound):  # its commit was undone after the listing
        return any(map(timeline.is_committed, writers_in(storage, file, CHANGING)))
    return False


def _timeline_differences(metadata: MetadataTable) -> Iterator[Difference]:
    if metadata.inconsistency is not None:
        found = "the instants of the table's timeline"
        yield Difference(METADATA_FOLDER, "timeline", metadata.inconsistency, found)


def _partition_file_differences(metadata: MetadataTable) -> Iterator[Difference]:
    """Yield a difference for each metadata partition that is missing, or has wrong files."""
    missing = find_missing_statistics(metadata.partitions)
    if missing is not None:
        path = join(METADATA_FOLDER, PartitionKind.COLUMN_STATS.stored_name)
        yield Difference(path, "files", missing, "statistics of each file")
    for partition in sorted(metadata.partitions):
        mismatch = metadata.find_file_mismatch(partition)
        if mismatch is None and partition == PartitionKind.RECORD_INDEX.stored_name:
            mismatch = RecordIndex(metadata).find_damage()
        if mismatch is not None:
            path = join(METADATA_FOLDER, partition)
            yield Difference(path, "files", mismatch, "the files that its commits recorded")


def _listing_differences(
    stored: Iterable[DataFile], found: Iterable[DataFile]
) -> Iterator[Difference]:
    listed = {file.path: file.size_bytes for file in stored}
    actual = {file.path: file.size_bytes for file in found}
    for path in sorted(listed.keys() | actual.keys()):
        if listed.get(path) != actual.get(path):
            yield Difference(path, "size", _size(listed.get(path)), _size(actual.get(path)))


def _column_differences(
    metadata: MetadataTable,
    files: Sequence[DataFile],
    names: Container[str],
    columns: pa.Schema,
    recomputed: dict[str, ColumnRanges],
    version: FormatVersion,
) -> Iterator[Difference]:
    """Yield the file statistics that are wrong or missing; ``names`` lists all files on storage."""
    whole = [file for file in files if not _may_grow(file, version)]
    indexed = _indexed(metadata, columns, version)
    for field in columns:
        rows = ColumnStatistics(metadata).of_column(field.name, field.type)
        yield from _file_differences(rows, field, files, names, recomputed)
        if field.name in indexed:
            yield from _missing_statistics(rows, field, whole, recomputed)


def _file_differences(
    rows: pa.Table,
    field: pa.Field,
    files: Sequence[DataFile],
    names: Container[str],
    recomputed: dict[str, ColumnRanges],
) -> Iterator[Difference]:
    """Yield the wrong statistics of one column; ``rows`` are from ``ColumnStatistics``."""
    by_name = {str(file.name): file for file in files}
    for row in _rows(rows):
        name = str(row.pop("file_name"))
        if name not in names:
            yield Difference(name, field.name, _text(row), "no such file")
        file = by_name.get(name)
        actual = _range(recomputed[file.path], field.name) if file else None
        if file is not None and actual is not None and not _is_same(row, actual, field.type):
            yield Difference(file.path, field.name, _text(row), _text(actual))


def _is_same(stored: dict[str, object], actual: dict[str, object], kind: pa.DataType) -> bool:
    """Return whether stored statistics equal the actual ones.

    Apache Hudi does not shorten texts in bounds, and may use NaN as a bound. Lakemark shortens
    texts and omits NaN, so stored bounds are also compared after such a conversion. In a base file
    that has only nulls in a column, Apache Hudi may find the bounds ``_zero``.
    """
    is_empty = actual["max"] is None
    zero = _zero(kind)
    if stored == actual or (is_empty and stored == {**actual, "min": zero, "max": zero}):
        return True
    kept = bounds_of(pa.chunked_array([pa.array([stored["min"], stored["max"]], kind)]))
    low, high = _values(kept)
    return {**stored, "min": low, "max": high} == actual


def _zero(kind: pa.DataType) -> object:
    """Return the value that Apache Hudi takes for a bound of a column of nulls; None for texts.

    Parquet's statistics of numbers, times and booleans begin with zero, and
    ``ParquetUtils.readColumnStatsFromMetadata`` of Apache Hudi 1.2.0 does not ask whether they have
    seen a value. Such bounds are too wide, but no reader skips a row because of them.
    """
    if pa.types.is_boolean(kind):
        return False
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return None
    return pa.array([0], kind)[0].as_py()


def _may_grow(file: DataFile, version: FormatVersion) -> bool:
    """Return whether a commit that is not yet in the metadata table may append to the file."""
    return isinstance(file, LogFile) and version.logs_name_their_slice


def _indexed(metadata: MetadataTable, columns: pa.Schema, version: FormatVersion) -> frozenset[str]:
    """Return the columns for which each file must have statistics.

    Without an index definition, the result has all columns. In table version 6 it is empty instead,
    because tables of that version may lack the definition of an existing index.
    """
    definition = metadata.definitions.get(PartitionKind.COLUMN_STATS.stored_name)
    if definition is not None:
        return frozenset(columns.names) & frozenset(definition.source_fields)
    return frozenset() if version is FormatVersion.V6 else frozenset(columns.names)


def _missing_statistics(
    rows: pa.Table,
    field: pa.Field,
    files: Sequence[DataFile],
    recomputed: dict[str, ColumnRanges],
) -> Iterator[Difference]:
    """Yield the files that have values of an indexed column, but no statistics of the column."""
    known = set(rows.column("file_name").to_pylist())
    for file in files:
        actual = _range(recomputed[file.path], field.name)
        if str(file.name) not in known and actual is not None and actual["max"] is not None:
            yield Difference(file.path, field.name, "no statistics", _text(actual))


def _partition_differences(
    metadata: MetadataTable,
    latest: Sequence[FileSlice],
    timeline: Timeline,
    recomputed: dict[str, ColumnRanges],
    columns: pa.Schema,
) -> Iterator[Difference]:
    paths = sorted({one.group.partition_path for one in latest})
    stored, tight, recorded = PartitionStatistics(metadata).ranges(paths, columns)
    indexed = {name for _, name in recorded}
    for path in paths:
        here = [one for one in latest if one.group.partition_path == path]
        parts = [recomputed[f.path] for f in files_of(here) if f.path in recomputed]
        exact, widened = ColumnRanges.union(parts), ColumnRanges.union([stored[path], *parts])
        may_be_wide = may_be_too_wide(here, timeline)
        for name in stored[path].columns:
            is_tight = (path, name) in tight and not may_be_wide
            known, actual = _range(stored[path], name), _range(exact if is_tight else widened, name)
            if not any(part.columns for part in parts):
                continue  # no row is outside of any bounds; Apache Hudi keeps those of former rows
            if not (known and actual and _are_bounds(known, actual, columns.field(name), parts)):
                yield Difference(join(path, ""), name, _text(known), _text(actual))
        for name in sorted(indexed):
            actual = _range(exact, name)
            if (path, name) not in recorded and actual is not None and actual["max"] is not None:
                yield Difference(join(path, ""), name, "no statistics", _text(actual))


def _are_bounds(
    known: dict[str, object],
    actual: dict[str, object],
    field: pa.Field,
    files: Iterable[ColumnRanges],
) -> bool:
    """Return whether the stored bounds of a partition are those of its rows.

    Apache Hudi may have united them with ``_zero``, if a file has only nulls.
    """
    if _bounds(known) == _bounds(actual):
        return True
    of_files = (_range(file, field.name) for file in files)
    has_nulls = any(one is not None and one["max"] is None for one in of_files)
    united = pa.array([*_bounds(actual), _zero(field.type)], field.type)
    kept = _values(bounds_of(pa.chunked_array([united])))
    return has_nulls and _bounds(known) == tuple(kept)


def _range(ranges: ColumnRanges, name: str) -> dict[str, object] | None:
    """Return the statistics of one column; None if they are unknown."""
    if name not in ranges.columns:
        return None
    at = ranges.columns.index(name)
    low, high = _values(ranges.bounds.column(at))
    nulls, values = ranges.null_counts[at], ranges.value_counts[at]
    return {"min": low, "max": high, "null_count": nulls, "value_count": values}


def _rows(rows: pa.Table) -> Iterator[dict[str, object]]:
    """Yield rows as dictionaries; see ``_values``."""
    columns = [_values(column) for column in rows.columns]
    for row in zip(*columns, strict=True):
        yield dict(zip(rows.column_names, row, strict=True))


def _values(column: pa.Array | pa.ChunkedArray) -> list[object]:
    """Return values as Python values; a time that Python cannot hold is the number of its unit."""
    return [_value(one) for one in column]


def _value(stored: pa.Scalar) -> object:
    try:
        return stored.as_py()
    except (OverflowError, ValueError):
        return stored.value


def _bounds(known: dict[str, object]) -> tuple[object, object]:
    return known["min"], known["max"]


def _size(size_bytes: int | None) -> str:
    return "absent" if size_bytes is None else f"{size_bytes} bytes"


def _text(known: dict[str, object] | None) -> str:
    if known is None:
        return "unknown"
    return ", ".join(f"{name} {value}" for name, value in known.items())
