"""The records of a delete block: ``HoodieDeleteRecordList`` in Avro binary, without its schema.

Each record is a record key, a partition path and an ordering value in a wrapper, one Avro record
per Java class. Hudi compares ordering values only when their classes agree; otherwise, and when
the value is the integer 0, the delete wins whatever it meets. So a value is written as Hudi's own
rows hold it: timestamps and times as raw longs, dates as days in an integer. Several ordering
fields make one ``ArrayWrapper``. A null ordering value is the integer 0, as in
``OrderingValues.create``.

Source: ``HoodieDeleteBlock``, ``HoodieAvroWrapperUtils``, ``OrderingValues`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from io import BytesIO
from typing import TypeAlias

import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from fastavro.types import Schema

from table.codec.avro_binary import (
    Mask,
    Piece,
    constant,
    decimals,
    join,
    only,
    scalars,
    strings,
    varint,
)
from table.codec.avro_container import load_schema
from table.errors import CorruptData, InvalidConfig, InvalidRecords

#: Type of every decimal in a ``DecimalWrapper``.
WRAPPED_DECIMAL = pa.decimal128(30, 15)


class Wrapper(IntEnum):
    """Java class of an ordering value; the number is its branch in the union on disk."""

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
    #: Several values at the top of a record; among those values the branch is ``LOCAL_DATE``.
    ARRAY = 12
    LOCAL_DATE = 13


#: Name of the Avro record, and the Arrow type of what it holds.
_CONTENTS: dict[Wrapper, tuple[str, pa.DataType]] = {
    Wrapper.BOOLEAN: ("BooleanWrapper", pa.bool_()),
    Wrapper.INT: ("IntWrapper", pa.int32()),
    Wrapper.LONG: ("LongWrapper", pa.int64()),
    Wrapper.FLOAT: ("FloatWrapper", pa.float32()),
    Wrapper.DOUBLE: ("DoubleWrapper", pa.float64()),
    Wrapper.BYTES: ("BytesWrapper", pa.binary()),
    Wrapper.STRING: ("StringWrapper", pa.string()),
    Wrapper.DATE: ("DateWrapper", pa.date32()),
    Wrapper.DECIMAL: ("DecimalWrapper", WRAPPED_DECIMAL),
    Wrapper.TIME_MICROS: ("TimeMicrosWrapper", pa.time64("us")),
    Wrapper.TIMESTAMP_MICROS: ("TimestampMicrosWrapper", pa.timestamp("us", "UTC")),
    Wrapper.LOCAL_DATE: ("LocalDateWrapper", pa.date32()),
}
_NAMESPACE = "org.apache.hudi.avro.model."
_WRAPPER_OF = {_NAMESPACE + name: wrapper for wrapper, (name, _) in _CONTENTS.items()}
_ARRAY_NAME = _NAMESPACE + "ArrayWrapper"

#: (name of the Avro record, its fields), or None for the null branch.
_Wrapped: TypeAlias = tuple[str, dict[str, object]] | None


@dataclass(frozen=True, slots=True)
class OrderingValues:
    """The values of one ordering field, by the Java class they have on disk.

    Attributes:
        wrappers: ``Wrapper`` of each record, int8; ``NULL`` where the record has no such field.
        values: for each wrapper that occurs a column of its own type, null in the other records.
    """

    wrappers: npt.NDArray[np.int8]
    values: dict[Wrapper, pa.Array]

    def as_type(self, column: pa.DataType) -> tuple[pa.Array, Mask]:
        """Values of an ordering column of this type, and where the class on disk is another.

        The value is null where the class is another: Hudi does not compare such a delete.

        Raises:
            InvalidConfig: no delete block can hold values of this type.
        """
        wrapper = wrapper_of(column)
        mismatch = self.wrappers != wrapper
        if wrapper not in self.values:
            return pa.nulls(len(self.wrappers), column), mismatch
        return _unwrap(self.values[wrapper], column), mismatch


@dataclass(frozen=True, slots=True)
class DeleteRecords:
    """The records of a delete block, in their order.

    Attributes:
        record_keys: string column.
        partition_paths: string column.
        ordering: one for each ordering field; a record with fewer has ``NULL`` in the last ones.
        commit_time: true where the delete wins whatever it meets: its value is the integer 0 (or
            missing, which only other writers do).
        is_array: true where several ordering values were written together.
    """

    record_keys: pa.Array
    partition_paths: pa.Array
    ordering: list[OrderingValues]
    commit_time: Mask
    is_array: Mask

    def ordering_as(self, columns: Sequence[pa.DataType]) -> tuple[list[pa.Array], Mask]:
        """Ordering values as columns of these types, and which deletes win whatever they meet.

        Those are the commit-time deletes, and those whose Java class is not that of the columns;
        their values are null.
        """
        count = len(self.record_keys)
        unconditional = self.commit_time | (self.is_array != (len(columns) > 1))
        absent = OrderingValues(np.zeros(count, np.int8), {})
        ordering = [*self.ordering, *[absent] * len(columns)][: len(columns)]
        typed = [values.as_type(column) for values, column in zip(ordering, columns, strict=True)]
        for _, mismatch in typed:
            unconditional = unconditional | mismatch
        hidden = pa.array(unconditional)
        return [_without(values, hidden) for values, _ in typed], unconditional


def wrapper_of(column: pa.DataType) -> Wrapper:
    """The class that Hudi's rows give a value of an ordering column of this type.

    Raises:
        InvalidConfig: the type has no order (lists, maps, structs).
    """
    if pa.types.is_boolean(column):
        return Wrapper.BOOLEAN
    if pa.types.is_date32(column) or pa.types.is_time32(column):
        return Wrapper.INT
    if pa.types.is_timestamp(column) or pa.types.is_time64(column):
        return Wrapper.LONG
    if pa.types.is_signed_integer(column):
        return Wrapper.LONG if column.bit_width == 64 else Wrapper.INT
    if pa.types.is_float32(column) or pa.types.is_float64(column):
        return Wrapper.DOUBLE if column.bit_width == 64 else Wrapper.FLOAT
    if pa.types.is_string(column) or pa.types.is_large_string(column):
        return Wrapper.STRING
    if pa.types.is_binary(column) or pa.types.is_large_binary(column):
        return Wrapper.BYTES
    if pa.types.is_decimal128(column):
        return Wrapper.DECIMAL
    message = f"records cannot be ordered by a column of type {column}; name another field"
    raise InvalidConfig(message)


def encode(
    record_keys: pa.Array,
    partition_paths: pa.Array,
    ordering: Sequence[pa.Array] | None,
    commit_time: npt.NDArray[np.bool_] | None = None,
) -> bytes:
    """Body of a delete block, without the version and length that precede it.

    Args:
        record_keys: string column.
        partition_paths: string column.
        ordering: the ordering columns, or None for deletes that win whatever they meet.
        commit_time: rows of which the same is true although there are ordering columns.

    Raises:
        InvalidConfig: an ordering column's type has no order.
        InvalidRecords: a decimal has more than 15 digits before or behind the point.
    """
    count = len(record_keys)
    if count == 0:
        return b"\x00"
    pieces = [*_nullable_strings(record_keys), *_nullable_strings(partition_paths)]
    pieces += _ordering(ordering or (), commit_time, count)
    first_block = join([varint(np.array([count]))]).data.tobytes()
    return first_block + join(pieces).data.tobytes() + b"\x00"


def decode(data: bytes, path: str) -> DeleteRecords:
    """The records of a delete block's body.

    Raises:
        CorruptData: ``data`` is not a ``HoodieDeleteRecordList``.
    """
    stream = BytesIO(data)
    try:
        parsed = fastavro.schemaless_reader(stream, _schema(), None, return_record_name=True)
    except Exception as error:  # the bytes decide how the decoder fails
        reason = f"{type(error).__name__}: {error}"[:200]
        raise CorruptData(path, None, "a list of delete records", reason) from error
    if stream.tell() != len(data):
        raise CorruptData(path, stream.tell(), "the end of the delete records", "more bytes")
    return _collect(parsed["deleteRecordList"], path)


# --- rows to bytes


def _nullable_strings(column: pa.Array) -> list[Piece]:
    valid = _valid(column)
    branch = varint(valid.astype(np.int64))
    return [branch, *(only(piece, valid) for piece in strings(column))]


def _ordering(columns: Sequence[pa.Array], commit_time: Mask | None, count: int) -> list[Piece]:
    if not columns:
        return [_wrapped_zero(count)]
    ordered = np.ones(count, np.bool_) if commit_time is None else ~commit_time
    if len(columns) == 1:
        pieces = _wrapped(columns[0])
    else:
        # branch of the array, branch of its only field, number of values; and no further block
        head = join([varint(np.array([Wrapper.ARRAY, 1, len(columns)]))]).data.tobytes()
        items = [piece for column in columns for piece in _wrapped(column)]
        pieces = [constant(head, count), *items, constant(b"\x00", count)]
    return [
        *(only(piece, ordered) for piece in pieces),
        only(_wrapped_zero(count), ~ordered),
    ]


def _wrapped(column: pa.Array) -> list[Piece]:
    valid = _valid(column)
    wrapper = wrapper_of(column.type)
    pieces = [varint(np.full(len(column), wrapper)), *_value(column, wrapper)]
    return [
        *(only(piece, valid) for piece in pieces),
        only(_wrapped_zero(len(column)), ~valid),
    ]


def _wrapped_zero(count: int) -> Piece:
    return constant(join([varint(np.array([Wrapper.INT, 0]))]).data.tobytes(), count)


def _value(column: pa.Array, wrapper: Wrapper) -> list[Piece]:
    if wrapper in (Wrapper.STRING, Wrapper.BYTES):
        return strings(column)
    if wrapper is Wrapper.DECIMAL:
        try:
            return decimals(column.cast(WRAPPED_DECIMAL))
        except pa.ArrowInvalid as error:
            message = f"a delete block holds ordering values of {WRAPPED_DECIMAL} only: {error}"
            raise InvalidRecords(message) from error
    return [scalars(column)]


def _valid(column: pa.Array) -> Mask:
    valid: Mask = np.asarray(column.is_valid())
    return valid


# --- bytes to columns


@cache
def _schema() -> Schema:
    schema = load_schema("HoodieDeleteRecordList")
    return fastavro.parse_schema(_without_logical_types(schema))


def _without_logical_types(schema: object) -> object:
    """The schema of raw values: the decoder would make a Python time of any ``time-micros``."""
    if isinstance(schema, list):
        return [_without_logical_types(branch) for branch in schema]
    if isinstance(schema, dict):
        return {
            key: _without_logical_types(value)
            for key, value in schema.items()
            if key != "logicalType" or value == "decimal"
        }
    return schema


def _collect(records: Sequence[dict[str, object]], path: str) -> DeleteRecords:
    rows = [_wrapped_values(record["orderingVal"]) for record in records]
    places = max((len(row) for row in rows), default=1)
    is_array = np.array([_is_array(record["orderingVal"]) for record in records], np.bool_)
    try:
        ordering = [
            _ordering_values([row[place] if place < len(row) else None for row in rows])
            for place in range(places)
        ]
    except (pa.ArrowInvalid, OverflowError, ValueError) as error:
        raise CorruptData(path, None, "ordering values", str(error)) from error
    return DeleteRecords(
        pa.array([record["recordKey"] for record in records], pa.string()),
        pa.array([record["partitionPath"] for record in records], pa.string()),
        ordering,
        ~is_array & _is_default(ordering[0]),
        is_array,
    )


def _is_array(wrapped: object) -> bool:
    return isinstance(wrapped, tuple) and wrapped[0] == _ARRAY_NAME


def _wrapped_values(wrapped: object) -> list[_Wrapped]:
    """The values in the union of one record; several when it is an array."""
    if not isinstance(wrapped, tuple):
        return [None]
    return (wrapped[1]["wrappedValues"] or []) if _is_array(wrapped) else [wrapped]


def _ordering_values(column: Sequence[_Wrapped]) -> OrderingValues:
    wrappers = np.array(
        [Wrapper.NULL if wrapped is None else _WRAPPER_OF[wrapped[0]] for wrapped in column],
        np.int8,
    )
    values = {
        wrapper: _raw_values(column, wrappers == wrapper, wrapper)
        for wrapper in map(Wrapper, np.unique(wrappers))
        if wrapper is not Wrapper.NULL
    }
    return OrderingValues(wrappers, values)


def _raw_values(column: Sequence[_Wrapped], rows: Mask, wrapper: Wrapper) -> pa.Array:
    _, arrow = _CONTENTS[wrapper]
    raw = [
        wrapped[1]["value"] if wrapped is not None and here else None
        for wrapped, here in zip(column, rows, strict=True)
    ]
    if pa.types.is_temporal(arrow):
        return pa.array(raw, pa.int64() if arrow.bit_width == 64 else pa.int32()).view(arrow)
    return pa.array(raw, arrow)


def _is_default(ordering: OrderingValues) -> Mask:
    """Where Hudi sees no ordering value: null, or the integer 0."""
    default: Mask = ordering.wrappers == Wrapper.NULL
    if Wrapper.INT in ordering.values:
        zero = pc.fill_null(pc.equal(ordering.values[Wrapper.INT], 0), fill_value=False)
        default = default | np.asarray(zero)
    return default


# --- wrapped values to a column's own type


def _unwrap(values: pa.Array, column: pa.DataType) -> pa.Array:
    if pa.types.is_temporal(column):
        return values.view(column)
    try:
        return values.cast(column)
    except pa.ArrowInvalid as error:
        raise CorruptData("delete block", None, f"values of {column}", str(error)) from error


def _without(column: pa.Array, hidden: pa.BooleanArray) -> pa.Array:
    return pc.if_else(hidden, pa.scalar(None, column.type), column)
