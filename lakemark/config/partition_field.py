"""The fields of a partition path: a column, or an expression of a column.

A pipeline file and ``lakemark.create`` name the fields in ``partition_by``.

region                              the values of the column
year(at), month(at), day(at)        yyyy, yyyy-MM, yyyy-MM-dd
hour(at)                            yyyy-MM-dd-HH
format(at, yyyyMMdd)                any pattern of ``lakemark.config.time_pattern``
bucket(id, 16)                      a hash of the value, from 0 to 15
truncate(name, 3)                   the first three characters, or a multiple of 3 for an integer
day(at) as dt                       the same, stored in the column ``dt``
day(at, Europe/Berlin)              in a time zone; only in existing tables of Apache Hudi

A table that lakemark creates stores the value of an expression in a column of its own
(``stored_column``), which partitions the table as any other column does. Tables of Apache Hudi may
have folders that are formatted times without such a column. Apache Hudi 1.2.0 takes such a folder
for the value of the column, so its queries with a filter on the column miss rows. Therefore new
tables are not partitioned in this way.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from lakemark.config.time_pattern import TimePattern
from lakemark.errors import InvalidConfig

_FORMAT: Final = "format"
_BUCKET: Final = "bucket"
_TRUNCATE: Final = "truncate"

#: The pattern of each function that needs none.
_PATTERNS: Final[Mapping[str, str]] = {
    "year": "yyyy",
    "month": "yyyy-MM",
    "day": "yyyy-MM-dd",
    "hour": "yyyy-MM-dd-HH",
}

_CALL = re.compile(
    r"(?P<function>\w+)\s*\((?P<arguments>.*)\)(\s+as\s+(?P<alias>\w+))?", re.IGNORECASE
)

#: The largest argument of ``bucket`` and ``truncate``.
_MAX_NUMBER: Final = 2**31 - 1

#: A fixed offset, as Java writes it.
_OFFSET = re.compile(r"GMT(?P<sign>[+-])(?P<h>2[0-3]|[01]?\d)(:?(?P<m>[0-5]\d))?")

_UTC: Final = "UTC"


@dataclass(frozen=True, slots=True)
class PartitionField:
    """A field of a partition path.

    At most one of ``pattern``, ``buckets`` and ``width`` is set. If all are None, the field is the
    column itself.

    Attributes:
        column: the column, or the nested field ``column.field``.
        pattern: the pattern that formats the column's times.
        zone: the time zone of the text.
        buckets: the number of hash values.
        width: the number of characters, or the divisor of an integer.
        alias: the name of the stored column; None for the default name.
    """

    column: str
    pattern: str | None = None
    zone: str = _UTC
    buckets: int | None = None
    width: int | None = None
    alias: str | None = None

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
        function, alias = call["function"].lower(), call["alias"]
        if not column or function not in (*_PATTERNS, _FORMAT, _BUCKET, _TRUNCATE):
            raise _unknown(text)
        if function == _BUCKET:
            return cls(column, buckets=_number(rest, text), alias=alias)
        if function == _TRUNCATE:
            return cls(column, width=_number(rest, text), alias=alias)
        if function == _FORMAT:
            pattern, zone = _split_zone(rest)
        else:
            pattern, zone = _PATTERNS[function], checked_zone(rest) if rest else _UTC
        if not pattern:
            raise _unknown(text)
        TimePattern.parse(pattern)
        return cls(column, pattern, zone, alias=alias)

    def __str__(self) -> str:
        return self.expression + (f" as {self.alias}" if self.alias else "")

    @property
    def is_expression(self) -> bool:
        """Whether the field is an expression of the column, not the column itself."""
        return (self.pattern, self.buckets, self.width) != (None, None, None)

    @property
    def is_storable_expression(self) -> bool:
        """Whether a column of a table can store the expression, which then is in UTC."""
        return self.is_expression and self.zone == _UTC

    @property
    def expression(self) -> str:
        """The text of the field without the name of the stored column."""
        if not self.is_expression:
            return self.column
        if self.pattern is None:
            return f"{self._function}({self.column}, {self.buckets or self.width})"
        zone = "" if self.zone == _UTC else f", {self.zone}"
        pattern = f", {self.pattern}" if self._function == _FORMAT else ""
        return f"{self._function}({self.column}{pattern}{zone})"

    @property
    def stored_column(self) -> str:
        """The column whose values are the folders of a table that lakemark created."""
        return self.alias or self._default_name

    def named(self, name: str) -> PartitionField:
        """Return the same expression, stored in the column ``name``."""
        return replace(self, alias=None if name == self._default_name else name)

    @property
    def _default_name(self) -> str:
        if not self.is_expression:
            return self.column
        return f"{self.column.replace('.', '_')}_{self._function}"

    @property
    def _function(self) -> str:
        if self.buckets is not None:
            return _BUCKET
        if self.width is not None:
            return _TRUNCATE
        named = (name for name, pattern in _PATTERNS.items() if pattern == self.pattern)
        return next(named, _FORMAT)


def partition_fields(texts: Iterable[str]) -> tuple[PartitionField, ...]:
    """Parse the fields of ``partition_by``.

    Raises:
        InvalidConfig: a field cannot be parsed; or two fields have the same column of the table.
    """
    fields = tuple(map(PartitionField.parse, texts))
    columns = [field.stored_column for field in fields]
    for column in columns:
        if columns.count(column) > 1:
            message = f"partition_by names column {column!r} twice; name it once"
            raise InvalidConfig(message)
    return fields


def _number(text: str, field: str) -> int:
    """Parse the number of buckets, or the width."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= _MAX_NUMBER:
        message = f"{field!r} needs a positive integer as its second argument, as bucket(id, 16)"
        raise InvalidConfig(message)
    return int(text)


def _split_zone(text: str) -> tuple[str, str]:
    """Divide a pattern from the time zone that may follow it; a pattern may have commas, too.

    The pattern may be written in double quotes.
    """
    quoted = re.fullmatch(r'"([^"]*)"(\s*,\s*(?P<zone>.*))?', text)
    if quoted is not None:
        return quoted[1], checked_zone(quoted["zone"]) if quoted["zone"] else _UTC
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
        f"{text!r} does not name a partition field; name a column, or use {functions}, "
        f"{_FORMAT}(column, yyyyMMdd), {_BUCKET}(column, 16) or {_TRUNCATE}(column, 3), and "
        "optionally a name for the stored column, as in day(column) as dt"
    )
    return InvalidConfig(message)
