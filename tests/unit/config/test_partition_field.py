"""The fields of ``partition_by``: columns, and the formatted times of existing tables."""

from __future__ import annotations

from datetime import datetime

import pytest

from lakemark.config.partition_field import PartitionField, partition_fields
from lakemark.config.table_spec import TableSpec
from lakemark.config.time_pattern import TimePattern
from lakemark.errors import InvalidConfig


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("region", PartitionField("region")),
        ("place.city", PartitionField("place.city")),
        ("day(at)", PartitionField("at", "yyyy-MM-dd")),
        (" hour( at , Europe/Berlin )", PartitionField("at", "yyyy-MM-dd-HH", "Europe/Berlin")),
        ("format(at, yyyy/MM/dd)", PartitionField("at", "yyyy/MM/dd")),
        ("format(at, yyyyMMdd, UTC)", PartitionField("at", "yyyyMMdd")),
        ("year(place.at)", PartitionField("place.at", "yyyy")),
        ("day(at, GMT+8:00)", PartitionField("at", "yyyy-MM-dd", "GMT+8:00")),
        ("format(at, 'dt='yyyy-MM-dd)", PartitionField("at", "'dt='yyyy-MM-dd")),
        ("format(at, yyyy,MM)", PartitionField("at", "yyyy,MM")),
        ("format(at, yyyy,MM, Asia/Tokyo)", PartitionField("at", "yyyy,MM", "Asia/Tokyo")),
    ],
)
def test_field_is_a_column_or_a_formatted_time(text: str, field: PartitionField) -> None:
    assert PartitionField.parse(text) == field
    assert PartitionField.parse(str(field)) == field


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("week(at)", r"'week\(at\)' does not name a partition field; .* day\(column\)"),
        ("day()", "does not name a partition field"),
        ("day(at, UTC, x)", "'UTC, x' is not a time zone"),
        ("format(at, 'yyyy')", "'yyyy'.* is not a pattern for times"),
        ("format(at)", "does not name a partition field"),
        ("day(at, Mars)", "'Mars' is not a time zone; name one such as Europe/Berlin"),
        ("day(at, Europe)", "'Europe' is not a time zone"),
        ("format(at, yyyy-MMM)", "pattern 'yyyy-MMM' contains 'MMM'; .* yyyy, MM, dd"),
        ("format(at, yy)", "pattern 'yy' contains 'yy'"),
        ("format(at, ww)", "pattern 'ww' contains 'ww'"),
        ("format(at, --)", "'--' is not a pattern for times"),
    ],
)
def test_other_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        PartitionField.parse(text)


def test_fields_contradict_each_other() -> None:
    with pytest.raises(InvalidConfig, match="names column 'at' twice"):
        partition_fields(["at", "day(at)"])
    with pytest.raises(InvalidConfig, match=r"two ways, day\(a\) and hour\(b\)"):
        partition_fields(["day(a)", "hour(b)"])
    assert len(partition_fields(["day(a)", "day(b)", "c"])) == 3


def test_new_table_with_formatted_times_is_refused() -> None:
    spec = TableSpec(name="t", record_key=("id",), partition_by=("day(at)",))
    with pytest.raises(InvalidConfig, match=r"day\(at\) is for existing tables only"):
        spec.to_properties()


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyy-MM-dd'T'HH:mm:ss", "0987-06-05T04:03:02"),
        ("y M d H m s", "987 6 5 4 3 2"),
        ("dd.MM.yyyy", "05.06.0987"),
        ("yyy''MM", "987'06"),
        ("'o''clock' HH", "o'clock 04"),
    ],
)
def test_pattern_formats_as_joda_time(pattern: str, text: str) -> None:
    time = datetime(987, 6, 5, 4, 3, 2)  # noqa: DTZ001
    assert TimePattern.parse(pattern).format(time) == text
