"""Folder names of times are those that Apache Hudi's timestamp key generator writes."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark.config.time_folders import TimeFolders, TimeUnit
from lakemark.config.time_pattern import TimePattern
from lakemark.errors import InvalidConfig
from lakemark.keygen.key_generator import KeyGenerator, KeyGeneratorConfig
from lakemark.keygen.time_folder_names import time_folder_names

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROS = {
    TimeUnit.DAYS: 86_400_000_000,
    TimeUnit.HOURS: 3_600_000_000,
    TimeUnit.MINUTES: 60_000_000,
    TimeUnit.SECONDS: 1_000_000,
    TimeUnit.MILLISECONDS: 1_000,
    TimeUnit.MICROSECONDS: 1,
}
_FIRST, _LAST = datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)
#: The format of Python for each pattern; its %Y does not pad years before 1000.
_FORMATS = {
    "yyyy-MM-dd": "%m-%d",
    "yyyy/MM/dd/HH": "/%m/%d/%H",
    "yyyyMM": "%m",
    "yyyy": "",
    "yyyyMMddHHmmss": "%m%d%H%M%S",
}


def names_of(values: pa.Array, unit: TimeUnit, pattern: str, zone: str = "UTC") -> list[str | None]:
    folders = TimeFolders(unit, TimePattern.parse(pattern), zone)
    names: list[str | None] = time_folder_names(pa.table({"at": values}), "at", folders).to_pylist()
    return names


@given(
    times=st.lists(
        st.datetimes(_FIRST.replace(tzinfo=None), _LAST.replace(tzinfo=None)), max_size=5
    ),
    unit=st.sampled_from([*_MICROS]),
    pattern=st.sampled_from([*_FORMATS]),
    zone=st.sampled_from(["UTC", "America/New_York", "Asia/Kathmandu", "Europe/Berlin"]),
)
def test_numbers_of_every_unit_are_formatted_in_the_zone(
    times: list[datetime], unit: TimeUnit, pattern: str, zone: str
) -> None:
    since = [time.replace(tzinfo=UTC) - _EPOCH for time in times]
    numbers = [int(one / timedelta(microseconds=1)) // _MICROS[unit] for one in since]
    names = names_of(pa.array(numbers, pa.int64()), unit, pattern, zone)
    for number, name in zip(numbers, names, strict=True):
        millis = int(number * _MICROS[unit] / 1000)  # towards the epoch
        local = (_EPOCH + timedelta(milliseconds=millis)).astimezone(ZoneInfo(zone))
        if pattern == "yyyy-MM-dd":
            expected = f"{local.year:04d}-{local:%m-%d}"
        else:
            expected = f"{local.year:04d}{local.strftime(_FORMATS[pattern])}"
        assert name == expected


def test_timestamps_and_dates_are_formatted_by_the_number_that_a_table_stores() -> None:
    time = datetime(2026, 3, 8, 23, 59, 59, 999_999, tzinfo=UTC)
    for unit, kind in (("us", TimeUnit.MICROSECONDS), ("ms", TimeUnit.MILLISECONDS)):
        stored = pa.array([time], pa.timestamp("us", "UTC")).cast(pa.timestamp(unit, "UTC"), False)
        assert names_of(stored, kind, "yyyy-MM-dd") == ["2026-03-08"]
    assert names_of(pa.array([date(2026, 3, 8)]), TimeUnit.DAYS, "yyyy-MM") == ["2026-03"]


def test_fixed_offset_is_written_as_java_writes_it() -> None:
    evening = pa.array([datetime(2026, 3, 8, 20, tzinfo=UTC)])
    for zone, day in (
        ("GMT+8:00", "2026-03-09"),
        ("GMT-1130", "2026-03-08"),
        ("GMT+4", "2026-03-09"),
    ):
        assert names_of(evening, TimeUnit.MICROSECONDS, "yyyy-MM-dd", zone) == [day]


def test_null_is_the_first_unit_after_the_epoch() -> None:
    nothing = pa.array([None], pa.int64())
    assert names_of(nothing, TimeUnit.MICROSECONDS, "yyyy-MM-dd") == ["1970-01-01"]
    assert names_of(nothing, TimeUnit.DAYS, "yyyy-MM-dd") == ["1970-01-02"]


def test_number_below_a_millisecond_is_cut_towards_the_epoch() -> None:
    just_before = pa.array([-1, -1000], pa.int64())
    assert names_of(just_before, TimeUnit.MICROSECONDS, "yyyy") == ["1970", "1969"]


def test_record_outside_the_years_1_to_9999_has_no_path() -> None:
    numbers = pa.array([2**62, -(2**62), 0], pa.int64())
    for unit in TimeUnit:
        if unit is not TimeUnit.NANOSECONDS:
            assert names_of(numbers, unit, "yyyy") == [None, None, "1970"]
    folders = TimeFolders(TimeUnit.SECONDS, TimePattern.parse("yyyy/MM"), "UTC")
    config = KeyGeneratorConfig(
        ("id",), ("region", "at"), time_folders=folders, time_fields=frozenset({"at"})
    )
    rows = pa.table({"id": ["a", "b"], "region": ["r", "x/y"], "at": [2**62, 0]})
    assert KeyGenerator(config).partition_paths(rows).to_pylist() == [None, None]
    paths = KeyGenerator(config).partition_paths(pa.table({"region": ["r"], "at": [0]}))
    assert paths.to_pylist() == ["r/1970/01"]


@pytest.mark.parametrize("values", [["2026-01-01"], [1.5], [b"x"]], ids=repr)
def test_column_without_times_is_refused(values: list[object]) -> None:
    with pytest.raises(InvalidConfig, match=r"field 'at' of type .* cannot be formatted as a time"):
        names_of(pa.array(values), TimeUnit.SECONDS, "yyyy")
