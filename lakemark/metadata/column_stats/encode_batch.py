"""Encodes the statistics of one column in many files or partitions, with Arrow kernels.

If a file has no value of the column, its record has counts but no bounds. ``value_types`` describes
how values are stored.
Source: ``createColumnStatsRecord``, ``createPartitionStatsRecords`` of ``HoodieMetadataPayload``,
Apache Hudi 1.2.0.
"""

from __future__ import annotations

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
from lakemark.metadata.column_stats.value_types import as_stored, value_type_of, wrapper_of
from lakemark.metadata.index_definition import VERSION
from lakemark.metadata.index_keys import column_stats_key, partition_stats_key, stored_path
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.metadata.record_changes import RecordChanges, stored_records

COLUMN_STATS_TYPE, PARTITION_STATS_TYPE = 3, 6

_NULL, _NOT_NULL = 0, 1


def statistics_batch_schema(data_type: pa.DataType) -> pa.Schema:
    """Return the schema of the statistics of one column, a row for each file or partition.

    ``file_name`` is empty in statistics of partitions. Both bounds are null if there is no value.
    The sizes are those in Parquet footers, and 0 for logs.
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


def encode_column_batch(column: str, statistics: pa.Table, version: str = VERSION) -> RecordChanges:
    """Encode the statistics of one column in files.

    Args:
        column: name of the column; for a field inside a struct, the path with dots.
        statistics: a table with the ``statistics_batch_schema`` of the column's type, which must be
            scalar.
        version: format version of the index, ``V1`` or ``V2``.
    """
    files = _paths_and_names(statistics)
    keys = [column_stats_key(column, path, name) for path, name in files]
    names = [name for _, name in files]
    return _encode(COLUMN_STATS_TYPE, column, statistics, keys, names, version)


def encode_partition_batch(
    column: str,
    statistics: pa.Table,
    version: str = VERSION,
    *,
    is_tight: bool,
    prefix: str | None = None,
) -> RecordChanges:
    """Encode the statistics of one column in whole partitions.

    Args:
        column: name of the column; for a field inside a struct, the path with dots.
        statistics: a table with the ``statistics_batch_schema`` of the column's type, which must be
            scalar.
        version: format version of the index, ``V1`` or ``V2``.
        is_tight: whether the statistics cover every file of their partitions. If so, they replace
            older records; otherwise they widen older records.
        prefix: as for ``partition_stats_key``.
    """
    paths = [stored_path(path) for path, _ in _paths_and_names(statistics)]
    keys = [partition_stats_key(column, path, prefix) for path in paths]
    return _encode(PARTITION_STATS_TYPE, column, statistics, keys, paths, version, is_tight)


def _paths_and_names(statistics: pa.Table) -> list[tuple[str, str]]:
    paths, names = (statistics.column(name).to_pylist() for name in ("partition_path", "file_name"))
    return list(zip(paths, names, strict=True))


def _encode(
    record_type: int,
    column: str,
    statistics: pa.Table,
    keys: list[bytes],
    names: list[str],
    version: str,
    is_tight: bool = False,
) -> RecordChanges:
    columns = {name: statistics.column(name).combine_chunks() for name in statistics.column_names}
    count, kind = len(keys), columns["min"].type
    wrapper = wrapper_of(kind, version)
    pieces = [
        *_some(strings(pa.array(names, pa.string())), count),
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
    """Return the pieces as a union with null, in which no row is null."""
    return [_ints(count, _NOT_NULL), *pieces]


def _wrapped(values: pa.Array, wrapper: Wrapper) -> list[Piece]:
    """Return the values in their wrapper; a null value is the null branch of the union."""
    is_valid = np.asarray(values.is_valid())
    content = _bare(values)
    return [
        varint(np.where(is_valid, wrapper, Wrapper.NULL)),
        *(only(piece, is_valid) for piece in content),
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


def _ints(count: int, *values: int) -> Piece:
    """Return the same integers in each row."""
    return constant(join([varint(np.array([value])) for value in values]).data.tobytes(), count)
