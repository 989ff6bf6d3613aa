"""What a condition rules out never holds a row that it finds."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.model.meta_columns import PARTITION_PATH
from lakemark.read.partition_pruning import guarantee_of
from lakemark.read.row_filter import columns_of, matching, may_hold, row_groups_of
from tests.depth import examples
from tests.unit.read.conditions import CONDITIONS, ROWS, SCHEMA


@settings(max_examples=examples(150), deadline=None)
@given(CONDITIONS, ROWS, st.integers(1, 4))
def test_row_groups_that_are_passed_over_hold_no_match(
    condition: pc.Expression, rows: list[dict[str, Any]], group_rows: int
) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA)
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=group_rows)
    file.seek(0)
    groups = row_groups_of(condition, file, SCHEMA)
    kept = pq.ParquetFile(file).read_row_groups(groups) if groups else table.slice(0, 0)
    assert matching(kept, condition).to_pylist() == matching(table, condition).to_pylist()


@settings(max_examples=examples(150), deadline=None)
@given(CONDITIONS, st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10)), max_size=4))
def test_a_file_is_ruled_out_only_if_none_of_its_rows_match(
    condition: pc.Expression, ranges: list[tuple[int, int]]
) -> None:
    bounds = [(min(pair), max(pair)) for pair in ranges]
    guarantees = [(pc.field("a") >= low) & (pc.field("a") <= high) for low, high in bounds]
    for (low, high), stays in zip(bounds, may_hold(condition, guarantees, SCHEMA), strict=True):
        every = [{"a": a, "b": b} for a in range(low, high + 1) for b in ("x", "y", None)]
        found = matching(pa.Table.from_pylist(every, SCHEMA), condition).num_rows
        assert stays or not found


def test_a_range_that_cannot_hold_is_ruled_out() -> None:
    guarantees = [(pc.field("a") >= low) & (pc.field("a") <= low + 9) for low in (0, 10, 20)]
    assert may_hold(pc.field("a") == 12, guarantees, SCHEMA) == [False, True, False]
    assert may_hold(pc.field("b") == "x", guarantees, SCHEMA) == [True, True, True]
    assert may_hold(pc.field("a") > 3, [], SCHEMA) == []


@pytest.mark.parametrize(
    ("condition", "columns"),
    [
        (pc.field("a") > 1, ["a"]),
        (pc.field("s", "x") == 1, ["s"]),
        ((pc.field("b") == "q") & pc.field("day").is_null(), ["b", "day"]),
        (pc.field(0) > 1, SCHEMA.names),
    ],
)
def test_no_column_that_a_condition_reads_is_left_out(
    condition: pc.Expression, columns: list[str]
) -> None:
    assert set(columns) <= set(columns_of(condition, SCHEMA))
    assert PARTITION_PATH in columns or PARTITION_PATH not in columns_of(condition, SCHEMA)


@pytest.mark.parametrize(
    ("path", "fields", "row"),
    [
        ("x", ["b"], {"b": "x"}),
        ("b=b=x", ["b"], {"b": "b=x"}),
        ("b=x%2Fy/day=2026-01-31", ["b", "day"], {"b": "x/y", "day": "2026-01-31"}),
        ("-7", ["a"], {"a": -7}),
        ("b=__HIVE_DEFAULT_PARTITION__", ["b"], {"b": None}),
        ("__HIVE_DEFAULT_PARTITION__", ["a"], {"a": None}),
        ("b=__HIVE_DEFAULT_PARTITION__", ["b"], {"b": ""}),
        ("anything/else", ["b"], {"b": "q"}),
        ("2026/01", ["day"], {"day": "1999-01-01"}),
        ("", [], {}),
    ],
)
def test_a_partition_guarantees_what_its_path_spells(
    path: str, fields: list[str], row: dict[str, Any]
) -> None:
    guarantee = guarantee_of(path, fields, SCHEMA, is_url_encoded=True, is_hive_style=True)
    texts = pa.schema(
        [f if f.type != pa.date32() else pa.field("day", pa.string()) for f in SCHEMA]
    )
    rows = pa.Table.from_pylist([{**row, PARTITION_PATH: path}], texts).cast(SCHEMA)
    assert rows.filter(guarantee).num_rows == 1


def test_a_partition_of_another_value_is_ruled_out() -> None:
    paths = ["a=1/b=x", "a=1/b=y", "a=2/b=x"]
    known = [
        guarantee_of(path, ["a", "b"], SCHEMA, is_url_encoded=False, is_hive_style=True)
        for path in paths
    ]
    condition = (pc.field("a") == 1) & (pc.field("b") == "x")
    assert may_hold(condition, known, SCHEMA) == [True, False, False]
    assert may_hold(pc.field(PARTITION_PATH) == paths[2], known, SCHEMA) == [False, False, True]
