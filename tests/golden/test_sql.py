"""SQL returns the rows of tables of Apache Hudi with the types and values that a scan returns."""

from __future__ import annotations

import pytest

from lakemark.model.meta_columns import RECORD_KEY
from lakemark.sql import query
from tests.depth import sample
from tests.golden.golden_table import ALL_TABLES
from tests.golden.shared_tables import SharedTables

pytest.importorskip("duckdb")

NAMES = sample([name for name in ALL_TABLES if "schema_on_read" not in name], 16, __name__)


@pytest.mark.parametrize("name", NAMES)
def test_sql_returns_what_a_scan_returns(name: str, shared_tables: SharedTables) -> None:
    golden = shared_tables[name]
    expected = golden.table.scan().to_table()
    # SQL returns the meta columns if it names one of them; tables with virtual keys have none.
    order = f"order by {RECORD_KEY}" if RECORD_KEY in expected.schema.names else ""
    found = query(f"select * from '{golden.root}' {order}").read_all()
    assert found.schema.names == expected.schema.names
    assert sorted(map(str, found.to_pylist())) == sorted(map(str, expected.to_pylist()))
