"""Apache Hudi's data skipping finds the same rows as a full scan of a table of lakemark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakemark
from lakemark.metadata.index_definition import read_definitions
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation, open_storage
from tests.interop.lakemark import LakemarkWriter
from tests.interop.oracle import ApacheTable, Oracle, OracleError

pytestmark = pytest.mark.oracle

INDEXED = {
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.partition.stats.enable": "true",
}
TABLE = ApacheTable("t", ["id"], ["p"], ["ts"], has_metadata=True, bucket_count=1, extra=INDEXED)
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("p", pa.string()),
        ("ts", pa.int64()),
        ("s", pa.string()),
        ("d", pa.float64()),
        ("f", pa.float32()),
        ("raw", pa.binary()),
        ("n", pa.int32()),
    ]
)
WIDER = SCHEMA.append(pa.field("more", pa.string()))
CONDITIONS = [
    "s = 'aa'", "s = 'cc'", "s >= 'x'", "s <= 'bb'", "s != 'aa'", "s IS NULL", "s > '\uffff'",
    "s = repeat('x', 2000)", "s > repeat('x', 300)", "s IN ('aa', 'zz')", "s = 'aa' AND d = 1",
    "d = 1", "d = 3", "d > 2.5", "d >= 9", "d < 2.5", "d <= 1", "d != 1", "isnan(d)",
    "d = 3 AND f = 3", "f = 1", "f > 2.5", "f <= 1", "isnan(f)",
    "n = 1", "n > 2", "n <= 3",
]  # fmt: skip
#: Apache Hudi 1.2.0 cannot skip files by statistics of bytes in version 9: it fails to cast them.
OF_BYTES = ["raw = X'01'", "raw > X'FF'", "raw < X'02'", "raw = X''"]
#: Conditions on a column that older files do not have.
OF_NEW_COLUMN = [
    "more = 'new'", "more IS NULL", "more > 'a' AND n > 2", "more IS NULL AND n = 3",
    "more = 'new' OR n = 1", "coalesce(more, '') = ''",
]  # fmt: skip

OF_APACHE = [
    ("a", "p", 1, "aa", 1.0, 1.0, b"\x01", 1),
    ("b", "p", 1, "bb", 2.0, 2.0, b"\x02", 2),
    ("z", "q", 1, "zz", 9.0, 9.0, b"\x09", 9),
]
OF_LAKEMARK = [
    ("c", "p", 2, "cc", 3.0, 3.0, b"\x03", 3),
    ("e", "p", 2, "x" * 2000, math.nan, math.nan, b"\xff" * 2000, None),
    ("g", "r", 2, "\U0001f600" * 2000, math.inf, math.nan, b"", 7),
    ("h", "s", 2, None, math.nan, -0.0, None, None),
]
WITH_MORE = [
    ("c", "p", 3, "cc", 3.0, 3.0, b"\x03", 4, "new"),
    ("i", "q", 3, "\uffff" * 300, -math.inf, math.inf, b"\xff", 4, None),
]


@pytest.mark.parametrize(
    ("table_type", "version"),
    [("MERGE_ON_READ", 9), ("COPY_ON_WRITE", 9), ("MERGE_ON_READ", 8)],
)
def test_queries_that_skip_files_miss_no_row(
    oracle: Oracle, tmp_path: Path, table_type: Any, version: int
) -> None:
    path, twin = tmp_path / "t", replace(TABLE, table_type=table_type, version=version)
    conditions = CONDITIONS + (OF_BYTES if version == 8 else [])
    oracle.write(path, _rows(OF_APACHE, SCHEMA), twin)
    writer = LakemarkWriter.open(path, twin, SCHEMA)
    writer.upsert(_rows(OF_LAKEMARK, SCHEMA))
    _misses_nothing(oracle, path, conditions)
    writer = LakemarkWriter.open(path, twin, WIDER)
    writer.upsert(_rows(WITH_MORE, WIDER))
    writer.delete(_rows([("a", "p", 4, *[None] * 6)], WIDER))
    _misses_nothing(oracle, path, conditions + OF_NEW_COLUMN)
    if table_type == "MERGE_ON_READ":
        writer.compact()
        _misses_nothing(oracle, path, conditions + OF_NEW_COLUMN)
    assert metadata_differences(open_table(StorageLocation(str(path)))) == []


def test_both_continue_a_table_whose_columns_with_statistics_are_chosen(
    oracle: Oracle, tmp_path: Path
) -> None:
    path, others = tmp_path / "t", {"hoodie.metadata.index.column.stats.column.list": "d"}
    ours = lakemark.create(
        str(path),
        schema=SCHEMA,
        record_key="id",
        partition_by="p",
        ordering="ts",
        buckets=1,
        name="t",
        statistics_columns=["s", "n"],
    )
    ours.upsert(_rows(OF_LAKEMARK, SCHEMA))
    _misses_nothing(oracle, path, CONDITIONS)
    oracle.write(path, _rows(OF_APACHE, SCHEMA), TABLE)
    assert _columns_with_statistics(path) == {"s", "n"}, "Apache Hudi reads the stored choice"
    _misses_nothing(oracle, path, CONDITIONS)
    ours = lakemark.open(str(path))
    assert ours.metadata_differences() == []
    ours.upsert(_rows([("a", "p", 5, "new", 5.0, 5.0, b"", 5)], SCHEMA))
    assert _columns_with_statistics(path) == {"s", "n"}
    table = replace(TABLE, extra={**INDEXED, **others})
    with pytest.raises(OracleError, match="Config conflict"):
        oracle.write(path, _rows([("b", "p", 6, "new", 6.0, 6.0, b"", 6)], SCHEMA), table)
    ours.choose_statistics_columns(["d"])
    assert _columns_with_statistics(path) == {"d"}
    oracle.write(path, _rows([("b", "p", 6, "new", 6.0, 6.0, b"", 6)], SCHEMA), table)
    assert _columns_with_statistics(path) == {"d"}
    _misses_nothing(oracle, path, CONDITIONS)
    assert lakemark.open(str(path)).metadata_differences() == []


def _columns_with_statistics(path: Path) -> set[str]:
    definitions = read_definitions(open_storage(StorageLocation(str(path))))
    return {n for n in definitions["column_stats"].source_fields if not n.startswith("_hoodie")}


def _rows(rows: Sequence[tuple[object, ...]], schema: pa.Schema) -> pa.Table:
    named = [dict(zip(schema.names, row, strict=True)) for row in rows]
    return pa.Table.from_pylist(named, schema)


def _misses_nothing(oracle: Oracle, path: Path, conditions: Sequence[str]) -> None:
    assert found(oracle, path, conditions) == _matching(oracle, path, conditions)


def _matching(oracle: Oracle, path: Path, conditions: Sequence[str]) -> dict[str, list[str]]:
    """Find the ids of each condition in one scan of all rows."""
    flags = [f"coalesce({one}, false) AS c{number}" for number, one in enumerate(conditions)]
    with oracle.named("whole", path):
        rows = oracle.query(f"SELECT id, {', '.join(flags)} FROM whole").to_pylist()
    return {
        condition: sorted(row["id"] for row in rows if row[f"c{number}"])
        for number, condition in enumerate(conditions)
    }


def found(oracle: Oracle, path: Path, conditions: Sequence[str]) -> dict[str, list[str]]:
    """Find the ids of each condition, each in its own scan that may skip files."""
    settings = {
        "hoodie.metadata.enable": "true",
        "hoodie.enable.data.skipping": "true",
        **INDEXED,
    }
    scans = [
        f"SELECT {number} AS n, id FROM skipped WHERE {condition}"
        for number, condition in enumerate(conditions)
    ]
    with oracle.named("skipped", path), oracle.settings(settings):
        rows = oracle.query(" UNION ALL ".join(scans)).to_pylist()
    return {
        condition: sorted(row["id"] for row in rows if row["n"] == number)
        for number, condition in enumerate(conditions)
    }
