"""Converts the age of files and savepoints that a caller names to a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def time_before(age: timedelta, now: datetime | None) -> datetime:
    """Return the time at which something began that has an age now; the year 1 if it is earlier.

    Args:
        age: the age, which may be longer than Python can represent before now.
        now: the current time; None for the time of this machine.
    """
    try:
        return (now or datetime.now(UTC)) - age
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)
