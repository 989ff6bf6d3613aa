"""Instant times are true, and later than every time on the timeline."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from table.timeline.clock import (
    MAX_CLOCK_DRIFT_S,
    ClockBehind,
    Turn,
    format_instant,
    next_instant,
    parse_instant,
)

moments = st.datetimes(datetime(2000, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


class Clock:
    """A clock that moves only when somebody sleeps."""

    def __init__(self, now: datetime) -> None:
        self.moment = now

    def now(self) -> datetime:
        return self.moment

    def sleep(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)


@given(moments)
def test_a_moment_survives_to_the_millisecond(moment: datetime) -> None:
    assert abs(parse_instant(format_instant(moment)) - moment) < timedelta(milliseconds=1)


@given(
    moments,
    st.timedeltas(-timedelta(days=1), timedelta(seconds=MAX_CLOCK_DRIFT_S - 1)),
    st.sampled_from([None, *Turn]),
)
def test_the_next_instant_is_later_than_the_newest(
    now: datetime, ahead: timedelta, turn: Turn | None
) -> None:
    clock = Clock(now)
    newest = format_instant(now + ahead)
    minted = next_instant(newest, turn, clock.now, clock.sleep)
    assert minted > newest
    assert turn is None or int(minted) % 2 == turn, "an ingest and a service never share a time"
    assert minted == format_instant(clock.now()), "times are true, not invented"


def test_a_clock_far_behind_the_timeline_is_refused_with_the_remedy() -> None:
    clock = Clock(datetime(2026, 1, 1, tzinfo=UTC))
    with pytest.raises(ClockBehind, match="set the clock right"):
        next_instant(
            format_instant(clock.moment + timedelta(hours=1)), None, clock.now, clock.sleep
        )


def test_an_old_instant_of_14_digits_is_the_end_of_its_second() -> None:
    assert parse_instant("20220101000000") == datetime(2022, 1, 1, 0, 0, 0, 999000, UTC)
