"""Column ranges of existing files are derived correctly from footers and from rows."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakemark.errors import CorruptData
from lakemark.metadata.column_stats.derive import derive_file_ranges
from lakemark.model.bounds import MAX_LENGTH
from lakemark.model.column_ranges import ColumnRanges
from lakemark.model.file_names import BaseFileName
from lakemark.model.file_slice import BaseFile
from lakemark.storage import Storage
from tests.table_services import make_plain, new_storage
from tests.tables import Row, commit, writer

NAME = BaseFileName(
    "00000000-0000-0000-0000-000000000000-0", "0-0-0", "20260101000000000", "parquet"
)
DAY = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)

COLUMNS = {
    "flag": pa.array([True, None, False]),
    "small": pa.array([3, None, -1], pa.int32()),
    "large": pa.array([1 << 60, -(1 << 60), None]),
    "text": pa.array(["b", "a\u00e9", None]),
    "bytes": pa.array([b"\xff", b"\x00", None]),
    "long_text": pa.array(["b", "a" * (MAX_LENGTH + 1), None]),
    "longer_text": pa.array(["b", "a" * 5000, None]),
    "cost": pa.array([Decimal("-1.50"), Decimal("20.00"), None], pa.decimal128(9, 2)),
    "wide_cost": pa.array([Decimal("-1.50"), Decimal("20.00"), None], pa.decimal128(38, 2)),
    "day": pa.array([date(2026, 1, 2), date(1969, 1, 2), None]),
    "millis": pa.array([1, -2, None], pa.timestamp("ms", "UTC")),
    "micros": pa.array([DAY, None, DAY], pa.timestamp("us", "UTC")),
    "local": pa.array([1, -2, None], pa.timestamp("us")),
    # Python's dates and times end with the year 9999.
    "far_day": pa.array([5_000_000, -5_000_000, None], pa.int32()).cast(pa.date32()),
    "far_millis": pa.array([1 << 60, -(1 << 60), None]).cast(pa.timestamp("ms", "UTC")),
    "far_micros": pa.array([1 << 62, -(1 << 62), None]).cast(pa.timestamp("us", "UTC")),
    "nothing": pa.nulls(3, pa.int64()),
}
FLOATS = {
    "amount": pa.array([0.5, -0.0, None]),
    "nan": pa.array([0.5, math.nan, None]),
    "single": pa.array([0.5, None, 1.5], pa.float32()),
}


def stored(rows: pa.Table, **options: object) -> bytes:
    sink = BytesIO()
    pq.write_table(rows, sink, row_group_size=2, **options)
    return sink.getvalue()


def without_rows(content: bytes) -> bytes:
    """Return the file with zeros in place of everything except its footer."""
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    return b"PAR1" + bytes(start - 4) + content[start:]


def file_of(storage: Storage, content: bytes) -> BaseFile:
    base = BaseFile("north", NAME, len(content))
    storage.create(base.path, content)
    return base


def ranges_of(content: bytes, schema: pa.Schema) -> ColumnRanges:
    storage = new_storage()
    return derive_file_ranges(storage, file_of(storage, content), schema)


def assert_same(found: ColumnRanges, expected: ColumnRanges) -> None:
    assert sorted(found.columns) == sorted(expected.columns)
    for name in expected.columns:
        here, there = found.columns.index(name), expected.columns.index(name)
        assert found.bounds.column(here).equals(expected.bounds.column(there)), name
        assert found.null_counts[here] == expected.null_counts[there], name
        assert found.value_counts[here] == expected.value_counts[there], name


def test_the_footer_gives_the_same_ranges_as_the_rows() -> None:
    rows = pa.table(COLUMNS | FLOATS)
    assert_same(ranges_of(stored(rows), rows.schema), ColumnRanges.of(rows, rows.schema.names))


def test_rows_are_read_where_the_footer_has_no_exact_statistics() -> None:
    exact = pa.table({n: array for n, array in COLUMNS.items() if n != "longer_text"})
    assert_same(
        ranges_of(without_rows(stored(exact)), exact.schema),
        ColumnRanges.of(exact, exact.schema.names),
    )
    for name, array in FLOATS.items():
        rows = pa.table({name: array})
        with pytest.raises(CorruptData):
            ranges_of(without_rows(stored(rows)), rows.schema)


def test_a_file_without_statistics_is_read() -> None:
    rows = pa.table(COLUMNS)
    content = stored(rows, write_statistics=False)
    assert_same(ranges_of(content, rows.schema), ColumnRanges.of(rows, rows.schema.names))


def test_a_column_that_came_later_or_was_widened_is_as_it_is_read() -> None:
    rows = pa.table({"a": pa.array([1, 2, None], pa.int32())})
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    now = pa.table([rows["a"].cast(pa.int64()), pa.nulls(3, pa.string())], schema=schema)
    assert_same(ranges_of(stored(rows), schema), ColumnRanges.of(now, schema.names))


def test_an_empty_file_has_no_entries() -> None:
    rows = pa.table(COLUMNS).slice(0, 0)
    found = ranges_of(stored(rows), rows.schema)
    assert sum(found.value_counts) == 0


@pytest.mark.parametrize("name", ["text", "bytes"])
def test_texts_of_writers_that_may_cut_them_are_read(name: str) -> None:
    rows = pa.table({name: COLUMNS[name], "small": COLUMNS["small"]})
    ours = stored(rows)
    assert b"parquet-cpp-arrow " in ours
    theirs = ours.replace(b"parquet-cpp-arrow ", b"parquet-of-others ")
    assert_same(ranges_of(theirs, rows.schema), ColumnRanges.of(rows, rows.schema.names))
    assert_same(
        ranges_of(without_rows(theirs), pa.schema([rows.schema.field("small")])),
        ColumnRanges.of(rows, ["small"]),
    )
    with pytest.raises(CorruptData):
        ranges_of(without_rows(theirs), rows.schema)


@pytest.mark.parametrize("log_format", ["avro", "parquet"])
def test_the_ranges_of_a_log_are_those_of_its_rows(log_format: str) -> None:
    storage = new_storage()
    make_plain(storage)
    to = writer(storage, log_format)
    commit(to, [Row("a", 1, 1)])
    commit(to, [Row("a", 2, 7)])
    (log,) = (log for one in to.table.view().latest_slices() for log in one.logs)
    found = derive_file_ranges(storage, log, pa.schema([("v", pa.int64())]))
    assert found.value_counts == (1,)
    assert found.bounds.column("v").to_pylist() == [7, 7]
