"""Queries by key find each row of the tables of Apache Hudi, whose writers computed the keys."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakemark.read.queries import Query, ReadOptimized, Snapshot
from tests.golden.golden_table import ALL_TABLES, GoldenTable
from tests.golden.shared_tables import SharedTables

#: Rows that are queried, spread evenly.
_ROWS = 5


@pytest.mark.parametrize("name", [n for n in ALL_TABLES if "schema_on_read" not in n])
@pytest.mark.parametrize("query", [Snapshot(), ReadOptimized()], ids=["snapshot", "optimized"])
def test_rows_are_found_by_their_keys(name: str, query: Query, shared_tables: SharedTables) -> None:
    golden = shared_tables[name]
    every = golden.table.scan(query).to_table()
    fields = [n for n in golden.properties.record_key_fields if n in every.column_names]
    if not fields or not every.num_rows:
        pytest.skip("the table has no record key columns, or no rows")
    wanted = every.take(list(range(0, every.num_rows, max(1, every.num_rows // _ROWS))))
    for row in wanted.select(fields).to_pylist():
        condition = pc.scalar(value=True)
        for field, value in row.items():
            condition &= pc.field(field) == value
        assert _found(golden, query, condition) == _rows(every.filter(condition)) != []
    if pa.types.is_string(every.schema.field(fields[0]).type):
        texts = wanted[fields[0]].to_pylist()
        listed = ", ".join("'" + text.replace("'", "''") + "'" for text in texts)
        several = _found(golden, query, f"{fields[0]} in ({listed})")
        assert several == _rows(every.filter(pc.field(fields[0]).isin(texts)))


def _found(golden: GoldenTable, query: Query, condition: pc.Expression | str) -> list[str]:
    return _rows(golden.table.scan(query, where=condition).to_table())


def _rows(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist()))
