"""Holds a metadata table against its data table: listings, sizes, and statistics made anew.

Source: ``HoodieMetadataTableValidator`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from table.execution.runner import Runner
from table.metadata.bootstrap import visible
from table.metadata.column_statistics import ColumnStatistics, PartitionStatistics
from table.metadata.file_lister import MetadataFileLister
from table.metadata.file_ranges import ranges_in
from table.metadata.metadata_table import MetadataTable
from table.metadata.partition_kind import PartitionKind
from table.model.column_ranges import ColumnRanges
from table.model.file_slice import FileSlice, join
from table.model.format_version import FormatVersion
from table.storage.storage import Storage
from table.timeline.timeline import Timeline
from table.view.file_lister import DataFile, StorageFileLister


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that the metadata table says otherwise than the files.

    Attributes:
        place: a file, from the table's root, or a partition.
        what: size, or the column whose statistics differ.
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

    A file or partition of which the metadata table tells nothing is no difference, and a range that
    is wider than need be is none of a partition.

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
    there = visible(StorageFileLister(storage).list_files(), timeline, version)
    files = [file for listed in there.values() for file in listed]
    listed = [file for some in MetadataFileLister(metadata).list_files().values() for file in some]
    found = list(_listing_differences(listed, files))
    if metadata.of_kind(PartitionKind.COLUMN_STATS):
        recomputed = dict(
            zip(
                (file.path for file in files),
                runner.map(lambda file: ranges_in(storage, file, columns), files),
                strict=True,
            )
        )
        found += _file_differences(metadata, files, recomputed, columns)
        if metadata.of_kind(PartitionKind.PARTITION_STATS):
            read = _files_of(latest)
            found += _partition_differences(metadata, read, recomputed, columns)
    return found


def _listing_differences(
    stored: Iterable[DataFile], found: Iterable[DataFile]
) -> Iterator[Difference]:
    listed = {file.path: file.size_bytes for file in stored}
    there = {file.path: file.size_bytes for file in found}
    for path in sorted(listed.keys() | there.keys()):
        if listed.get(path) != there.get(path):
            yield Difference(path, "size", _size(listed.get(path)), _size(there.get(path)))


def _file_differences(
    metadata: MetadataTable,
    files: Sequence[DataFile],
    recomputed: dict[str, ColumnRanges],
    columns: pa.Schema,
) -> Iterator[Difference]:
    by_name = {str(file.name): file for file in files}
    for field in columns:
        rows = ColumnStatistics(metadata).of_column(field.name, field.type)
        for row in rows.to_pylist():
            file = by_name.get(row.pop("file_name"))
            actual = _range(recomputed[file.path], field.name) if file else None
            if file is not None and actual is not None and row != actual:
                yield Difference(file.path, field.name, _text(row), _text(actual))


def _partition_differences(
    metadata: MetadataTable,
    files: Sequence[DataFile],
    recomputed: dict[str, ColumnRanges],
    columns: pa.Schema,
) -> Iterator[Difference]:
    paths = sorted({file.partition_path for file in files})
    stored = PartitionStatistics(metadata).ranges(paths, columns)
    for path in paths:
        here = (file.path for file in files if file.partition_path == path)
        parts = [recomputed[name] for name in here if name in recomputed]
        whole = ColumnRanges.united([stored[path], *parts])
        for name in stored[path].columns:
            told, actual = _range(stored[path], name), _range(whole, name)
            if told is None or actual is None or _bounds(told) != _bounds(actual):
                yield Difference(join(path, ""), name, _text(told), _text(actual))


def _files_of(slices: Iterable[FileSlice]) -> list[DataFile]:
    files: list[DataFile] = []
    for one in slices:
        files += [one.base] if one.base else []
        files += one.logs
    return files


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
