"""Instant times: ``yyyyMMddHHmmssSSS`` in UTC, each later than every time on the timeline.

Times are true: when the timeline is ahead of this machine's clock, the writer waits for its clock
to pass, within a bound, rather than inventing a time (``HoodieInstantTimeGenerator``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import IntEnum

from table.errors import Retriable

MAX_CLOCK_DRIFT_S = 10.0

#: How the instants begin that make a metadata table; they come before all others.
_NO_TIME = "0" * 14
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ClockBehind(Retriable):
    """The timeline holds a time further in this machine's future than clocks may drift."""

    def __init__(self, newest_time: str, ahead_s: float) -> None:
        super().__init__(
            f"the timeline ends at {newest_time}, {ahead_s:.1f} s ahead of this machine's clock; "
            "set the clock right, or let the writers of this table keep their timeline in UTC"
        )
        self.newest_time, self.ahead_s = newest_time, ahead_s

    def __reduce__(self) -> tuple[object, ...]:
        """Rebuild from the fields."""
        return (ClockBehind, (self.newest_time, self.ahead_s))


def format_instant(moment: datetime) -> str:
    """The instant time of a moment, to the millisecond."""
    utc = moment.astimezone(UTC)
    return utc.strftime("%Y%m%d%H%M%S") + f"{utc.microsecond // 1000:03d}"


def parse_instant(text: str) -> datetime:
    """The moment of an instant time; 14 digits (old tables) mean the second's last millisecond.

    Instants that made a metadata table are of 1970
    (``HoodieInstantTimeGenerator.parseDateFromInstantTimeSafely``).
    """
    padded = text + "999" if len(text) == 14 else text
    second = padded[:14]
    if second == _NO_TIME:
        moment = _EPOCH
    else:
        moment = datetime.strptime(second, "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    return moment + timedelta(milliseconds=int(padded[14:17]))


class Turn(IntEnum):
    """Whose milliseconds they are: an ingest and a service never mint one and the same time.

    A service mints under the lock, an ingest does not; a writer that was paused for long could
    otherwise write files in the name of a service's instant.
    """

    SERVICE = 0
    INGEST = 1


def next_instant(
    newest_time: str | None,
    turn: Turn | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """A time that is now and later than ``newest_time``, after a bounded wait if need be.

    Args:
        newest_time: the latest time on the timeline.
        turn: who asks; None for a completion time, which names no files.
        now: this machine's clock.
        sleep: waits.

    Raises:
        ClockBehind: the timeline is more than ``MAX_CLOCK_DRIFT_S`` ahead.
    """
    if newest_time is not None:
        ahead_s = (parse_instant(newest_time) - now()).total_seconds()
        if ahead_s > MAX_CLOCK_DRIFT_S:
            raise ClockBehind(newest_time, ahead_s)
        while format_instant(now()) <= newest_time:
            sleep(0.0005 + max(0.0, (parse_instant(newest_time) - now()).total_seconds()))
    minted = format_instant(now())
    while turn is not None and int(minted[-1]) % 2 != turn:
        sleep(0.0005)
        minted = format_instant(now())
    return minted
