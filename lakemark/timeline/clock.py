"""The clock of a table's timeline: instant times ``yyyyMMddHHmmssSSS`` in the timeline's time zone.

A new time is this machine's time in that zone, and later than every time on the timeline. If the
timeline is ahead by less than a limit, the writer waits; beyond the limit it refuses
(``HoodieInstantTimeGenerator`` formats with ``ZoneId.systemDefault()``, or with UTC). At the change
to winter time, a local clock goes back by an hour. Then the writer refuses until the clock has
passed the newest time again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from enum import IntEnum

from lakemark.errors import InvalidConfig, Retriable

MAX_CLOCK_DRIFT_S = 10.0
#: How far a local clock goes back in the autumn, at most.
REPEATED_HOUR_S = 3600.0

#: Prefix of the instants that create a metadata table; they sort before all others.
_NO_TIME = "0" * 14
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = "%Y%m%d%H%M%S"
_SHORTEST_SLEEP_S = 0.0005


class ClockBehind(Retriable):
    """The newest time on the timeline is further in this machine's future than clocks may drift.

    Attributes:
        newest_time: the newest time on the timeline.
        ahead_s: how far it is ahead of this machine's clock, in seconds.
        until: the time from which a later time can be generated, in UTC.
        zone: the timeline's; None is that of this process.
    """

    def __init__(
        self, newest_time: str, ahead_s: float, until: datetime, zone: tzinfo | None
    ) -> None:
        in_utc = "" if zone is UTC else f" ({until:%Y-%m-%d %H:%M:%S} UTC)"
        super().__init__(
            f"the newest time on the timeline, {newest_time}, is {ahead_s:.1f} s ahead of this "
            f"machine's clock; wait until {until.astimezone(zone):%Y-%m-%d %H:%M:%S %Z}{in_utc}, "
            "or, if that time is wrong, correct the clock and the time zone of the writer that "
            "generated it"
        )
        self.newest_time, self.ahead_s, self.until = newest_time, ahead_s, until
        self.zone = zone

    def __reduce__(self) -> tuple[object, ...]:
        """Rebuild from the fields."""
        return (ClockBehind, (self.newest_time, self.ahead_s, self.until, self.zone))


class TimelineZoneUnknown(InvalidConfig):
    """The time zone of a table's timeline is not known, so no instant time can be generated."""


class ClockSlot(IntEnum):
    """The milliseconds that services and ingests may use, so that their times never coincide.

    A service generates its time under the lock, an ingest does not. Without slots, a writer that
    was paused for long could write files with the requested time of a service's instant.
    """

    SERVICE = 0
    INGEST = 1


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class TimelineClock:
    """Formats, parses and generates the instant times of one table.

    Attributes:
        zone: the time zone of the timeline; None is that of this process.
        doubt: why the zone may be another one, with the remedy; None if the zone is certain. With a
            doubt, readers may format and parse times, but no time is generated.
    """

    zone: tzinfo | None
    doubt: str | None = None

    def check(self) -> None:
        """Check that the zone is certain, which a writer requires.

        Raises:
            TimelineZoneUnknown: it is not certain.
        """
        if self.doubt is not None:
            raise TimelineZoneUnknown(self.doubt)

    def format(self, moment: datetime) -> str:
        """Format a moment as an instant time, to the millisecond."""
        wall = moment.astimezone(self.zone)
        return wall.strftime(_SECOND) + f"{wall.microsecond // 1000:03d}"

    def parse(self, text: str, *, latest: bool = False) -> datetime:
        """Parse an instant time as a moment in UTC.

        14 digits (old tables) mean the second's last millisecond. Instants that create a metadata
        table are in 1970 (``HoodieInstantTimeGenerator.parseDateFromInstantTimeSafely``).

        Args:
            text: 14 digits or more; those after the 17th are ignored.
            latest: if the time occurs twice in the autumn, return the second moment.
        """
        if text.startswith(_NO_TIME):
            return _EPOCH + timedelta(milliseconds=int(text[14:17] or 0))
        wall = _wall_time(text).replace(tzinfo=self.zone, fold=int(latest))
        return wall.astimezone(UTC)

    def next_instant(
        self,
        newest_time: str | None,
        slot: ClockSlot | None = None,
        now: Callable[[], datetime] = _utc_now,
        sleep: Callable[[float], None] = time.sleep,
    ) -> str:
        """Generate the current time, later than ``newest_time``, after a bounded wait if needed.

        Args:
            newest_time: the latest time on the timeline.
            slot: of the caller; None for a completion time, which names no files.
            now: this machine's clock.
            sleep: waits.

        Raises:
            ClockBehind: the timeline is more than ``MAX_CLOCK_DRIFT_S`` ahead.
            TimelineZoneUnknown: the zone is in doubt.
        """
        self.check()
        while True:
            moment = now()
            generated = self.format(moment)
            if newest_time is not None and generated <= newest_time:
                sleep(_SHORTEST_SLEEP_S + self._wait_s(newest_time, moment))
            elif slot is None or int(generated[-1]) % 2 == slot:
                return generated
            else:
                sleep(_SHORTEST_SLEEP_S)

    def _wait_s(self, newest_time: str, now: datetime) -> float:
        until = self.parse(newest_time)
        # Instants have milliseconds: a time of the current millisecond is not in the past.
        if until < now.replace(microsecond=now.microsecond // 1000 * 1000):
            # The clock was set back, and will show that time again.
            until = self.parse(newest_time, latest=True)
        ahead_s = (until - now).total_seconds()
        if ahead_s > MAX_CLOCK_DRIFT_S:
            raise ClockBehind(newest_time, ahead_s, until, self.zone)
        return max(0.0, ahead_s)


#: The clock of tables that are created here.
UTC_CLOCK = TimelineClock(UTC)


def add_to_instant(text: str, difference: timedelta) -> str:
    """Add a difference to an instant time, in any zone, by arithmetic on its digits."""
    wall = _wall_time(text) + difference
    return wall.strftime(_SECOND) + f"{wall.microsecond // 1000:03d}"


def _wall_time(text: str) -> datetime:
    """Return the naive time that a clock in the timeline's zone showed."""
    padded = text + "999" if len(text) == 14 else text
    second = datetime.strptime(padded[:14], _SECOND)  # noqa: DTZ007 (the caller adds the zone)
    return second + timedelta(milliseconds=int(padded[14:17]))
