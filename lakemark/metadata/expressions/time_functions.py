"""Functions of times, as Spark computes them in all time zones.

Spark converts a timestamp to a day, an hour or a text in the time zone of the session. The
definition of an index does not record the time zone. So bounds of such values cover all time zones:
those of the times 18 hours before and after, because offsets from UTC are not larger. Functions of
days, and seconds since the epoch, do not depend on a time zone.

Texts of times outside the years 1600 to 9998 depend on ``spark.sql.legacy.timeParserPolicy``.
Their bounds are those of all texts that consist of ASCII. Source: ``datetimeExpressions`` of Spark
3.5.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from functools import reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.config.time_pattern import TimePart, TimePattern
from lakemark.metadata.expressions.covering_values import CoveringValues, widest_bounds
from lakemark.model.bounds import PRINTED_HIGH, PRINTED_LOW

TIMESTAMPS: Final = pa.timestamp("us", "UTC")

#: The largest offset of a time zone from UTC.
_OFFSET_S: Final = 18 * 3600
_DAY_S: Final = 86_400
_SECOND: Final = 1_000_000

#: Texts and calendars are the same under each policy between these years.
_FIRST_S: Final = int(datetime(1600, 1, 1, tzinfo=UTC).timestamp())
_END_S: Final = int(datetime(9999, 1, 1, tzinfo=UTC).timestamp())
_FIRST_DAY: Final = _FIRST_S // _DAY_S
_END_DAY: Final = _END_S // _DAY_S

#: Before this second, and after its negative, days begin at a number of microseconds of 64 bits.
_END_OF_STARTS_S: Final = (2**63 - 1) // _SECOND - _OFFSET_S

#: Periods of two months in which a time zone has skipped a day: 1844-12-31 in Manila, 1993-08-21 in
#: Kwajalein, 1994-12-31 in Kiritimati, and 2011-12-30 in Apia. Each has a first day and an end, as
#: days since 1970. They are long because releases of the time zone database differ by some days.
_PERIODS_OF_SKIPPED_DAYS: Final = tuple(
    (first, first + 62)
    for first in (
        (date(year, month, 1) - date(1970, 1, 1)).days
        for year, month in ((1844, 12), (1993, 8), (1994, 12), (2011, 12))
    )
)

#: Characters with a meaning in patterns of Java that they do not have in ``TimePattern``.
RESERVED: Final = "[]{}#"

#: The number of letters of each part in a pattern whose texts sort as their times do.
_WIDTHS: Final = {part: 4 if part is TimePart.YEAR else 2 for part in TimePart}


def sorts_as_times(pattern: TimePattern) -> bool:
    """Return whether texts of the years 1600 to 9998 sort as their times do.

    This needs the parts from the year on, without gaps, each with its full number of digits.
    """
    parts = [token for token in pattern.tokens if isinstance(token, tuple)]
    wanted = list(TimePart)[: len(parts)]
    return parts == [(part, _WIDTHS[part]) for part in wanted]


def has_only_days(pattern: TimePattern) -> bool:
    """Return whether a pattern formats a day without a time."""
    parts = {token[0] for token in pattern.tokens if isinstance(token, tuple)}
    return parts <= {TimePart.YEAR, TimePart.MONTH, TimePart.DAY}


def format_seconds(seconds: pa.Array, pattern: TimePattern) -> CoveringValues:
    """Return the texts of seconds since the epoch.

    Args:
        seconds: 64-bit integers.
        pattern: a pattern that ``sorts_as_times``.
    """
    is_known = _is_between(seconds, _FIRST_S, _END_S)
    known = pc.if_else(is_known, seconds, 0)

    def texts(offset_s: int) -> pa.Array:
        return _format(pc.add(known, offset_s).cast(pa.timestamp("s")), pattern)

    bounds = CoveringValues(texts(-_OFFSET_S), texts(_OFFSET_S))
    return bounds.where(is_known, PRINTED_LOW, PRINTED_HIGH)


def format_times(times: pa.Array, pattern: TimePattern) -> CoveringValues:
    """Return the texts of timestamps; see ``format_seconds``."""
    return format_seconds(_seconds(times), pattern)


def format_days(days: pa.Array, pattern: TimePattern) -> CoveringValues:
    """Return the texts of days, for a pattern that ``has_only_days``.

    Spark formats the time at which a day begins. If the time zone of the session has skipped the
    day, this is the beginning of the next day.
    """
    numbers = days.cast(pa.int32())
    is_known = _is_between(numbers, _FIRST_DAY, _END_DAY)
    known = pc.if_else(is_known, days, pa.scalar(date(1970, 1, 1)))
    texts = CoveringValues.exact(_format(known.cast(pa.timestamp("s")), pattern))
    may_be_next = _may_be_skipped(numbers)
    if pc.any(may_be_next).as_py() and sorts_as_times(pattern):
        next_days = pc.add(known.cast(pa.int32()), may_be_next.cast(pa.int32())).view(pa.date32())
        texts = CoveringValues(texts.lows, _format(next_days.cast(pa.timestamp("s")), pattern))
    else:
        is_known = pc.and_not(is_known, may_be_next)
    return texts.where(is_known, PRINTED_LOW, PRINTED_HIGH)


def _may_be_skipped(days: pa.Array) -> pa.Array:
    """Return whether some time zone may have skipped days, given as their numbers since 1970."""
    each = (_is_between(days, first, end) for first, end in _PERIODS_OF_SKIPPED_DAYS)
    return reduce(pc.or_, each)


def add_days(days: pa.Array, count: int) -> CoveringValues:
    """Return later days, or earlier ones if the count is negative."""
    later = pc.add(days.cast(pa.int32()).cast(pa.int64()), count)
    low, high = widest_bounds(pa.date32()).view(pa.int32()).to_pylist()
    is_known = _is_between(later, low, high)
    added = pc.if_else(is_known, later, None).cast(pa.int32()).view(pa.date32())
    return CoveringValues.exact(added).where(is_known, *widest_bounds(pa.date32()))


def day_of_times(times: pa.Array) -> CoveringValues:
    """Return the days of timestamps."""
    seconds = _seconds(times)
    return CoveringValues(*(_days(pc.add(seconds, at)) for at in (-_OFFSET_S, _OFFSET_S)))


def start_of_days(days: pa.Array) -> CoveringValues:
    """Return the timestamps at which days begin."""
    seconds = _starts(days)
    is_known = _is_between(seconds, -_END_OF_STARTS_S, _END_OF_STARTS_S)
    known = pc.if_else(is_known, seconds, None)
    bounds = (
        pc.multiply(pc.add(known, at), _SECOND).cast(TIMESTAMPS) for at in (-_OFFSET_S, _OFFSET_S)
    )
    return CoveringValues(*bounds).where(is_known, *widest_bounds(TIMESTAMPS))


def seconds_of_days(days: pa.Array) -> CoveringValues:
    """Return the seconds since the epoch at which days begin."""
    seconds = _starts(days)
    return CoveringValues(pc.add(seconds, -_OFFSET_S), pc.add(seconds, _OFFSET_S))


def seconds_of_times(times: pa.Array) -> CoveringValues:
    """Return the whole seconds since the epoch; before it, Spark rounds to the later second."""
    per_second = {"ms": 1_000, "us": _SECOND}[times.type.unit]
    return CoveringValues.exact(pc.divide(times.cast(pa.int64()), per_second))


def identity_of_times(times: pa.Array) -> CoveringValues:
    """Return the timestamps in microseconds, which is how Spark reads them."""
    if times.type == TIMESTAMPS:
        return CoveringValues.exact(times)
    millis = times.cast(pa.int64())
    low, high = -(2**63) // 1000 + 1, 2**63 // 1000 - 1
    is_known = _is_between(millis, low, high)
    micros = pc.multiply(pc.if_else(is_known, millis, None), 1000).cast(TIMESTAMPS)
    return CoveringValues.exact(micros).where(is_known, *widest_bounds(TIMESTAMPS))


def part_of_days(
    days: pa.Array, find_part: Callable[[pa.Array], pa.Array], widest: tuple[int, int]
) -> CoveringValues:
    """Return the year, the month or the day of the month of days.

    Args:
        days: the days.
        find_part: the Arrow function that finds the part.
        widest: the smallest and the largest value of the part.
    """
    is_known = _is_between(days.cast(pa.int32()), _FIRST_DAY, _END_DAY)
    known = pc.if_else(is_known, days, None)
    return CoveringValues.exact(find_part(known).cast(pa.int32())).where(is_known, *widest)


def part_of_times(
    times: pa.Array, find_part: Callable[[pa.Array], pa.Array], widest: tuple[int, int]
) -> CoveringValues:
    """Return the year, the month or the day of the month of timestamps.

    The time zones of the world have at most three different days at the same time. Arguments are
    as for ``part_of_days``.
    """
    seconds = _seconds(times)
    each = [
        part_of_days(_days(pc.add(seconds, at)), find_part, widest)
        for at in (-_OFFSET_S, 0, _OFFSET_S)
    ]
    return CoveringValues(
        pc.min_element_wise(*(one.lows for one in each)),
        pc.max_element_wise(*(one.highs for one in each)),
    )


def hour_of_times(times: pa.Array) -> CoveringValues:
    """Return the hours of timestamps: in some time zone, each hour is that of a timestamp."""
    nothing = pa.scalar(None, pa.int32())
    hours = (pa.scalar(hour, pa.int32()) for hour in (0, 23))
    return CoveringValues(*(pc.if_else(times.is_valid(), hour, nothing) for hour in hours))


def _seconds(times: pa.Array) -> pa.Array:
    """Return the whole seconds since the epoch, rounded to the earlier second."""
    numbers = times.cast(pa.int64())
    if times.type.unit == "us":
        return _floor_divide(numbers, _SECOND)
    # Spark reads no time that does not fit into microseconds.
    low, high = (pa.scalar(limit // 1000, pa.int64()) for limit in (-(2**63) + 1000, 2**63 - 1))
    in_range = pc.max_element_wise(
        pc.min_element_wise(numbers, high, skip_nulls=False), low, skip_nulls=False
    )
    return _floor_divide(in_range, 1_000)


def _days(seconds: pa.Array) -> pa.Array:
    return _floor_divide(seconds, _DAY_S).cast(pa.int32()).view(pa.date32())


def _starts(days: pa.Array) -> pa.Array:
    """Return the first seconds of days in UTC."""
    return pc.multiply(days.cast(pa.int32()).cast(pa.int64()), _DAY_S)


def _floor_divide(numbers: pa.Array, divisor: int) -> pa.Array:
    quotients = pc.divide(numbers, divisor)
    is_above = pc.less(numbers, pc.multiply(quotients, divisor))
    return pc.subtract(quotients, is_above.cast(pa.int64()))


def _format(times: pa.Array, pattern: TimePattern) -> pa.Array:
    """Format times without a zone."""
    floored = pc.floor_temporal(times, unit=pattern.finest.name.lower())
    encoded = floored.dictionary_encode()
    texts = [pattern.format(one) for one in encoded.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(encoded.indices)


def _is_between(numbers: pa.Array, first: int, end: int) -> pa.Array:
    return pc.and_(pc.greater_equal(numbers, first), pc.less(numbers, end))
