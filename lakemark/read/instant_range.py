"""A span of the timeline, as queries of what has changed name it."""

from __future__ import annotations

from dataclasses import dataclass

from lakemark.errors import InvalidConfig
from lakemark.read.time_travel import query_instant
from lakemark.timeline.clock import UTC_CLOCK, TimelineClock

EARLIEST = "earliest"


@dataclass(frozen=True, slots=True)
class Span:
    """A span of the timeline.

    Attributes:
        begin: the instant time after which it begins; "" begins before everything.
        end: the last instant time in it; None has no end.
    """

    begin: str
    end: str | None = None

    @classmethod
    def of(cls, begin: str, end: str | None = None, clock: TimelineClock = UTC_CLOCK) -> Span:
        """The span that a user means.

        Args:
            begin: ``earliest``, a number of zeros, or a moment in one of the forms that
                ``query_instant`` takes.
            end: a moment, or None.
            clock: the timeline's.

        Raises:
            InvalidConfig: none of these, or an end before the beginning.
        """
        span = cls(_bound(begin, clock), None if end is None else query_instant(end, clock))
        if span.end is not None and span.end < span.begin:
            message = f"the span ends at {end}, before it begins at {begin}; exchange the two"
            raise InvalidConfig(message)
        return span

    def holds(self, time: str) -> bool:
        """Whether the time is in it."""
        return self.begin < time and (self.end is None or time <= self.end)


def _bound(text: str, clock: TimelineClock) -> str:
    word = text.strip().lower()
    is_start = word == EARLIEST or set(word) == {"0"}
    return "" if is_start else query_instant(text, clock)
