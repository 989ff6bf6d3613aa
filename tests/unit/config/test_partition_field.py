"""The fields of ``partition_by``: columns, and expressions of columns."""

from __future__ import annotations

from datetime import datetime

import pytest

from lakemark.config.partition_field import PartitionField, partition_fields
from lakemark.config.table_properties import TableProperties
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
        ('format(at, "yyyy,MM")', PartitionField("at", "yyyy,MM")),
        ('format(at, "yyyyMM" , Asia/Tokyo)', PartitionField("at", "yyyyMM", "Asia/Tokyo")),
        ("bucket(id, 16)", PartitionField("id", buckets=16)),
        ("Truncate( place.city , 3 )", PartitionField("place.city", width=3)),
        ("day(at) as dt", PartitionField("at", "yyyy-MM-dd", alias="dt")),
        ("bucket(id, 4)  AS  b", PartitionField("id", buckets=4, alias="b")),
    ],
)
def test_field_is_a_column_or_an_expression(text: str, field: PartitionField) -> None:
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
        ("bucket(id)", r"'bucket\(id\)' needs a positive integer"),
        ("bucket(id, 0)", "needs a positive integer"),
        ("truncate(id, -3)", "needs a positive integer"),
        ("truncate(id, 3000000000)", "needs a positive integer"),
    ],
)
def test_other_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        PartitionField.parse(text)


def test_two_fields_with_one_column_are_refused() -> None:
    for fields in (["at", "at"], ["day(at)", "day(at)"], ["day(at)", "hour(by) as at_day"]):
        with pytest.raises(InvalidConfig, match=r"names column 'at(_day)?' twice"):
            partition_fields(fields)
    assert len(partition_fields(["day(a)", "hour(a)", "a", "day(b)"])) == 4


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("region", "region"),
        ("day(at)", "at_day"),
        ("format(at, yyyy-MM-dd)", "at_day"),
        ("format(at, yyyyMM)", "at_format"),
        ("bucket(place.city, 3)", "place_city_bucket"),
        ("truncate(n, 10) as tens", "tens"),
    ],
)
def test_name_of_the_stored_column(text: str, name: str) -> None:
    field = PartitionField.parse(text)
    assert field.stored_column == name
    assert PartitionField.parse(field.expression).named(name) == field


def test_new_table_stores_the_expressions() -> None:
    by = ("region", "day(at)", "bucket(id, 3) as b")
    properties = TableSpec(name="t", record_key=("id",), partition_by=by).to_properties()
    assert properties.partition_fields == ("region", "at_day", "b")
    assert tuple(map(str, properties.partition_by)) == by
    assert TableProperties.parse(properties.to_bytes()).partition_by == properties.partition_by


def test_new_table_has_no_folders_in_another_time_zone() -> None:
    spec = TableSpec(name="t", record_key=("id",), partition_by=("day(at, Europe/Berlin)",))
    with pytest.raises(
        InvalidConfig, match=r"day\(at, Europe/Berlin\) is for existing tables only"
    ):
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
