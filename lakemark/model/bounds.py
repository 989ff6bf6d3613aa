"""The smallest and the largest value of a column, as statistics keep them.

They bound the values in the order of Spark's comparisons, in which texts and bytes go by their
bytes. They occur in the column, with two exceptions: long texts and bytes are cut, and beside a NaN
the largest value is infinity. Spark orders NaN above that, but with a NaN for a bound Apache Hudi
leaves out what it should read: it caches the statistics, and Spark's cache takes no notice of NaN.

A column that holds a value always has bounds: where some files or partitions have statistics,
Apache Hudi leaves out those that have none.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.model.widening import widened

#: Longer texts and bytes are cut to so many characters or bytes: they are kept for every file.
MAX_LENGTH = 256

#: What is between two characters and is none.
_SURROGATES = range(0xD800, 0xE000)

#: Bounds of numbers, moments and truth values that became text: they are printed in ASCII.
PRINTED_LOW, PRINTED_HIGH = "", "\x7f"


def bounds_of(values: pa.ChunkedArray) -> pa.Array:
    """Smallest and largest value; both null where there is none."""
    kind = values.type
    extremes = pc.min_max(values)
    low, high = extremes["min"], extremes["max"]
    if pa.types.is_floating(kind) and pc.any(pc.is_nan(values)).as_py():
        low, high = _around_nan(low.as_py())
    pair = pa.array([low, high], kind)
    return _cut(pair) if _is_text(kind) and pair.nbytes > MAX_LENGTH else pair


def _around_nan(low: float) -> tuple[float, float]:
    """Bounds of numbers and NaN, given the smallest number, or NaN where there is none.

    They differ, since both being one number says that no other value is there.
    """
    return (low if low < math.inf else -math.inf), math.inf


def widest(pairs: Sequence[tuple[Any, Any]]) -> tuple[Any, Any]:
    """The bounds of all pairs of bounds together, as ``plain`` gives them.

    Single values are compared without kernels, which cost as much for two rows as for thousands.
    """
    lows = [low for low, _ in pairs if low is not None]
    highs = [high for _, high in pairs if high is not None]
    return min(lows, default=None), max(highs, default=None)


def widest_of_types(arrays: Sequence[pa.Array]) -> pa.Array:
    """The same of bounds of several types, in the last type that holds the values of the others.

    Bounds of a type whose values cannot become values of that one are left out: no query returns
    such values.
    """
    kind = _common_type([array.type for array in arrays])
    ends = (
        in_type(array[place : place + 1], kind, printed)
        for array in arrays
        for place, printed in enumerate((PRINTED_LOW, PRINTED_HIGH))
    )
    return bounds_of(pa.chunked_array([end for end in ends if end is not None], kind))


def in_type(values: pa.Array, kind: pa.DataType, printed: str) -> pa.Array | None:
    """Bounds of a column whose type became another one; None where its values cannot.

    Args:
        values: null where there is none.
        kind: the column's type now.
        printed: what stands for a value that is no text, where the column has become text.
    """
    source = values.type
    if source == kind:
        return values
    if pa.types.is_string(kind) and not _is_text(source):
        return pc.if_else(values.is_valid(), printed, pa.scalar(None, pa.string()))
    if not _keeps_order(source, kind):
        return None
    try:
        return widened(values, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def plain(values: pa.Array) -> pa.Array:
    """Times as the numbers that they are stored as: Python's own do not hold all of them."""
    return values.view(plain_type(values.type))


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type of such a number; any other type as it is."""
    if pa.types.is_temporal(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    return kind


# --- long texts


def _cut(pair: pa.Array) -> pa.Array:
    """A prefix of the smallest value, and what is larger than all that begin as the largest one.

    Cutting keeps the order of values, so bounds of parts unite to the bounds of the whole.
    """
    low, high = pair.to_pylist()
    return pa.array(
        [low[:MAX_LENGTH], high if len(high) <= MAX_LENGTH else _after(high)], pair.type
    )


def _after(value: Any) -> Any:
    """The first short value after all that begin as this one does; itself if there is none."""
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
    """The last type, or one before it that holds more: a late writer may have an older schema."""
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
    """Numbers by how much their types hold; 0 for all else."""
    ranks = (pa.types.is_int32, pa.types.is_int64, pa.types.is_float32, pa.types.is_float64)
    return next((rank for rank, check in enumerate(ranks, start=1) if check(kind)), 0)


def _keeps_order(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether values that become those of the other type keep their order."""
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
