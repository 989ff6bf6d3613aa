"""Encodes column ranges of files and partitions as records of the metadata table.

Most commits write few records. These are encoded one by one, because each call of an Arrow kernel
has a fixed cost. For thousands of records, ``encode_batch`` produces the same bytes faster.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache, partial
from typing import NamedTuple, TypeAlias

import pyarrow as pa

from lakemark.codec.ordering_wrappers import Wrapper
from lakemark.codec.varint import zigzag
from lakemark.metadata.column_stats.encode_batch import (
    COLUMN_STATS_TYPE,
    PARTITION_STATS_TYPE,
    encode_column_batch,
    encode_partition_batch,
    statistics_batch_schema,
)
from lakemark.metadata.column_stats.value_types import as_stored, value_type_of, wrapper_of
from lakemark.metadata.index_definition import VERSION
from lakemark.metadata.index_keys import column_stats_key, partition_stats_key, stored_path
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.metadata.record_changes import RecordChanges, around_payload
from lakemark.model.column_ranges import NO_SIZE, ColumnRanges, ColumnSize

#: Up to this many files or partitions are encoded one by one.
_FEW = 256

#: Encodes the record of one column; see ``statistics_encoder``.
_EncodeRecord: TypeAlias = Callable[[str, str, pa.Array, int, int, ColumnSize], bytes]


class StatisticsEntry(NamedTuple):
    """The column ranges of a file, or of a partition if ``file_name`` is empty."""

    partition_path: str
    file_name: str
    ranges: ColumnRanges


def encode_column_statistics(
    files: Sequence[StatisticsEntry], version: str = VERSION
) -> RecordChanges:
    """Encode the statistics of distinct files, in a format version of the index."""
    if len(files) > _FEW:
        tables = _by_column(files)
        parts = [encode_column_batch(name, table, version) for name, table in tables]
        return RecordChanges.union(parts)
    keys, records = [], []
    for one, column, encode in _encoders(files, COLUMN_STATS_TYPE, version, is_tight=False):
        keys.append(column_stats_key(column, one.partition_path, one.file_name))
        records.append(encode(one.file_name))
    return RecordChanges.of(keys, pa.array(records, pa.large_binary()))


def encode_partition_statistics(
    partitions: Sequence[StatisticsEntry],
    version: str = VERSION,
    *,
    is_tight: bool = True,
    prefix: str | None = None,
) -> RecordChanges:
    """Encode the statistics of distinct partitions.

    Args:
        partitions: statistics of the partitions.
        version: format version of the index, ``V1`` or ``V2``.
        is_tight: as for ``encode_partition_batch``.
        prefix: as for ``partition_stats_key``.
    """
    if len(partitions) > _FEW:
        tables = _by_column(partitions)
        parts = [
            encode_partition_batch(name, table, version, is_tight=is_tight, prefix=prefix)
            for name, table in tables
        ]
        return RecordChanges.union(parts)
    keys, records = [], []
    for one, column, encode in _encoders(
        partitions, PARTITION_STATS_TYPE, version, is_tight=is_tight
    ):
        keys.append(partition_stats_key(column, one.partition_path, prefix))
        records.append(encode(stored_path(one.partition_path)))
    return RecordChanges.of(keys, pa.array(records, pa.large_binary()))


def _encoders(
    entries: Iterable[StatisticsEntry], record_type: int, version: str, *, is_tight: bool
) -> Iterator[tuple[StatisticsEntry, str, Callable[[str], bytes]]]:
    """Yield each entry and column, and a function that encodes their record.

    The argument of the function is the name of the file or partition in the record.
    """
    encoders: dict[pa.DataType, _EncodeRecord] = {}
    for entry in entries:
        ranges = entry.ranges
        for at, column in enumerate(ranges.columns):
            bounds = ranges.bounds.column(at)
            if bounds.type not in encoders:
                encode = statistics_encoder(record_type, bounds.type, version, is_tight=is_tight)
                encoders[bounds.type] = encode
            counts = ranges.null_counts[at], ranges.value_counts[at]
            size = ranges.sizes.get(column, NO_SIZE)
            record = partial(_record, encoders[bounds.type], column, bounds, counts, size)
            yield entry, column, record


def _record(
    encode: _EncodeRecord,
    column: str,
    bounds: pa.Array,
    counts: tuple[int, int],
    size: ColumnSize,
    name: str,
) -> bytes:
    return encode(name, column, bounds, *counts, size)


def _by_column(entries: Iterable[StatisticsEntry]) -> list[tuple[str, pa.Table]]:
    """Return the statistics of each column, in one table for each type of the column."""
    rows: dict[tuple[str, pa.DataType], list[tuple[StatisticsEntry, int]]] = {}
    for entry in entries:
        for at, field in enumerate(entry.ranges.bounds.schema):
            rows.setdefault((field.name, field.type), []).append((entry, at))
    return [(name, _statistics(kind, found)) for (name, kind), found in rows.items()]


def _statistics(kind: pa.DataType, found: Sequence[tuple[StatisticsEntry, int]]) -> pa.Table:
    bounds = pa.concat_arrays([entry.ranges.bounds.column(at) for entry, at in found])
    sizes = [one.ranges.sizes.get(one.ranges.columns[at], NO_SIZE) for one, at in found]
    columns = [
        [entry.partition_path for entry, _ in found],
        [entry.file_name for entry, _ in found],
        bounds[::2],
        bounds[1::2],
        [entry.ranges.null_counts[at] for entry, at in found],
        [entry.ranges.value_counts[at] for entry, at in found],
        [size.size_bytes for size in sizes],
        [size.uncompressed_bytes for size in sizes],
    ]
    schema = statistics_batch_schema(kind)
    return pa.Table.from_arrays(
        [
            pa.array(column, field.type) if isinstance(column, list) else column
            for column, field in zip(columns, schema, strict=True)
        ],
        schema=schema,
    )


def delete_column_statistics(
    columns: Iterable[str], files: Iterable[tuple[str, str]]
) -> RecordChanges:
    """Encode the deletion of the statistics of these columns in some files.

    Args:
        columns: names of the columns.
        files: partition path and name of each file.
    """
    deleted = list(files)
    keys = [column_stats_key(column, path, name) for column in columns for path, name in deleted]
    return RecordChanges.of([], pa.array([], pa.large_binary()), keys)


def delete_partition_statistics(
    columns: Iterable[str], partition_paths: Iterable[str], prefix: str | None = None
) -> RecordChanges:
    """Encode the deletion of the statistics of these columns in some partitions.

    Args:
        columns: names of the columns.
        partition_paths: paths of the partitions.
        prefix: as for ``partition_stats_key``.
    """
    paths = list(partition_paths)
    keys = [partition_stats_key(column, path, prefix) for column in columns for path in paths]
    return RecordChanges.of([], pa.array([], pa.large_binary()), keys)


#: Branches of a union with null.
_NOT_NULL, _NULL = b"\x02", b"\x00"

#: The stored type of a value, its wrapper, and the function that encodes its content.
_Form: TypeAlias = tuple[bytes, bytes, Callable[..., bytes]]


def statistics_encoder(
    record_type: int, data_type: pa.DataType, version: str = VERSION, *, is_tight: bool
) -> Callable[[str, str, pa.Array, int, int, ColumnSize], bytes]:
    """Return a function that encodes a record of the statistics of one column of this type.

    The function has six arguments: the name of the file or partition, the name of the column, an
    array of the smallest and the largest value, the number of nulls, the number of values, and the
    size of the column.
    """
    before, after = around_payload(record_type, PartitionKind.COLUMN_STATS.payload)
    value_type, wrapper, encode = _form(data_type, version)
    end = bytes([False, is_tight]) + value_type + after

    def record(
        name: str, column: str, bounds: pa.Array, nulls: int, values: int, size: ColumnSize
    ) -> bytes:
        bare = _bare(as_stored(bounds, version))
        wrapped = [_NULL if one is None else wrapper + encode(one) for one in bare]
        counts = _NOT_NULL + zigzag(values) + _NOT_NULL + zigzag(nulls)
        names = _NOT_NULL + _name(name) + _NOT_NULL + _name(column)
        sizes = [_NOT_NULL + zigzag(one) for one in size]
        return b"".join([before, names, *wrapped, counts, *sizes, end])

    return record


def _form(data_type: pa.DataType, version: str) -> _Form:
    wrapper = wrapper_of(data_type, version)
    if version != VERSION:
        return _NULL, zigzag(wrapper), _CONTENTS[wrapper]
    info = _NULL
    if pa.types.is_decimal(data_type):
        info = _NOT_NULL + _text(f"{data_type.precision},{data_type.scale}")
    described = _NOT_NULL + zigzag(value_type_of(data_type)) + info
    return described, zigzag(wrapper), _CONTENTS[wrapper]


def _bare(bounds: pa.Array) -> list[object]:
    """Return values as their wrapper stores them."""
    kind = bounds.type
    if pa.types.is_temporal(kind):
        bounds = bounds.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    values: list[object] = bounds.to_pylist()
    if pa.types.is_decimal(kind):
        return [None if one is None else _unscaled(one, kind.scale) for one in values]
    return values


def _unscaled(value: object, scale: int) -> bytes:
    """Return a decimal's unscaled value: two's complement, big-endian, as short as possible."""
    assert isinstance(value, Decimal), value
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int), value
    number: int = int("".join(map(str, digits))) * 10 ** max(exponent + scale, 0)
    number = -number if sign else number
    length = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return number.to_bytes(length, "big", signed=True)


def _bytes(value: bytes) -> bytes:
    return zigzag(len(value)) + value


def _text(value: str) -> bytes:
    return _bytes(value.encode())


#: Cached, because names repeat: a file has a record for every column, and a column has a record for
#: every file.
_name = lru_cache(maxsize=4096)(_text)


_CONTENTS: Mapping[Wrapper, Callable[..., bytes]] = {
    Wrapper.BOOLEAN: lambda value: bytes([value]),
    Wrapper.INT: zigzag,
    Wrapper.LONG: zigzag,
    Wrapper.FLOAT: struct.Struct("<f").pack,
    Wrapper.DOUBLE: struct.Struct("<d").pack,
    Wrapper.BYTES: _bytes,
    Wrapper.STRING: _text,
    Wrapper.DATE: zigzag,
    Wrapper.DECIMAL: _bytes,
}
