"""Apache Hudi finds all rows by filters on floats, although its reader skips row groups.

Apache Hudi passes filters to Spark's Parquet reader, which skips row groups by their statistics.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.interop.lakemark import LakemarkWriter
from tests.interop.oracle import ApacheTable, Oracle

pytestmark = pytest.mark.oracle

NAN = float("nan")
TABLE = ApacheTable("floats", ["id"], ["p"], bucket_count=1)
SCHEMA = pa.schema(
    [("id", pa.string()), ("p", pa.string()), ("d", pa.float64()), ("f", pa.float32())]
)
EARLIEST = {"hoodie.datasource.read.begin.instanttime": "000"}
#: The values of each file.
FILES: dict[str, list[float | None]] = {
    "some": [1.0, NAN],
    "only": [NAN],
    "null": [NAN, None],
    "zeros": [0.0, -0.0],
    "positive": [0.0, 7.0],
}
CONDITIONS = [
    "d > 5", "d = double('NaN')", "NOT d <= 5", "isnan(d)", "d = 0", "d < 0", "d != 1",
    "f > 5", "f = float('NaN')", "f >= 7", "f = 0",
]  # fmt: skip


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_filters_on_floats_find_all_rows(oracle: Oracle, tmp_path: Path, table_type: Any) -> None:
    path = tmp_path / "t"
    rows = [
        {"id": f"{name}{n}", "p": name, "d": value, "f": value}
        for name, values in FILES.items()
        for n, value in enumerate(values)
    ]
    writer = LakemarkWriter.open(path, replace(TABLE, table_type=table_type), SCHEMA)
    writer.upsert(pa.Table.from_pylist(rows, SCHEMA))
    # Such a query changes how later queries of its session read files (``oracle_server``).
    assert oracle.read(path, "incremental", EARLIEST).num_rows == len(rows)
    with oracle.named("floats", path):
        found = {condition: _ids(oracle, condition) for condition in CONDITIONS}
        with oracle.settings({"spark.sql.parquet.filterPushdown": "false"}):
            assert found == {condition: _ids(oracle, condition) for condition in CONDITIONS}
    assert found["d > 5"] == ["null0", "only0", "positive1", "some1"]


def _ids(oracle: Oracle, condition: str) -> list[str]:
    rows = oracle.query(f"SELECT id FROM floats WHERE {condition}").to_pylist()
    return sorted(row["id"] for row in rows)
