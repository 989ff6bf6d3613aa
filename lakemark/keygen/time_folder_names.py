"""Formats the times of a column as folder names, as Apache Hudi's timestamp key generator does.

A null is formatted as the number 1, that is, as a time in 1970. A number of a smaller unit than
milliseconds is cut to milliseconds, towards the epoch.
Source: ``TimestampBasedAvroKeyGenerator.getPartitionPath`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.config.partition_field import zone_of
from lakemark.config.time_folders import TimeFolders, TimeUnit
from lakemark.config.time_pattern import TimePart
from lakemark.errors import InvalidConfig
from lakemark.keygen.key_value import stored_timestamp
from lakemark.schema.field_path import column_at

#: Milliseconds of each unit; smaller units are divided.
_MILLIS: Final[Mapping[TimeUnit, int]] = MappingProxyType(
    {
        TimeUnit.DAYS: 86_400_000,
        TimeUnit.HOURS: 3_600_000,
        TimeUnit.MINUTES: 60_000,
        TimeUnit.SECONDS: 1_000,
        TimeUnit.MILLISECONDS: 1,
    }
)
_PER_MILLI: Final[Mapping[TimeUnit, int]] = MappingProxyType(
    {TimeUnit.MICROSECONDS: 1_000, TimeUnit.NANOSECONDS: 1_000_000}
)

#: The number that stands for a null.
_NULL_NUMBER: Final = 1

#: Since this time, the offset of every time zone has been whole minutes.
_WHOLE_MINUTES_SINCE: Final = pa.scalar(datetime(1973, 1, 1), pa.timestamp("ms"))  # noqa: DTZ001

#: The times that Python can format in every time zone, in milliseconds: the years 1 to 9999.
_FIRST_MS: Final = int(datetime(1, 1, 2, tzinfo=UTC).timestamp()) * 1000
_END_MS: Final = int(datetime(9999, 12, 31, tzinfo=UTC).timestamp()) * 1000


def time_folder_names(rows: pa.Table, column: str, folders: TimeFolders) -> pa.Array:
    """Return the folder name of each row; null for a time outside the years 1 to 9999.

    Raises:
        InvalidConfig: the column is missing, or contains no times.
    """
    numbers = _numbers(column_at(rows, column), column).fill_null(_NULL_NUMBER)
    times = _as_millis(numbers, folders.unit).cast(pa.timestamp("ms"))
    encoded = _floored(times, folders).combine_chunks().dictionary_encode()
    zone = zone_of(folders.zone)
    names = [
        None if time is None else folders.pattern.format(time.replace(tzinfo=UTC).astimezone(zone))
        for time in encoded.dictionary.to_pylist()
    ]
    return pa.array(names, pa.string()).take(encoded.indices)


def _floored(times: pa.ChunkedArray, folders: TimeFolders) -> pa.ChunkedArray:
    """Return earlier times with the same names, of which there are fewer distinct ones.

    Arrow could convert to the time zone, but its rules for summer time end in 2037.
    """
    finest = folders.pattern.finest
    if folders.zone == "UTC":
        return pc.floor_temporal(times, unit=finest.name.lower())
    seconds = pc.floor_temporal(times, unit="second")
    if finest is TimePart.SECOND:
        return seconds
    is_whole = pc.greater_equal(times, _WHOLE_MINUTES_SINCE)
    return pc.if_else(is_whole, pc.floor_temporal(times, unit="minute"), seconds)


def _numbers(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Return the numbers that a table stores for a column."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return column.cast(stored_timestamp(kind), safe=False).cast(pa.int64())
    if pa.types.is_date(kind):
        return column.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
    if pa.types.is_integer(kind):
        return column.cast(pa.int64())
    message = (
        f"field {name!r} of type {kind} cannot be formatted as a time; lakemark formats "
        "timestamps, dates and integers"
    )
    raise InvalidConfig(message)


def _as_millis(numbers: pa.ChunkedArray, unit: TimeUnit) -> pa.ChunkedArray:
    """Return milliseconds since the epoch; null outside the years 1 to 9999."""
    if unit in _PER_MILLI:
        millis = pc.divide(numbers, _PER_MILLI[unit])
        is_known = _is_between(millis, _FIRST_MS, _END_MS)
        return pc.if_else(is_known, millis, None)
    scale = _MILLIS[unit]
    is_known = _is_between(numbers, -(-_FIRST_MS // scale), _END_MS // scale)
    return pc.multiply(pc.if_else(is_known, numbers, None), scale)


def _is_between(numbers: pa.ChunkedArray, first: int, end: int) -> pa.ChunkedArray:
    return pc.and_(pc.greater_equal(numbers, first), pc.less(numbers, end))
