"""A partition's column sizes are the sums of those of its files, as in tables of Apache Hudi.

The metadata table validator of Apache Hudi 1.2.0 (``validatePartitionStats``) compares them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import lakemark
from lakemark.metadata.column_stats.derive import files_of
from lakemark.metadata.column_stats.lookup import ColumnStatistics, PartitionStatistics
from lakemark.model.column_ranges import ColumnRanges
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from tests.golden.golden_table import unpack

SCHEMA = pa.schema([("id", pa.string()), ("p", pa.string()), ("ts", pa.int64())])
COLUMNS = pa.schema([("_hoodie_record_key", pa.string()), ("_hoodie_commit_time", pa.string())])


def rows(first: int, count: int, ts: int) -> pa.Table:
    made = [{"id": f"k{n}", "p": "pq"[n % 2], "ts": ts} for n in range(first, first + count)]
    return pa.Table.from_pylist(made, SCHEMA)


def check_sizes(path: Path) -> None:
    table = open_table(StorageLocation(str(path)))
    opened = table.metadata_opener.open(table.properties, table.timeline, table.store.clock)
    assert opened is not None
    files: dict[str, list[str]] = {}
    for file in files_of(table.view().latest_slices()):
        files.setdefault(file.partition_path, []).append(str(file.name))
    of_files = ColumnStatistics(opened).ranges(files, COLUMNS).ranges
    stored = PartitionStatistics(opened).ranges(sorted(files), COLUMNS).ranges
    assert files
    for partition in files:
        some = [ranges for (where, _), ranges in of_files.items() if where == partition]
        sizes = ColumnRanges.union(some).sizes
        assert stored[partition].sizes == sizes
        assert all(size > 0 for one in sizes.values() for size in one)
        assert sizes.keys() == {*COLUMNS.names}


@pytest.mark.parametrize("only_writer", [True, False])
@pytest.mark.parametrize("table_type", ["merge_on_read", "copy_on_write"])
def test_sizes_of_a_partition_are_the_sums_of_those_of_its_files(
    tmp_path: Path, table_type: str, only_writer: bool
) -> None:
    path = tmp_path / "t"
    lakemark.create(
        path,
        schema=SCHEMA,
        record_key="id",
        partition_by="p",
        ordering="ts",
        table_type=table_type,
        index="lookup",
    )
    steps: list[Callable[[lakemark.Table], object]] = [
        lambda table: table.bulk_insert(rows(0, 20, 1)),
        lambda table: table.bulk_insert(rows(20, 20, 2)),
        lambda table: table.upsert(rows(10, 20, 3)),
        lambda table: table.delete(["k1", "k25"]),
        *([lambda table: table.compact()] if table_type == "merge_on_read" else []),
        lambda table: table.cluster(),
        lambda table: table.upsert(rows(30, 20, 4)),
        lambda table: table.rebuild_metadata_table(),
    ]
    table = lakemark.open(path, only_writer=True)
    for step in steps:
        if not only_writer:
            table = lakemark.open(path)  # it reads the statistics, which another process wrote
        step(table)
        check_sizes(path)


@pytest.mark.parametrize("name", ["v9_cow_column_stats", "v8_mor_column_stats"])
def test_apache_hudi_writes_the_same_sizes(tmp_path: Path, name: str) -> None:
    check_sizes(unpack(name, tmp_path).root)
