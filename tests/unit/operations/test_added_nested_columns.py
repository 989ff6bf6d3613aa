"""A nested column that is added to a table does not have to be in later rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakemark

_NUMBER = pa.field("x", pa.int32(), nullable=False)

NESTED: list[tuple[pa.DataType, Any]] = [
    (pa.struct([_NUMBER]), {"x": 1}),
    (pa.list_(pa.struct([_NUMBER])), [{"x": 1}]),
    (pa.map_(pa.string(), _NUMBER.with_name("value")), [("k", 1)]),
]


@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
@pytest.mark.parametrize(("kind", "value"), NESTED, ids=lambda one: str(one)[:6])
def test_later_rows_may_lack_a_column_whose_parts_were_not_null(
    tmp_path: Path, table_type: str, kind: pa.DataType, value: object
) -> None:
    schema = pa.schema([("id", pa.string()), ("v", pa.int64())])
    table = lakemark.create(
        tmp_path / "orders", schema=schema, record_key="id", buckets=1, table_type=table_type
    )
    without = {"id": ["a"], "v": [1]}
    table.upsert(pa.table(without, schema))
    added = pa.table({"id": ["b"], "v": [2], "nested": pa.array([value], kind)})
    table.upsert(added, add_columns=True)
    table.upsert(pa.table({"id": ["c"], "v": [3]}, schema))
    table.upsert(added)
    found = lakemark.open(table.location).snapshot(["id", "nested"]).read_all().to_pylist()
    assert {row["id"]: row["nested"] for row in found} == {"a": None, "b": value, "c": None}
