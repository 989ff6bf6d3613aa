"""Column ranges of files and partitions as records of the metadata table.

What is known of a partition is carried from commit to commit: the ranges of its files together, so
that nobody has to read the statistics of all of them at each commit (``remaining_ranges`` does when
files go, or a column comes). Each record stands for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import pyarrow as pa

from lakemark.metadata.column_stats.records import (
    COLUMN_STATS_TYPE,
    PARTITION_STATS_TYPE,
    encode_column_statistics,
    encode_partition_statistics,
    statistics_columns,
)
from lakemark.metadata.column_stats.short_records import statistics_encoder
from lakemark.metadata.index_definition import VERSION
from lakemark.metadata.index_keys import column_stats_key, partition_stats_key, stored_path
from lakemark.metadata.record_changes import RecordChanges
from lakemark.model.column_ranges import NO_SIZE, ColumnRanges, ColumnSize

#: So many files or partitions are encoded one by one.
_FEW = 256

_MakeRecord: TypeAlias = Callable[[str, str, pa.Array, int, int, ColumnSize], bytes]


class RangesOf(NamedTuple):
    """Ranges of a file, or, where ``file_name`` is empty, of a partition."""

    partition_path: str
    file_name: str
    ranges: ColumnRanges


def column_statistics(files: Sequence[RangesOf], version: str = VERSION) -> RecordChanges:
    """The records of these files, each given once, in a version of the index."""
    if len(files) > _FEW:
        tables = _by_column(files)
        parts = [encode_column_statistics(name, table, version) for name, table in tables]
        return RecordChanges.united(parts)
    keys, records = [], []
    for one, column, encode in _encoders(files, COLUMN_STATS_TYPE, version):
        keys.append(column_stats_key(column, one.partition_path, one.file_name))
        records.append(encode(one.file_name))
    return RecordChanges.of(keys, pa.array(records, pa.large_binary()))


def partition_statistics(partitions: Sequence[RangesOf], version: str = VERSION) -> RecordChanges:
    """The records of these partitions, each given once, in a version of the index."""
    if len(partitions) > _FEW:
        tables = _by_column(partitions)
        parts = [
            encode_partition_statistics(name, table, version, is_tight=True)
            for name, table in tables
        ]
        return RecordChanges.united(parts)
    keys, records = [], []
    for one, column, encode in _encoders(partitions, PARTITION_STATS_TYPE, version):
        keys.append(partition_stats_key(column, one.partition_path))
        records.append(encode(stored_path(one.partition_path)))
    return RecordChanges.of(keys, pa.array(records, pa.large_binary()))


def _encoders(
    items: Iterable[RangesOf], record_type: int, version: str
) -> Iterator[tuple[RangesOf, str, Callable[[str], bytes]]]:
    """Each column of each item, and what makes its record, given what that is of."""
    makers: dict[pa.DataType, _MakeRecord] = {}
    is_tight = record_type == PARTITION_STATS_TYPE
    for item in items:
        ranges = item.ranges
        for place, column in enumerate(ranges.columns):
            bounds = ranges.bounds.column(place)
            if bounds.type not in makers:
                make = statistics_encoder(record_type, bounds.type, version, is_tight=is_tight)
                makers[bounds.type] = make
            counts = ranges.null_counts[place], ranges.value_counts[place]
            size = _size_of(item, column)
            record = partial(_record, makers[bounds.type], column, bounds, counts, size)
            yield item, column, record


def _size_of(item: RangesOf, column: str) -> ColumnSize:
    """That of a column in a file; of partitions none is kept."""
    return item.ranges.sizes.get(column, NO_SIZE) if item.file_name else NO_SIZE


def _record(
    make: _MakeRecord,
    column: str,
    bounds: pa.Array,
    counts: tuple[int, int],
    size: ColumnSize,
    of_what: str,
) -> bytes:
    return make(of_what, column, bounds, *counts, size)


def _by_column(items: Iterable[RangesOf]) -> list[tuple[str, pa.Table]]:
    """The statistics of each column, and of each type that it has."""
    rows: dict[tuple[str, pa.DataType], list[tuple[RangesOf, int]]] = {}
    for item in items:
        for place, field in enumerate(item.ranges.bounds.schema):
            rows.setdefault((field.name, field.type), []).append((item, place))
    return [(name, _statistics(kind, found)) for (name, kind), found in rows.items()]


def _statistics(kind: pa.DataType, found: Sequence[tuple[RangesOf, int]]) -> pa.Table:
    bounds = pa.concat_arrays([item.ranges.bounds.column(place) for item, place in found])
    sizes = [_size_of(item, item.ranges.columns[place]) for item, place in found]
    columns = [
        [item.partition_path for item, _ in found],
        [item.file_name for item, _ in found],
        bounds[::2],
        bounds[1::2],
        [item.ranges.null_counts[place] for item, place in found],
        [item.ranges.value_counts[place] for item, place in found],
        [size.size_bytes for size in sizes],
        [size.uncompressed_bytes for size in sizes],
    ]
    schema = statistics_columns(kind)
    return pa.Table.from_arrays(
        [
            pa.array(column, field.type) if isinstance(column, list) else column
            for column, field in zip(columns, schema, strict=True)
        ],
        schema=schema,
    )
