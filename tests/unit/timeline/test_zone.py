"""The zone of a table in local time comes from a setting or its instants, or is refused."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark.errors import InvalidConfig
from lakemark.model.action import Action, State
from lakemark.model.instant import Instant
from lakemark.timeline.clock import TimelineClock, TimelineZoneUnknown
from lakemark.timeline.zone import Sighting, ZoneEvidence, find_clock

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
ZONES = ["America/New_York", "Asia/Tokyo", "Asia/Kathmandu", "UTC", "Pacific/Kiritimati"]


Files = list[tuple[Instant, datetime]]


def evidence(zone: str, *moments: datetime, copied_at: datetime | None = None) -> ZoneEvidence:
    """Return the evidence of commits that were requested in a zone at these moments."""
    return ZoneEvidence.of(evidence_files(zone, *moments, copied_at=copied_at))


def evidence_files(zone: str, *moments: datetime, copied_at: datetime | None = None) -> Files:
    """Create commits requested in a zone at these moments, and the times of their files.

    If ``copied_at`` is given, the files were copied then.
    """
    clock = TimelineClock(ZoneInfo(zone))
    requested = [Instant(clock.format(at), Action.DELTA_COMMIT, State.REQUESTED) for at in moments]
    written = [copied_at or at + timedelta(milliseconds=400) for at in moments]
    return list(zip(requested, written, strict=True))


def joined(*files: Files) -> ZoneEvidence:
    return ZoneEvidence.of(one for some in files for one in some)


def every_minute(count: int, start: datetime = NOON) -> list[datetime]:
    return [start + timedelta(minutes=n) for n in range(count)]


@pytest.fixture(params=["America/New_York", "UTC"])
def own_zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The time zone of this process, which the test sets."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


@given(
    st.sampled_from(ZONES),
    st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    st.floats(-9, 59),
)
def test_a_request_shows_the_offset_of_its_zone(zone: str, at: datetime, took_s: float) -> None:
    clock = TimelineClock(ZoneInfo(zone))
    text = clock.format(at)
    sighting = Sighting(text, at + timedelta(seconds=took_s))
    assert sighting.offset == at.astimezone(clock.zone).utcoffset()


def test_the_setting_names_the_zone_of_a_table_in_local_time() -> None:
    clock = find_clock("/t", "LOCAL", "Asia/Tokyo", evidence("Asia/Tokyo", *every_minute(3)))
    assert clock == TimelineClock(ZoneInfo("Asia/Tokyo"))
    assert find_clock("/t", "LOCAL", "Asia/Tokyo", evidence("UTC")) == clock, "an empty table"


def test_the_setting_decides_when_files_were_copied() -> None:
    copied = evidence("Asia/Tokyo", *every_minute(9), copied_at=NOON + timedelta(days=9))
    assert copied.offset is None
    assert find_clock("/t", "LOCAL", "Asia/Tokyo", copied).doubt is None


def test_a_setting_that_the_instants_contradict_is_refused() -> None:
    clock = find_clock("/t", "LOCAL", "Asia/Tokyo", evidence("America/New_York", *every_minute(3)))
    with pytest.raises(TimelineZoneUnknown, match=r"'Asia/Tokyo', but .* /t show UTC-04:00"):
        clock.check()


@pytest.mark.parametrize("order", [("Asia/Tokyo", "UTC"), ("UTC", "Asia/Tokyo")])
@pytest.mark.parametrize("setting", ["Asia/Tokyo", "UTC"])
def test_a_setting_is_refused_while_the_newest_instants_show_two_zones(
    order: tuple[str, str], setting: str
) -> None:
    first, second = order
    older, newer = every_minute(12), every_minute(3, NOON + timedelta(hours=1))
    seen = joined(evidence_files(first, *older), evidence_files(second, *newer))
    clock = find_clock("/t", "LOCAL", setting, seen)
    with pytest.raises(TimelineZoneUnknown, match=r"UTC\+00:00 and UTC\+09:00.*one zone"):
        clock.check()


def test_a_setting_is_accepted_once_the_newest_instants_show_only_its_zone() -> None:
    older, newer = every_minute(12), every_minute(10, NOON + timedelta(hours=1))
    seen = joined(evidence_files("Asia/Tokyo", *older), evidence_files("UTC", *newer))
    assert find_clock("/t", "LOCAL", "UTC", seen) == TimelineClock(ZoneInfo("UTC"))
    clock = find_clock("/t", "LOCAL", "Asia/Tokyo", seen)
    with pytest.raises(TimelineZoneUnknown, match=r"UTC\+00:00; name the zone"):
        clock.check()


def test_evidence_from_before_and_after_a_change_to_winter_time_agrees_with_its_zone() -> None:
    change = datetime(2026, 11, 1, 6, tzinfo=UTC)
    moments = [change + timedelta(hours=hours) for hours in (-3, -2, 1, 2)]
    both = evidence("America/New_York", *moments)
    assert both.offset == timedelta(hours=-5)
    assert both.agrees_with(ZoneInfo("America/New_York"))
    assert not both.agrees_with(timezone(timedelta(hours=-5)))


def test_a_file_that_is_written_right_after_a_clock_change_shows_the_zone_before_it() -> None:
    for change in (datetime(2026, 11, 1, 6, tzinfo=UTC), datetime(2026, 3, 8, 7, tzinfo=UTC)):
        before = change - timedelta(milliseconds=100)
        shown = evidence("America/New_York", before, change + timedelta(minutes=61))
        assert shown.agrees_with(ZoneInfo("America/New_York"))
        assert not shown.agrees_with(timezone(timedelta(hours=-5)))


def test_without_a_setting_the_zone_of_this_machine_counts_if_the_instants_show_it(
    own_zone: str,
) -> None:
    clock = find_clock("/t", "LOCAL", None, evidence(own_zone, *every_minute(2)))
    assert clock.doubt is None
    assert clock.parse(TimelineClock(ZoneInfo(own_zone)).format(NOON)) == NOON


@pytest.mark.parametrize(
    ("shown", "message"),
    [
        (evidence("Asia/Tokyo", *every_minute(3)), r"instants show UTC\+09:00"),
        (evidence("UTC"), "do not show one"),
        (evidence("UTC", NOON), "do not show one"),
        (evidence("UTC", *every_minute(3), copied_at=NOON), "do not show one"),
    ],
    ids=["another zone", "no instant", "one instant", "copied files"],
)
def test_a_zone_that_nothing_shows_is_refused_with_the_setting_as_remedy(
    own_zone: str, shown: ZoneEvidence, message: str
) -> None:
    clock = find_clock("/t", "LOCAL", None, shown)
    expected = rf"hoodie.table.timeline.timezone=LOCAL.*{message}.*table.timeline_timezone"
    with pytest.raises(TimelineZoneUnknown, match=expected):
        clock.check()
    assert clock.parse("20260501120000000"), "readers go on"


def test_a_reader_uses_the_offset_that_the_instants_show(own_zone: str) -> None:
    clock = find_clock("/t", "LOCAL", None, evidence("Asia/Tokyo", *every_minute(3)))
    assert clock.parse("20260501210000000") == NOON


def test_a_table_in_utc_needs_no_setting_and_takes_no_other_zone() -> None:
    assert find_clock("/t", "UTC", None, evidence("UTC")) == TimelineClock(UTC)
    assert find_clock("/t", "UTC", "UTC", evidence("UTC")).doubt is None
    with pytest.raises(TimelineZoneUnknown, match=r"'Asia/Tokyo', but .*=UTC; remove the setting"):
        find_clock("/t", "UTC", "Asia/Tokyo", evidence("UTC")).check()


def test_an_unknown_time_zone_is_refused() -> None:
    for name in ("Mars/Olympus", "", "../etc/passwd", "EST5EDT4"):
        with pytest.raises(InvalidConfig, match="names no time zone on this machine"):
            find_clock("/t", "LOCAL", name, evidence("UTC"))


def test_plans_of_services_and_completed_files_show_nothing() -> None:
    pending = Instant("20260501120000000", Action.COMPACTION, State.REQUESTED)
    initial = Instant("00000000000000010", Action.DELTA_COMMIT, State.REQUESTED)
    done = Instant("20260501120000000", Action.COMMIT, State.REQUESTED).completed(
        "20260501120001000"
    )
    assert ZoneEvidence.of((one, NOON) for one in (pending, initial, done)).sightings == ()
