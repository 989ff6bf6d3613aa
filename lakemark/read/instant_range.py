"""A range of instant times, for incremental and CDC queries."""

from __future__ import annotations

from dataclasses import dataclass

from lakemark.errors import InvalidConfig
from lakemark.read.query_instant import GivenTime, parse_query_instant
from lakemark.timeline.clock import UTC_CLOCK, TimelineClock

EARLIEST = "earliest"


@dataclass(frozen=True, slots=True)
class InstantRange:
    """A range of instant times.

    Attributes:
        begin: the range begins after this instant time; with "" it begins before all instants.
        end: the last instant time in the range; None if the range has no end.
    """

    begin: str
    end: str | None = None

    @classmethod
    def of(
        cls, begin: GivenTime, end: GivenTime | None = None, clock: TimelineClock = UTC_CLOCK
    ) -> InstantRange:
        """Return the range between two times in a user's notation.

        Args:
            begin: ``earliest``, a number of zeros, or a time in one of the forms that
                ``parse_query_instant`` accepts.
            end: a time, or None for a range without an end.
            clock: the timeline's clock.

        Raises:
            InvalidConfig: a bound is not such a time, or the end is before the beginning.
        """
        instant_range = cls(
            _parse_bound(begin, clock), None if end is None else parse_query_instant(end, clock)
        )
        if instant_range.end is not None and instant_range.end < instant_range.begin:
            message = f"the range ends at {end}, before its beginning {begin}; swap the bounds"
            raise InvalidConfig(message)
        return instant_range

    def contains(self, time: str) -> bool:
        """Return whether the time is in the range."""
        return self.begin < time and (self.end is None or time <= self.end)


def _parse_bound(given: GivenTime, clock: TimelineClock) -> str:
    word = given.strip().lower() if isinstance(given, str) else ""
    is_start = word == EARLIEST or set(word) == {"0"}
    return "" if is_start else parse_query_instant(given, clock)
