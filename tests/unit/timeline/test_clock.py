"""Instant times are right, in the table's zone, and later than every time on the timeline."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark.timeline.clock import (
    MAX_CLOCK_DRIFT_S,
    UTC_CLOCK,
    ClockBehind,
    ClockSlot,
    TimelineClock,
    TimelineZoneUnknown,
    add_to_instant,
)

NEW_YORK = TimelineClock(ZoneInfo("America/New_York"))
CLOCKS = [
    UTC_CLOCK,
    NEW_YORK,
    TimelineClock(ZoneInfo("Asia/Tokyo")),
    TimelineClock(ZoneInfo("Asia/Kathmandu")),
]
moments = st.datetimes(datetime(2000, 1, 1), datetime(2036, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
#: Around the hour from 05:00 to 07:00 UTC in which New York's clocks show 01:00 to 02:00 twice.
around_the_repeated_hour = st.datetimes(
    datetime(2026, 11, 1, 4),  # noqa: DTZ001
    datetime(2026, 11, 1, 8),  # noqa: DTZ001
    timezones=st.just(UTC),
)
MILLISECOND = timedelta(milliseconds=1)


class Clock:
    """A clock that advances only when its user sleeps."""

    def __init__(self, now: datetime) -> None:
        self.moment = now

    def now(self) -> datetime:
        return self.moment

    def sleep(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("zone", "text"),
    [
        ("America/New_York", "20260501080000500"),
        ("Asia/Tokyo", "20260501210000500"),
        ("Asia/Kathmandu", "20260501174500500"),
    ],
)
def test_a_moment_is_formatted_in_the_zone(zone: str, text: str) -> None:
    moment = datetime(2026, 5, 1, 12, 0, 0, 500_000, UTC)
    clock = TimelineClock(ZoneInfo(zone))
    assert (clock.format(moment), clock.parse(text)) == (text, moment)


@given(st.sampled_from(CLOCKS), moments)
def test_a_moment_survives_to_the_millisecond(clock: TimelineClock, moment: datetime) -> None:
    text = clock.format(moment)
    parsed = {clock.parse(text), clock.parse(text, latest=True)}
    assert any(abs(one - moment) < MILLISECOND for one in parsed)
    assert len(parsed) == 1 or clock is NEW_YORK
    assert {clock.format(one) for one in parsed} == {text}


@given(st.sampled_from(CLOCKS), moments, moments)
def test_later_moments_have_later_times_outside_the_repeated_hour(
    clock: TimelineClock, one: datetime, other: datetime
) -> None:
    times = [clock.format(moment) for moment in sorted([one, other])]
    is_repeated = any(clock.parse(t) != clock.parse(t, latest=True) for t in times)
    assert times == sorted(times) or is_repeated


@given(
    st.sampled_from(CLOCKS),
    moments | around_the_repeated_hour,
    st.timedeltas(-timedelta(days=1), timedelta(seconds=MAX_CLOCK_DRIFT_S - 1)),
    st.sampled_from([None, *ClockSlot]),
)
def test_the_next_instant_is_later_than_the_newest(
    zone: TimelineClock, now: datetime, ahead: timedelta, slot: ClockSlot | None
) -> None:
    clock = Clock(now)
    newest = zone.format(now + ahead)
    try:
        generated = zone.next_instant(newest, slot, clock.now, clock.sleep)
    except ClockBehind as behind:
        assert zone is NEW_YORK, "only a clock that is set back may have to wait for longer"
        clock.moment = behind.until
        generated = zone.next_instant(newest, slot, clock.now, clock.sleep)
    assert generated > newest
    assert slot is None or int(generated) % 2 == slot, "an ingest and a service never share a time"
    assert generated == zone.format(clock.now()), "times are true, not invented"


def test_in_the_hour_that_occurs_twice_a_writer_waits_for_the_newest_time_to_pass_again() -> None:
    half_past_one_summer_time = "20261101013000000"
    ten_past_one_winter_time = Clock(datetime(2026, 11, 1, 6, 10, tzinfo=UTC))
    with pytest.raises(ClockBehind) as caught:
        NEW_YORK.next_instant(
            half_past_one_summer_time,
            None,
            ten_past_one_winter_time.now,
            ten_past_one_winter_time.sleep,
        )
    assert caught.value.until == datetime(2026, 11, 1, 6, 30, tzinfo=UTC)
    assert caught.value.ahead_s == 20 * 60
    assert "wait until 2026-11-01 01:30:00 EST (2026-11-01 06:30:00 UTC)" in str(caught.value)


def test_a_second_time_in_one_millisecond_does_not_wait_for_the_repeated_hour() -> None:
    half_past_one_summer_time = Clock(datetime(2026, 11, 1, 5, 30, 0, 500, UTC))
    generated = NEW_YORK.next_instant(
        "20261101013000000", None, half_past_one_summer_time.now, half_past_one_summer_time.sleep
    )
    assert generated == "20261101013000001"


def test_a_time_that_occurs_twice_is_the_first_one_unless_the_latest_is_asked_for() -> None:
    text = "20261101013000000"
    assert NEW_YORK.parse(text) == datetime(2026, 11, 1, 5, 30, tzinfo=UTC)
    assert NEW_YORK.parse(text, latest=True) == datetime(2026, 11, 1, 6, 30, tzinfo=UTC)


def test_times_go_on_after_the_hour_that_the_spring_skips() -> None:
    clock = Clock(datetime(2026, 3, 8, 7, 0, tzinfo=UTC))
    assert NEW_YORK.next_instant("20260308015959999", None, clock.now, clock.sleep) == (
        "20260308030000000"
    )
    assert NEW_YORK.parse("20260308023000000") == datetime(2026, 3, 8, 7, 30, tzinfo=UTC)


def test_a_clock_far_behind_the_timeline_is_refused_with_the_time_to_wait_for() -> None:
    clock = Clock(datetime(2026, 1, 1, tzinfo=UTC))
    with pytest.raises(ClockBehind, match="wait until 2026-01-01 01:00:00 UTC") as caught:
        UTC_CLOCK.next_instant("20260101010000000", None, clock.now, clock.sleep)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.until) == (str(caught.value), caught.value.until)


def test_a_clock_in_doubt_reads_times_and_generates_none() -> None:
    clock = TimelineClock(UTC, "the zone is not known")
    assert clock.parse("20260101000000000") == datetime(2026, 1, 1, tzinfo=UTC)
    with pytest.raises(TimelineZoneUnknown, match="the zone is not known"):
        clock.next_instant(None)


def test_an_old_instant_of_14_digits_is_the_end_of_its_second() -> None:
    assert UTC_CLOCK.parse("20220101000000") == datetime(2022, 1, 1, 0, 0, 0, 999000, UTC)


def test_a_difference_is_added_to_the_digits() -> None:
    assert add_to_instant("20260101000000000", -MILLISECOND) == "20251231235959999"
