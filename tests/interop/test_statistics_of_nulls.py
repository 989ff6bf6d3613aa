"""Statistics that Apache Hudi records of columns of nulls are no differences to the files.

Of a base file that has only nulls in a column of numbers, times or booleans, Apache Hudi 1.2.0
records the bounds zero, and takes them for bounds of the partition, too.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest

import lakemark
from tests.interop.oracle import ApacheTable, Oracle
from tests.interop.test_lookup_index import SEVERAL_GROUPS

pytestmark = pytest.mark.oracle

#: A value of each type that can have statistics.
VALUES: dict[pa.DataType, Any] = {
    pa.int32(): 5,
    pa.int64(): 5,
    pa.float32(): 5.0,
    pa.float64(): 5.0,
    pa.bool_(): True,
    pa.timestamp("us", "UTC"): datetime(2026, 1, 1, tzinfo=UTC),
    pa.date32(): date(2026, 1, 1),
    pa.decimal128(9, 2): Decimal("5.00"),
    pa.decimal128(30, 2): Decimal("5.00"),
    pa.string(): "5",
    pa.binary(): b"5",
}
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("region", pa.string()),
        ("ts", pa.int32()),
        *((f"c{place}", kind) for place, kind in enumerate(VALUES)),
    ]
)


@pytest.mark.parametrize(
    ("table_type", "version"),
    [("MERGE_ON_READ", 9), ("COPY_ON_WRITE", 9), ("COPY_ON_WRITE", 6)],
)
def test_bounds_of_nulls_are_no_difference(
    oracle: Oracle,
    tmp_path: Path,
    table_type: Literal["MERGE_ON_READ", "COPY_ON_WRITE"],
    version: int,
) -> None:
    path, options = tmp_path / "t", {"hoodie.index.type": "SIMPLE", **SEVERAL_GROUPS}
    twin = ApacheTable(
        *("t", ["id"], ["region"], ["ts"]),
        table_type=table_type,
        version=version,
        has_metadata=True,
        extra=options,
    )
    oracle.write(path, rows("ab", 1, has_values=False), twin)
    assert lakemark.open(path).metadata_differences() == []
    oracle.write(path, rows("cd", 2, has_values=True), twin)
    assert lakemark.open(path).metadata_differences() == []
    lakemark.open(path).upsert(rows("ace", 3, has_values=False))
    assert lakemark.open(path).metadata_differences() == []
    oracle.write(path, rows("bcf", 4, has_values=False), twin)
    assert lakemark.open(path).metadata_differences() == []


def rows(keys: str, ts: int, *, has_values: bool) -> pa.Table:
    """Create rows of one partition, whose other columns are null or have the values."""
    values = VALUES.values() if has_values else [None] * len(VALUES)
    columns = {"region": "north", "ts": ts, **{f"c{n}": value for n, value in enumerate(values)}}
    return pa.Table.from_pylist([{"id": key, **columns} for key in keys], SCHEMA)
