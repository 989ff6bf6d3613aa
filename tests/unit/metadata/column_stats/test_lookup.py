"""Statistics are folded from a history of records, with values of the column's type."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.metadata.column_stats.lookup import ColumnStatistics, PartitionStatistics
from lakemark.metadata.column_stats.value_types import ValueType
from lakemark.metadata.index_keys import column_stats_key, partition_stats_key
from lakemark.read.index_protocols import FileStatistics, statistics_schema
from tests.depth import examples
from tests.unit.metadata.metadata_tables import Changes, MadeUpTable, Record, statistics

COLUMN, PARTITION = "c", "p"
GROUP = "col-stats-0000-0"

Bounds = tuple[int, int] | None
#: A change to the statistics of a file: its bounds, whether it is deleted, whether they are tight;
#: or None, after which nothing is left.
Change = tuple[Bounds, bool, bool] | None


@dataclass
class Model:
    """A model of the statistics of one file: bounds, null count and value count."""

    state: tuple[Bounds, int, int] | None = None

    def apply(self, change: Change) -> None:
        if change is None or change[1]:
            self.state = None
            return
        bounds, _, is_tight = change
        nulls = 10 if bounds is None else 1
        if is_tight or self.state is None:
            self.state = (bounds, nulls, 10)
        else:
            known, null_count, value_count = self.state
            both = [b for b in (known, bounds) if b is not None]
            united = (min(b[0] for b in both), max(b[1] for b in both)) if both else None
            self.state = (united, null_count + nulls, value_count + 10)


def key(file: str, column: str = COLUMN) -> str:
    return column_stats_key(column, PARTITION, file).decode()


def record(file: str, change: tuple[Bounds, bool, bool]) -> Record:
    bounds, is_deleted, is_tight = change
    low, high = bounds or (None, None)
    return statistics(
        None if low is None else ("IntWrapper", low),
        None if high is None else ("IntWrapper", high),
        file=file,
        isDeleted=is_deleted,
        isTightBound=is_tight,
        nullCount=10 if bounds is None else 1,
    )


VALUES = st.integers(-5, 5)
CHANGES: st.SearchStrategy[Change] = st.none() | st.tuples(
    st.none() | st.tuples(VALUES, VALUES), st.booleans(), st.booleans()
)
COMMITS = st.lists(st.dictionaries(st.sampled_from(["f", "g"]), CHANGES, max_size=2), max_size=5)


@settings(deadline=None, max_examples=examples(30))
@given(COMMITS, st.booleans())
def test_records_are_folded_from_the_older_to_the_newer(
    commits: list[dict[str, Change]], has_base: bool
) -> None:
    models = {"f": Model(), "g": Model()}
    written: list[Changes] = []
    if has_base:
        commits = [{f: c for f, c in (commits or [{}])[0].items() if c is not None}, *commits[1:]]
    for commit in commits:
        written.append({key(f): c and record(f, c) for f, c in commit.items()})
        for file, change in commit.items():
            models[file].apply(change)
    table = MadeUpTable("column_stats")
    base: Any = written.pop(0) if has_base else None
    table.add(GROUP, base, *written)
    found = ColumnStatistics(table.open()).of_column(COLUMN, pa.int32())
    assert {row["file_name"]: row for row in found.to_pylist()} == {
        file: {
            "file_name": file,
            "min": model.state[0] and model.state[0][0],
            "max": model.state[0] and model.state[0][1],
            "null_count": model.state[1],
            "value_count": model.state[2],
        }
        for file, model in models.items()
        if model.state is not None
    }


MOMENT = datetime(2026, 1, 1, 12, 0, 0, 5000, tzinfo=UTC)
MILLIS = int(MOMENT.timestamp() * 1000)
UTC_MICROS, UTC_MILLIS = pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC")
DATE = date(2026, 1, 1)
T = ValueType


@pytest.mark.parametrize(
    ("wrapper", "stored", "value_type", "column", "expected"),
    [
        # version 1: wrappers of their own, and bare times in the unit of the column
        ("BooleanWrapper", True, None, pa.bool_(), True),
        ("DateWrapper", 20454, None, pa.date32(), DATE),
        ("LocalDateWrapper", 20454, None, pa.date32(), DATE),
        ("DecimalWrapper", Decimal("1.5"), None, pa.decimal128(10, 2), Decimal("1.50")),
        ("LongWrapper", MILLIS * 1000, None, UTC_MICROS, MOMENT),
        ("LongWrapper", MILLIS, None, UTC_MILLIS, MOMENT),
        ("TimestampMicrosWrapper", MILLIS * 1000, None, UTC_MILLIS, MOMENT),
        ("TimeMicrosWrapper", time(1, 2, 3), None, pa.time64("us"), time(1, 2, 3)),
        ("IntWrapper", 3_723_000, None, pa.time32("ms"), time(1, 2, 3)),
        # version 2: bare values with their type
        ("IntWrapper", 20454, (T.DATE, None), pa.date32(), DATE),
        ("IntWrapper", 3_723_000, (T.TIME_MILLIS, None), pa.time32("ms"), time(1, 2, 3)),
        ("LongWrapper", 3_723_000_000, (T.TIME_MICROS, None), pa.time64("us"), time(1, 2, 3)),
        ("LongWrapper", MILLIS, (T.TIMESTAMP_MILLIS, None), UTC_MILLIS, MOMENT),
        ("LongWrapper", MILLIS * 1000, (T.TIMESTAMP_MICROS, None), UTC_MICROS, MOMENT),
        (
            "LongWrapper",
            MILLIS,
            (T.LOCAL_TIMESTAMP_MILLIS, None),
            pa.timestamp("ms"),
            MOMENT.replace(tzinfo=None),
        ),
        ("BytesWrapper", b"\xff\x38", (T.DECIMAL, "10,2"), pa.decimal128(10, 2), Decimal("-2.00")),
        ("BytesWrapper", b"\x00", (T.BYTES, None), pa.binary(), b"\x00"),
        ("BytesWrapper", b"ab", (T.FIXED, None), pa.binary(2), b"ab"),
        ("StringWrapper", "u", (T.UUID, None), pa.string(), "u"),
        ("FloatWrapper", 1.5, (T.FLOAT, None), pa.float32(), 1.5),
        # the column was widened since
        ("IntWrapper", 7, (T.INT, None), pa.int64(), 7),
        ("IntWrapper", 7, None, pa.float64(), 7.0),
        ("LongWrapper", 7, (T.LONG, None), pa.float32(), 7.0),
        ("FloatWrapper", 1.5, (T.FLOAT, None), pa.float64(), 1.5),
        ("BytesWrapper", b"\x02", (T.DECIMAL, "5,1"), pa.decimal128(10, 2), Decimal("0.20")),
        ("LongWrapper", MILLIS, (T.TIMESTAMP_MILLIS, None), UTC_MICROS, MOMENT),
    ],
)
def test_a_value_is_one_of_the_columns_type(
    wrapper: str,
    stored: object,
    value_type: tuple[int, str | None] | None,
    column: pa.DataType,
    expected: object,
) -> None:
    (row,) = _of_one(wrapper, stored, value_type, column)
    assert row["min"] == row["max"] == expected


def test_decimals_of_different_lengths_are_distinguished() -> None:
    table, kind = MadeUpTable("column_stats"), (T.DECIMAL, "10,2")
    stored = {"f": b"\x02", "g": b"\x01\x00", "h": b"\xff", "i": b"\x00\x80"}
    records = {
        key(name): statistics(*[("BytesWrapper", value)] * 2, file=name, value_type=kind)
        for name, value in stored.items()
    }
    table.add(GROUP, records)
    found = ColumnStatistics(table.open()).of_column(COLUMN, pa.decimal128(10, 2)).to_pylist()
    assert {row["file_name"]: row["min"] * 100 for row in found} == {
        name: int.from_bytes(value, signed=True) for name, value in stored.items()
    }


@pytest.mark.parametrize(
    ("wrapper", "stored", "value_type", "column"),
    [
        ("StringWrapper", "7", None, pa.int32()),
        ("LongWrapper", 2**40, None, pa.int32()),
        ("LongWrapper", MILLIS, None, pa.date32()),
        ("LongWrapper", MILLIS, None, pa.timestamp("ns", "UTC")),
        ("LongWrapper", MILLIS * 1000 + 1, (T.TIMESTAMP_MICROS, None), UTC_MILLIS),
        ("BytesWrapper", b"\x02", (T.DECIMAL, "nonsense"), pa.decimal128(10, 2)),
        ("BytesWrapper", b"\x7f\xff\xff", (T.DECIMAL, "3,0"), pa.decimal128(10, 2)),
        ("BytesWrapper", b"", (T.DECIMAL, "3,0"), pa.decimal128(10, 2)),
        ("DecimalWrapper", Decimal("1.005"), None, pa.decimal128(10, 2)),
    ],
)
def test_a_bound_that_does_not_convert_to_the_columns_type_is_unknown(
    wrapper: str, stored: object, value_type: tuple[int, str | None] | None, column: pa.DataType
) -> None:
    """The file has no statistics then. A null bound would mean that it has no value."""
    assert _of_one(wrapper, stored, value_type, column) == []


def test_bounds_of_a_number_that_became_text_include_all_printed_forms() -> None:
    (row,) = _of_one("IntWrapper", 7, None, pa.string())
    assert row["min"] <= "7" <= row["max"]
    assert row["min"] <= "-1.5E-10" < "Infinity" < "NaN" < "true" <= row["max"] < "é"


def test_a_nan_of_apaches_is_above_all_other_bounds() -> None:
    table = MadeUpTable("column_stats")
    one, other = (
        statistics(("DoubleWrapper", 1.0), ("DoubleWrapper", high)) for high in (math.nan, 3.0)
    )
    table.add(GROUP, {key("f"): one}, {key("f"): other})
    (row,) = ColumnStatistics(table.open()).of_column(COLUMN, pa.float64()).to_pylist()
    assert row["min"] == 1.0 and math.isnan(row["max"])


@pytest.mark.parametrize("bounds", [(None, None), (("IntWrapper", 1), None)])
def test_values_without_bounds_are_not_known(
    bounds: tuple[tuple[str, int] | None, tuple[str, int] | None],
) -> None:
    """A file whose footer lacks bounds, for example because of NaN, has no statistics."""
    table = MadeUpTable("column_stats")
    table.add(GROUP, {key("f"): statistics(*bounds, nullCount=1)})
    assert ColumnStatistics(table.open()).of_column(COLUMN, pa.int32()).num_rows == 0


@pytest.mark.parametrize(
    "counted", [statistics(None, None, nullCount=None), statistics(None, None, valueCount=None)]
)
def test_without_counts_a_file_is_not_known_to_have_only_nulls(counted: Record) -> None:
    table = MadeUpTable("column_stats")
    table.add(GROUP, {key("f"): counted})
    assert ColumnStatistics(table.open()).of_column(COLUMN, pa.int32()).num_rows == 0


def test_a_count_is_not_known_if_one_record_lacks_it() -> None:
    table = MadeUpTable("column_stats")
    value = ("IntWrapper", 1)
    lacking, counted = statistics(value, value, nullCount=None), statistics(value, value)
    table.add(GROUP, {key("f"): lacking}, {key("f"): counted})
    (row,) = ColumnStatistics(table.open()).of_column(COLUMN, pa.int32()).to_pylist()
    assert (row["null_count"], row["value_count"]) == (None, 20)


def test_one_unknown_record_makes_the_whole_unknown() -> None:
    table = MadeUpTable("column_stats")
    first = statistics(("StringWrapper", "a"), ("StringWrapper", "b"))
    second = statistics(("IntWrapper", 1), ("IntWrapper", 2))
    table.add(GROUP, {key("f"): first}, {key("f"): second})
    assert ColumnStatistics(table.open()).of_column(COLUMN, pa.int32()).num_rows == 0
    table = MadeUpTable("column_stats")
    tight = statistics(("IntWrapper", 1), ("IntWrapper", 2), isTightBound=True)
    table.add(GROUP, {key("f"): first}, {key("f"): tight})
    assert ColumnStatistics(table.open()).of_column(COLUMN, pa.int32()).num_rows == 1


def test_files_with_unreadable_statistics_count_as_files_without_statistics() -> None:
    """The writer reads the footers of these files, so that the partition's range includes them."""
    table = MadeUpTable("column_stats")
    number, text = ("IntWrapper", 1), ("StringWrapper", "a")
    gone = statistics(number, number, file="h", isDeleted=True)
    records = {"f": statistics(number, number), "g": statistics(text, text, file="g"), "h": gone}
    table.add(GROUP, {key(file): record for file, record in records.items()})
    of_files = ColumnStatistics(table.open())
    found = of_files.ranges({PARTITION: [*records, "i"]}, pa.schema([(COLUMN, pa.int32())]))
    assert found.missing == {(PARTITION, file): [COLUMN] for file in "ghi"}
    known = {file: ranges.value_counts for (_, file), ranges in found.ranges.items()}
    assert known == {"f": (10,), "g": (), "h": (), "i": ()}


def _of_one(
    wrapper: str, stored: object, value_type: tuple[int, str | None] | None, column: pa.DataType
) -> list[dict[str, Any]]:
    table = MadeUpTable("column_stats")
    value = (wrapper, stored)
    table.add(GROUP, {key("f"): statistics(value, value, value_type=value_type)})
    source = ColumnStatistics(table.open())
    found = source.of_column(COLUMN, column)
    assert found.schema == statistics_schema("file_name", column)
    by_path = source.by_path(COLUMN, column, [PARTITION])
    assert by_path.schema == statistics_schema("path", column)
    assert by_path.columns[1:] == found.columns[1:]
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


def test_only_the_requested_columns_are_returned() -> None:
    """A lookup selects by column, partition and file, in all file groups."""
    table = MadeUpTable("column_stats")
    value = ("IntWrapper", 1)
    keys = {
        column_stats_key(column, path, f"{path}-{column}").decode(): statistics(
            value, value, file=f"{path}-{column}", column=column
        )
        for column in ("c", "d")
        for path in ("", "p", "q/r")
    }
    halves = [dict(list(keys.items())[start::2]) for start in (0, 1)]
    table.add("col-stats-0000-0", halves[0])
    table.add("col-stats-0001-0", None, halves[1])
    of_all = ColumnStatistics(table.open())

    def names(found: pa.Table) -> list[str]:
        return sorted(found.column("file_name").to_pylist())

    assert names(of_all.of_column("c", pa.int32())) == ["-c", "p-c", "q/r-c"]
    assert names(of_all.of_column("d", pa.int32(), ["", "p", "none"])) == ["-d", "p-d"]
    assert names(of_all.of_column("c", pa.int32(), [])) == []


def test_files_with_the_same_name_in_two_partitions_have_their_own_statistics() -> None:
    table = MadeUpTable("column_stats")
    values = {"": 1, "p": 2, "p/q": 3}
    records: dict[str, Record | None] = {
        column_stats_key("c", path, "f").decode(): statistics(
            ("IntWrapper", value), ("IntWrapper", value), file="f", column="c"
        )
        for path, value in values.items()
    }
    deleted = {column_stats_key("c", "p", "f").decode(): None}
    table.add(GROUP, {}, records, deleted)
    source: FileStatistics = ColumnStatistics(table.open())
    found = source.by_path("c", pa.int32(), ["p/q", "p", ""]).to_pylist()
    assert {row["path"]: row["min"] for row in found} == {"f": 1, "p/q/f": 3}
    assert source.by_path("c", pa.int32(), ["other"]).num_rows == 0


def test_statistics_of_partitions_carry_their_paths() -> None:
    table = MadeUpTable("partition_stats")
    records = {
        partition_stats_key("c", path).decode(): statistics(
            ("IntWrapper", 1), ("IntWrapper", 2), file=path or ".", isTightBound=True
        )
        for path in ("", "p/q")
    }
    table.add("partition-stats-0000-0", records)
    of_partitions = PartitionStatistics(table.open())
    found = of_partitions.of_column("c", pa.int64())
    assert found.schema == statistics_schema("partition_path", pa.int64())
    assert sorted(found.column("partition_path").to_pylist()) == ["", "p/q"]
    assert of_partitions.of_column("c", pa.int64(), ["p/q"]).num_rows == 1
