"""Bounds of a column: its smallest and its largest value, as statistics store them.

Values are compared as in Spark, which compares strings and bytes byte by byte. Bounds are values of
the column, with two exceptions:

- Long strings and bytes are shortened.
- If the column contains NaN, its upper bound is infinity. Spark orders NaN above infinity, but with
  a NaN as bound, Apache Hudi would skip files that it must read. The reason is that Hudi caches
  statistics in Spark, and Spark's cache ignores NaN.

So the bounds of several parts of a column together are always those of the whole column.

A column with at least one value always has bounds, because Apache Hudi skips files and partitions
without statistics if other files or partitions have statistics.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.model.widening import widen

#: Longer strings and bytes are shortened to this many characters or bytes, because the statistics
#: are stored for each file.
MAX_LENGTH = 256

#: Code points that are not characters.
_SURROGATES = range(0xD800, 0xE000)

#: Bounds of numbers, times and booleans whose column became a string column. They are valid because
#: such values are printed in ASCII.
PRINTED_LOW, PRINTED_HIGH = "", "\x7f"


def bounds_of(values: pa.ChunkedArray) -> pa.Array:
    """Return the smallest and the largest value; both are null if there is no value."""
    if pa.types.is_dictionary(values.type):
        # A dictionary may have values that no row has.
        values = pc.unique(values).cast(values.type.value_type)
    kind = values.type
    extremes = pc.min_max(values)
    low, high = extremes["min"], extremes["max"]
    if pa.types.is_floating(kind) and pc.any(pc.is_nan(values)).as_py():
        low, high = _around_nan(low.as_py(), kind)
    pair = pa.array([low, high], kind)
    return _cut(pair) if _is_text(kind) and pair.nbytes > MAX_LENGTH else pair


def pair_bounds(low: pa.Array, high: pa.Array) -> list[pa.Array]:
    """Return the bounds that enclose each pair of a smallest and a largest value.

    Other writers may have stored NaN or long texts, which ``bounds_of`` replaces.
    """
    both = pa.concat_arrays([low, high])
    ends = np.arange(len(both)).reshape(2, -1)
    pairs = both.take(pa.array(ends.T.ravel()))
    divided = [pairs.slice(at, 2) for at in range(0, len(pairs), 2)]
    if _are_bounds(both):
        return divided
    return [bounds_of(pa.chunked_array([pair])) for pair in divided]


def _are_bounds(values: pa.Array) -> bool:
    """Return whether each of these values may be a bound: no NaN, and no long text."""
    if _is_text(values.type):
        return (pc.max(pc.binary_length(values)).as_py() or 0) <= MAX_LENGTH
    return not (pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py())


def _around_nan(low: float, kind: pa.DataType) -> tuple[float, float]:
    """Return the bounds of a column that contains NaN.

    The bounds must differ, because equal bounds mean that all values are equal. So the lower bound
    is at most the largest finite number.

    Args:
        low: the smallest number, or NaN if the column contains no number.
        kind: the type of the column.
    """
    largest = float(np.finfo(kind.to_pandas_dtype()).max)
    return (low if low < largest else largest), math.inf


def unite_bounds(pairs: Sequence[tuple[Any, Any]]) -> tuple[Any, Any]:
    """Return the bounds that enclose all pairs of bounds, given as ``to_storage_type`` values.

    The values are compared in Python, because an Arrow kernel costs as much for two rows as for
    thousands.
    """
    lows = [low for low, _ in pairs if low is not None]
    highs = [high for _, high in pairs if high is not None]
    return min(lows, default=None), max(highs, default=None)


def unite_typed_bounds(arrays: Sequence[pa.Array]) -> pa.Array:
    """Return the bounds that enclose bounds of several types.

    The result has the last type that can hold the values of the other types. Bounds whose values do
    not fit that type are ignored, because no query can return such values.
    """
    kind = _common_type([array.type for array in arrays])
    ends = (
        convert_bounds(array[at : at + 1], kind, printed)
        for array in arrays
        for at, printed in enumerate((PRINTED_LOW, PRINTED_HIGH))
    )
    return bounds_of(pa.chunked_array([end for end in ends if end is not None], kind))


def convert_bounds(values: pa.Array, kind: pa.DataType, printed: str) -> pa.Array | None:
    """Convert bounds of a column whose type changed; return None if this is not possible.

    Args:
        values: only smallest or only largest values; they may be null.
        kind: the column's current type.
        printed: the bound to use if the column became a string column: ``PRINTED_LOW`` or
            ``PRINTED_HIGH``.
    """
    source = values.type
    if source == kind:
        return values
    if pa.types.is_string(kind) and not _is_text(source):
        return pc.if_else(values.is_valid(), printed, pa.scalar(None, pa.string()))
    if not _keeps_order(source, kind):
        return None
    try:
        return widen(values, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def to_storage_type(values: pa.Array) -> pa.Array:
    """View times as the numbers by which they are stored, and return other values unchanged.

    Numbers are used because Python's date and time types cannot hold all values.
    """
    return values.view(storage_type(values.type))


def storage_type(kind: pa.DataType) -> pa.DataType:
    """Return the integer type by which times of a type are stored; return other types unchanged."""
    if pa.types.is_temporal(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    return kind


# --- long texts


def _cut(pair: pa.Array) -> pa.Array:
    """Shorten long bounds.

    A lower bound becomes a prefix, and an upper bound becomes a short value above all values with
    the same prefix. Shortening keeps the order of values. So the bounds of several files together
    are the same as the bounds computed from all their rows.
    """
    low, high = pair.to_pylist()
    return pa.array(
        [low[:MAX_LENGTH], high if len(high) <= MAX_LENGTH else _after(high)], pair.type
    )


def _after(value: Any) -> Any:
    """Return the smallest short value above all values with the same prefix.

    If there is no such value, return the value itself.
    """
    beginning = value[:MAX_LENGTH]
    if isinstance(value, bytes):
        rest = beginning.rstrip(b"\xff")
        return rest[:-1] + bytes([rest[-1] + 1]) if rest else value
    rest = beginning.rstrip(chr(sys.maxunicode))
    return rest[:-1] + _next_character(rest[-1]) if rest else value


def _next_character(character: str) -> str:
    following = ord(character) + 1
    return chr(_SURROGATES.stop if following in _SURROGATES else following)


# --- types


def _common_type(kinds: Sequence[pa.DataType]) -> pa.DataType:
    """Return the last type, or an earlier type that is wider.

    An earlier type may be wider because a slow writer may commit later with an older schema.
    """
    common = kinds[-1]
    for kind in reversed(kinds):
        if _is_wider(kind, common):
            common = kind
    return common


def _is_wider(kind: pa.DataType, than: pa.DataType) -> bool:
    if pa.types.is_string(kind) and not _is_text(than):
        return True
    return _number_rank(kind) > _number_rank(than) > 0


def _number_rank(kind: pa.DataType) -> int:
    """Return the rank of a numeric type, which is higher for wider types; 0 for other types."""
    ranks = (pa.types.is_int32, pa.types.is_int64, pa.types.is_float32, pa.types.is_float64)
    return next((rank for rank, check in enumerate(ranks, start=1) if check(kind)), 0)


def _keeps_order(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether a conversion from one type to the other keeps the order of values."""
    if pa.types.is_date(source) and pa.types.is_timestamp(target):
        return True
    same = (pa.types.is_timestamp, pa.types.is_time, _is_text, _is_number)
    return any(check(source) and check(target) for check in same)


def _is_number(kind: pa.DataType) -> bool:
    checks = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(check(kind) for check in checks)


def _is_text(kind: pa.DataType) -> bool:
    checks = (pa.types.is_large_string, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
    is_plain = pa.types.is_string(kind) or pa.types.is_binary(kind)
    return bool(is_plain or any(check(kind) for check in checks))
