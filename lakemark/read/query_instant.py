"""Parses instant times in a user's notation.

Source: ``HoodieSqlCommonUtils.formatQueryInstant`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from typing import TypeAlias

from lakemark.errors import InvalidConfig
from lakemark.timeline.clock import UTC_CLOCK, TimelineClock

#: A time that a user gives: text, or a date or time of Python.
GivenTime: TypeAlias = str | date

_ACCEPTED = (
    "yyyyMMddHHmmss[SSS], yyyy-MM-dd, yyyy-MM-dd HH:mm[:ss[.SSS]] (or with T between date and "
    "time), each time also with Z or an offset such as +02:00, and seconds (10 digits) or "
    "milliseconds (13 digits) since 1970; in Python also a datetime or a date"
)
_TIME = re.compile(
    r"(?P<date>\d{4}-\d{2}-\d{2})[T ](?P<minute>\d{2}:\d{2})"
    r"(?:(?P<second>:\d{2})(?:(?P<millis>\.\d{3})(?:\d{3}){0,2})?)?(?P<zone>Z|[+-]\d{2}:\d{2})?",
    re.ASCII,
)
_SECONDS_DIGITS, _MILLIS_DIGITS = 10, 13
_INSTANT_DIGITS = (14, 17)


def parse_query_instant(given: GivenTime, clock: TimelineClock) -> str:
    """Convert a user's time to an instant time.

    A text with a date and a time, but without milliseconds, means the last millisecond of its
    second. For example, ``2026-05-01 12:00`` means 12:00:00.999.

    Args:
        given: an instant, a date, a time, or a number of seconds or milliseconds since 1970. Digits
            after the milliseconds are ignored. A ``datetime`` is used with its milliseconds.
        clock: the timeline's clock. Dates, and times without a zone, are in the timeline's zone.
            They are converted even if that zone is unknown, because instant times are in the same
            zone.

    Raises:
        InvalidConfig: the text or value is not a time in one of these forms.
    """
    try:
        return _parse(_text_of(given), clock)
    except (ValueError, OverflowError, OSError):
        message = f"{given!r} is not a time; accepted: {_ACCEPTED}"
        raise InvalidConfig(message) from None


def _text_of(given: GivenTime) -> str:
    if isinstance(given, datetime):
        return given.isoformat(timespec="milliseconds")
    if isinstance(given, date):
        return given.isoformat()
    if isinstance(given, str):
        return given.strip()
    raise ValueError(given)


def _parse(text: str, clock: TimelineClock) -> str:
    if text.isdecimal() and text.isascii():
        return _parse_digits(text, clock)
    if len(text) == len("yyyy-MM-dd"):
        return _parse_wall_clock(text, "%Y-%m-%d")
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(text)
    second, millis = found["second"] or ":00", found["millis"] or ".999"
    time = f"{found['date']} {found['minute']}{second}{millis}"
    if found["zone"]:
        return clock.format(datetime.fromisoformat(time + found["zone"]))
    return _parse_wall_clock(time, "%Y-%m-%d %H:%M:%S.%f")


def _parse_digits(text: str, clock: TimelineClock) -> str:
    if len(text) == _SECONDS_DIGITS:
        return clock.format(datetime.fromtimestamp(int(text), UTC))
    if len(text) == _MILLIS_DIGITS:
        seconds, millis = divmod(int(text), 1000)
        moment = datetime.fromtimestamp(seconds, UTC)
        return clock.format(moment.replace(microsecond=millis * 1000))
    if len(text) not in _INSTANT_DIGITS:
        raise ValueError(text)
    if text.strip("0") != "":
        _parse_wall_clock(text[:14], "%Y%m%d%H%M%S")
    return text


def _parse_wall_clock(text: str, form: str) -> str:
    """Parse a time in the timeline's zone.

    The zone need not be known, because an instant time is wall-clock time in the same zone.
    """
    return UTC_CLOCK.format(datetime.strptime(text, form).replace(tzinfo=UTC))
