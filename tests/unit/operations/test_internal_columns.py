"""A column of a table may have any name that Avro allows, such as ``__row``."""

from __future__ import annotations

import pyarrow as pa
import pytest

import lakemark


@pytest.mark.parametrize("table_type", list(lakemark.TableType))
@pytest.mark.parametrize(
    "name", ["__row", "__folder", "__file_id", "__change_kind", "__written_columns"]
)
def test_name_with_underscores_is_no_internal_column(
    name: str, table_type: lakemark.TableType
) -> None:
    schema = pa.schema([("id", pa.string()), ("day", pa.string()), (name, pa.int64())])

    def rows(*values: tuple[str, str, int]) -> pa.Table:
        named = [dict(zip(schema.names, row, strict=True)) for row in values]
        return pa.Table.from_pylist(named, schema=schema)

    path = f"memory://names/{name}-{table_type}"
    created = lakemark.create(
        path,
        schema=schema,
        record_key="id",
        partition_by="day",
        ordering=name,
        table_type=table_type,
        index="lookup",
        only_writer=True,
    )
    created.insert(rows(("a", "1", 1), ("b", "1", 1), ("c", "1", 1)))
    created.insert(rows(("a", "1", 9), ("d", "1", 1)), duplicates="drop")
    table = lakemark.open(path, partition_change="move", only_writer=True)
    table.upsert(rows(("a", "2", 2), ("b", "1", 0)))
    table.delete(where=f"{name} = 1 and id = 'c'")
    table.cluster(name)
    kept = [("a", "2", 2), ("b", "1", 1), ("d", "1", 1)]
    found = table.scan(columns=schema.names).to_table().sort_by("id")
    assert found.to_pylist() == rows(*kept).to_pylist()
