"""Columns in any Arrow encoding are written, with and without ``add_columns``."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakemark
from tests.unit.operations.tables import contents, create, rows


class Text(pa.ExtensionType):  # type: ignore[misc]
    """An Arrow extension type that is stored as text."""

    def __init__(self) -> None:
        super().__init__(pa.string(), "test.text")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Text:
        return cls()


@pytest.mark.parametrize("add_columns", [False, True])
@pytest.mark.parametrize(
    ("name", "values", "stored"),
    [
        ("v", pa.nulls(1), None),
        ("v", pc.run_end_encode(pa.array([7], pa.int32())), 7),
        ("region", pa.array(["north"], pa.string_view()), 1),
        ("region", pa.ExtensionArray.from_storage(Text(), pa.array(["north"])), 1),
    ],
    ids=["null", "runs", "view", "extension"],
)
def test_encoded_column_is_written(
    add_columns: bool, name: str, values: pa.Array, stored: int | None, tmp_path: Path
) -> None:
    table = create(str(tmp_path / "orders"))
    given = rows(("a", "north", 1, 1))
    given = given.set_column(given.column_names.index(name), name, values)
    table.upsert(given, add_columns=add_columns)
    assert contents(table) == {"a": ("north", 1, stored)}


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.list_(pa.float32(), 2), [[1.5, 2.5], None, [3.5, None]]),
        (pa.large_list(pa.int64()), [[1], None, []]),
        (pa.list_(pa.dictionary(pa.int8(), pa.string())), [["x", None], None, []]),
        (pa.binary_view(), [b"x", None, b""]),
        (pa.binary(2), [b"xy", None, b"zz"]),
        (pa.struct([("a", pa.large_string())]), [{"a": "x"}, None, {"a": None}]),
    ],
    ids=str,
)
def test_column_is_written_in_the_type_that_create_was_given(
    kind: pa.DataType, values: list[object], tmp_path: Path
) -> None:
    given = pa.table({"id": ["a", "b", "c"], "x": pa.array(values, kind)})
    table = lakemark.create(tmp_path / "orders", schema=given.schema, record_key=["id"])
    table.upsert(given)
    found = table.snapshot(["id", "x"]).read_all().sort_by("id")
    assert found.column("x").to_pylist() == values
