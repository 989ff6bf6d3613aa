"""The smallest and the largest value of a column, as statistics store them.

The order is that of Spark's comparisons, in which texts and bytes are compared byte by byte. Bounds
are values of the column, with two exceptions: long texts and bytes are shortened, and if there is a
NaN, the largest value is infinity. Spark orders NaN above infinity. But if a bound is NaN, Apache
Hudi skips files that it must read: it caches statistics in Spark, whose cache ignores NaN.

A column with a value always has bounds. If only some files or partitions have statistics, Apache
Hudi skips the others.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.model.widening import widen

#: Longer texts and bytes are shortened to this many characters or bytes, for each file's sake.
MAX_LENGTH = 256

#: Code points that are not characters.
_SURROGATES = range(0xD800, 0xE000)

#: Bounds of numbers, times and booleans in a column that became text: they are printed in ASCII.
PRINTED_LOW, PRINTED_HIGH = "", "\x7f"


def bounds_of(values: pa.ChunkedArray) -> pa.Array:
    """Compute the smallest and the largest value; both are null if there is no value."""
    kind = values.type
    extremes = pc.min_max(values)
    low, high = extremes["min"], extremes["max"]
    if pa.types.is_floating(kind) and pc.any(pc.is_nan(values)).as_py():
        low, high = _around_nan(low.as_py())
    pair = pa.array([low, high], kind)
    return _cut(pair) if _is_text(kind) and pair.nbytes > MAX_LENGTH else pair


def _around_nan(low: float) -> tuple[float, float]:
    """Bounds of numbers and NaN, given the smallest number, or NaN if there is no number.

    They must differ, because equal bounds mean that all values are equal.
    """
    return (low if low < math.inf else -math.inf), math.inf


def unite_bounds(pairs: Sequence[tuple[Any, Any]]) -> tuple[Any, Any]:
    """Unite pairs of bounds, given as ``to_storage_type`` values.

    Single values are compared without kernels, which cost as much for two rows as for thousands.
    """
    lows = [low for low, _ in pairs if low is not None]
    highs = [high for _, high in pairs if high is not None]
    return min(lows, default=None), max(highs, default=None)


def unite_typed_bounds(arrays: Sequence[pa.Array]) -> pa.Array:
    """Unite bounds of several types, in the last type that can hold the values of the others.

    Bounds whose values do not fit that type are ignored, because no query can return such values.
    """
    kind = _common_type([array.type for array in arrays])
    ends = (
        convert_bounds(array[at : at + 1], kind, printed)
        for array in arrays
        for at, printed in enumerate((PRINTED_LOW, PRINTED_HIGH))
    )
    return bounds_of(pa.chunked_array([end for end in ends if end is not None], kind))


def convert_bounds(values: pa.Array, kind: pa.DataType, printed: str) -> pa.Array | None:
    """Convert the bounds of a column whose type changed; None if that is not possible.

    Args:
        values: bounds of one kind, smallest or largest; may be null.
        kind: the column's current type.
        printed: the bound to use for values that are not text, if the column became text.
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
    """View times as the numbers that they are stored as; Python's types cannot hold all of them."""
    return values.view(storage_type(values.type))


def storage_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of these numbers; any other type is returned unchanged."""
    if pa.types.is_temporal(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    return kind


# --- long texts


def _cut(pair: pa.Array) -> pa.Array:
    """Shorten a pair: a prefix of the smallest value, and a value above the largest one's prefix.

    Shortening keeps the order of values, so the united bounds of parts equal the bounds of the
    whole.
    """
    low, high = pair.to_pylist()
    return pa.array(
        [low[:MAX_LENGTH], high if len(high) <= MAX_LENGTH else _after(high)], pair.type
    )


def _after(value: Any) -> Any:
    """The first short value above all values with the same prefix; itself if there is none."""
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
    """The last type, or an earlier one that is wider: a late writer may have an older schema."""
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
    """Return the rank of a type of numbers by its width; 0 for other types."""
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
