"""Apache Hudi and a Python program that uses ``lakemark.open`` read each other's rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest

import lakemark
from tests.interop.oracle import ApacheTable, Oracle
from tests.interop.same_rows import assert_same_rows

pytestmark = pytest.mark.oracle

SCHEMA = pa.schema(
    [("id", pa.string()), ("region", pa.string()), ("ts", pa.int64()), ("v", pa.int32())]
)
TWIN = ApacheTable("orders", ["id"], ["region"], ["ts"])


def _rows(first: int, end: int, ts: int) -> pa.Table:
    """Create one row for each number."""
    numbers = range(first, end)
    columns = {
        "id": [f"k{n}" for n in numbers],
        "region": ["north" if n % 2 else "south" for n in numbers],
        "ts": [ts] * len(numbers),
        "v": [n * ts for n in numbers],
    }
    return pa.table(columns, schema=SCHEMA)


def _agree(oracle: Oracle, path: Path) -> None:
    ours = lakemark.open(path).snapshot(SCHEMA.names).read_all()
    assert_same_rows(ours, oracle.read(path).select(SCHEMA.names))


@pytest.mark.parametrize("version", [9, 8, 6])
@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_apache_hudi_reads_and_continues_a_table_of_a_program(
    oracle: Oracle,
    tmp_path: Path,
    table_type: Literal["MERGE_ON_READ", "COPY_ON_WRITE"],
    version: int,
) -> None:
    path = tmp_path / "orders"
    table = lakemark.create(
        path,
        schema=SCHEMA,
        record_key=["id"],
        partition_by=["region"],
        ordering=["ts"],
        table_type=table_type,
        version=version,
        buckets=2,
    )
    assert oracle.read(path).num_rows == 0
    table.upsert(_rows(0, 20, 1))
    table.upsert(_rows(5, 25, 2))
    table.delete(["k6", "k20"])
    table.delete(where="region = 'north' and v > 40")
    _agree(oracle, path)
    kept = table.savepoint()
    if table_type == "MERGE_ON_READ":
        table.compact()
        _agree(oracle, path)
    twin = replace(TWIN, table_type=table_type, version=version)
    oracle.write(path, _rows(3, 9, 5), twin)
    table.refresh()
    table.upsert(_rows(30, 32, 1))
    _agree(oracle, path)
    newest = table.upsert(_rows(0, 3, 9)).instant
    assert newest is not None
    table.rollback(newest)
    _agree(oracle, path)
    table.restore(kept)
    table.delete_savepoint(kept)
    table.upsert(_rows(40, 42, 1))
    _agree(oracle, path)
    table.change_version(8 if version == 9 else 9)
    table.upsert(_rows(41, 44, 2))
    _agree(oracle, path)


def test_program_continues_a_table_of_apache_hudi(oracle: Oracle, tmp_path: Path) -> None:
    path = tmp_path / "orders"
    oracle.write(path, _rows(0, 20, 1), TWIN)
    table = lakemark.open(path, buckets=2)
    table.upsert(_rows(10, 22, 2))
    table.delete(["k1"])
    _agree(oracle, path)
    table.upsert(_rows(1, 2, 0))
    assert table.scan(where="id = 'k1'").to_table().num_rows == 0
    _agree(oracle, path)
    with pytest.raises(lakemark.InvalidConfig, match="has 2 buckets"):
        lakemark.open(path, buckets=4).upsert(_rows(0, 1, 3))
