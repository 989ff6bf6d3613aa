"""How a key generator formats times as folders: the properties ``hoodie.keygen.timebased.*``.

The key generators ``TIMESTAMP`` and ``CUSTOM`` read a number from a column and format it with one
pattern in one time zone. The number of a timestamp is what the table stores: milliseconds or
microseconds since the epoch. The number of a date is its day.
Source: ``TimestampBasedAvroKeyGenerator`` and ``HoodieDateTimeParser`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from lakemark.config import keys
from lakemark.config.partition_field import checked_zone
from lakemark.config.time_pattern import TimePattern
from lakemark.errors import InvalidConfig

PARSER_CLASS: Final = "org.apache.hudi.keygen.parser.HoodieDateTimeParser"

#: The type of numbers whose unit is in another property.
_SCALAR: Final = "SCALAR"


class TimeUnit(StrEnum):
    """The unit of a number since the epoch; the values are those of ``java.util.concurrent``."""

    DAYS = "DAYS"
    HOURS = "HOURS"
    MINUTES = "MINUTES"
    SECONDS = "SECONDS"
    MILLISECONDS = "MILLISECONDS"
    MICROSECONDS = "MICROSECONDS"
    NANOSECONDS = "NANOSECONDS"


#: The units that have a type of their own.
_TYPES: Final[Mapping[str, TimeUnit]] = MappingProxyType(
    {
        "UNIX_TIMESTAMP": TimeUnit.SECONDS,
        "EPOCHMILLISECONDS": TimeUnit.MILLISECONDS,
        "EPOCHMICROSECONDS": TimeUnit.MICROSECONDS,
    }
)


@dataclass(frozen=True, slots=True)
class TimeFolders:
    """The format of a table's time folders.

    Attributes:
        unit: the unit of the numbers in the column.
        pattern: the pattern of the folders.
        zone: the time zone of the folders.
    """

    unit: TimeUnit
    pattern: TimePattern
    zone: str

    @classmethod
    def of(cls, values: Mapping[str, str]) -> TimeFolders:
        """Return the format that a table's properties store.

        Raises:
            InvalidConfig: a property is missing, or its value is one that lakemark cannot write.
        """
        return cls(
            stored_unit(values),
            TimePattern.parse(values.get(keys.TIMESTAMP_OUTPUT_FORMAT, "")),
            stored_zone(values),
        )


def stored_unit(values: Mapping[str, str]) -> TimeUnit:
    """Return the unit of the numbers in a table's time columns.

    Raises:
        InvalidConfig: the column contains texts, or the unit is unknown.
    """
    kind = values.get(keys.TIMESTAMP_TYPE, "none")
    if kind in _TYPES:
        return _TYPES[kind]
    unit = values.get(keys.TIMESTAMP_SCALAR_UNIT, TimeUnit.SECONDS).upper()
    if kind == _SCALAR and unit in [*TimeUnit]:
        return TimeUnit(unit)
    stored = f"{keys.TIMESTAMP_TYPE} is {kind!r}" + (f" of {unit}" if kind == _SCALAR else "")
    message = f"{stored}; lakemark formats only {', '.join(_TYPES)}, and {_SCALAR} of known units"
    raise InvalidConfig(message)


def zone_name(values: Mapping[str, str]) -> str:
    """Return the name under which a table stores the time zone of its time folders, unchecked."""
    return values.get(keys.TIMESTAMP_ZONE, values.get(keys.TIMESTAMP_OUTPUT_ZONE, ""))


def stored_zone(values: Mapping[str, str]) -> str:
    """Return the time zone of a table's time folders.

    Raises:
        InvalidConfig: the time zone is unknown. Or no time zone is stored, so that Apache Hudi uses
            the zone of the JVM that writes.
    """
    name = zone_name(values)
    if name.strip():
        return checked_zone(name)
    message = (
        f"{keys.TIMESTAMP_ZONE} is missing, so each writer uses the time zone of its machine; set "
        "it to the zone in which the table's folders were written"
    )
    raise InvalidConfig(message)
