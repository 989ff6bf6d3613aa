from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.errors import InvalidRecords
from lakemark.schema.dictionaries import with_encoded
from lakemark.write.row_groups import RowGroups, divide_rows, row_bytes
from tests.depth import examples
from tests.unit.write.tables import SCHEMA, records, rows_of


@settings(max_examples=examples(40), deadline=None)
@given(records(), st.lists(st.integers(0, 12)), st.integers(1, 2_000))
def test_row_groups_do_not_depend_on_the_batches(
    batch: list[dict[str, object]], cuts: list[int], max_bytes: int
) -> None:
    rows = rows_of(batch)
    positions = [0, *sorted(min(position, len(batch)) for position in cuts), len(batch)]
    groups = RowGroups(SCHEMA, max_bytes)
    gathered = [
        table
        for start, end in pairwise(positions)
        for table in groups.add(rows.slice(start, end - start))
    ]
    gathered += groups.flush()
    assert pa.concat_tables([SCHEMA.empty_table(), *gathered]).equals(rows)
    at_once = list(divide_rows(rows, SCHEMA, max_bytes))
    assert [table.num_rows for table in gathered] == [table.num_rows for table in at_once]


@settings(max_examples=examples(40), deadline=None)
@given(records(), st.integers(1, 2_000))
def test_row_groups_are_bounded_except_for_a_single_row(
    batch: list[dict[str, object]], max_bytes: int
) -> None:
    tables = list(divide_rows(rows_of(batch), SCHEMA, max_bytes))
    sizes = [int(row_bytes(table).sum()) for table in tables]
    assert all(
        size <= max_bytes or table.num_rows == 1 for size, table in zip(sizes, tables, strict=True)
    )
    for (table, size), (following, _) in pairwise(zip(tables, sizes, strict=True)):
        assert table.num_rows
        assert size + row_bytes(following)[0] > max_bytes, "the next row had room"


@settings(max_examples=examples(40), deadline=None)
@given(records(min_size=1))
def test_row_size_is_not_underestimated(batch: list[dict[str, object]]) -> None:
    """The bitmaps and offsets of a whole table may exceed those of its rows by a few bytes."""
    rows = rows_of(batch)
    nested_columns = 20
    assert rows.nbytes <= row_bytes(rows).sum() + 8 * nested_columns
    assert row_bytes(rows).sum() == sum(
        int(row_bytes(rows.slice(i, 1))[0]) for i in range(len(batch))
    )
    encoded = rows.cast(with_encoded(rows.schema, ["note", "_hoodie_partition_path"]))
    assert row_bytes(encoded).tolist() == row_bytes(rows).tolist(), "the same row groups"


def test_values_are_as_large_as_the_schema_makes_them() -> None:
    rows = pa.table({"number": [10**18] * 100})
    max_bytes = rows.nbytes + 100 * 9
    tables = list(divide_rows(rows, pa.schema([("number", pa.string())]), max_bytes))
    assert len(tables) == 2
    assert all(row_bytes(table).sum() <= max_bytes for table in tables)


def test_no_rows_must_have_the_columns_of_the_schema_too() -> None:
    rows = pa.table({"other": pa.array([], pa.int64())})
    with pytest.raises(InvalidRecords, match="do not fit"):
        list(divide_rows(rows, pa.schema([("number", pa.int64())]), 100))


def test_rows_are_cast_to_the_schema() -> None:
    schema = pa.schema([pa.field("at", pa.timestamp("us", "UTC"))])
    rows = pa.table({"other": [1], "at": pa.array([5], pa.timestamp("ms", "UTC"))})
    (table,) = divide_rows(rows, schema, 100)
    assert table.schema == schema
    assert table.column("at").cast(pa.int64()).to_pylist() == [5_000]


@pytest.mark.parametrize(
    "rows",
    [
        pa.table({"other": [1]}),
        pa.table({"at": pa.array([5], pa.timestamp("ns", "UTC"))}),
        pa.table({"at": pa.array([None], pa.timestamp("us", "UTC"))}),
        pa.table({"at": ["noon"]}),
    ],
    ids=["missing", "too fine", "null", "text"],
)
def test_rows_that_do_not_fit_are_invalid(rows: pa.Table) -> None:
    schema = pa.schema([pa.field("at", pa.timestamp("us", "UTC"), nullable=False)])
    with pytest.raises(InvalidRecords, match="do not fit the table's schema"):
        list(divide_rows(rows, schema, 100))
