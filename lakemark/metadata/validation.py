"""Holds a metadata table against its data table: listings, sizes, and statistics made anew.

Source: ``HoodieMetadataTableValidator`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from lakemark.execution.runner import Runner
from lakemark.log.log_block import CHANGING
from lakemark.log.log_writers import writers_in
from lakemark.metadata.bootstrap import visible
from lakemark.metadata.column_stats.file_ranges import ranges_in
from lakemark.metadata.column_stats.lookup import ColumnStatistics, PartitionStatistics
from lakemark.metadata.column_stats.remaining_ranges import files_of, may_be_wide
from lakemark.metadata.metadata_file_lister import MetadataFileLister
from lakemark.metadata.metadata_table import MetadataTable
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.model.bounds import bounds_of
from lakemark.model.column_ranges import ColumnRanges
from lakemark.model.file_slice import FileSlice, LogFile, join
from lakemark.model.format_version import FormatVersion
from lakemark.storage.storage import NotFound, Storage
from lakemark.timeline.timeline import Timeline
from lakemark.view.file_lister import DataFile, StorageFileLister


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that the metadata table says otherwise than the files.

    Attributes:
        place: a file, from the table's root or, once it is gone, by its name alone; a partition; or
            the metadata table.
        what: size, the column whose statistics differ, or the timeline.
        stored: what the metadata table says.
        found: what is true.
    """

    place: str
    what: str
    stored: str
    found: str


def differences(
    storage: Storage,
    metadata: MetadataTable,
    timeline: Timeline,
    version: FormatVersion,
    columns: pa.Schema,
    latest: Iterable[FileSlice],
    runner: Runner,
) -> list[Difference]:
    """Everything that differs; of every data file its footer, or its rows, are read.

    Statistics of a column of which the index keeps none are no difference when they are absent, nor
    are those of a partition. A range that is wider than need be is none of a partition, unless it
    claims to be tight.

    Args:
        storage: the data table's root.
        metadata: as of ``timeline``.
        timeline: the data table's.
        version: the data table's.
        columns: those of which statistics are kept, with the types that they have now.
        latest: the slices that queries read; statistics of partitions need not tell of others.
        runner: where files are read.

    Raises:
        SnapshotChanged: others changed the table meanwhile; call again.
        CorruptData, Unsupported: a file cannot be read.
    """
    found = list(_timeline_differences(metadata))
    damaged = list(_partition_file_differences(metadata))
    if damaged:
        return found + damaged  # what is left of it need not even be readable
    on_storage = StorageFileLister(storage).list_files()
    there = visible(on_storage, timeline, version)
    listed = [file for some in MetadataFileLister(metadata).list_files().values() for file in some]
    known = {file.path for file in listed}
    files = [
        file
        for some in there.values()
        for file in some
        if file.path in known or _counts(storage, file, timeline, version)
    ]
    found += _listing_differences(listed, files)
    if metadata.of_kind(PartitionKind.COLUMN_STATS):
        recomputed = dict(
            zip(
                (file.path for file in files),
                runner.map(lambda file: ranges_in(storage, file, columns), files),
                strict=True,
            )
        )
        names = {str(file.name) for some in on_storage.values() for file in some}
        whole = [file for file in files if not _may_be_written_to(file, version)]
        indexed = _indexed(metadata, columns, version)
        for field in columns:
            rows = ColumnStatistics(metadata).of_column(field.name, field.type)
            found += _file_differences(rows, field, files, names, recomputed)
            if field.name in indexed:
                found += _absent_statistics(rows, field, whole, recomputed)
        if metadata.of_kind(PartitionKind.PARTITION_STATS):
            found += _partition_differences(metadata, list(latest), timeline, recomputed, columns)
    return found


def _counts(storage: Storage, file: DataFile, timeline: Timeline, version: FormatVersion) -> bool:
    """Whether a file that is visible by its name holds rows, or deletes, of a completed commit.

    A log of table version 6 does not before its commit completes, and not once that was undone.
    """
    if not (isinstance(file, LogFile) and version.logs_name_their_slice):
        return True
    with suppress(NotFound):  # undone since it was listed
        return any(map(timeline.is_committed, writers_in(storage, file, CHANGING)))
    return False


def _timeline_differences(metadata: MetadataTable) -> Iterator[Difference]:
    if metadata.disagreement is not None:
        found = "what the table's own has"
        yield Difference(METADATA_FOLDER, "timeline", metadata.disagreement, found)


def _partition_file_differences(metadata: MetadataTable) -> Iterator[Difference]:
    """Files of the metadata table itself that are not as its own commits wrote them."""
    for partition in sorted(metadata.partitions):
        difference = metadata.difference(partition)
        if difference is not None:
            place = join(METADATA_FOLDER, partition)
            yield Difference(place, "files", difference, "what its own commits recorded")


def _listing_differences(
    stored: Iterable[DataFile], found: Iterable[DataFile]
) -> Iterator[Difference]:
    listed = {file.path: file.size_bytes for file in stored}
    there = {file.path: file.size_bytes for file in found}
    for path in sorted(listed.keys() | there.keys()):
        if listed.get(path) != there.get(path):
            yield Difference(path, "size", _size(listed.get(path)), _size(there.get(path)))


def _file_differences(
    rows: pa.Table,
    field: pa.Field,
    files: Sequence[DataFile],
    names: Container[str],
    recomputed: dict[str, ColumnRanges],
) -> Iterator[Difference]:
    """Stored statistics of one column, as ``ColumnStatistics`` reads them, that are wrong."""
    by_name = {str(file.name): file for file in files}
    for row in rows.to_pylist():
        name = row.pop("file_name")
        if name not in names:
            yield Difference(name, field.name, _text(row), "no such file")
        file = by_name.get(name)
        actual = _range(recomputed[file.path], field.name) if file else None
        if file is not None and actual is not None and not _is_same(row, actual, field.type):
            yield Difference(file.path, field.name, _text(row), _text(actual))


def _is_same(stored: dict[str, object], actual: dict[str, object], kind: pa.DataType) -> bool:
    """Whether stored statistics are the actual ones, or would be with bounds as they are kept here.

    Apache Hudi cuts no texts, and has a NaN as a bound.
    """
    if stored == actual:
        return True
    kept = bounds_of(pa.chunked_array([pa.array([stored["min"], stored["max"]], kind)]))
    return {**stored, "min": kept[0].as_py(), "max": kept[1].as_py()} == actual


def _may_be_written_to(file: DataFile, version: FormatVersion) -> bool:
    """Whether a commit that is pending, of which nobody was told, may have written to it."""
    return isinstance(file, LogFile) and version.logs_name_their_slice


def _indexed(metadata: MetadataTable, columns: pa.Schema, version: FormatVersion) -> frozenset[str]:
    """The columns of which each file must have statistics; version 6 need not say which."""
    definition = metadata.definitions.get(PartitionKind.COLUMN_STATS.stored_name)
    if definition is not None:
        return frozenset(columns.names) & frozenset(definition.source_fields)
    return frozenset() if version is FormatVersion.V6 else frozenset(columns.names)


def _absent_statistics(
    rows: pa.Table,
    field: pa.Field,
    files: Sequence[DataFile],
    recomputed: dict[str, ColumnRanges],
) -> Iterator[Difference]:
    """Files that hold values of an indexed column without stored statistics."""
    known = set(rows.column("file_name").to_pylist())
    for file in files:
        actual = _range(recomputed[file.path], field.name)
        if str(file.name) not in known and actual is not None and actual["max"] is not None:
            yield Difference(file.path, field.name, "nothing", _text(actual))


def _partition_differences(
    metadata: MetadataTable,
    latest: Sequence[FileSlice],
    timeline: Timeline,
    recomputed: dict[str, ColumnRanges],
    columns: pa.Schema,
) -> Iterator[Difference]:
    paths = sorted({one.group.partition_path for one in latest})
    statistics = PartitionStatistics(metadata)
    stored, tight = statistics.ranges(paths, columns), statistics.tight(paths, columns)
    for path in paths:
        here = [one for one in latest if one.group.partition_path == path]
        parts = [recomputed[f.path] for f in files_of(here) if f.path in recomputed]
        exact, widened = ColumnRanges.united(parts), ColumnRanges.united([stored[path], *parts])
        is_wide = may_be_wide(here, timeline)
        for name in stored[path].columns:
            told, is_tight = _range(stored[path], name), (path, name) in tight and not is_wide
            actual = _range(exact if is_tight else widened, name)
            if told is None or actual is None or _bounds(told) != _bounds(actual):
                yield Difference(join(path, ""), name, _text(told), _text(actual))


def _range(ranges: ColumnRanges, name: str) -> dict[str, object] | None:
    """One column as statistics are read; None when it is not known."""
    if name not in ranges.columns:
        return None
    place = ranges.columns.index(name)
    low, high = ranges.bounds.column(place).to_pylist()
    nulls, values = ranges.null_counts[place], ranges.value_counts[place]
    return {"min": low, "max": high, "null_count": nulls, "value_count": values}


def _bounds(known: dict[str, object]) -> tuple[object, object]:
    return known["min"], known["max"]


def _size(size_bytes: int | None) -> str:
    return "absent" if size_bytes is None else f"{size_bytes} bytes"


def _text(known: dict[str, object] | None) -> str:
    if known is None:
        return "unknown"
    return ", ".join(f"{name} {value}" for name, value in known.items())
