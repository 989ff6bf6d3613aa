"""Instant times in a user's notation.

Source: ``HoodieSqlCommonUtils.formatQueryInstant`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from datetime import UTC, datetime

from lakemark.errors import InvalidConfig
from lakemark.timeline.clock import UTC_CLOCK, TimelineClock

_ACCEPTED = (
    "yyyyMMddHHmmss[SSS], yyyy-MM-dd, yyyy-MM-dd HH:mm:ss[.SSS], yyyy-MM-ddTHH:mm:ss[.SSS], "
    "and seconds (10 digits) or milliseconds (13 digits) since 1970"
)
_SECONDS_DIGITS, _MILLIS_DIGITS = 10, 13
_INSTANT_DIGITS = (14, 17)


def parse_query_instant(text: str, clock: TimelineClock) -> str:
    """Parse a user's time into an instant time; a whole second means its last millisecond.

    Args:
        text: an instant, a date, a time, or a number of (milli)seconds since 1970.
        clock: the timeline's. Dates and times are in its zone, so it is not needed for them.

    Raises:
        InvalidConfig: the text has another form.
    """
    try:
        return _parse(text.strip(), clock)
    except (ValueError, OverflowError, OSError):
        message = f"{text!r} is not a time; accepted: {_ACCEPTED}"
        raise InvalidConfig(message) from None


def _parse(text: str, clock: TimelineClock) -> str:
    if text.isdecimal() and text.isascii():
        return _parse_digits(text, clock)
    if len(text) == len("yyyy-MM-dd"):
        return _parse_wall_clock(text, "%Y-%m-%d")
    if len(text) == len("yyyy-MM-dd HH:mm:ss"):
        text += ".999"
    if len(text) != len("yyyy-MM-dd HH:mm:ss.SSS"):
        raise ValueError(text)
    return _parse_wall_clock(text.replace("T", " "), "%Y-%m-%d %H:%M:%S.%f")


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
    """In any zone: an instant time is wall-clock time in the timeline's zone."""
    return UTC_CLOCK.format(datetime.strptime(text, form).replace(tzinfo=UTC))
