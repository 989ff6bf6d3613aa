"""Types of the values in column statistics, with the stored ordinal and wrapper of each type.

Version 2 of the index stores the type of a value next to the value, which is in a wrapper of a
simple type. Days and milliseconds are in an ``IntWrapper``, timestamps in a ``LongWrapper``, and
the unscaled bytes of a decimal in a ``BytesWrapper``. Tables before version 9 have version 1 of the
index. In version 1, dates and decimals have special wrappers, and a timestamp is in a
``LongWrapper`` in the unit of its column.
Source: ``ValueType``, ``ValueMetadata`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from enum import IntEnum

import pyarrow as pa

from lakemark.codec.ordering_wrappers import Wrapper
from lakemark.metadata.index_definition import VERSION


class ValueType(IntEnum):
    """The type of a value; the number is the ordinal on disk."""

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


#: For each Arrow type, the stored type of its values and the wrapper that contains them.
_STORED: tuple[tuple[pa.DataType, ValueType, Wrapper], ...] = (
    (pa.bool_(), ValueType.BOOLEAN, Wrapper.BOOLEAN),
    (pa.int32(), ValueType.INT, Wrapper.INT),
    (pa.int64(), ValueType.LONG, Wrapper.LONG),
    (pa.float32(), ValueType.FLOAT, Wrapper.FLOAT),
    (pa.float64(), ValueType.DOUBLE, Wrapper.DOUBLE),
    (pa.string(), ValueType.STRING, Wrapper.STRING),
    (pa.binary(), ValueType.BYTES, Wrapper.BYTES),
    (pa.date32(), ValueType.DATE, Wrapper.INT),
    (pa.time32("ms"), ValueType.TIME_MILLIS, Wrapper.INT),
    (pa.time64("us"), ValueType.TIME_MICROS, Wrapper.LONG),
    (pa.timestamp("ms", "UTC"), ValueType.TIMESTAMP_MILLIS, Wrapper.LONG),
    (pa.timestamp("us", "UTC"), ValueType.TIMESTAMP_MICROS, Wrapper.LONG),
    (pa.timestamp("ms"), ValueType.LOCAL_TIMESTAMP_MILLIS, Wrapper.LONG),
    (pa.timestamp("us"), ValueType.LOCAL_TIMESTAMP_MICROS, Wrapper.LONG),
)
_VALUE_TYPES = {arrow: (value_type, wrapper) for arrow, value_type, wrapper in _STORED}

#: Version 1 stores all decimals in this type.
DECIMAL_V1 = pa.decimal128(30, 15)


def value_type_of(data_type: pa.DataType) -> ValueType:
    """Return the stored type of values of this Arrow type."""
    return ValueType.DECIMAL if pa.types.is_decimal(data_type) else _VALUE_TYPES[data_type][0]


def wrapper_of(data_type: pa.DataType, version: str) -> Wrapper:
    """Return the wrapper that holds values of this type."""
    if pa.types.is_decimal(data_type):
        return Wrapper.BYTES if version == VERSION else Wrapper.DECIMAL
    if version != VERSION and pa.types.is_date(data_type):
        return Wrapper.DATE
    return _VALUE_TYPES[data_type][1]


def as_stored(values: pa.Array, version: str) -> pa.Array:
    """Cast values to the type whose bytes are stored; see ``DECIMAL_V1``."""
    if version != VERSION and pa.types.is_decimal(values.type):
        return values.cast(DECIMAL_V1)
    return values
