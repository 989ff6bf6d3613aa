"""Instant times: ``yyyyMMddHHmmssSSS`` in UTC, each later than every time on the timeline.

Times are true: when the timeline is ahead of this machine's clock, the writer waits for its clock
to pass, within a bound, rather than inventing a time (``HoodieInstantTimeGenerator``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from table.errors import Retriable

MAX_CLOCK_DRIFT_S = 10.0


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
    """The moment of an instant time; 14 digits (old tables) mean the second's last millisecond."""
    padded = text + "999" if len(text) == 14 else text
    moment = datetime.strptime(padded[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    return moment + timedelta(milliseconds=int(padded[14:17]))


def next_instant(
    newest_time: str | None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """A time that is now and later than ``newest_time``, after a bounded wait if need be.

    Raises:
        ClockBehind: the timeline is more than ``MAX_CLOCK_DRIFT_S`` ahead.
    """
    if newest_time is not None:
        ahead_s = (parse_instant(newest_time) - now()).total_seconds()
        if ahead_s > MAX_CLOCK_DRIFT_S:
            raise ClockBehind(newest_time, ahead_s)
        while format_instant(now()) <= newest_time:
            sleep(0.0005 + max(0.0, (parse_instant(newest_time) - now()).total_seconds()))
    return format_instant(now())
