"""Smallest and largest values of statistics as a column of the table's type.

What a stored value means is told by the type beside it, which Hudi writes since version 2 of the
index::

    typeOrdinal       ``ValueType``; 0 or none in version 1
    additionalInfo    of a decimal "precision,scale"

In version 2 a value is its bare representation: days and milliseconds in an ``IntWrapper``,
timestamps in a ``LongWrapper``, the unscaled bytes of a decimal in a ``BytesWrapper``. In version 1
there are wrappers for dates, times and decimals, while a timestamp is a ``LongWrapper`` in the unit
of its column. Source: ``ValueType``, ``ValueMetadata`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.avro_binary import decimals_from
from lakemark.codec.byte_strings import byte_strings
from lakemark.codec.ordering_wrappers import Wrapper
from lakemark.metadata.column_stats.wrapped_values import WRAPPERS
from lakemark.model.bounds import in_type

Mask: TypeAlias = npt.NDArray[np.bool_]
Rows: TypeAlias = npt.NDArray[np.int64]


class ValueType(IntEnum):
    """What a value is; the number is the ordinal on disk."""

    V1 = 0
    NULL = 1
    BOOLEAN = 2
    INT = 3
    LONG = 4
    FLOAT = 5
    DOUBLE = 6
    STRING = 7
    BYTES = 8
    FIXED = 9
    DECIMAL = 10
    UUID = 11
    DATE = 12
    TIME_MILLIS = 13
    TIME_MICROS = 14
    TIMESTAMP_MILLIS = 15
    TIMESTAMP_MICROS = 16
    TIMESTAMP_NANOS = 17
    LOCAL_TIMESTAMP_MILLIS = 18
    LOCAL_TIMESTAMP_MICROS = 19
    LOCAL_TIMESTAMP_NANOS = 20


#: Types whose values lie bare in a wrapper of integers.
_BARE: Mapping[int, pa.DataType] = {
    ValueType.DATE: pa.date32(),
    ValueType.TIME_MILLIS: pa.time32("ms"),
    ValueType.TIME_MICROS: pa.time64("us"),
    ValueType.TIMESTAMP_MILLIS: pa.timestamp("ms", "UTC"),
    ValueType.TIMESTAMP_MICROS: pa.timestamp("us", "UTC"),
    ValueType.TIMESTAMP_NANOS: pa.timestamp("ns", "UTC"),
    ValueType.LOCAL_TIMESTAMP_MILLIS: pa.timestamp("ms"),
    ValueType.LOCAL_TIMESTAMP_MICROS: pa.timestamp("us"),
    ValueType.LOCAL_TIMESTAMP_NANOS: pa.timestamp("ns"),
}

#: Types of a column whose values lie bare in version 1, in the column's own unit.
_BARE_IN_VERSION_1 = (
    pa.date32(),
    pa.time32("ms"),
    pa.time64("us"),
    *(pa.timestamp(unit, zone) for unit in ("ms", "us") for zone in ("UTC", None)),
)

_LONGEST_UNSCALED_BYTES = 64


class Typed(NamedTuple):
    """Values as a column of one type.

    Attributes:
        values: null where nothing was stored, and where the stored value cannot be one of this
            type in the same order.
        is_known: false where the latter is so.
    """

    values: pa.Array
    is_known: Mask


def as_type(
    wrapped: pa.StructArray, value_types: pa.StructArray, target: pa.DataType, printed: str
) -> Typed:
    """The values as those of a column of this type.

    A column whose type was widened since keeps its older statistics (int to long, to double); of
    one that was changed otherwise the older statistics are not known.

    Args:
        wrapped: of type ``WRAPPED``.
        value_types: of type ``VALUE_TYPE``.
        target: the column's type.
        printed: what stands for a value that is no text, where the column has become text.
    """
    count = len(wrapped)
    places, parts = [np.empty(0, np.int64)], [pa.nulls(0, target)]
    is_known = np.ones(count, np.bool_)
    for rows, values in _natural(wrapped, value_types):
        part = _in_order(values, target, printed)
        if part is None:
            is_known[rows] = False
        else:
            places.append(rows)
            parts.append(part)
    at = np.full(count, -1)
    found = np.concatenate(places)
    at[found] = np.arange(len(found))
    return Typed(pa.concat_arrays(parts).take(pa.array(at, mask=at < 0)), is_known)


def _natural(
    wrapped: pa.StructArray, value_types: pa.StructArray
) -> Iterator[tuple[Rows, pa.Array]]:
    """The values by what they are: row numbers, and the values in a type of their own."""
    ordinals = np.asarray(pc.fill_null(pc.struct_field(value_types, "typeOrdinal"), 0))
    infos = np.asarray(
        pc.fill_null(pc.struct_field(value_types, "additionalInfo"), ""), dtype=object
    )
    for wrapper in WRAPPERS:
        column = pc.struct_field(wrapped, wrapper.name)
        if column.null_count == len(column):
            continue
        filled = np.flatnonzero(np.asarray(column.is_valid()))
        for ordinal in np.unique(ordinals[filled]).tolist():
            rows = filled[ordinals[filled] == ordinal]
            if wrapper is Wrapper.BYTES and ordinal == ValueType.DECIMAL:
                yield from _natural_decimals(column, rows, infos)
            else:
                values = column.take(pa.array(rows))
                is_bare = wrapper in (Wrapper.INT, Wrapper.LONG) and ordinal in _BARE
                yield rows, _bare(values, _BARE[ordinal]) if is_bare else values


def _natural_decimals(
    column: pa.Array, rows: Rows, infos: npt.NDArray[np.object_]
) -> Iterator[tuple[Rows, pa.Array]]:
    for info in sorted(set(infos[rows])):
        chosen = rows[infos[rows] == info]
        values = column.take(pa.array(chosen))
        decimal = _decimal_type(info)
        yield chosen, values if decimal is None else _decimals(values, decimal)


def _decimal_type(info: str) -> pa.DataType | None:
    """The type that "precision,scale" names."""
    precision, _, scale = info.partition(",")
    if not precision.strip().isdecimal() or not scale.strip().isdecimal():
        return None
    digits = int(precision)
    return pa.decimal128(digits, int(scale)) if 1 <= digits <= 38 and int(scale) <= digits else None


def _decimals(values: pa.Array, decimal: pa.DataType) -> pa.Array:
    """Unscaled values in two's complement, big-endian; as they are when one is no such number."""
    strings = byte_strings(values)
    longest = int(strings.lengths.max(initial=0))
    if not strings.lengths.all() or longest > _LONGEST_UNSCALED_BYTES:
        return values
    back = np.arange(longest, 0, -1)
    cells = strings.data[np.maximum(strings.offsets[1:, None] - back, strings.offsets[:-1, None])]
    sign = (cells[:, :1] >> 7) * np.uint8(0xFF)
    widened = np.where(back > strings.lengths[:, None], sign, cells)
    try:
        return decimals_from(widened, decimal)
    except pa.ArrowInvalid:
        return values


def _bare(values: pa.Array, bare: pa.DataType) -> pa.Array:
    """Integers as what they stand for."""
    return values.cast(pa.int32() if bare.bit_width == 32 else pa.int64()).view(bare)


def _in_order(values: pa.Array, target: pa.DataType, printed: str) -> pa.Array | None:
    """The values in the column's type, if that keeps their order."""
    source = values.type
    if source == target:
        return values
    if pa.types.is_temporal(target) and pa.types.is_integer(source):
        is_stored_so = target in _BARE_IN_VERSION_1 and target.bit_width == source.bit_width
        return _bare(values, target) if is_stored_so else None
    return in_type(values, target, printed)
