"""Queries of lakemark for record keys, on tables whose record index Apache Hudi maintains."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from tests.interop.oracle import ApacheTable, Oracle

pytestmark = pytest.mark.oracle

SCHEMA = pa.schema([("id", pa.string()), ("region", pa.string()), ("ts", pa.int64())])
RECORD_INDEX = {"hoodie.metadata.global.record.level.index.enable": "true"}
TABLE = ApacheTable("t", ["id"], ["region"], ["ts"], has_metadata=True)


def _rows(first: int, count: int, ts: int) -> pa.Table:
    rows = [(f"k{n}", "north" if n % 2 else "south", ts) for n in range(first, first + count)]
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


@pytest.mark.parametrize(
    ("table_type", "engine"),
    [
        ("MERGE_ON_READ", "SIMPLE"),
        ("MERGE_ON_READ", "CONSISTENT_HASHING"),
        ("COPY_ON_WRITE", "SIMPLE"),
    ],
)
def test_no_row_is_missed_if_a_bucketed_table_has_a_record_index(
    oracle: Oracle, tmp_path: Path, table_type: Any, engine: str
) -> None:
    path, options = tmp_path / "t", {**RECORD_INDEX, "hoodie.index.bucket.engine": engine}
    twin = replace(TABLE, table_type=table_type, extra=options)
    oracle.write(path, _rows(0, 8, 1), twin)
    oracle.write(path, _rows(6, 6, 2), twin)
    table = open_table(StorageLocation(str(path)))
    assert "record_index" in table.properties.metadata_partitions
    for key in (f"k{number}" for number in range(12)):
        scan = table.scan(columns=["id"], record_keys=[key])
        assert scan.to_reader().read_all()["id"].to_pylist() == [key]
        assert table_type == "MERGE_ON_READ" or len(scan.slices) == 1, "the index is used"
