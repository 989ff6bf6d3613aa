"""A condition never skips a row that matches it."""

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
from lakemark.read.partition_pruning import partition_guarantee
from lakemark.read.row_filter import filter_rows, may_match, referenced_columns, select_row_groups
from tests.depth import examples
from tests.unit.read.conditions import CONDITIONS, ROWS, SCHEMA


@settings(max_examples=examples(150), deadline=None)
@given(CONDITIONS, ROWS, st.integers(1, 4))
def test_skipped_row_groups_have_no_match(
    condition: pc.Expression, rows: list[dict[str, Any]], group_rows: int
) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA)
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=group_rows)
    file.seek(0)
    groups = select_row_groups(condition, file, SCHEMA)
    kept = pq.ParquetFile(file).read_row_groups(groups) if groups else table.slice(0, 0)
    assert filter_rows(kept, condition).to_pylist() == filter_rows(table, condition).to_pylist()


@settings(max_examples=examples(150), deadline=None)
@given(CONDITIONS, st.lists(st.tuples(st.integers(0, 10), st.integers(0, 10)), max_size=4))
def test_file_is_skipped_only_if_no_row_matches(
    condition: pc.Expression, ranges: list[tuple[int, int]]
) -> None:
    bounds = [(min(pair), max(pair)) for pair in ranges]
    guarantees = [(pc.field("a") >= low) & (pc.field("a") <= high) for low, high in bounds]
    for (low, high), stays in zip(bounds, may_match(condition, guarantees, SCHEMA), strict=True):
        every = [{"a": a, "b": b} for a in range(low, high + 1) for b in ("x", "y", None)]
        found = filter_rows(pa.Table.from_pylist(every, SCHEMA), condition).num_rows
        assert stays or not found


def test_file_with_a_range_outside_the_condition_is_skipped() -> None:
    guarantees = [(pc.field("a") >= low) & (pc.field("a") <= low + 9) for low in (0, 10, 20)]
    assert may_match(pc.field("a") == 12, guarantees, SCHEMA) == [False, True, False]
    assert may_match(pc.field("b") == "x", guarantees, SCHEMA) == [True, True, True]
    assert may_match(pc.field("a") > 3, [], SCHEMA) == []


@pytest.mark.parametrize(
    ("condition", "columns"),
    [
        (pc.field("a") > 1, ["a"]),
        (pc.field("s", "x") == 1, ["s"]),
        ((pc.field("b") == "q") & pc.field("day").is_null(), ["b", "day"]),
        (pc.field(0) > 1, SCHEMA.names),
    ],
)
def test_all_columns_of_a_condition_are_found(condition: pc.Expression, columns: list[str]) -> None:
    assert set(columns) <= set(referenced_columns(condition, SCHEMA))
    assert PARTITION_PATH in columns or PARTITION_PATH not in referenced_columns(condition, SCHEMA)


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
def test_partition_path_guarantees_its_values(
    path: str, fields: list[str], row: dict[str, Any]
) -> None:
    guarantee = partition_guarantee(
        path, path.split("/"), fields, SCHEMA, is_url_encoded=True, is_hive_style=True
    )
    texts = pa.schema(
        [f if f.type != pa.date32() else pa.field("day", pa.string()) for f in SCHEMA]
    )
    rows = pa.Table.from_pylist([{**row, PARTITION_PATH: path}], texts).cast(SCHEMA)
    assert rows.filter(guarantee).num_rows == 1


def test_partition_of_another_value_is_skipped() -> None:
    paths = ["a=1/b=x", "a=1/b=y", "a=2/b=x"]
    known = [
        partition_guarantee(
            path, path.split("/"), ["a", "b"], SCHEMA, is_url_encoded=False, is_hive_style=True
        )
        for path in paths
    ]
    condition = (pc.field("a") == 1) & (pc.field("b") == "x")
    assert may_match(condition, known, SCHEMA) == [True, False, False]
    assert may_match(pc.field(PARTITION_PATH) == paths[2], known, SCHEMA) == [False, False, True]
