"""Converts ordering values to integers (ranks) that have the same order as the values.

If there is one ordering field of an integer, date, time, timestamp, boolean, float or short decimal
type, each rank is computed directly from the value. Otherwise the rows are sorted to rank them. Two
ranks can be compared only if the same call computed them.

A null has a lower rank than every value. Apache Hudi replaces a null by the integer 0, and then
fails with a class cast error if the column is a long or a string. So the writer rejects rows with
null ordering values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.errors import InvalidConfig
from lakemark.schema.field_path import column_at

Ranks: TypeAlias = npt.NDArray[np.int64]

#: Digits of the widest decimal whose unscaled value always fits into 8 of its 16 bytes.
_SHORT_DECIMAL_DIGITS = 18


def ordering_ranks(rows: pa.Table, fields: Sequence[str]) -> Ranks:
    """Return the rank of each row. Of two rows, the row with the larger rank is the later row.

    Args:
        rows: a table with the ordering columns.
        fields: ordering fields, most significant first; a dotted name is a field of a struct.

    Raises:
        InvalidConfig: a field is missing, or its type has no order (a list, map or struct).
    """
    columns = [_rank(column_at(rows, name), name) for name in fields]
    if len(columns) == 1:
        return columns[0]
    return _dense_lexicographic(columns)


def find_default_ordering(rows: pa.Table, fields: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return which rows have a value that Hudi treats as "no ordering value": 0 or null.

    A table with several ordering fields has no such values, because Hudi compares several fields as
    an array, which never equals the integer 0. Only a Java ``Integer`` counts as 0, so a zero in a
    long, string or decimal column is an ordinary ordering value.
    """
    if len(fields) != 1:
        return np.zeros(rows.num_rows, dtype=np.bool_)
    column = column_at(rows, fields[0])
    is_default = column.is_null()
    if is_java_integer(column.type):
        zero = pa.scalar(0, pa.int32()).cast(column.type)
        is_default = pc.or_(is_default, pc.fill_null(pc.equal(column, zero), fill_value=False))
    return _to_numpy(is_default)


def select_ordering_columns(rows: pa.Table, fields: Sequence[str], *others: str) -> pa.Table:
    """Return a table of the ordering columns, named like the fields, and of the ``others``.

    Raises:
        InvalidConfig: a field is missing.
    """
    return pa.table({name: column_at(rows, name) for name in (*fields, *others)})


def _rank(column: pa.ChunkedArray, name: str) -> Ranks:
    direct = _direct_rank(column.type)
    if direct is None:
        ranks = _rank_by_sorting(column, name)
    elif column.null_count == 0:
        return _concatenate([direct(chunk) for chunk in column.chunks if len(chunk)])
    else:
        chunks = [_without_nulls(chunk) for chunk in column.chunks if len(chunk)]
        values = _concatenate([direct(chunk) for chunk in chunks])
        ranks = np.unique(values, return_inverse=True)[1].astype(np.int64) + 1
    ranks[_to_numpy(column.is_null())] = 0
    return ranks


def _direct_rank(kind: pa.DataType) -> Callable[[pa.Array], Ranks] | None:
    if pa.types.is_floating(kind):
        return _float_rank
    if pa.types.is_decimal128(kind) and kind.precision <= _SHORT_DECIMAL_DIGITS:
        return _short_decimal_rank
    if pa.types.is_integer(kind) and not pa.types.is_uint64(kind):
        return _integer_rank
    if pa.types.is_temporal(kind) or pa.types.is_boolean(kind):
        return _integer_rank
    return None


def _integer_rank(values: pa.Array) -> Ranks:
    if pa.types.is_date32(values.type) or pa.types.is_time32(values.type):
        values = values.cast(pa.int32())
    ranks: Ranks = values.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return ranks


def _float_rank(values: pa.Array) -> Ranks:
    """Return the bits of doubles, adjusted so that they compare like ``Double.compareTo``.

    In this order, -0 is less than 0, and NaN is the largest value.
    """
    doubles = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
    bits: Ranks = np.where(np.isnan(doubles), np.nan, doubles).view(np.int64)
    return bits ^ ((bits >> 63) & np.iinfo(np.int64).max)


def _short_decimal_rank(values: pa.Array) -> Ranks:
    """Return the unscaled values, which are the lower 8 of 16 little-endian bytes."""
    halves = np.frombuffer(values.buffers()[1], dtype="<i8")
    lower: Ranks = halves[2 * values.offset : 2 * (values.offset + len(values)) : 2]
    return lower


def _rank_by_sorting(column: pa.ChunkedArray, name: str) -> Ranks:
    """Return the rank of each value among the distinct values, counted from 1."""
    try:
        dense = pc.rank(column, sort_keys="ascending", tiebreaker="dense")
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        message = (
            f"ordering field {name!r} has type {column.type}, which has no order; "
            "name a column of numbers, times or strings"
        )
        raise InvalidConfig(message) from error
    ranks: Ranks = dense.to_numpy(zero_copy_only=False).astype(np.int64)
    return ranks


def _without_nulls(values: pa.Array) -> pa.Array:
    """Return the values without their null flags.

    A null becomes an arbitrary value, because its rank is set later.
    """
    data = values.buffers()[1]
    return pa.Array.from_buffers(values.type, len(values), [None, data], offset=values.offset)


def _concatenate(parts: list[Ranks]) -> Ranks:
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _dense_lexicographic(columns: list[Ranks]) -> Ranks:
    order = np.lexsort(columns[::-1])
    differs = np.zeros(len(order), dtype=np.bool_)
    for column in columns:
        differs[1:] |= column[order][1:] != column[order][:-1]
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.cumsum(differs)
    return ranks


def is_java_integer(kind: pa.DataType) -> bool:
    """Return whether Hudi's readers hold values of this type as ``java.lang.Integer``.

    A date is such a type, because Hudi holds it as a day number.
    """
    return pa.types.is_date32(kind) or kind in (pa.int8(), pa.int16(), pa.int32())


def _to_numpy(mask: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    flags: npt.NDArray[np.bool_] = mask.to_numpy()
    return flags.astype(np.bool_)
