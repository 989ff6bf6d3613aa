"""Apache Hudi reads and continues tables whose schema evolves between commits."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest

from lakemark.config.table_properties import TableType
from lakemark.model.format_version import FormatVersion
from lakemark.model.meta_columns import without_meta_columns
from lakemark.operations.open_table import open_table
from lakemark.read.queries import ReadOptimized
from lakemark.storage import StorageLocation
from tests.interop import lakemark
from tests.interop.oracle import ApacheTable, Oracle
from tests.interop.same_rows import assert_same_rows
from tests.json_stream import JsonStream
from transforms.decode.schema_policy import SchemaPolicy

pytestmark = pytest.mark.oracle

COLUMNS = {
    "id": "string",
    "ts": "bigint",
    "n": "int",
    "m": "int",
    "f": "float",
    "home": "struct<zip:string,floor:int>",
    "items": "array<struct<sku:string,count:int>>",
}
OLD: dict[str, object] = {
    "n": 1,
    "m": -7,
    "f": 0.1,
    "home": {"zip": "8001", "floor": 2},
    "items": [{"sku": "a", "count": 1}, {"sku": "b", "count": None}],
}

CHANGES: list[dict[str, object]] = [
    {"n": 2**40, "new": "text"},
    {"m": 0.5, "f": 1e300},
    {"home": {"town": "x", "floor": 3}},
    {"items": [{"sku": "c", "count": 4, "price": 1.25}]},
    {"tags": [1, 2], "deep": {"a": {"b": [True]}}},
]


@pytest.mark.parametrize(
    ("version", "table_type", "log_format"),
    [
        (9, "MERGE_ON_READ", "parquet"),
        (9, "MERGE_ON_READ", "avro"),
        (9, "COPY_ON_WRITE", "parquet"),
        (6, "MERGE_ON_READ", "avro"),
    ],
)
def test_each_reads_the_columns_that_the_other_added_or_widened(
    oracle: Oracle,
    tmp_path: Path,
    version: int,
    table_type: Literal["MERGE_ON_READ", "COPY_ON_WRITE"],
    log_format: Literal["parquet", "avro"],
) -> None:
    path = tmp_path / "orders"
    stream = JsonStream(
        StorageLocation(str(path)),
        SchemaPolicy("evolve", "evolve"),
        COLUMNS,
        table_type=TableType(table_type),
        log_format=log_format,
        version=FormatVersion(version),
    )
    stream.write([{"id": f"k{n}", "ts": 1, **OLD} for n in range(12)])
    for number, change in enumerate(CHANGES):
        stream.write([{"id": f"k{number}", "ts": 2, **OLD, **change}])
        _agree(oracle, path)
    if table_type == "MERGE_ON_READ":
        stream.compact()
        _agree(oracle, path)

    twin = ApacheTable(
        "orders", ["id"], [], ["ts"], table_type, version=version, log_format=log_format
    )
    oracle.write(path, _apache_rows(path), twin)
    _agree(oracle, path)
    stream.write([{"id": "k9", "ts": 5, **OLD, "apache": 3, "later": 7}])
    _agree(oracle, path)
    columns = list(stream.schema())
    assert columns[columns.index("deep") :] == ["deep", "tags", "apache", "later"]
    if table_type == "MERGE_ON_READ":
        assert oracle.compact(path)
        _agree(oracle, path)
    stream.write([{"id": "k0", "ts": 6, **OLD, "n": 2**41}])
    _agree(oracle, path)


def _apache_rows(path: Path) -> pa.Table:
    """Create rows with the table's columns and one more."""
    schema = open_table(StorageLocation(str(path))).schema
    assert schema is not None
    fields = [*without_meta_columns(schema), pa.field("apache", pa.int32())]
    rows = [{"id": "k7", "ts": 4, "n": 2**42, "apache": 1}, {"id": "k8", "ts": 4, "apache": 2}]
    return pa.Table.from_pylist(rows, pa.schema(fields))


def _agree(oracle: Oracle, path: Path) -> None:
    assert_same_rows(lakemark.read_snapshot(path), oracle.read(path))
    table = open_table(StorageLocation(str(path)))
    assert_same_rows(
        table.scan(ReadOptimized()).to_reader().read_all(), oracle.read(path, "read_optimized")
    )
