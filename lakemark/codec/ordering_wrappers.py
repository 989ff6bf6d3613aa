"""Encodes and decodes ordering values in Avro wrappers: one Avro record for each Java class.

Hudi compares the ordering values of two records only if their Java classes are the same. So a value
is written with the class that it has in Hudi's rows: timestamps and times of day are longs, dates
are integers (days). The values of several ordering fields are written in one ``ArrayWrapper``. A
null is written as the integer 0, because every reader accepts it and Hudi treats null and 0 alike:
it does not compare such a record.

    branch    number of the wrapper in the union, as a long (``Wrapper``)
    content   the value; for an array, branch 1 (not null) and then blocks of wrapped values

Source: ``HoodieAvroWrapperUtils``, ``OrderingValues`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.avro_binary import (
    Mask,
    Piece,
    constant,
    decimals,
    decimals_from,
    join,
    only,
    scalars,
    strings,
    varint,
)
from lakemark.codec.avro_cursors import Cursors
from lakemark.errors import InvalidConfig, InvalidRecords


class Wrapper(IntEnum):
    """Java class of an ordering value. The number is the branch of the class in the Avro union."""

    NULL = 0
    BOOLEAN = 1
    INT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    BYTES = 6
    STRING = 7
    DATE = 8
    DECIMAL = 9
    TIME_MICROS = 10
    TIMESTAMP_MICROS = 11
    #: The values of several fields. Arrays are not nested: inside an array, where the union has no
    #: branch for arrays, this number means ``LOCAL_DATE``.
    ARRAY = 12
    LOCAL_DATE = 13


#: Arrow type of each wrapper's value.
CONTENT = {
    Wrapper.BOOLEAN: pa.bool_(),
    Wrapper.INT: pa.int32(),
    Wrapper.LONG: pa.int64(),
    Wrapper.FLOAT: pa.float32(),
    Wrapper.DOUBLE: pa.float64(),
    Wrapper.BYTES: pa.binary(),
    Wrapper.STRING: pa.string(),
    Wrapper.DATE: pa.date32(),
    Wrapper.DECIMAL: pa.decimal128(30, 15),
    Wrapper.TIME_MICROS: pa.time64("us"),
    Wrapper.TIMESTAMP_MICROS: pa.timestamp("us", "UTC"),
    Wrapper.LOCAL_DATE: pa.date32(),
}


@dataclass(frozen=True, slots=True)
class OrderingValues:
    """The values of one ordering field, grouped by their stored Java classes.

    Attributes:
        wrappers: ``Wrapper`` of each record, int8; ``NULL`` if the record has no value.
        values: for each wrapper that occurs, a column of its Arrow type. It is null in the records
            that have another wrapper.
    """

    wrappers: npt.NDArray[np.int8]
    values: dict[Wrapper, pa.Array]

    def as_type(self, column: pa.DataType) -> tuple[pa.Array, Mask]:
        """Convert the values to the type of an ordering column.

        Returns:
            The column, and a mask of the records whose value has another Java class than the
            column. Their values are null, because Hudi does not compare such records.

        Raises:
            InvalidConfig: records cannot be ordered by this type.
            pyarrow.ArrowInvalid: a value does not fit the type.
        """
        wrapper = wrapper_of(column)
        mismatch = self.wrappers != wrapper
        values = self.values.get(wrapper)
        if values is None:
            return pa.nulls(len(self.wrappers), column), mismatch
        same_bits = pa.types.is_temporal(column)
        return values.view(column) if same_bits else values.cast(column), mismatch

    @property
    def is_default(self) -> Mask:
        """A mask of the records without an ordering value: null, or the integer 0."""
        default: Mask = self.wrappers == Wrapper.NULL
        if Wrapper.INT in self.values:
            is_zero = pc.fill_null(pc.equal(self.values[Wrapper.INT], 0), fill_value=False)
            default = default | np.asarray(is_zero)
        return default


def wrapper_of(column: pa.DataType) -> Wrapper:
    """Return the Java class that values of an ordering column have in Hudi's rows.

    Raises:
        InvalidConfig: values of the type have no order (lists, maps, structs), or Hudi tables
            cannot have the type.
    """
    if pa.types.is_date32(column) or pa.types.is_time32(column):
        return Wrapper.INT
    if pa.types.is_timestamp(column) or pa.types.is_time64(column):
        return Wrapper.LONG
    if pa.types.is_signed_integer(column):
        return Wrapper.LONG if column.bit_width == 64 else Wrapper.INT
    if pa.types.is_decimal128(column):
        return Wrapper.DECIMAL
    for wrapper in (Wrapper.BOOLEAN, Wrapper.FLOAT, Wrapper.DOUBLE, Wrapper.STRING, Wrapper.BYTES):
        if column == CONTENT[wrapper]:
            return wrapper
    message = f"records cannot be ordered by a column of type {column}; name another field"
    raise InvalidConfig(message)


def find_too_wide_for_deletes(ordering: pa.ChunkedArray) -> Mask:
    """Flag ordering values that a delete in a log file cannot store.

    Hudi stores each decimal of a delete with precision 30 and scale 15, whatever the type of the
    column is. All other values, and null, can be stored.
    """
    nothing = np.zeros(len(ordering), np.bool_)
    if not pa.types.is_decimal(ordering.type) or _is_storable(ordering):
        return nothing
    return np.array([not _is_storable(value) for value in ordering], np.bool_)


def _is_storable(decimals: pa.ChunkedArray | pa.Scalar) -> bool:
    try:
        decimals.cast(CONTENT[Wrapper.DECIMAL])
    except pa.ArrowInvalid:
        return False
    return True


# --- columns to bytes


def wrap(ordering: Sequence[pa.Array], is_default: Mask) -> list[Piece]:
    """Return the pieces that encode the wrapped ordering values of each record.

    Args:
        ordering: the ordering columns; may be empty if ``is_default`` flags every record.
        is_default: flags records that get the integer 0 instead of their values.

    Raises:
        InvalidConfig: records cannot be ordered by the type of a column.
        InvalidRecords: a decimal has more than 15 digits before or after the point.
    """
    count, pieces = len(is_default), []
    if len(ordering) == 1:
        pieces = _wrap_column(ordering[0])
    elif ordering:
        # branch of the array, branch of its only field, number of values
        head = join([varint(np.array([Wrapper.ARRAY, 1, len(ordering)]))]).data.tobytes()
        values = [piece for column in ordering for piece in _wrap_column(column)]
        pieces = [constant(head, count), *values, constant(b"\x00", count)]
    return [*(only(piece, ~is_default) for piece in pieces), only(_wrap_zero(count), is_default)]


def _wrap_column(column: pa.Array) -> list[Piece]:
    valid = np.asarray(column.is_valid())
    wrapper = wrapper_of(column.type)
    pieces = [varint(np.full(len(column), wrapper)), *_content(column, wrapper)]
    return [*(only(piece, valid) for piece in pieces), only(_wrap_zero(len(column)), ~valid)]


def _wrap_zero(count: int) -> Piece:
    return constant(join([varint(np.array([Wrapper.INT, 0]))]).data.tobytes(), count)


def _content(column: pa.Array, wrapper: Wrapper) -> list[Piece]:
    if wrapper in (Wrapper.STRING, Wrapper.BYTES):
        return strings(column)
    if wrapper is not Wrapper.DECIMAL:
        return [scalars(column)]
    try:
        return decimals(column.cast(CONTENT[wrapper]))
    except pa.ArrowInvalid as error:
        message = f"ordering values of deletes are {CONTENT[wrapper]} in Hudi: {error}"
        raise InvalidRecords(message) from error


# --- bytes to columns


def unwrap(cursors: Cursors) -> tuple[list[OrderingValues], Mask]:
    """Read the next wrapped ordering values of each record.

    Returns:
        The values of each ordering field, and a mask of the records whose values are in an array.

    Raises:
        CorruptData: the bytes are not a wrapped value.
        pyarrow.ArrowInvalid: a value does not fit the type of its wrapper.
    """
    branches = cursors.longs()
    cursors.check((branches >= 0) & (branches <= Wrapper.ARRAY), "a wrapper of an ordering value")
    is_array: Mask = branches == Wrapper.ARRAY
    fields = [_read(cursors, np.where(is_array, Wrapper.NULL, branches).astype(np.int8))]
    if is_array.any():
        arrays = cursors.pick(is_array)
        for index, field in enumerate(_read_arrays(arrays)):
            spread = _spread(field, is_array)
            if index == 0:
                fields[0] = _merge(fields[0], spread)
            else:
                fields.append(spread)
        cursors.put(is_array, arrays)
    return fields, is_array


def _read(cursors: Cursors, wrappers: npt.NDArray[np.int8]) -> OrderingValues:
    """Read the contents of wrappers whose branches were already read."""
    values: dict[Wrapper, pa.Array] = {}
    for wrapper in map(Wrapper, np.unique(wrappers)):
        if wrapper is not Wrapper.NULL:
            rows = wrappers == wrapper
            picked = cursors.pick(rows)
            values[wrapper] = _spread_column(_read_content(picked, wrapper), rows)
            cursors.put(rows, picked)
    return OrderingValues(wrappers, values)


def _read_content(cursors: Cursors, wrapper: Wrapper) -> pa.Array:
    content = CONTENT[wrapper]
    if wrapper in (Wrapper.STRING, Wrapper.BYTES):
        return cursors.strings().cast(content)
    if wrapper is Wrapper.DECIMAL:
        return decimals_from(cursors.decimals(), content)
    if wrapper is Wrapper.BOOLEAN:
        return pa.array(cursors.booleans())
    if pa.types.is_floating(content):
        return cursors.fixed_values(content)
    return cursors.integers(content)


def _read_arrays(cursors: Cursors) -> list[OrderingValues]:
    has_values = cursors.longs()
    cursors.check((has_values == 0) | (has_values == 1), "wrapped values, or null")
    left = np.zeros(len(cursors), np.int64)
    rows = cursors.next_block(np.flatnonzero(has_values), left)
    fields = []
    while len(rows):
        picked = cursors.pick(rows)
        branches = picked.longs()
        picked.check((branches >= 0) & (branches <= Wrapper.ARRAY), "a wrapper in an array")
        kinds = np.where(branches == Wrapper.ARRAY, Wrapper.LOCAL_DATE, branches).astype(np.int8)
        here = np.zeros(len(cursors), np.bool_)
        here[rows] = True
        fields.append(_spread(_read(picked, kinds), here))
        cursors.put(rows, picked)
        rows = cursors.next_items(rows, left)
    return fields


def _spread(field: OrderingValues, rows: Mask) -> OrderingValues:
    """Return the values of some rows as a column of all rows; the other rows become ``NULL``."""
    wrappers = np.zeros(len(rows), np.int8)
    wrappers[rows] = field.wrappers
    columns = {kind: _spread_column(column, rows) for kind, column in field.values.items()}
    return OrderingValues(wrappers, columns)


def _spread_column(column: pa.Array, rows: Mask) -> pa.Array:
    return column if rows.all() else column.take(pa.array(np.cumsum(rows) - 1, mask=~rows))


def _merge(one: OrderingValues, other: OrderingValues) -> OrderingValues:
    """Combine values of one field that come from different rows."""
    values = dict(one.values)
    for wrapper, column in other.values.items():
        values[wrapper] = pc.coalesce(values[wrapper], column) if wrapper in values else column
    return OrderingValues(one.wrappers | other.wrappers, values)
