"""Columns in other encodings of Arrow are written alike, with and without ``add_columns``."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.unit.operations.tables import contents, create, rows


class Text(pa.ExtensionType):  # type: ignore[misc]
    """A text of a kind of its own."""

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
