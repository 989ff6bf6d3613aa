"""Derives column ranges of one data file, and of the files that a partition keeps after a commit.

The ranges of a file come from its Parquet footer where possible, so that most rows are not read.
Columns of floats are always read, because the statistics in footers omit NaN. Columns of text are
also read if the writer of the file may shorten texts in footers.

The statistics of a partition cover the files that queries read. A commit that only adds files
widens the statistics. A commit that replaces files, such as a compaction, may narrow them. For such
a commit, the statistics of the remaining files are read. If a file has no statistics of a column,
the file itself is read.
Source: ``convertMetadataToPartitionStatRecords`` of ``HoodieTableMetadataUtil``, Apache Hudi 1.2.0.
That method reads the statistics of files at every commit, and treats a file without statistics as a
file without values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from lakemark.log.data_block import read_rows
from lakemark.log.log_block import BlockType, LogBlock
from lakemark.log.log_reader import read_blocks
from lakemark.log.parquet_format import column_sizes
from lakemark.metadata.column_stats.encode import StatisticsEntry
from lakemark.metadata.column_stats.lookup import ColumnStatistics
from lakemark.metadata.metadata_file_lister import MetadataFileLister
from lakemark.metadata.metadata_table import MetadataTable
from lakemark.model.bounds import storage_type
from lakemark.model.column_ranges import ColumnRanges, ColumnSize
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.file_names import LogFileName
from lakemark.model.file_slice import FileSlice, LogFile
from lakemark.model.instant import Instant
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.read.base_file import open_data_file, read_base_file, read_footer
from lakemark.storage.storage import Storage
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.view.file_lister import DataFile
from lakemark.view.file_system_view import FileSystemView
from lakemark.view.view_loader import load_view

#: Writers that never shorten a text in a footer: they store the whole text or no text.
_WRITERS_OF_WHOLE_TEXTS = ("parquet-cpp-arrow ", "parquet-mr ")

_DATA_BLOCKS = (BlockType.AVRO_DATA, BlockType.PARQUET_DATA, BlockType.HFILE_DATA)


def derive_file_ranges(storage: Storage, file: DataFile, schema: pa.Schema) -> ColumnRanges:
    """Derive the ranges of columns from a file; columns that the file lacks are omitted.

    Args:
        storage: the table's root.
        file: a base file or a log. A ``.cdc`` file has no ranges.
        schema: the columns, with their current types.

    Raises:
        SnapshotChanged, CorruptData, Unsupported: as for the readers of such files.
    """
    if isinstance(file, LogFile):
        blocks = read_log_rows(storage, file, schema.names)
        return ColumnRanges.union([ColumnRanges.of(rows, schema.names) for _, rows in blocks])
    if file.name.extension != "parquet":
        known, sizes = ColumnRanges.union([]), dict[str, ColumnSize]()
    else:
        footer = read_footer(storage, file)
        known, sizes = _ranges_of_footer(footer, schema), column_sizes(footer)
    unknown = [field for field in schema if field.name not in known.columns]
    if not unknown:
        return replace(known, sizes=sizes)
    tables = read_base_file(storage, file, pa.schema(unknown))
    names = [field.name for field in unknown]
    whole = ColumnRanges.union([known, *(ColumnRanges.of(rows, names) for rows in tables)])
    return replace(whole, sizes=sizes)


def _ranges_of_footer(footer: pq.FileMetaData, schema: pa.Schema) -> ColumnRanges:
    """Return the ranges of the columns for which every row group has exact statistics."""
    stored = footer.schema.to_arrow_schema()
    positions = {footer.schema.column(n).path: n for n in range(footer.num_columns)}
    has_whole_texts = (footer.created_by or "").startswith(_WRITERS_OF_WHOLE_TEXTS)
    exact = [
        field
        for field in schema
        if field.name in positions
        and stored.field(field.name).type == field.type
        and _is_exact(field.type, has_whole_texts)
    ]
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    known = [
        field
        for field in exact
        if all(_has_statistics(group.column(positions[field.name])) for group in groups)
    ]
    return ColumnRanges.union([_ranges_of_row_group(group, known, positions) for group in groups])


def _is_exact(kind: pa.DataType, has_whole_texts: bool) -> bool:
    is_text = pa.types.is_string(kind) or pa.types.is_binary(kind)
    return not pa.types.is_floating(kind) and (has_whole_texts or not is_text)


def _has_statistics(column: pq.ColumnChunkMetaData) -> bool:
    known = column.statistics
    if known is None or not known.has_null_count:
        return False
    return bool(known.has_min_max or known.null_count == column.num_values)


def _ranges_of_row_group(
    group: pq.RowGroupMetaData, fields: Sequence[pa.Field], positions: Mapping[str, int]
) -> ColumnRanges:
    chunks = [group.column(positions[field.name]) for field in fields]
    pairs = [
        _extremes(chunk.statistics, field.type) for field, chunk in zip(fields, chunks, strict=True)
    ]
    return replace(
        ColumnRanges.of(pa.table(pairs, schema=pa.schema(fields)), [f.name for f in fields]),
        null_counts=tuple(chunk.statistics.null_count for chunk in chunks),
        value_counts=tuple(chunk.num_values for chunk in chunks),
    )


def _extremes(known: pq.Statistics, kind: pa.DataType) -> pa.Array:
    """Return the smallest and the largest value; null if a row group has only nulls.

    Times are read as numbers, because Python's date and time types cannot hold all values.
    """
    stored = storage_type(kind)
    if stored == kind:
        return pa.array([known.min, known.max], kind)
    return pa.array([known.min_raw, known.max_raw], stored).view(kind)


def read_log_rows(
    storage: Storage, file: LogFile, columns: Sequence[str]
) -> Iterator[tuple[LogBlock, pa.Table]]:
    """Yield the data blocks of a log, each with its rows; a block may lack columns.

    A ``.cdc`` file has no rows.

    Raises:
        SnapshotChanged, CorruptData, Unsupported: the log cannot be read.
    """
    if file.name.is_cdc:
        return
    with open_data_file(storage, file.path) as stream:
        for block in read_blocks(stream, file.size_bytes, file.path):
            if block.type in _DATA_BLOCKS:
                yield block, read_rows(block, columns)


#: A completion time later than all others.
_LAST = "9" * 17


def partitions_that_lose_files(commit: CommitMetadata) -> set[str]:
    """Return the partitions in which a commit replaces newest files, mostly with new base files."""
    bases = [stat for stat in commit.write_stats if not _is_log(stat.path or "")]
    return commit.replaced_partitions | {
        *commit.replaced_file_ids,
        *(stat.partition_path or "" for stat in bases if stat.prev_commit not in (None, "null")),
    }


def load_view_of_partitions(
    metadata: MetadataTable,
    instants: TimelineStore,
    timeline: Timeline,
    partitions: Collection[str],
) -> FileSystemView:
    """Load the view of some partitions of the data table.

    Args:
        metadata: the metadata table, as of ``timeline``.
        instants: reads the data table's instants.
        timeline: the data table's timeline, just loaded under the table's lock.
        partitions: paths of the partitions.

    Raises:
        SnapshotChanged, CorruptData, Unsupported: the metadata table, or an instant, cannot be
            read.
    """
    lister = _SomePartitions(MetadataFileLister(metadata), partitions)
    return load_view(instants, timeline, lister, instants.version)


def is_outdated(slices: Sequence[FileSlice], timeline: Timeline) -> bool:
    """Return whether the statistics of a partition may not cover all files that queries read.

    As in Apache Hudi, the statistics of the commit that was requested last are effective. They do
    not cover a commit that was requested earlier and completed later.

    Args:
        slices: the newest slices of the partition.
        timeline: the data table's timeline.
    """
    return _is_any_late(files_of(slices), slices, timeline)


def may_be_too_wide(slices: Sequence[FileSlice], timeline: Timeline) -> bool:
    """Return whether the statistics of a partition may cover files that queries no longer read.

    This happens if a compaction was requested before the newest commit and completed after it; see
    ``is_outdated``.

    Args:
        slices: the newest slices of the partition.
        timeline: the data table's timeline.
    """
    bases = (one.base for one in slices if one.base is not None)
    return _is_any_late(bases, slices, timeline)


class FileRange(NamedTuple):
    """A data file and its column ranges."""

    file: DataFile
    ranges: ColumnRanges


class RemainingFiles(NamedTuple):
    """The files that partitions keep after a commit.

    Attributes:
        files: the files by partition path; a partition without remaining files has no entry.
        read: ranges that were read from files that lack statistics of some column.
    """

    files: dict[str, list[FileRange]]
    read: list[StatisticsEntry]


def derive_remaining_files(
    metadata: MetadataTable,
    storage: Storage,
    instants: TimelineStore,
    view: FileSystemView,
    commit: tuple[Instant, CommitMetadata],
    partitions: Collection[str],
    columns: pa.Schema,
) -> RemainingFiles:
    """Derive the ranges of the files that queries read after a commit, except the commit's own.

    Args:
        metadata: the metadata table, which has statistics of files.
        storage: the data table's root.
        instants: reads the data table's instants.
        view: a view of at least these partitions, under the data table's lock.
        commit: the commit that is about to be published.
        partitions: paths of the partitions.
        columns: names and types of the columns.

    Raises:
        SnapshotChanged, CorruptData, Unsupported: as for ``load_view_of_partitions``; or a file
            cannot be read.
    """
    remaining = find_remaining_files(instants, view, commit, partitions)
    stored = ColumnStatistics(metadata).ranges(remaining, columns)
    found = dict(stored.ranges)
    read = []
    for (path, name), missing in stored.missing.items():
        schema = pa.schema([columns.field(column) for column in missing])
        ranges = _derive_all(storage, remaining[path][name], schema)
        read.append(StatisticsEntry(path, name, ranges))
        found[path, name] = ColumnRanges.union([found[path, name], ranges])
    files = {
        path: [FileRange(file, found[path, name]) for name, file in named.items()]
        for path, named in remaining.items()
    }
    return RemainingFiles(files, read)


def find_remaining_files(
    instants: TimelineStore,
    view: FileSystemView,
    commit: tuple[Instant, CommitMetadata],
    partitions: Collection[str],
) -> dict[str, dict[str, DataFile]]:
    """Find the files that queries read after a commit, except the commit's own.

    Logs that contain only deletes are omitted. Arguments and errors are as for
    ``derive_remaining_files``.

    Returns:
        The files by partition path, then by name.
    """
    instant, content = commit
    after = view.with_commit(instant.completed(_LAST), content)
    own = {stat.path for stat in content.write_stats}
    remaining: dict[str, dict[str, DataFile]] = {}
    for path in partitions:
        for file in files_of(after.latest_slices(path)):
            if file.path not in own and not _has_only_deletes(file, instants, view.timeline):
                remaining.setdefault(path, {})[str(file.name)] = file
    return remaining


def _derive_all(storage: Storage, file: DataFile, schema: pa.Schema) -> ColumnRanges:
    """Derive the ranges of all these columns; a column that the file lacks gets an empty range.

    The result covers each column, so the file is not read again for missing statistics.
    """
    if isinstance(file, LogFile):
        return ColumnRanges.union(
            [ColumnRanges.of_nulls(schema, 0), *_blocks(storage, file, schema)]
        )
    found = derive_file_ranges(storage, file, schema)
    whole = ColumnRanges.union([ColumnRanges.of_nulls(schema, 0), found])
    return replace(whole, sizes=found.sizes)


def _blocks(storage: Storage, file: LogFile, schema: pa.Schema) -> Iterator[ColumnRanges]:
    """Yield the ranges of the blocks of a log, with nulls for columns that are newer than a block.

    Partial rows have none: a column that they lack keeps the value of the row before.
    """
    # The record key is read, too, because a table without columns has no number of rows.
    for block, rows in read_log_rows(storage, file, [RECORD_KEY, *schema.names]):
        yield ColumnRanges.of(rows, schema.names)
        missing = [field for field in schema if field.name not in rows.column_names]
        if missing and not block.is_partial:
            yield ColumnRanges.of_nulls(pa.schema(missing), rows.num_rows)


def files_of(slices: Iterable[FileSlice]) -> Iterator[DataFile]:
    """Yield the base files and logs of these slices."""
    for one in slices:
        if one.base is not None:
            yield one.base
        yield from one.logs


@dataclass(frozen=True)
class _SomePartitions:
    """Lists the files of some partitions only."""

    lister: MetadataFileLister
    partitions: Collection[str]

    def list_files(self) -> Mapping[str, list[DataFile]]:
        return self.lister.list_some(self.partitions)


def _has_only_deletes(file: DataFile, instants: TimelineStore, timeline: Timeline) -> bool:
    """Return whether a log is known to contain only deletes, which have no statistics."""
    if not isinstance(file, LogFile):
        return False
    instant = timeline.find(file.name.instant)
    if instant is None or not instant.is_completed:
        return False
    stats = instants.read_commit(instant).write_stats
    return any(stat.path == file.path and stat.num_writes == 0 for stat in stats)


def _is_any_late(
    files: Iterable[DataFile], slices: Sequence[FileSlice], timeline: Timeline
) -> bool:
    """Return whether one of the files was committed after the commit that was requested last."""
    newest = max((file.name.instant for file in files_of(slices)), default="")
    until = completed_at(newest, timeline)
    return any(completed_at(file.name.instant, timeline) > until for file in files)


def completed_at(name: str, timeline: Timeline) -> str:
    """Return when an instant completed; the requested time if the instant is archived.

    The exact time does not matter for an archived instant, because it is older than all others.
    """
    found = timeline.find(name)
    return (found and found.completed_at) or name


def _is_log(path: str) -> bool:
    return LogFileName.parse(path.rpartition("/")[2]) is not None
