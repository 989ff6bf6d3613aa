"""``Table.scan`` accepts lists and tuples, and refuses arguments of a wrong type."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakemark


@pytest.fixture
def table() -> lakemark.Table:
    schema = pa.schema([("id", pa.string()), ("v", pa.int64())])
    created = lakemark.create(
        f"memory://{uuid4().hex}/t", schema=schema, record_key=["id"], ordering=["v"]
    )
    created.upsert(pa.table({"id": ["a", "b"], "v": [1, 2]}))
    return created


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"record_keys": "a"}, "record_keys is 'a'; pass a list of record keys as text"),
        ({"record_keys": [7]}, r"record_keys is \[7\]; pass a list"),
        ({"columns": "id"}, "columns is 'id'; pass a list of column names"),
        ({"query": "incremental"}, r"query is 'incremental'; pass one of lakemark.Snapshot"),
    ],
)
def test_wrong_type_is_refused_with_the_right_one(
    table: lakemark.Table, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(lakemark.InvalidConfig, match=message):
        table.scan(**arguments)


def test_lists_and_tuples_are_accepted(table: lakemark.Table) -> None:
    rows = table.scan(columns=("id", "v"), record_keys=["b"]).to_table()
    assert rows.to_pylist() == [{"id": "b", "v": 2}]


@pytest.mark.parametrize("condition", [pc.field("v") == 7.0, pc.field("v") < 7.5])
def test_comparison_of_large_integers_with_a_float_names_the_condition(
    table: lakemark.Table, condition: pc.Expression
) -> None:
    table.upsert(pa.table({"id": ["c"], "v": [2**60 + 1]}))
    with pytest.raises(lakemark.InvalidConfig, match=r"condition \(v .*; compare an integer"):
        table.scan(where=condition).to_table()
    assert table.scan(where=pc.field("v") == 2**60 + 1).to_table().num_rows == 1
