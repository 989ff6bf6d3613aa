"""Durations as users write them: a whole number and its unit, such as ``30d`` or ``90s``."""

from __future__ import annotations

from datetime import timedelta

_UNITS = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}
_MOST_DIGITS = 9


def parse_duration(text: str) -> timedelta:
    """Parse a duration: a whole number, followed by ``d``, ``h``, ``m`` or ``s``.

    Raises:
        ValueError: the text is not a duration.
    """
    number, unit = text[:-1], text[-1:]
    is_number = number.isascii() and number.isdigit() and len(number) <= _MOST_DIGITS
    if unit not in _UNITS or not is_number:
        message = f"expected a number and its unit (d, h, m or s), such as 30d, not {text!r}"
        raise ValueError(message)
    return timedelta(**{_UNITS[unit]: int(number)})
