"""Decodes the smallest and largest values of column statistics.

A value is stored in a union of wrappers, one for each Java type:

    long      branch of the union, in the order of the schema
    content   the value

Version 2 of the index also stores the type of the value:

    typeOrdinal       ``ValueType``; 0 or null in version 1
    additionalInfo    "precision,scale" for a decimal

Source: ``HoodieAvroWrapperUtils``, ``HoodieMetadata.avsc``, ``ValueType``, ``ValueMetadata`` of
Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.avro_binary import decimals_from
from lakemark.codec.avro_cursors import Cursors
from lakemark.codec.avro_nodes import Node
from lakemark.codec.avro_row_reader import read_value
from lakemark.codec.byte_strings import byte_strings
from lakemark.codec.ordering_wrappers import CONTENT, Wrapper
from lakemark.errors import Unsupported
from lakemark.metadata.column_stats.value_types import ValueType
from lakemark.model.bounds import convert_bounds

#: Each wrapper and the Avro type of its content, by the wrapper's name on disk.
_STORED: Mapping[str, tuple[Wrapper, str]] = {
    "BooleanWrapper": (Wrapper.BOOLEAN, "boolean"),
    "IntWrapper": (Wrapper.INT, "int"),
    "LongWrapper": (Wrapper.LONG, "long"),
    "FloatWrapper": (Wrapper.FLOAT, "float"),
    "DoubleWrapper": (Wrapper.DOUBLE, "double"),
    "BytesWrapper": (Wrapper.BYTES, "bytes"),
    "StringWrapper": (Wrapper.STRING, "string"),
    "DateWrapper": (Wrapper.DATE, "int"),
    "DecimalWrapper": (Wrapper.DECIMAL, "bytes"),
    "TimeMicrosWrapper": (Wrapper.TIME_MICROS, "long"),
    "TimestampMicrosWrapper": (Wrapper.TIMESTAMP_MICROS, "long"),
    "LocalDateWrapper": (Wrapper.LOCAL_DATE, "int"),
}

WRAPPERS = [wrapper for wrapper, _ in _STORED.values()]

#: A stored value: one field for each wrapper, of which at most one is not null.
WRAPPED = pa.struct([(wrapper.name, CONTENT[wrapper]) for wrapper in WRAPPERS])

VALUE_TYPE = pa.struct([("typeOrdinal", pa.int32()), ("additionalInfo", pa.string())])


def wrapped_reader(branches: Sequence[object]) -> Callable[[Cursors], pa.StructArray]:
    """Return a function that reads the next union of wrappers of each row as a ``WRAPPED``.

    Args:
        branches: the branches of the union, each a name or a definition.
    """
    names = [_name_of(branch) for branch in branches]

    def read(cursors: Cursors) -> pa.StructArray:
        chosen = cursors.longs()
        cursors.check((chosen >= 0) & (chosen < len(names)), "a wrapper of a value")
        columns = {wrapper: pa.nulls(len(cursors), CONTENT[wrapper]) for wrapper in WRAPPERS}
        for branch in np.unique(chosen).tolist():
            if names[branch] != "null":
                wrapper, kind = _find_wrapper(names[branch], cursors.path)
                rows = chosen == branch
                picked = cursors.pick(rows)
                values = read_value(picked, Node(kind, CONTENT[wrapper]))
                cursors.put(rows, picked)
                columns[wrapper] = values.take(pa.array(np.cumsum(rows) - 1, mask=~rows))
        return pa.StructArray.from_arrays(list(columns.values()), fields=list(WRAPPED))

    return read


def _name_of(branch: object) -> str:
    name = branch.get("name") if isinstance(branch, Mapping) else branch
    return str(name).rpartition(".")[2]


def _find_wrapper(name: str, path: str) -> tuple[Wrapper, str]:
    if name in _STORED:
        return _STORED[name]
    message = f"{path} has statistics in a {name}; supported are {', '.join(_STORED)}"
    raise Unsupported(message)


Mask: TypeAlias = npt.NDArray[np.bool_]
Rows: TypeAlias = npt.NDArray[np.int64]


#: Types whose values version 2 stores as plain integers, in an ``IntWrapper`` or ``LongWrapper``.
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

#: Types of columns whose values version 1 stores as plain integers, in the unit of the column.
_BARE_IN_VERSION_1 = (
    pa.date32(),
    pa.time32("ms"),
    pa.time64("us"),
    *(pa.timestamp(unit, zone) for unit in ("ms", "us") for zone in ("UTC", None)),
)

_LONGEST_UNSCALED_BYTES = 64


class DecodedValues(NamedTuple):
    """Values as a column of one type.

    Attributes:
        values: the values; null if nothing was stored, or if a conversion to this type would not
            keep the order of the stored values.
        is_known: false for rows whose stored value could not be converted in order.
    """

    values: pa.Array
    is_known: Mask


def decode_values(
    wrapped: pa.StructArray, value_types: pa.StructArray, target: pa.DataType, printed: str
) -> DecodedValues:
    """Decode stored values into the type of their column.

    If the type of the column was widened (for example, int to long), older statistics remain valid.
    After a change that does not keep the order of the values, older statistics are unknown.

    Args:
        wrapped: the stored values, of type ``WRAPPED``.
        value_types: the types of the stored values, of type ``VALUE_TYPE``.
        target: the column's type.
        printed: the text that replaces a stored value of a different type, if the column has become
            a text column.
    """
    count = len(wrapped)
    decoded_rows, parts = [np.empty(0, np.int64)], [pa.nulls(0, target)]
    is_known = np.ones(count, np.bool_)
    for rows, values in _by_stored_type(wrapped, value_types):
        part = _convert_in_order(values, target, printed)
        if part is None:
            is_known[rows] = False
        else:
            decoded_rows.append(rows)
            parts.append(part)
    at = np.full(count, -1)
    found = np.concatenate(decoded_rows)
    at[found] = np.arange(len(found))
    return DecodedValues(pa.concat_arrays(parts).take(pa.array(at, mask=at < 0)), is_known)


def _by_stored_type(
    wrapped: pa.StructArray, value_types: pa.StructArray
) -> Iterator[tuple[Rows, pa.Array]]:
    """Yield the values of each stored type: their row numbers, and the values in that type."""
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
                yield from _decimals_by_type(column, rows, infos)
            else:
                values = column.take(pa.array(rows))
                is_bare = wrapper in (Wrapper.INT, Wrapper.LONG) and ordinal in _BARE
                yield rows, _bare(values, _BARE[ordinal]) if is_bare else values


def _decimals_by_type(
    column: pa.Array, rows: Rows, infos: npt.NDArray[np.object_]
) -> Iterator[tuple[Rows, pa.Array]]:
    for info in sorted(set(infos[rows])):
        chosen = rows[infos[rows] == info]
        values = column.take(pa.array(chosen))
        decimal = _decimal_type(info)
        yield chosen, values if decimal is None else _decimals(values, decimal)


def _decimal_type(info: str) -> pa.DataType | None:
    """Parse a type from "precision,scale"; None if it is not valid."""
    precision, _, scale = info.partition(",")
    if not precision.strip().isdecimal() or not scale.strip().isdecimal():
        return None
    digits = int(precision)
    return pa.decimal128(digits, int(scale)) if 1 <= digits <= 38 and int(scale) <= digits else None


def _decimals(values: pa.Array, decimal: pa.DataType) -> pa.Array:
    """Decode unscaled values (two's complement, big-endian); unchanged if one is invalid."""
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
    """Reinterpret integers as values of the type that they represent."""
    return values.cast(pa.int32() if bare.bit_width == 32 else pa.int64()).view(bare)


def _convert_in_order(values: pa.Array, target: pa.DataType, printed: str) -> pa.Array | None:
    """Convert the values to the column's type; None if this would not keep their order."""
    source = values.type
    if source == target:
        return values
    if pa.types.is_temporal(target) and pa.types.is_integer(source):
        is_stored_so = target in _BARE_IN_VERSION_1 and target.bit_width == source.bit_width
        return _bare(values, target) if is_stored_so else None
    return convert_bounds(values, target, printed)
