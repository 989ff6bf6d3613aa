"""Reads the records of new indexes from the files of a table, as of one timeline.

The records of a record index and of a secondary index come from the rows of the newest file slices,
those of ``bloom_filters`` from the footers of base files, and statistics from all files. Source:
``readRecordKeysFromFileSlices`` of ``HoodieTableMetadataUtil``, ``readSecondaryKeysFromFileSlices``
of ``SecondaryIndexRecordGenerationUtils``, Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

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
from lakemark.metadata.new_index import NewIndex, Source
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.metadata.record_index_records import (
    KeysOfGroup,
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
    "record-index-",
    count_record_index_groups,
    are_unique=True,
)

COLUMN_STATS = NewIndex(
    PartitionKind.COLUMN_STATS.stored_name, "col-stats-", lambda _: 2, are_small=True
)
PARTITION_STATS = NewIndex(
    PartitionKind.PARTITION_STATS.stored_name, "partition-stats-", lambda _: 1, are_small=True
)

#: The indexes that a table has at most once.
SINGLE = (RECORD_INDEX, BLOOM_FILTERS, COLUMN_STATS, PARTITION_STATS)


def new_secondary_index(column: SecondaryColumn) -> NewIndex:
    """Return a new secondary index, which has as many file groups as a record index."""
    return NewIndex(
        column.partition,
        f"{column.partition.replace('_', '-')}-",
        count_record_index_groups,
        hashed_part=hashed_part if column.hashes_values else None,
    )


@dataclass(frozen=True, slots=True)
class IndexSources:
    """The sources of indexes, as of one timeline.

    Attributes:
        storage: the data table's root.
        clock: the data table's clock.
        timeline: the data table's timeline.
        version: the version of the table.
        slices: the file slices that queries read.
        files: the files of completed instants, also of older slices.
        read_rows: reads the rows of a file slice.
        columns: names and types of the columns with statistics.
    """

    storage: Storage
    clock: TimelineClock
    timeline: Timeline
    version: FormatVersion
    slices: Iterable[FileSlice]
    files: Iterable[DataFile]
    read_rows: ReadRows
    columns: pa.Schema

    def of(self, index: NewIndex, column: SecondaryColumn | None) -> Iterator[Source]:
        """Yield the sources of an index.

        Args:
            index: the index.
            column: the indexed column of a secondary index.
        """
        if column is not None:
            yield from self._of_slices(lambda one: self._values(one, column))
        elif index is RECORD_INDEX:
            yield from self._of_slices(self._locations)
        elif index is BLOOM_FILTERS:
            yield from self._of_footers()
        elif index is COLUMN_STATS:
            yield from self._of_files()
        else:
            yield from self._of_partitions()

    def _of_slices(self, read: Callable[[FileSlice], Iterable[Entries]]) -> Iterator[Source]:
        for one in self.slices:
            name = join(one.group.partition_path, one.group.file_id)
            yield Source(name, self._state(one), partial(read, one))

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
            yield Source(base.path, base.size_bytes, partial(self._filter, base))

    def _of_files(self) -> Iterator[Source]:
        for file in self.files:
            shared = self._commits_to([file] if isinstance(file, LogFile) else [])
            state = (file.size_bytes, shared, self._columns)
            yield Source(file.path, state, partial(self._statistics, file))

    def _of_partitions(self) -> Iterator[Source]:
        slices: dict[str, list[FileSlice]] = {}
        for one in self.slices:
            slices.setdefault(one.group.partition_path, []).append(one)
        for path, some in slices.items():
            state = (tuple(map(self._state, some)), self._columns)
            yield Source(path, state, partial(self._partition_statistics, path, some))

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
