from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest

from lakemark.errors import CorruptData, Unsupported
from lakemark.operations.open_table import OpenTable
from lakemark.read.renamed_columns import LATEST_SCHEMA
from lakemark.storage import StorageLocation, open_storage
from tests.tables import Row, commit, make, writer

Column = tuple[int, str]

#: Of an array of structs, as ``SerDeHelper`` prints it.
ITEMS: dict[str, Any] = {
    "type": "array",
    "element_id": 11,
    "element": {"type": "record", "fields": [{"id": 12, "name": "n", "type": "int"}]},
    "element_optional": True,
}


def table_of(*versions: list[Column], items: dict[str, Any] = ITEMS) -> OpenTable:
    """Create a table whose schema history has these versions."""
    storage = open_storage(StorageLocation(f"memory://{uuid4().hex}/orders"))
    make(storage)
    schemas = [
        {
            "version_id": number,
            "type": "record",
            "fields": [
                *({"id": i, "name": name, "optional": True, "type": "long"} for i, name in columns),
                {"id": 10, "name": "items", "type": items if number else ITEMS},
            ],
        }
        for number, columns in enumerate(versions)
    ]
    history = json.dumps({"schemas": schemas[::-1]}).encode()
    storage.create(".hoodie/.schema/20260101000000000.schemacommit", history)
    to = writer(storage)
    commit(to, [Row("a", 1)], {LATEST_SCHEMA: json.dumps(schemas[-1])})
    return to.table


def test_added_dropped_and_moved_columns_are_read() -> None:
    table = table_of([(0, "id"), (1, "ts")], [(1, "ts"), (2, "v"), (0, "id")], [(0, "id")])
    assert table.scan(columns=["id"]).to_table()["id"].to_pylist() == ["a"]


@pytest.mark.refuses("Columns that were renamed, or dropped and added again (schema on read)")
@pytest.mark.parametrize(
    ("versions", "message"),
    [
        ([[(0, "id"), (1, "t")], [(0, "id"), (1, "ts")]], "column 't' was renamed to 'ts'"),
        ([[(0, "id"), (1, "ts")], [(0, "id")], [(0, "id"), (3, "ts")]], "'ts' was dropped and add"),
    ],
)
def test_renamed_or_readded_column_is_refused(versions: list[list[Column]], message: str) -> None:
    with pytest.raises(Unsupported, match=message):
        table_of(*versions).scan()


def test_renamed_field_of_a_struct_is_refused() -> None:
    renamed = {
        **ITEMS,
        "element": {"type": "record", "fields": [{"id": 12, "name": "m", "type": ""}]},
    }
    with pytest.raises(Unsupported, match=r"'items.element.n' was renamed to 'items.element.m'"):
        table_of([(0, "id")], [(0, "id")], items=renamed).scan()


@pytest.mark.parametrize("history", [b"", b"[]", b'{"schemas": 1}', b'{"schemas": [{}]}'])
def test_damaged_schema_history_is_reported(history: bytes) -> None:
    table = table_of([(0, "id")])
    table.storage.put(".hoodie/.schema/20260101000000001.schemacommit", history)
    with pytest.raises(CorruptData, match=r"20260101000000001.schemacommit"):
        table.scan()
