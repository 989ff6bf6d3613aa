"""Rows of the golden tables: each value is derived from a record's number and its version."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

#: Columns of every kind that Spark and Hudi share; most are null now and then.
COLUMNS = (
    "id string, region string, ts bigint, qty int, price decimal(12,2), note string, "
    "seen timestamp, day date, tags array<string>, attrs map<string,bigint>, "
    "pos struct<lat:double,lon:double>, ok boolean, raw binary, _hoodie_is_deleted boolean"
)

#: The few columns of a table that has many commits.
FEW_COLUMNS = "id string, region string, ts bigint, qty int, note string"

Row = tuple[object, ...]

_FIRST_DAY = date(2026, 1, 1)
_FIRST_TIME = datetime(2026, 1, 1, tzinfo=UTC)


def rows(
    numbers: Iterable[int], *, version: int, ts: int, is_deleted: bool = False
) -> tuple[Row, ...]:
    """Create one row for each record number, with ``COLUMNS``.

    Args:
        numbers: the record key and most values are derived from it.
        version: makes the values of each write of a record different.
        ts: the ordering value, which need not grow with the version.
        is_deleted: whether the rows are soft deletes.
    """
    return tuple(_row(number, version, ts, is_deleted) for number in numbers)


def few_columns(numbers: Iterable[int], *, version: int, ts: int) -> tuple[Row, ...]:
    """Like ``rows``, with ``FEW_COLUMNS``."""
    return tuple((*_row(n, version, ts, False)[:4], _note(n, version)) for n in numbers)


def _row(number: int, version: int, ts: int, is_deleted: bool) -> Row:
    shift = timedelta(minutes=number, microseconds=version * 1001)
    return (
        f"k{number:04}",
        f"r{number % 3}",
        ts,
        number * 10 + version,
        Decimal(number * 100 + version) / 100,
        _note(number, version),
        _FIRST_TIME + shift,
        _FIRST_DAY + timedelta(days=number),
        None if number % 4 == 0 else [f"t{number}", f"u{version}"],
        {} if number % 5 == 0 else {"a": number, "b": version},
        None if number % 6 == 0 else (number / 3, version / 7),
        number % 2 == 0,
        bytearray([number % 256, version % 256]),
        is_deleted,
    )


def _note(number: int, version: int) -> str | None:
    return None if (number + version) % 7 == 0 else f"note-{number}-{version}"
