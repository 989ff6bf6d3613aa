"""Reads the records of new indexes from the files of a table, as of one timeline.

The records of a record index and of a secondary index come from the rows of the newest file slices,
those of ``bloom_filters`` from the footers of base files, and statistics and the records of
expression indexes from all files. Source:
``readRecordKeysFromFileSlices`` of ``HoodieTableMetadataUtil``, ``readSecondaryKeysFromFileSlices``
of ``SecondaryIndexRecordGenerationUtils``, Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.hfile import Entries
from lakemark.metadata.bloom_filter_records import encode_bloom_filters, has_footer
from lakemark.metadata.column_stats.derive import derive_file_ranges, files_of
from lakemark.metadata.column_stats.encode import (
    StatisticsEntry,
    encode_column_statistics,
    encode_partition_statistics,
)
from lakemark.metadata.expressions.file_values import FileValues
from lakemark.metadata.expressions.indexed_expression import OF_PARTITIONS, IndexedExpression
from lakemark.metadata.index_definition import (
    define_expression_index,
    define_secondary_index,
)
from lakemark.metadata.new_index import NewIndex, Source
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.metadata.partition_shards import RECORD_INDEX_PREFIX
from lakemark.metadata.record_index_records import (
    KeysOfGroup,
    count_partition_groups,
    count_record_index_groups,
    encode_locations,
)
from lakemark.metadata.secondary_columns import SecondaryColumn
from lakemark.metadata.secondary_index_records import encode_index_keys, hashed_part
from lakemark.metadata.stored_values import ReadRows, read_index_keys
from lakemark.model.column_ranges import ColumnRanges
from lakemark.model.file_slice import BaseFile, FileSlice, LogFile, join
from lakemark.model.format_version import FormatVersion
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.storage.storage import Storage
from lakemark.timeline.clock import TimelineClock
from lakemark.timeline.timeline import Timeline
from lakemark.view.file_lister import DataFile

_NO_KEYS = pa.array([], pa.string())

BLOOM_FILTERS = NewIndex(
    PartitionKind.BLOOM_FILTERS.stored_name, "bloom-filters-", lambda _: 4, are_small=True
)
RECORD_INDEX = NewIndex(
    PartitionKind.RECORD_INDEX.stored_name,
    RECORD_INDEX_PREFIX,
    count_record_index_groups,
    are_unique=True,
)
PARTITIONED_RECORD_INDEX = replace(
    RECORD_INDEX, group_count=count_partition_groups, is_partitioned=True
)

COLUMN_STATS = NewIndex(
    PartitionKind.COLUMN_STATS.stored_name, "col-stats-", lambda _: 2, are_small=True
)
PARTITION_STATS = NewIndex(
    PartitionKind.PARTITION_STATS.stored_name, "partition-stats-", lambda _: 1, are_small=True
)

#: The indexes that a table has at most once.
SINGLE = (RECORD_INDEX, BLOOM_FILTERS, COLUMN_STATS, PARTITION_STATS)


def new_record_index(*, partitioned: bool) -> NewIndex:
    """Return a new record index, whose keys are unique in the table or within a partition."""
    return PARTITIONED_RECORD_INDEX if partitioned else RECORD_INDEX


#: What an index with an own name indexes: the values of a column, or of an expression of it.
Indexed: TypeAlias = SecondaryColumn | IndexedExpression


def new_index_of(indexed: Indexed) -> NewIndex:
    """Return a new index with an own name.

    A secondary index has as many file groups as a record index, and an expression index has two, as
    in Apache Hudi.
    """
    if isinstance(indexed, SecondaryColumn):
        return NewIndex(
            indexed.partition,
            f"{indexed.partition.replace('_', '-')}-",
            count_record_index_groups,
            hashed_part=hashed_part if indexed.hashes_values else None,
        )
    prefix = f"{indexed.partition.replace('_', '-')}-"
    return NewIndex(indexed.partition, prefix, lambda _: 2, are_small=True)


def define_indexed(storage: Storage, indexed: Indexed, check_lease: Callable[[], None]) -> None:
    """Define an index with an own name.

    Args:
        storage: the data table's root.
        indexed: what the index indexes.
        check_lease: as for ``define_column_statistics``.
    """
    if isinstance(indexed, SecondaryColumn):
        define_secondary_index(
            storage, indexed.partition, indexed.name, indexed.version, check_lease
        )
    else:
        define_expression_index(storage, indexed.definition, check_lease)


@dataclass(frozen=True, slots=True)
class IndexSources:
    """The sources of indexes, as of one timeline.

    Attributes:
        storage: the data table's root.
        clock: the data table's clock.
        timeline: the data table's timeline.
        version: the version of the table.
        slices: the file slices that queries read.
        partitions: the paths of all partitions, with or without slices.
        files: the files of completed instants, also of older slices.
        read_rows: reads the rows of a file slice.
        columns: names and types of the columns with statistics.
        schema: all columns of the table; None if it has no schema yet, and so no rows.
    """

    storage: Storage
    clock: TimelineClock
    timeline: Timeline
    version: FormatVersion
    slices: Iterable[FileSlice]
    partitions: Iterable[str]
    files: Iterable[DataFile]
    read_rows: ReadRows
    columns: pa.Schema
    schema: pa.Schema | None

    def of(self, index: NewIndex, indexed: Indexed | None) -> Iterator[Source]:
        """Yield the sources of an index.

        Args:
            index: the index.
            indexed: what an index with an own name indexes.

        Raises:
            Unsupported: lakemark does not compute the expression of the index.
        """
        if isinstance(indexed, SecondaryColumn):
            yield from self._of_slices(index, lambda one: self._values(one, indexed))
        elif indexed is not None:
            yield from self._of_expression(indexed, index.file_id_prefix)
        elif index.partition == RECORD_INDEX.partition:
            yield from self._of_slices(index, self._locations)
            yield from self._without_rows(index)
        elif index is BLOOM_FILTERS:
            yield from self._of_footers()
        elif index is COLUMN_STATS:
            yield from self._of_files()
        else:
            yield from self._of_partitions()

    def _of_slices(
        self, index: NewIndex, read: Callable[[FileSlice], Iterable[Entries]]
    ) -> Iterator[Source]:
        for one in self.slices:
            path = one.group.partition_path
            name = join(path, one.group.file_id)
            yield Source(name, self._state(one), partial(read, one), index.prefix_for(path))

    def _without_rows(self, index: NewIndex) -> Iterator[Source]:
        """Yield a source without records for each partition, which may have no slice.

        Apache Hudi fails to write to a partition that the metadata table lists, but that has no
        file group in a partitioned record index.
        """
        for path in self.partitions if index.is_partitioned else ():
            yield Source(join(path, ""), None, tuple, index.prefix_for(path))

    def _state(self, file_slice: FileSlice) -> Hashable:
        """Return a value that differs if the rows of the slice may differ.

        In table version 6, a log file may contain blocks of instants that complete later. So a
        slice with logs is considered to have changed if any instant has completed.
        """
        return file_slice, self._commits_to(file_slice.logs)

    def _commits_to(self, logs: Iterable[DataFile]) -> Hashable:
        """Return the instants that may have completed blocks of these logs; only in version 6."""
        is_shared = self.version.logs_name_their_slice and any(True for _ in logs)
        return self.timeline.instants if is_shared else None

    def _locations(self, file_slice: FileSlice) -> Iterator[Entries]:
        """As in Apache Hudi, a location has the instant that begins the file slice."""
        for rows in self.read_rows(file_slice, [RECORD_KEY]):
            keys = pc.unique(rows.column(RECORD_KEY).cast(pa.string()))
            located = KeysOfGroup(file_slice.group, file_slice.base_instant, keys)
            yield encode_locations([located], _NO_KEYS, self.clock).written

    def _values(self, file_slice: FileSlice, column: SecondaryColumn) -> Iterator[Entries]:
        for keys in read_index_keys(file_slice, column, self.read_rows):
            yield encode_index_keys(keys, _NO_KEYS, column).written

    def _of_footers(self) -> Iterator[Source]:
        for base in filter(has_footer, self.files):
            read = partial(self._filter, base)
            yield Source(base.path, base.size_bytes, read, BLOOM_FILTERS.file_id_prefix)

    def _of_files(self) -> Iterator[Source]:
        for file in self.files:
            shared = self._commits_to([file] if isinstance(file, LogFile) else [])
            state = (file.size_bytes, shared, self._columns)
            read = partial(self._statistics, file)
            yield Source(file.path, state, read, COLUMN_STATS.file_id_prefix)

    def _of_expression(self, expression: IndexedExpression, prefix: str) -> Iterator[Source]:
        """Yield the files, and the partitions of an index of statistics.

        Tables with such indexes have at least version 8, so their files never change. Files of
        older slices have no bloom filter, because they may have nulls.
        """
        if self.schema is None:
            return
        values = FileValues.of(self.storage, expression, self.schema)
        kind, has_statistics = str(values.column.type), expression.has_statistics
        for file in self.files if has_statistics else files_of(self.slices):
            yield Source(file.path, kind, partial(_values_of_file, values, file), prefix)
        for path, some in self._by_partition() if has_statistics else ():
            state = (tuple(map(self._state, some)), kind)
            read = partial(_values_of_partition, values, path, some)
            yield Source(join(path, ""), state, read, prefix)

    def _of_partitions(self) -> Iterator[Source]:
        for path, some in self._by_partition():
            state = (tuple(map(self._state, some)), self._columns)
            read = partial(self._partition_statistics, path, some)
            yield Source(path, state, read, PARTITION_STATS.file_id_prefix)

    def _by_partition(self) -> Iterable[tuple[str, list[FileSlice]]]:
        slices: dict[str, list[FileSlice]] = {}
        for one in self.slices:
            slices.setdefault(one.group.partition_path, []).append(one)
        return slices.items()

    @property
    def _columns(self) -> Hashable:
        return tuple((field.name, str(field.type)) for field in self.columns)

    def _statistics(self, file: DataFile) -> list[Entries]:
        ranges = derive_file_ranges(self.storage, file, self.columns)
        entry = StatisticsEntry(file.partition_path, str(file.name), ranges)
        return [encode_column_statistics([entry], self.version.column_statistics).written]

    def _partition_statistics(self, path: str, slices: Iterable[FileSlice]) -> list[Entries]:
        ranges = [derive_file_ranges(self.storage, file, self.columns) for file in files_of(slices)]
        entry = StatisticsEntry(path, "", ColumnRanges.union(ranges))
        return [encode_partition_statistics([entry], self.version.column_statistics).written]

    def _filter(self, base: BaseFile) -> list[Entries]:
        return [encode_bloom_filters(self.storage, [base]).written]


def _values_of_file(values: FileValues, file: DataFile) -> list[Entries]:
    return [values.encode([file]).written]


def _values_of_partition(
    values: FileValues, path: str, slices: Iterable[FileSlice]
) -> list[Entries]:
    ranges = ColumnRanges.union([values.ranges(file) for file in files_of(slices)])
    if not sum(ranges.null_counts) + sum(ranges.value_counts):
        return []
    entry = StatisticsEntry(path, "", ranges)
    version = values.expression.version
    return [encode_partition_statistics([entry], version, prefix=OF_PARTITIONS).written]
