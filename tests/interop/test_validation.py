"""Apache Hudi's validation of metadata tables passes on tables that lakemark wrote.

``metadata_checks`` says what it compares.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest

import lakemark
from tests.depth import sample
from tests.interop.oracle import Oracle

pytestmark = pytest.mark.oracle

SCHEMA = pa.schema(
    [("id", pa.string()), ("region", pa.string()), ("ts", pa.int64()), ("note", pa.string())]
)
KINDS: list[tuple[Literal["merge_on_read", "copy_on_write"], int]] = [
    ("merge_on_read", 9),
    ("copy_on_write", 9),
    ("merge_on_read", 8),
    ("copy_on_write", 8),
    ("merge_on_read", 6),
    ("copy_on_write", 6),
]


def rows(numbers: Iterable[int], ts: int) -> pa.Table:
    made = [
        {
            "id": f"k{n:03d}",
            "region": ("north", "south")[n % 2],
            "ts": ts,
            "note": f"n{(n + ts) % 7}",
        }
        for n in numbers
    ]
    return pa.Table.from_pylist(made, SCHEMA)


@pytest.mark.parametrize(("table_type", "version"), sample(KINDS, one_in=3))
def test_metadata_tables_equal_the_files_as_apache_hudi_reads_both(
    oracle: Oracle,
    tmp_path: Path,
    table_type: Literal["merge_on_read", "copy_on_write"],
    version: int,
) -> None:
    path = tmp_path / "orders"
    table = lakemark.create(
        path,
        schema=SCHEMA,
        record_key="id",
        partition_by="region",
        ordering="ts",
        table_type=table_type,
        version=version,
        index="lookup",
    )
    table.bulk_insert(rows(range(20), 10))
    table.bulk_insert(rows(range(20, 40), 10))
    table.create_index("record_index")
    table.create_index("bloom_filters")
    if version >= 8:
        table.create_index("note", column="note")
    table.upsert(rows(range(5, 25), 20))
    table.upsert(rows(range(30, 50), 5))  # some of them are late
    table.delete(["k001", "k002", "k047"])
    assert oracle.metadata_differences(path) == []
    if table_type == "merge_on_read":
        table.compact()
    table.upsert(rows(range(3, 9), 30))
    undone = table.upsert(rows(range(6, 12), 31))
    assert undone.instant is not None
    table.rollback(undone.instant)
    table = lakemark.open(path)
    table.clean(retain_commits=1)
    table.upsert(rows(range(0, 60, 3), 40))
    assert oracle.metadata_differences(path) == []
    table.cluster()
    table.delete_partitions("south")
    table.upsert(rows(range(20), 50))
    assert oracle.metadata_differences(path) == []


def test_a_wrong_metadata_table_differs(oracle: Oracle, tmp_path: Path) -> None:
    path = tmp_path / "orders"
    table = lakemark.create(
        path, schema=SCHEMA, record_key="id", partition_by="region", ordering="ts", index="lookup"
    )
    table.upsert(rows(range(20), 10))
    assert oracle.metadata_differences(path) == []
    (file, _) = sorted(path.glob("*/*.parquet"))
    file.unlink()
    (difference, *_) = oracle.metadata_differences(path)
    assert difference.startswith("file slices: only in the metadata table")
