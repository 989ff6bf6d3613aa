"""Creates the column statistics of a commit's files, and of the partitions that it changes.

The writer keeps the ranges of a partition from commit to commit (``WriterState.ranges``), and those
of the partition's files (``WriterState.files``), so that most commits read no statistics. The
ranges are derived again (``column_stats.derive``) if a commit replaces files of a partition whose
files are not known, or if a commit has a column that the kept ranges lack.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa

from lakemark.config import keys
from lakemark.metadata.column_stats.derive import (
    derive_file_ranges,
    derive_remaining_files,
    is_outdated,
    load_view_of_partitions,
    partitions_that_lose_files,
)
from lakemark.metadata.column_stats.encode import (
    StatisticsEntry,
    delete_partition_statistics,
    encode_column_statistics,
    encode_partition_statistics,
)
from lakemark.metadata.column_stats.lookup import PartitionStatistics
from lakemark.metadata.index_definition import define_column_statistics
from lakemark.metadata.metadata_table import MetadataTable
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.metadata.record_changes import RecordChanges
from lakemark.metadata.writer_state import WriterState, WriterStateLoader
from lakemark.model.column_ranges import ColumnRanges, indexed_columns
from lakemark.model.commit_metadata import CommitMetadata, WriteStat
from lakemark.model.instant import Instant
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.read.scan_planner import table_schema
from lakemark.storage.properties_file import read_properties
from lakemark.storage.storage import Storage
from lakemark.timeline.timeline import Timeline
from lakemark.view.file_lister import data_file

_FILES = PartitionKind.FILES.stored_name
_COLUMNS = PartitionKind.COLUMN_STATS.stored_name
_PARTITIONS = PartitionKind.PARTITION_STATS.stored_name


class _PartitionRanges(NamedTuple):
    """Column ranges of the partitions that a commit changes; the commit's files are included.

    Attributes:
        ranges: column ranges by partition path.
        read: ranges that were read from files, because the files had no statistics.
        emptied: partitions whose last row the commit removes.
    """

    ranges: dict[str, ColumnRanges]
    read: list[StatisticsEntry]
    emptied: list[str]


class CommitStatistics:
    """Creates the ``column_stats`` and ``partition_stats`` records for the commits of one table.

    Args:
        loader: opens the table and its metadata table.
    """

    def __init__(self, loader: WriterStateLoader) -> None:
        self._loader = loader
        self._storage, self._instants = loader.storage, loader.instants

    def changes_of(
        self,
        state: WriterState,
        instant: Instant,
        metadata: CommitMetadata,
        timeline: Timeline,
        check_not_fenced: Callable[[], None],
    ) -> dict[str, RecordChanges]:
        """Return a commit's changes to those statistics partitions that the metadata table has.

        Args:
            state: state of the metadata table; the commit's ranges and columns are added to it.
            instant: instant of the commit, which is about to be published.
            metadata: metadata of the commit.
            timeline: the data table's timeline, just loaded under the table's lock.
            check_not_fenced: raises if the instant was rolled back.

        Raises:
            SnapshotChanged, CorruptData, Unsupported: files or statistics cannot be read.
        """
        version = self._instants.version.column_statistics
        has_columns = _COLUMNS in state.partitions
        if has_columns:
            metadata = self._with_file_ranges(metadata)
        stats = [stat for stat in metadata.write_stats if stat.path]
        files = _entries_of(stats) if has_columns else []
        changes = {}
        if _PARTITIONS in state.partitions:
            found = self._partition_ranges(state, (instant, metadata), timeline)
            files += found.read
            partitions = [StatisticsEntry(path, "", one) for path, one in found.ranges.items()]
            partitions += self._nulls_of_new_columns(state, found.ranges, timeline)
            may_be_late = is_write_before(instant, timeline)
            written = encode_partition_statistics(partitions, version, is_tight=not may_be_late)
            emptied = [] if may_be_late else found.emptied
            deleted = delete_partition_statistics(state.columns, emptied)
            changes[_PARTITIONS] = RecordChanges.union([written, deleted])
            state.ranges.update(found.ranges)
            state.files.add_commit((instant, metadata), timeline, found.ranges)
        names = _columns_of(entry.ranges for entry in files).names
        if has_columns:
            changes[_COLUMNS] = encode_column_statistics(files, version)
            self._define_new_columns(state, names, check_not_fenced)
        state.committed_columns |= {*state.columns} & {*names}
        return changes

    def _with_file_ranges(self, commit: CommitMetadata) -> CommitMetadata:
        """Add column ranges to the write stats that have none.

        The writer of such a file started before the metadata table existed.
        """
        if all(stat.column_ranges is not None for stat in commit.write_stats if stat.path):
            return commit
        columns = self._indexed_columns(commit)
        stats = (_with_ranges(self._storage, stat, columns) for stat in commit.write_stats)
        return replace(commit, write_stats=tuple(stats))

    def _indexed_columns(self, commit: CommitMetadata) -> pa.Schema:
        """Return the columns that have statistics, according to the schema of a commit."""
        avro_schema = json.loads(commit.extra_metadata[keys.SCHEMA])
        properties = read_properties(self._storage)
        schema = table_schema(avro_schema, properties)
        names = indexed_columns(schema, self._instants.version, properties.statistics_columns)
        return pa.schema([schema.field(name) for name in names])

    def _partition_ranges(
        self, state: WriterState, commit: tuple[Instant, CommitMetadata], timeline: Timeline
    ) -> _PartitionRanges:
        files = _ranges_by_partition(commit[1])
        before, read = self._ranges_before(state, commit, timeline, files)
        after = {
            path: ColumnRanges.union([*_if_any(before.get(path)), *ranges])
            for path, ranges in files.items()
        }
        losing = partitions_that_lose_files(commit[1]) & state.paths
        emptied = [path for path in losing if not after[path].columns]
        return _PartitionRanges(after, read, emptied)

    def _ranges_before(
        self,
        state: WriterState,
        commit: tuple[Instant, CommitMetadata],
        timeline: Timeline,
        files: Mapping[str, Sequence[ColumnRanges]],
    ) -> tuple[dict[str, ColumnRanges], list[StatisticsEntry]]:
        """Return the ranges of these partitions, without the commit's own files.

        Known ranges are used if they include every column of the commit. If the commit replaces
        files, these are the ranges of the files that remain. All other ranges are read or derived.
        Ranges that lack a column of the commit are also derived again, because files of other
        writers may have values of that column.

        Returns:
            The ranges by partition path, and the ranges that were read from data files.
        """
        losing = partitions_that_lose_files(commit[1])
        columns = self._columns_to_cover(commit[1], losing, files)
        state.files.forget_outdated(timeline, commit[0])
        state.files.add_new_partitions(files.keys() - state.paths)
        kept = {path: one for path, one in state.ranges.items() if path in files.keys() - losing}
        known = _with_all_columns(columns, kept)
        # No other file remains in a partition whose rows are replaced.
        open_paths = (files.keys() & state.paths) - known.keys() - commit[1].replaced_partitions
        remaining = state.files.remaining(open_paths & losing, commit, timeline, columns)
        known |= {path: ColumnRanges.union(some) for path, some in remaining.items() if some}
        open_paths -= remaining.keys()
        if not open_paths:
            return known, []
        found, read = self._read_ranges(state, commit, timeline, sorted(open_paths), columns)
        return known | found, read

    def _columns_to_cover(
        self,
        commit: CommitMetadata,
        losing: set[str],
        files: Mapping[str, Sequence[ColumnRanges]],
    ) -> pa.Schema:
        """Return the columns of which the partitions of a commit need ranges."""
        has_empty_file = any(not one.columns for path in losing for one in files.get(path, ()))
        # A file without rows has no columns, but the other files of its partition have some.
        if has_empty_file or not all(map(files.get, losing - commit.replaced_partitions)):
            return self._indexed_columns(commit)
        return _columns_of(one for ranges in files.values() for one in ranges)

    def _read_ranges(
        self,
        state: WriterState,
        commit: tuple[Instant, CommitMetadata],
        timeline: Timeline,
        paths: Sequence[str],
        columns: pa.Schema,
    ) -> tuple[dict[str, ColumnRanges], list[StatisticsEntry]]:
        """Read the ranges of partitions from the metadata table; see ``_ranges_before``.

        The ranges are derived from those of the files that remain, if the commit replaces files, or
        if the stored ranges of the partition may be outdated.
        """
        metadata = self._loader.open(read_properties(self._storage), timeline)
        self._loader.check_files(metadata, _FILES, _COLUMNS, _PARTITIONS)
        view = load_view_of_partitions(metadata, self._instants, timeline, paths)
        losing = partitions_that_lose_files(commit[1])
        valid = [
            path
            for path in paths
            if path not in losing and not is_outdated(view.latest_slices(path), timeline)
        ]
        known = _exact_ranges(metadata, valid, columns) if valid else {}
        derived = derive_remaining_files(
            *(metadata, self._storage, self._instants, view, commit),
            [path for path in paths if path not in known],
            columns,
        )
        for path in (path for path in paths if path not in known):
            state.files.add_derived(path, derived.files.get(path, ()))
        united = {
            path: ColumnRanges.union([one.ranges for one in some])
            for path, some in derived.files.items()
        }
        return known | united, derived.read

    def _nulls_of_new_columns(
        self, state: WriterState, written: Mapping[str, ColumnRanges], timeline: Timeline
    ) -> list[StatisticsEntry]:
        """Return entries of a commit's new columns for the partitions that it does not change.

        The entries count only nulls. Without such an entry, Apache Hudi finds no row of the
        partition for any filter on the new column.
        """
        columns = _columns_of(written.values())
        new = pa.schema([f for f in columns if f.name not in state.committed_columns])
        others = state.paths - written.keys()
        if not (state.columns and len(new) and others):
            return []
        metadata = self._loader.open(read_properties(self._storage), timeline)
        self._loader.check_files(metadata, _PARTITIONS)
        statistics = PartitionStatistics(metadata)
        have = {f.name: _partitions_of(statistics, f) for f in new if f.name in state.columns}
        rows = statistics.of_column(RECORD_KEY, pa.string()).to_pylist()
        counts = {row["partition_path"]: row["value_count"] or 0 for row in rows}
        return [
            StatisticsEntry(path, "", ColumnRanges.of_nulls(missing, counts[path]))
            for path in sorted(others & counts.keys())
            if (missing := _missing_in(new, path, have))
        ]

    def _define_new_columns(
        self, state: WriterState, names: Iterable[str], check_not_fenced: Callable[[], None]
    ) -> None:
        """Add the commit's new columns to the index definition."""
        new = [name for name in names if name not in state.columns]
        if new:
            state.columns += new
            version = self._instants.version.column_statistics
            define_column_statistics(self._storage, state.columns, version, check_not_fenced)


def is_write_before(instant: Instant, timeline: Timeline) -> bool:
    """Return whether a write is pending that was requested before the instant.

    That write may complete after the instant. Readers merge the records of a partition in the order
    of the requested times of their commits, so they merge the record of that write first. The
    record of the instant must therefore widen the record of that write, and not replace it. Table
    services are ignored, because they add no values.
    """
    return any(
        one.action.is_write and not one.action.is_table_service
        for one in timeline.pending()
        if one.requested_at < instant.requested_at
    )


def _partitions_of(statistics: PartitionStatistics, field: pa.Field) -> set[str]:
    """Return the partitions that have a statistics record of a column."""
    return {*statistics.of_column(field.name, field.type)["partition_path"].to_pylist()}


def _missing_in(columns: pa.Schema, path: str, have: Mapping[str, Collection[str]]) -> pa.Schema:
    """Return the columns for which a partition has no statistics record."""
    return pa.schema([f for f in columns if path not in have.get(f.name, ())])


def _entries_of(stats: Iterable[WriteStat]) -> list[StatisticsEntry]:
    return [
        StatisticsEntry(stat.partition_path or "", _name_of(stat), _ranges_of(stat))
        for stat in stats
    ]


def _with_ranges(storage: Storage, stat: WriteStat, columns: pa.Schema) -> WriteStat:
    file = data_file(stat.partition_path or "", _name_of(stat), stat.file_size_in_bytes)
    if stat.column_ranges is not None or file is None:
        return stat
    return replace(stat, column_ranges=derive_file_ranges(storage, file, columns))


def _name_of(stat: WriteStat) -> str:
    return (stat.path or "").rpartition("/")[2]


def _ranges_of(stat: WriteStat) -> ColumnRanges:
    assert stat.column_ranges is not None, stat.path
    return stat.column_ranges


def _ranges_by_partition(commit: CommitMetadata) -> dict[str, list[ColumnRanges]]:
    """Return the ranges of the files of a commit, by partition path.

    A partition in which the commit replaces file groups, but writes no file, has an empty list.
    """
    files: dict[str, list[ColumnRanges]] = defaultdict(list)
    files.update((path, []) for path in {*commit.replaced_partitions, *commit.replaced_file_ids})
    for stat in commit.write_stats:
        if stat.path:
            files[stat.partition_path or ""].append(_ranges_of(stat))
    return files


def _exact_ranges(
    metadata: MetadataTable, paths: Sequence[str], columns: pa.Schema
) -> dict[str, ColumnRanges]:
    """Return the stored ranges of those partitions of which all these columns have exact ones."""
    stored = PartitionStatistics(metadata).ranges(paths, columns)
    exact = {
        path: ranges
        for path, ranges in stored.ranges.items()
        if all((path, name) in stored.tight for name in columns.names)
    }
    return _with_all_columns(columns, exact)


def _with_all_columns(
    columns: pa.Schema, ranges: Mapping[str, ColumnRanges]
) -> dict[str, ColumnRanges]:
    """Return the partitions whose ranges have all of these columns."""
    wanted = {*columns.names}
    return {path: one for path, one in ranges.items() if wanted <= {*one.columns}}


def _if_any(ranges: ColumnRanges | None) -> list[ColumnRanges]:
    return [] if ranges is None else [ranges]


def _columns_of(ranges: Iterable[ColumnRanges]) -> pa.Schema:
    """Return all columns of these ranges, with their types."""
    fields = {f.name: f for one in ranges for f in one.bounds.schema}
    return pa.schema(list(fields.values()))
