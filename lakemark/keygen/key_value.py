"""Converts values of key and partition columns to text, as Apache Hudi's Avro key generators do.

bool       true, false
int, long  digits
decimal    ``BigDecimal.toString``: 1.50, and 1E-7 if the exponent is less than -6
date       2026-01-31
time       milliseconds (32 bits) or microseconds (64 bits) of the day
timestamp  milliseconds or microseconds since the epoch, digits only, in any zone
           (``hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled`` = false)

Source: ``HoodieAvroUtils.getNestedFieldValAsString`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.errors import InvalidConfig
from lakemark.schema.field_path import column_at


def key_value(rows: pa.Table, name: str) -> pa.Array:
    """Convert the values of a field to strings; null stays null.

    Raises:
        InvalidConfig: the field is missing, or engines convert values of its type to different
            texts.
    """
    column = column_at(rows, name)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return _as_text(column, name).combine_chunks()


def _as_text(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_date(kind):
        text = column.cast(pa.date32()).cast(pa.string())
        return pc.replace_substring_regex(text, r"^(\d{5,}-)", r"+\1")
    if pa.types.is_timestamp(kind):
        return column.cast(stored_timestamp(kind), safe=False).cast(pa.int64()).cast(pa.string())
    if pa.types.is_time32(kind):
        return column.cast(pa.time32("ms")).cast(pa.int32()).cast(pa.string())
    if pa.types.is_time64(kind):
        return column.cast(pa.time64("us"), safe=False).cast(pa.int64()).cast(pa.string())
    if _prints_as_it_is(kind):
        return column.cast(pa.string())
    message = (
        f"field {name!r} of type {kind} cannot be a record key or a partition path; convert it to "
        "a string, an integer, a decimal or a date first"
    )
    raise InvalidConfig(message)


def stored_timestamp(kind: pa.TimestampType) -> pa.TimestampType:
    """Return the type as which a table stores timestamps of this type.

    Seconds are stored as milliseconds, and nanoseconds as microseconds.
    """
    return pa.timestamp({"s": "ms", "ns": "us"}.get(kind.unit, kind.unit), kind.tz)


def _prints_as_it_is(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
    )
