"""Creates the records of expression indexes for the commits of one table.

The files of a commit are read when it is about to be published, as for bloom filters. An index of
statistics also has a record for each partition of the data table, by which Apache Hudi skips whole
partitions. It covers the files that queries read after the commit. The ranges of a partition are
kept from commit to commit, and derived again if a commit replaces files. Source:
``getExpressionIndexUpdates`` of ``SparkHoodieBackedTableMetadataWriter``, Apache Hudi 1.2.0.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa

from lakemark.config import keys
from lakemark.metadata.bloom_filter_records import delete_filters
from lakemark.metadata.column_stats.derive import (
    find_remaining_files,
    load_view_of_partitions,
    partitions_that_lose_files,
)
from lakemark.metadata.column_stats.encode import (
    StatisticsEntry,
    delete_column_statistics,
    delete_partition_statistics,
    encode_partition_statistics,
)
from lakemark.metadata.column_stats.lookup import ColumnStatistics
from lakemark.metadata.commit_statistics import is_write_before
from lakemark.metadata.expressions.covering_values import widest_bounds
from lakemark.metadata.expressions.file_values import FileValues
from lakemark.metadata.expressions.indexed_expression import (
    OF_PARTITIONS,
    IndexedExpression,
    check_expressions,
)
from lakemark.metadata.metadata_table import MetadataTable
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.metadata.record_changes import RecordChanges
from lakemark.metadata.writer_state import WriterState, WriterStateLoader
from lakemark.model.column_ranges import ColumnRanges
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.instant import Instant
from lakemark.read.scan_planner import table_schema
from lakemark.storage.parallel_requests import request_all
from lakemark.storage.properties_file import read_properties
from lakemark.timeline.timeline import Timeline
from lakemark.view.file_lister import DataFile
from lakemark.view.file_system_view import FileSystemView

_FILES = PartitionKind.FILES.stored_name


class _Commit(NamedTuple):
    """A commit that is about to be published, and the timeline before it."""

    instant: Instant
    content: CommitMetadata
    timeline: Timeline


class CommitExpressions:
    """Creates the records of the expression indexes of one table.

    Args:
        loader: opens the table and its metadata table.
    """

    def __init__(self, loader: WriterStateLoader) -> None:
        self._loader = loader
        self._storage = loader.storage

    def changes_of(
        self,
        state: WriterState,
        instant: Instant,
        metadata: CommitMetadata,
        timeline: Timeline,
        files: Sequence[DataFile],
    ) -> dict[str, RecordChanges]:
        """Return a commit's changes to the expression indexes, by partition.

        Args:
            state: state of the metadata table; the ranges of partitions are added to it.
            instant: instant of the commit, which is about to be published.
            metadata: metadata of the commit.
            timeline: the data table's timeline, just loaded under the table's lock.
            files: the files of the commit.

        Raises:
            Unsupported: lakemark does not compute one of the expressions.
            Refused: an index has bloom filters, and the commit has a null.
            SnapshotChanged, CorruptData: files or statistics cannot be read.
        """
        expressions = self._loader.expressions(state.partitions)
        if not expressions or not (files or metadata.replaced_partitions):
            return {}
        schema = self._schema(metadata, timeline)
        check_expressions(expressions, schema, self._storage.location.url)
        commit = _Commit(instant, metadata, timeline)
        changes = {}
        for one in expressions:
            values = FileValues.of(self._storage, one, schema)
            if one.has_statistics:
                changes[one.partition] = self._statistics(state, commit, values, files)
            else:
                changes[one.partition] = values.encode(files)
        return changes

    def changes_of_clean(
        self, state: WriterState, deleted: Sequence[DataFile]
    ) -> dict[str, RecordChanges]:
        """Return the changes of a clean that deleted these files.

        Raises:
            Unsupported: lakemark does not update one of the indexes.
        """
        return {
            one.partition: _deletion(one, deleted)
            for one in self._loader.expressions(state.partitions)
        }

    def _schema(self, metadata: CommitMetadata, timeline: Timeline) -> pa.Schema:
        properties = read_properties(self._storage)
        text = metadata.extra_metadata.get(keys.SCHEMA)
        if text:
            return table_schema(json.loads(text), properties)
        return self._loader.newest_schema(properties, timeline) or pa.schema([])

    def _statistics(
        self, state: WriterState, commit: _Commit, values: FileValues, files: Sequence[DataFile]
    ) -> RecordChanges:
        derived = request_all(self._storage, values.ranges, files)
        own: dict[str, list[ColumnRanges]] = defaultdict(list)
        own.update((path, []) for path in commit.content.replaced_partitions)
        for file, ranges in zip(files, derived, strict=True):
            own[file.partition_path].append(ranges)
        before = self._ranges_before(state, commit, values, own)
        after = {
            path: ColumnRanges.union([*_if_any(before.ranges.get(path)), *ranges])
            for path, ranges in own.items()
        }
        state.expression_ranges.setdefault(values.expression.partition, {}).update(after)
        return RecordChanges.union(
            [
                values.encode_ranges(files, derived),
                values.encode_ranges(before.read_files, before.read_ranges),
                _of_partitions(values, after, commit),
            ]
        )

    def _ranges_before(
        self, state: WriterState, commit: _Commit, values: FileValues, paths: Iterable[str]
    ) -> _RangesBefore:
        """Return the ranges of these partitions after the commit, without its own files."""
        losing = partitions_that_lose_files(commit.content)
        kept = state.expression_ranges.get(values.expression.partition, {})
        known = {path: kept[path] for path in paths if path in kept and path not in losing}
        replaced = commit.content.replaced_partitions  # no other file remains in them
        unknown = sorted(({*paths} & state.paths) - known.keys() - replaced)
        if not unknown:
            return _RangesBefore(known)
        metadata = self._loader.open(read_properties(self._storage), commit.timeline)
        self._loader.check_files(metadata, _FILES, values.expression.partition)
        view = load_view_of_partitions(metadata, self._loader.instants, commit.timeline, unknown)
        found = self._remaining(metadata, view, commit, values, unknown)
        return replace(found, ranges={**known, **found.ranges})

    def _remaining(
        self,
        metadata: MetadataTable,
        view: FileSystemView,
        commit: _Commit,
        values: FileValues,
        paths: Sequence[str],
    ) -> _RangesBefore:
        """Return the ranges of the files that remain in some partitions."""
        published = commit.instant, commit.content
        remaining = find_remaining_files(self._loader.instants, view, published, paths)
        index = ColumnStatistics(metadata, values.expression.partition, counts_nulls=False)
        stored = index.ranges(remaining, values.statistics_schema)
        files = [remaining[path][name] for path, name in stored.missing]
        read = request_all(self._storage, values.ranges, files)
        parts: dict[str, list[ColumnRanges]] = {path: [] for path in remaining}
        for (path, _), one in stored.ranges.items():
            parts[path].append(one)
        for file, one in zip(files, read, strict=True):
            parts[file.partition_path].append(one)
        ranges = {path: ColumnRanges.union(some) for path, some in parts.items()}
        return _RangesBefore(ranges, files, read)


@dataclass(frozen=True, slots=True)
class _RangesBefore:
    """Ranges of partitions without the files of a commit.

    Attributes:
        ranges: the ranges by partition path.
        read_files: files that had no statistics, so that they were read.
        read_ranges: the ranges of these files.
    """

    ranges: Mapping[str, ColumnRanges]
    read_files: Sequence[DataFile] = ()
    read_ranges: Sequence[ColumnRanges] = ()


def _of_partitions(
    values: FileValues, ranges: Mapping[str, ColumnRanges], commit: _Commit
) -> RecordChanges:
    """Encode the statistics of partitions, and the deletion of those without a row.

    A write that was requested earlier and completes later is not covered, and readers take the
    statistics of the commit that was requested last. So if such a write is pending, the statistics
    cover all values, until the next commit to the partition.
    """
    may_be_late = is_write_before(commit.instant, commit.timeline)
    emptied = [path for path, one in ranges.items() if not may_be_late and _row_count(one) == 0]
    entries = [
        StatisticsEntry(path, "", _widest(values, one) if may_be_late else one)
        for path, one in ranges.items()
        if path not in emptied
    ]
    version = values.expression.version
    written = encode_partition_statistics(entries, version, prefix=OF_PARTITIONS)
    names = [values.expression.column]
    return RecordChanges.union(
        [written, delete_partition_statistics(names, emptied, OF_PARTITIONS)]
    )


def _widest(values: FileValues, ranges: ColumnRanges) -> ColumnRanges:
    bounds = widest_bounds(values.function.result_type)
    batch = pa.RecordBatch.from_arrays([bounds], [values.expression.column])
    nulls, count = (sum(some) for some in (ranges.null_counts, ranges.value_counts))
    return ColumnRanges(batch, (nulls,), (count,))


def _row_count(ranges: ColumnRanges) -> int:
    return sum(ranges.null_counts) + sum(ranges.value_counts)


def _deletion(expression: IndexedExpression, files: Sequence[DataFile]) -> RecordChanges:
    if not expression.has_statistics:
        return delete_filters(files)
    named = ((file.partition_path, str(file.name)) for file in files)
    return delete_column_statistics([expression.column], named)


def _if_any(ranges: ColumnRanges | None) -> Iterator[ColumnRanges]:
    if ranges is not None:
        yield ranges
