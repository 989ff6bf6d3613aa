"""Records of the partitions ``column_stats`` and ``partition_stats``.

Written is version 2 of the index: bare values in wrappers, and beside them what they are
(``typed_values``); in tables before version 9 version 1, in which wrappers of dates and decimals
say it. Of a file without a value there are counts and no bounds.
Source: ``createColumnStatsRecord``, ``createPartitionStatsRecords`` of ``HoodieMetadataPayload``,
``ValueType`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from lakemark.codec.avro_binary import (
    Piece,
    constant,
    decimals,
    join,
    only,
    scalars,
    strings,
    varint,
)
from lakemark.codec.ordering_wrappers import Wrapper
from lakemark.metadata.column_stats.typed_values import ValueType
from lakemark.metadata.index_definition import VERSION
from lakemark.metadata.index_keys import column_stats_key, partition_stats_key, stored_path
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.metadata.record_changes import RecordChanges, stored_records

COLUMN_STATS_TYPE, PARTITION_STATS_TYPE = 3, 6

_NULL, _NOT_NULL = 0, 1

#: What a value of each type is, and the wrapper that holds it.
_STORED: tuple[tuple[pa.DataType, ValueType, Wrapper], ...] = (
    (pa.bool_(), ValueType.BOOLEAN, Wrapper.BOOLEAN),
    (pa.int32(), ValueType.INT, Wrapper.INT),
    (pa.int64(), ValueType.LONG, Wrapper.LONG),
    (pa.float32(), ValueType.FLOAT, Wrapper.FLOAT),
    (pa.float64(), ValueType.DOUBLE, Wrapper.DOUBLE),
    (pa.string(), ValueType.STRING, Wrapper.STRING),
    (pa.binary(), ValueType.BYTES, Wrapper.BYTES),
    (pa.date32(), ValueType.DATE, Wrapper.INT),
    (pa.time32("ms"), ValueType.TIME_MILLIS, Wrapper.INT),
    (pa.time64("us"), ValueType.TIME_MICROS, Wrapper.LONG),
    (pa.timestamp("ms", "UTC"), ValueType.TIMESTAMP_MILLIS, Wrapper.LONG),
    (pa.timestamp("us", "UTC"), ValueType.TIMESTAMP_MICROS, Wrapper.LONG),
    (pa.timestamp("ms"), ValueType.LOCAL_TIMESTAMP_MILLIS, Wrapper.LONG),
    (pa.timestamp("us"), ValueType.LOCAL_TIMESTAMP_MICROS, Wrapper.LONG),
)
_VALUE_TYPES = {arrow: (value_type, wrapper) for arrow, value_type, wrapper in _STORED}

#: The decimal of version 1, which all decimals become.
DECIMAL_V1 = pa.decimal128(30, 15)


def statistics_columns(data_type: pa.DataType) -> pa.Schema:
    """Columns of the statistics of one column of the table, a row for each file or partition.

    ``file_name`` is empty in statistics of partitions. Both bounds are null where no value is. The
    sizes are those that a Parquet footer tells, 0 for logs.
    """
    return pa.schema(
        [
            pa.field("partition_path", pa.string(), nullable=False),
            pa.field("file_name", pa.string(), nullable=False),
            pa.field("min", data_type),
            pa.field("max", data_type),
            pa.field("null_count", pa.int64(), nullable=False),
            pa.field("value_count", pa.int64(), nullable=False),
            pa.field("size_bytes", pa.int64(), nullable=False),
            pa.field("uncompressed_bytes", pa.int64(), nullable=False),
        ]
    )


def encode_column_statistics(
    column: str, statistics: pa.Table, version: str = VERSION
) -> RecordChanges:
    """Records of one column's statistics in files.

    Args:
        column: its name, with dots inside structs.
        statistics: ``statistics_columns`` of its type, a scalar one.
        version: of the index, ``V1`` or ``V2``.
    """
    places = _places(statistics)
    keys = [column_stats_key(column, path, name) for path, name in places]
    names = [name for _, name in places]
    return _encode(COLUMN_STATS_TYPE, column, statistics, keys, names, version)


def encode_partition_statistics(
    column: str, statistics: pa.Table, version: str = VERSION, *, is_tight: bool
) -> RecordChanges:
    """Records of one column's statistics in whole partitions.

    Args:
        column: its name, with dots inside structs.
        statistics: ``statistics_columns`` of its type, a scalar one.
        version: of the index, ``V1`` or ``V2``.
        is_tight: whether they tell of every file of their partitions and replace what was known;
            otherwise they widen it.
    """
    paths = [stored_path(path) for path, _ in _places(statistics)]
    keys = [partition_stats_key(column, path) for path in paths]
    return _encode(PARTITION_STATS_TYPE, column, statistics, keys, paths, version, is_tight)


def deleted_column_statistics(
    columns: Iterable[str], files: Iterable[tuple[str, str]]
) -> RecordChanges:
    """The statistics of these columns in files that are gone: partition path and name of each."""
    gone = list(files)
    keys = [column_stats_key(column, path, name) for column in columns for path, name in gone]
    return RecordChanges.of([], pa.array([], pa.large_binary()), keys)


def deleted_partition_statistics(
    columns: Iterable[str], partition_paths: Iterable[str]
) -> RecordChanges:
    """The statistics of these columns in partitions that are gone."""
    gone = list(partition_paths)
    keys = [partition_stats_key(column, path) for column in columns for path in gone]
    return RecordChanges.of([], pa.array([], pa.large_binary()), keys)


def _places(statistics: pa.Table) -> list[tuple[str, str]]:
    paths, names = (statistics.column(name).to_pylist() for name in ("partition_path", "file_name"))
    return list(zip(paths, names, strict=True))


def _encode(
    record_type: int,
    column: str,
    statistics: pa.Table,
    keys: list[bytes],
    of_what: list[str],
    version: str,
    is_tight: bool = False,
) -> RecordChanges:
    columns = {name: statistics.column(name).combine_chunks() for name in statistics.column_names}
    count, kind = len(keys), columns["min"].type
    wrapper = wrapper_of(kind, version)
    pieces = [
        *_some(strings(pa.array(of_what, pa.string())), count),
        *_some(strings(pa.array([column] * count, pa.string())), count),
        *_wrapped(as_stored(columns["min"], version), wrapper),
        *_wrapped(as_stored(columns["max"], version), wrapper),
        *_some([scalars(columns["value_count"])], count),
        *_some([scalars(columns["null_count"])], count),
        *_some([scalars(columns["size_bytes"])], count),
        *_some([scalars(columns["uncompressed_bytes"])], count),
        constant(bytes([False, is_tight]), count),
        *_value_type(kind, count, version),
    ]
    payload = PartitionKind.COLUMN_STATS.payload
    return RecordChanges.of(keys, stored_records(record_type, payload, pieces, count))


def _some(pieces: list[Piece], count: int) -> list[Piece]:
    """A union of null and what the pieces are, which is there in every row."""
    return [_ints(count, _NOT_NULL), *pieces]


def _wrapped(values: pa.Array, wrapper: Wrapper) -> list[Piece]:
    """Values in their wrapper, null where there are none."""
    is_there = np.asarray(values.is_valid())
    content = _bare(values)
    return [
        varint(np.where(is_there, wrapper, Wrapper.NULL)),
        *(only(piece, is_there) for piece in content),
    ]


def _bare(values: pa.Array) -> list[Piece]:
    if pa.types.is_decimal(values.type):
        return decimals(values)
    if pa.types.is_string(values.type) or pa.types.is_binary(values.type):
        return strings(values)
    return [scalars(values)]


def _value_type(data_type: pa.DataType, count: int, version: str) -> list[Piece]:
    if version != VERSION:
        return [_ints(count, _NULL)]
    value_type = value_type_of(data_type)
    head = _ints(count, _NOT_NULL, value_type)
    if not pa.types.is_decimal(data_type):
        return [head, _ints(count, _NULL)]
    info = pa.array([f"{data_type.precision},{data_type.scale}"] * count, pa.string())
    return [head, *_some(strings(info), count)]


def value_type_of(data_type: pa.DataType) -> ValueType:
    """What a value of this type is on disk."""
    return ValueType.DECIMAL if pa.types.is_decimal(data_type) else _VALUE_TYPES[data_type][0]


def wrapper_of(data_type: pa.DataType, version: str) -> Wrapper:
    """The wrapper that holds values of this type."""
    if pa.types.is_decimal(data_type):
        return Wrapper.BYTES if version == VERSION else Wrapper.DECIMAL
    if version != VERSION and pa.types.is_date(data_type):
        return Wrapper.DATE
    return _VALUE_TYPES[data_type][1]


def as_stored(values: pa.Array, version: str) -> pa.Array:
    """Values in the type whose bytes are stored: version 1 has one decimal for all."""
    if version != VERSION and pa.types.is_decimal(values.type):
        return values.cast(DECIMAL_V1)
    return values


def _ints(count: int, *values: int) -> Piece:
    """The same integers in each row."""
    return constant(join([varint(np.array([value])) for value in values]).data.tobytes(), count)
