"""The clock of a table's timeline: instant times ``yyyyMMddHHmmssSSS`` in the timeline's time zone.

A new instant time is this machine's time in the timeline's zone
(``HoodieInstantTimeGenerator`` formats with ``ZoneId.systemDefault()``, or with UTC). The new time
must be later than every time on the timeline. If the timeline is ahead by at most a limit, the
writer waits; beyond the limit, the writer fails with ``ClockBehind``. At the change to winter time,
a local clock goes back by an hour. If the newest time is then more than the limit ahead, the writer
fails until the clock has passed it again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from enum import IntEnum

from lakemark.errors import InvalidConfig, Retriable

MAX_CLOCK_DRIFT_S = 10.0
#: The most by which a local clock goes back at the change to winter time.
REPEATED_HOUR_S = 3600.0

#: Prefix of the instants that create a metadata table. They sort before all other instants.
_NO_TIME = "0" * 14
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = "%Y%m%d%H%M%S"
_SHORTEST_SLEEP_S = 0.0005


class ClockBehind(Retriable):
    """This machine's clock is too far behind the newest time on the timeline.

    Attributes:
        newest_time: the newest time on the timeline.
        ahead_s: how far the newest time is ahead of this machine's clock, in seconds.
        until: the time, in UTC, from which instants later than ``newest_time`` can be generated.
        zone: the timeline's time zone; None for the time zone of this process.
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
    """Even milliseconds for table services, odd ones for ingests, so that the two never coincide.

    A table service generates its instant time under the lock, but an ingest does not. Without
    slots, an ingest that was paused for long could have the requested time of a service's instant.
    The files of both would then have the same time in their names.
    """

    SERVICE = 0
    INGEST = 1


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class TimelineClock:
    """Formats, parses and generates the instant times of one table.

    Attributes:
        zone: the time zone of the timeline; None for the time zone of this process.
        doubt: why the zone may be wrong, and the remedy; None if the zone is certain. While the
            zone is in doubt, times can be formatted and parsed, but no new time is generated.
    """

    zone: tzinfo | None
    doubt: str | None = None

    def check(self) -> None:
        """Check that the zone is certain. Writers require this.

        Raises:
            TimelineZoneUnknown: the zone is in doubt.
        """
        if self.doubt is not None:
            raise TimelineZoneUnknown(self.doubt)

    def format(self, moment: datetime) -> str:
        """Format a moment as an instant time, to the millisecond."""
        wall = moment.astimezone(self.zone)
        return wall.strftime(_SECOND) + f"{wall.microsecond // 1000:03d}"

    def parse(self, text: str, *, latest: bool = False) -> datetime:
        """Parse an instant time as a moment in UTC.

        In old tables, times have 14 digits; such a time means the last millisecond of its second.
        The times of instants that create a metadata table are parsed as moments in 1970
        (``HoodieInstantTimeGenerator.parseDateFromInstantTimeSafely``).

        Args:
            text: 14 digits or more; digits after the 17th are ignored.
            latest: whether to return the later moment, if the local time occurs twice in autumn.
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
        """Return the current time as an instant time that is later than ``newest_time``.

        Wait first if needed, for about ``MAX_CLOCK_DRIFT_S`` at most.

        Args:
            newest_time: the latest time on the timeline; None if the timeline is empty.
            slot: the caller's slot; None for a completion time, which no data file's name contains.
            now: returns the time of this machine's clock.
            sleep: waits for a number of seconds.

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
        # Instant times are truncated to milliseconds, so the current millisecond is not yet past.
        if until < now.replace(microsecond=now.microsecond // 1000 * 1000):
            # The local clock was set back, so it will show the newest time a second time.
            until = self.parse(newest_time, latest=True)
        ahead_s = (until - now).total_seconds()
        if ahead_s > MAX_CLOCK_DRIFT_S:
            raise ClockBehind(newest_time, ahead_s, until, self.zone)
        return max(0.0, ahead_s)


#: The clock of the tables that lakemark creates.
UTC_CLOCK = TimelineClock(UTC)


def add_to_instant(text: str, difference: timedelta) -> str:
    """Add a difference to an instant time. Time zones and clock changes are ignored."""
    wall = _wall_time(text) + difference
    return wall.strftime(_SECOND) + f"{wall.microsecond // 1000:03d}"


def _wall_time(text: str) -> datetime:
    """Return an instant time as a ``datetime`` without a zone."""
    padded = text + "999" if len(text) == 14 else text
    second = datetime.strptime(padded[:14], _SECOND)  # noqa: DTZ007 (the caller adds the zone)
    return second + timedelta(milliseconds=int(padded[14:17]))
