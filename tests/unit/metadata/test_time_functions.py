"""The bounds of times that are the same in each session, at the ends of their ranges."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pytest

from lakemark.config.time_pattern import TimePattern
from lakemark.metadata.expressions.covering_values import widest_bounds
from lakemark.metadata.expressions.time_functions import TIMESTAMPS, format_days, start_of_days

DAY_US, OFFSET_US = 86_400 * 10**6, 18 * 3600 * 10**6


def _numbers(times: pa.Array) -> list[int]:
    numbers: list[int] = times.view(pa.int64()).to_pylist()
    return numbers


def test_the_widest_timestamps_are_those_that_java_converts() -> None:
    days = widest_bounds(pa.date32()).view(pa.int32()).to_pylist()
    assert _numbers(widest_bounds(TIMESTAMPS)) == [day * DAY_US for day in days]


def test_days_of_all_years_begin_at_most_18_hours_earlier_or_later() -> None:
    numbers = [*widest_bounds(pa.date32()).view(pa.int32()).to_pylist(), -200_000, 0, 2_940_000]
    found = start_of_days(pa.array([*numbers, 2**31 - 1, None], pa.int32()).view(pa.date32()))
    for bounds, offset in ((found.lows, -OFFSET_US), (found.highs, OFFSET_US)):
        *usual, _, nothing = _numbers(bounds)
        assert usual == [number * DAY_US + offset for number in numbers]
        assert nothing is None
    assert not found.is_exact


@pytest.mark.parametrize(
    "skipped", [date(1844, 12, 31), date(1993, 8, 21), date(1994, 12, 31), date(2011, 12, 30)]
)
def test_a_day_that_a_time_zone_skipped_may_have_the_text_of_the_next_one(skipped: date) -> None:
    tomorrow = date.fromordinal(skipped.toordinal() + 1)
    days = pa.array([date(2020, 5, 5), skipped, None])
    found = format_days(days, TimePattern.parse("yyyyMMdd"))
    assert found.lows.to_pylist() == ["20200505", f"{skipped:%Y%m%d}", None]
    assert found.highs.to_pylist() == ["20200505", f"{tomorrow:%Y%m%d}", None]
    found = format_days(days, TimePattern.parse("dd.MM.yyyy"))
    (usual, low, nothing), (same, high, _) = found.lows.to_pylist(), found.highs.to_pylist()
    assert usual == same == "05.05.2020"
    assert low < f"{skipped:%d.%m.%Y}" < high
    assert low < f"{tomorrow:%d.%m.%Y}" < high
    assert nothing is None
