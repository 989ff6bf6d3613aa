"""Derives, from the value of a partition expression, a condition on the column of the expression.

All rows of the folder ``2026-01-02`` of ``day(at)`` have an ``at`` of this day. So a query with a
condition on ``at`` skips the other folders. This is possible if the times of one folder are one
span of time, and if a text is the name of only one span. The buckets of ``bucket`` are no spans.
"""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.config.partition_field import PartitionField
from lakemark.config.time_pattern import TimePart, TimePattern

#: The digits of each part of a time, if the pattern fixes their number.
_DIGITS = {part: 4 if part is TimePart.YEAR else 2 for part in TimePart}

_MICROSECOND = timedelta(microseconds=1)

#: The code points of surrogates, which no text contains, begin here and end there.
_SURROGATES = (0xD800, 0xDFFF)
_LAST_CODE_POINT = 0x10FFFF


def column_guarantee(field: PartitionField, text: str, schema: pa.Schema) -> list[pc.Expression]:
    """Return expressions that are true for the column of every row of a folder.

    Args:
        field: the expression that partitions the table.
        text: the value of the expression, as the folder names it.
        schema: the columns of the table.
    """
    if field.column not in schema.names:  # Arrow does not simplify conditions on nested fields
        return []
    column, kind = pc.field(field.column), schema.field(field.column).type
    if field.pattern is not None:
        return _within_times(column, kind, text, TimePattern.parse(field.pattern))
    if field.width is not None and pa.types.is_string(kind):
        return _begins_with(column, text, field.width)
    if field.width is not None and pa.types.is_integer(kind):
        return _within_multiples(column, kind, text, field.width)
    return []


def null_guarantee(field: PartitionField, schema: pa.Schema) -> list[pc.Expression]:
    """Return expressions that are true for the column of every row of the default folder.

    Texts have none: the folder also has the rows with an empty text.
    """
    if field.column not in schema.names or pa.types.is_string(schema.field(field.column).type):
        return []
    return [pc.field(field.column).is_null()]


def _within_times(
    column: pc.Expression, kind: pa.DataType, text: str, pattern: TimePattern
) -> list[pc.Expression]:
    start = _parse_time(text, pattern)
    if start is None:
        return []
    last = _last_time(start, pattern.finest)
    if pa.types.is_date(kind):
        return [column >= pa.scalar(start.date(), kind), column <= pa.scalar(last.date(), kind)]
    if not pa.types.is_timestamp(kind) or kind.unit not in ("ms", "us"):
        return []
    if kind.unit == "ms":
        last = last.replace(microsecond=999_000)
    zone = None if kind.tz is None else UTC
    first, last = start.replace(tzinfo=zone), last.replace(tzinfo=zone)
    return [column >= pa.scalar(first, kind), column <= pa.scalar(last, kind)]


def _parse_time(text: str, pattern: TimePattern) -> datetime | None:
    """Return the first time of a folder; None if its times are no span, or are not certain."""
    parts = [token for token in pattern.tokens if isinstance(token, tuple)]
    order = list(TimePart)
    if {part for part, _ in parts} != set(order[: order.index(pattern.finest) + 1]):
        return None
    if any(digits != _DIGITS[part] for part, digits in parts):
        return None
    shape = "".join(
        re.escape(token) if isinstance(token, str) else f"([0-9]{{{token[1]}}})"
        for token in pattern.tokens
    )
    found = re.fullmatch(shape, text)
    if found is None:
        return None
    numbers = {part: int(group) for (part, _), group in zip(parts, found.groups(), strict=True)}
    values = [numbers.get(part, 1 if part in order[:3] else 0) for part in order]
    try:
        start = datetime(*values)  # type: ignore[arg-type]  # noqa: DTZ001
    except ValueError:
        return None
    return start if pattern.format(start) == text else None


def _last_time(start: datetime, finest: TimePart) -> datetime:
    """Return the last microsecond of a year, a month, …, a second."""
    if finest is TimePart.YEAR:
        return start.replace(month=12, day=31, hour=23, minute=59, second=59, microsecond=999_999)
    if finest is TimePart.MONTH:
        last_day = start.replace(day=monthrange(start.year, start.month)[1])
        return _last_time(last_day, TimePart.DAY)
    return start + (timedelta(**{f"{finest.name.lower()}s": 1}) - _MICROSECOND)


def _begins_with(column: pc.Expression, text: str, width: int) -> list[pc.Expression]:
    if len(text) < width:
        return [column == text]
    after = _after_prefix(text)
    return [column >= text] + ([] if after is None else [column < after])


def _after_prefix(text: str) -> str | None:
    """Return a text that is greater than all texts with a prefix; None if there is none.

    Arrow compares the bytes in UTF-8, which are in the order of the code points.
    """
    last = ord(text[-1])
    if last == _LAST_CODE_POINT:
        return None
    after = last + 1
    return text[:-1] + chr(_SURROGATES[1] + 1 if after == _SURROGATES[0] else after)


def _within_multiples(
    column: pc.Expression, kind: pa.DataType, text: str, width: int
) -> list[pc.Expression]:
    try:
        first = int(text)
    except ValueError:
        return []
    if first % width:
        return []
    last = min(first + width - 1, int(np.iinfo(kind.to_pandas_dtype()).max))
    return [column >= pa.scalar(first, kind), column <= pa.scalar(last, kind)]
