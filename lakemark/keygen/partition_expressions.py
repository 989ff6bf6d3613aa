"""Computes the partition columns that are expressions of other columns.

year … hour, format   text in UTC; a timestamp without a time zone is formatted as it is stored
bucket(c, N)          CRC-32 of the value as text in UTF-8, modulo N
truncate(c, W)        the first W characters of a text; the largest multiple of W up to an integer

The value of a null is null. A value is null, too, if the expression has no value: for a time
outside the years 1 to 9999, and if the type of an integer cannot hold the multiple. The rows of
such values have no partition path.

Other engines can compute the same values (docs/partition_expressions.md), so a table can be
continued without lakemark.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.config.partition_field import PartitionField
from lakemark.config.time_pattern import TimePattern
from lakemark.errors import InvalidConfig
from lakemark.keygen.key_value import key_value, stored_timestamp
from lakemark.keygen.partition_path import partition_paths
from lakemark.model.meta_columns import RESERVED_PREFIX, is_reserved
from lakemark.schema.field_path import column_at

_UNITS_PER_SECOND: Final = {"ms": 1_000, "us": 1_000_000}

#: Seconds since the epoch at the beginning of the years 1 and 10000, between which Python has
#: times.
_FIRST_S: Final = int(datetime(1, 1, 1, tzinfo=UTC).timestamp())
_END_S: Final = int(datetime(9999, 12, 31, tzinfo=UTC).timestamp()) + 86_400

#: The pattern that writes the folders of ``slash_separated_dates``.
_SLASH_SEPARATED_DATE: Final = "yyyy/MM/dd"


def expression_type(field: PartitionField, columns: pa.Schema) -> pa.DataType:
    """Return the type of the column that stores an expression.

    Raises:
        InvalidConfig: the expression's column is missing, or has a type that the function does not
            take.
    """
    kind = column_at(columns.empty_table(), field.column).type
    if field.pattern is not None:
        taken, stored = pa.types.is_timestamp(kind) or pa.types.is_date(kind), pa.string()
        types = "timestamps and dates"
    elif field.buckets is not None:
        taken = _is_integer_or_text(kind) or pa.types.is_date(kind)
        types, stored = "integers, texts and dates", pa.int32()
    else:
        taken, types, stored = _is_integer_or_text(kind), "integers and texts", kind
    if not taken:
        message = (
            f"partition_by {field}: {field.column!r} is {kind}; the function takes {types}; "
            "declare the column with such a type, or partition by the column itself"
        )
        raise InvalidConfig(message)
    return stored


def check_folder_of(field: PartitionField, *, url_encode: bool) -> None:
    """Check that the formatted times of an expression can name folders.

    Raises:
        InvalidConfig: the pattern has a character that a folder name cannot have.
    """
    if field.pattern is None:
        return
    text = TimePattern.parse(field.pattern).format(datetime(2026, 1, 2, 3, 4, 5))  # noqa: DTZ001
    name = field.stored_column
    paths = partition_paths(
        [name], [pa.array([text])], hive_style=False, url_encode=url_encode, nested_fields=()
    )
    if paths.null_count:
        message = (
            f"partition_by {field}: {text!r} cannot name a folder; use another pattern, or set "
            "url_encode, which writes special characters as %XX"
        )
        if field.pattern == _SLASH_SEPARATED_DATE:
            message += f"; or use only day({field.column}), with slash_separated_dates"
        raise InvalidConfig(message)


def with_expression_columns(columns: pa.Schema, fields: Iterable[PartitionField]) -> pa.Schema:
    """Return columns followed by those that store partition expressions.

    Raises:
        InvalidConfig: see ``expression_type``; or there already is a column of this name, or the
            name is reserved.
    """
    added = columns
    for field in fields:
        name = field.stored_column
        reason = ""
        if name.lower() in (each.lower() for each in added.names):
            reason = "the rows have a column of this name"
        elif is_reserved(name):
            reason = f"names that begin with {RESERVED_PREFIX} are reserved by Hudi"
        if reason:
            message = (
                f"partition_by {field} adds the column {name!r}, but {reason}; choose another "
                f"name, as in: {field.expression} as my_column"
            )
            raise InvalidConfig(message)
        added = added.append(pa.field(name, expression_type(field, columns)))
    return added


def compute_expressions(rows: pa.Table, fields: Iterable[PartitionField]) -> pa.Table:
    """Return rows with computed values in the columns that store partition expressions.

    Args:
        rows: the rows, with these columns.
        fields: the expressions.

    Raises:
        InvalidConfig: a column is missing.
    """
    for field in fields:
        index = rows.schema.get_field_index(field.stored_column)
        values = evaluate_expression(rows, field).cast(rows.schema.field(index).type)
        rows = rows.set_column(index, rows.schema.field(index), values)
    return rows


def evaluate_expression(rows: pa.Table, field: PartitionField) -> pa.Array:
    """Return the value of an expression in each row.

    Raises:
        InvalidConfig: the expression's column is missing, or its values cannot be converted.
    """
    column = column_at(rows, field.column).combine_chunks()
    if field.pattern is not None:
        return _format_times(column, TimePattern.parse(field.pattern))
    if field.buckets is not None:
        return _hash(key_value(rows, field.column), field.buckets)
    assert field.width is not None
    if pa.types.is_integer(column.type):
        return _multiples(column, field.width)
    return pc.utf8_slice_codeunits(column, 0, field.width)


def find_valueless(rows: pa.Table, field: PartitionField) -> pa.Array:
    """Flag rows for whose value, which is not null, the expression has no value."""
    column = column_at(rows, field.column).combine_chunks()
    return pc.and_(column.is_valid(), rows.column(field.stored_column).combine_chunks().is_null())


def _is_integer_or_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind))


def _format_times(column: pa.Array, pattern: TimePattern) -> pa.Array:
    times = _as_utc(column)
    per_second = _UNITS_PER_SECOND[times.type.unit]
    numbers = times.cast(pa.int64())
    is_known = pc.and_(
        pc.greater_equal(numbers, _FIRST_S * per_second), pc.less(numbers, _END_S * per_second)
    )
    # Earlier times with the same text, of which there are fewer distinct ones.
    floored = pc.floor_temporal(pc.if_else(is_known, times, None), unit=pattern.finest.name.lower())
    encoded = floored.dictionary_encode()
    names = [None if one is None else pattern.format(one) for one in encoded.dictionary.to_pylist()]
    return pa.array(names, pa.string()).take(encoded.indices)


def _as_utc(column: pa.Array) -> pa.Array:
    """Return the stored times in UTC, without a time zone."""
    if pa.types.is_date(column.type):
        return column.cast(pa.date32()).cast(pa.timestamp("ms"))
    stored = stored_timestamp(column.type)
    return column.cast(stored, safe=False).cast(pa.int64()).cast(pa.timestamp(stored.unit))


def _hash(texts: pa.Array, buckets: int) -> pa.Array:
    encoded = texts.dictionary_encode()
    hashes = [zlib.crc32(text.encode()) % buckets for text in encoded.dictionary.to_pylist()]
    return pa.array(hashes, pa.int32()).take(encoded.indices)


def _multiples(column: pa.Array, width: int) -> pa.Array:
    numbers = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    floored = numbers - np.mod(numbers, width)
    smallest = np.iinfo(column.type.to_pandas_dtype()).min
    has_none = (floored > numbers) | (floored < smallest)
    has_none |= column.is_null().to_numpy(zero_copy_only=False)
    return pa.array(np.where(has_none, 0, floored), pa.int64(), mask=has_none).cast(column.type)
