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
        function = call["function"]
        arguments = [one.strip().strip("'\"") for one in call["arguments"].split(",")]
        if function == _FORMAT and len(arguments) in (2, 3):
            column, pattern, *zone = arguments
        elif function in _PATTERNS and len(arguments) in (1, 2):
            (column, *zone), pattern = arguments, _PATTERNS[function]
        else:
            raise _unknown(text)
        if not all([column, pattern, *zone]):
            raise _unknown(text)
        TimePattern.parse(pattern)
        return cls(column, pattern, *map(checked_zone, zone))

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


def checked_zone(name: str) -> str:
    """Return the name of a time zone, after a check.

    Raises:
        InvalidConfig: Python does not know the time zone.
    """
    try:
        ZoneInfo(name)
    except (ValueError, KeyError, OSError):  # a folder of zones, such as Europe, is an OSError
        pass
    else:
        return name
    message = f"{name!r} is not a time zone; name one such as Europe/Berlin, or UTC"
    raise InvalidConfig(message)


def _unknown(text: str) -> InvalidConfig:
    functions = ", ".join(f"{name}(column)" for name in _PATTERNS)
    message = (
        f"{text!r} does not name a partition field; name a column, or use {functions} or "
        f"{_FORMAT}(column, yyyy/MM/dd), with a time zone as the last argument if it is not UTC"
    )
    return InvalidConfig(message)
