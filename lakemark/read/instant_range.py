"""A range of instant times, for incremental and CDC queries."""

from __future__ import annotations

from dataclasses import dataclass

from lakemark.errors import InvalidConfig
from lakemark.read.time_travel import query_instant
from lakemark.timeline.clock import UTC_CLOCK, TimelineClock

EARLIEST = "earliest"


@dataclass(frozen=True, slots=True)
class Span:
    """A range of instant times.

    Attributes:
        begin: the range begins after this instant time; "" begins before all of them.
        end: the last instant time in the range; None if it has no end.
    """

    begin: str
    end: str | None = None

    @classmethod
    def of(cls, begin: str, end: str | None = None, clock: TimelineClock = UTC_CLOCK) -> Span:
        """The range between two times in a user's notation.

        Args:
            begin: ``earliest``, a number of zeros, or a time in one of the forms that
                ``query_instant`` accepts.
            end: a time, or None.
            clock: the timeline's.

        Raises:
            InvalidConfig: not such a time, or the end is before the beginning.
        """
        span = cls(_bound(begin, clock), None if end is None else query_instant(end, clock))
        if span.end is not None and span.end < span.begin:
            message = f"the range ends at {end}, before its begin {begin}; swap the two"
            raise InvalidConfig(message)
        return span

    def holds(self, time: str) -> bool:
        """Whether the time is in the range."""
        return self.begin < time and (self.end is None or time <= self.end)


def _bound(text: str, clock: TimelineClock) -> str:
    word = text.strip().lower()
    is_start = word == EARLIEST or set(word) == {"0"}
    return "" if is_start else query_instant(text, clock)
