"""The fields of a partition path: a column, or the times of a column as text.

A pipeline file names the fields in ``partition_by``. Only existing tables of Apache Hudi have
formatted times, because Apache Hudi 1.2.0 takes such a folder for the value of the column. So its
queries with a filter on the column miss rows.

region                              the values of the column
year(at), month(at), day(at)        yyyy, yyyy-MM, yyyy-MM-dd
hour(at)                            yyyy-MM-dd-HH
format(at, yyyy/MM/dd)              any pattern of ``lakemark.config.time_pattern``
day(at, Europe/Berlin)              in a time zone; the default is UTC
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from lakemark.config.time_pattern import TimePattern
from lakemark.errors import InvalidConfig

_FORMAT: Final = "format"

#: The pattern of each function that needs none.
_PATTERNS: Final[Mapping[str, str]] = {
    "year": "yyyy",
    "month": "yyyy-MM",
    "day": "yyyy-MM-dd",
    "hour": "yyyy-MM-dd-HH",
}

_CALL = re.compile(r"(?P<function>\w+)\s*\((?P<arguments>.*)\)")

#: A fixed offset, as Java writes it.
_OFFSET = re.compile(r"GMT(?P<sign>[+-])(?P<h>2[0-3]|[01]?\d)(:?(?P<m>[0-5]\d))?")

_UTC: Final = "UTC"


@dataclass(frozen=True, slots=True)
class PartitionField:
    """A field of a partition path.

    Attributes:
        column: the column, or the nested field ``column.field``.
        pattern: the pattern that formats the column's times; None if the folder is the value.
        zone: the time zone of the text.
    """

    column: str
    pattern: str | None = None
    zone: str = _UTC

    @classmethod
    def parse(cls, text: str) -> PartitionField:
        """Parse a field of ``partition_by``.

        Raises:
            InvalidConfig: the function, its arguments, the pattern or the time zone is unknown.
        """
        call = _CALL.fullmatch(text.strip())
        if call is None:
            return cls(text)
        column, _, rest = (part.strip() for part in call["arguments"].partition(","))
        function = call["function"]
        if function == _FORMAT:
            pattern, zone = _split_zone(rest)
        elif function in _PATTERNS:
            pattern, zone = _PATTERNS[function], checked_zone(rest) if rest else _UTC
        else:
            raise _unknown(text)
        if not column or not pattern:
            raise _unknown(text)
        TimePattern.parse(pattern)
        return cls(column, pattern, zone)

    def __str__(self) -> str:
        if self.pattern is None:
            return self.column
        zone = "" if self.zone == _UTC else f", {self.zone}"
        for function, pattern in _PATTERNS.items():
            if pattern == self.pattern:
                return f"{function}({self.column}{zone})"
        return f"{_FORMAT}({self.column}, {self.pattern}{zone})"


def partition_fields(texts: Iterable[str]) -> tuple[PartitionField, ...]:
    """Parse the fields of ``partition_by``.

    Raises:
        InvalidConfig: a field cannot be parsed; or two fields name the same column, or format times
            in different ways.
    """
    fields = tuple(map(PartitionField.parse, texts))
    columns = [field.column for field in fields]
    for column in columns:
        if columns.count(column) > 1:
            message = f"partition_by names column {column!r} twice; name it once"
            raise InvalidConfig(message)
    _check_same_format(fields)
    return fields


def _check_same_format(fields: Iterable[PartitionField]) -> None:
    """Check that a table can store the fields: all times have the same pattern and time zone.

    Raises:
        InvalidConfig: Hudi's key generator has only one pattern and one time zone for all fields.
    """
    formats = {(one.pattern, one.zone): one for one in fields if one.pattern is not None}
    if len(formats) > 1:
        first, second, *_ = formats.values()
        message = (
            f"partition_by formats times in two ways, {first} and {second}, but a Hudi table "
            "stores one pattern and one time zone; use the same for both"
        )
        raise InvalidConfig(message)


def _split_zone(text: str) -> tuple[str, str]:
    """Divide a pattern from the time zone that may follow it; a pattern may have commas, too."""
    pattern, comma, name = text.rpartition(",")
    if not comma or (_find_zone(name.strip()) is None and _is_pattern(text)):
        return text, _UTC
    return pattern.strip(), checked_zone(name.strip())


def _is_pattern(text: str) -> bool:
    try:
        TimePattern.parse(text)
    except InvalidConfig:
        return False
    return True


def zone_of(name: str) -> tzinfo:
    """Return a time zone: one of the tz database, or a fixed offset such as ``GMT+8:00``.

    Raises:
        InvalidConfig: the time zone is unknown.
    """
    zone = _find_zone(name)
    if zone is None:
        message = f"{name!r} is not a time zone; name one such as Europe/Berlin, or UTC"
        raise InvalidConfig(message)
    return zone


def _find_zone(name: str) -> tzinfo | None:
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        sign = -1 if offset["sign"] == "-" else 1
        return timezone(sign * timedelta(hours=int(offset["h"]), minutes=int(offset["m"] or 0)))
    try:
        return ZoneInfo(name)
    except (ValueError, KeyError, OSError):  # a folder of zones, such as Europe, is an OSError
        return None


def checked_zone(name: str) -> str:
    """Return the name of a time zone, after a check.

    Raises:
        InvalidConfig: the time zone is unknown.
    """
    zone_of(name)
    return name


def _unknown(text: str) -> InvalidConfig:
    functions = ", ".join(f"{name}(column)" for name in _PATTERNS)
    message = (
        f"{text!r} does not name a partition field; name a column, or use {functions} or "
        f"{_FORMAT}(column, yyyy/MM/dd), with a time zone as the last argument if it is not UTC"
    )
    return InvalidConfig(message)
