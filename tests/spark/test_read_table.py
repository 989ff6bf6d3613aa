"""DataFrames of tables of Apache Hudi equal Apache Hudi's own DataFrames."""

from __future__ import annotations

import pickle
from functools import partial
from itertools import chain
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from lakemark.errors import InvalidConfig, SnapshotChanged
from lakemark.model.changes import ChangeKind
from lakemark.read.queries import ReadOptimized, Snapshot
from lakemark.spark.plain_slices import plain_slices
from lakemark.spark.read import ReadShares, read_table
from lakemark.storage import StorageLocation, open_storage
from tests import tables
from tests.fixtures.s3 import S3Server
from tests.golden.golden_table import GoldenTable, unpack
from tests.spark.answers import (
    TABLES,
    apaches,
    files_read_by_spark,
    ours,
    plan_of,
    queries_of,
    sorted_rows,
)

pytestmark = pytest.mark.spark

_CONDITIONS = [
    "region = 'r1'",
    "id in ('k0001', 'k0002', 'it''s') or not qty < 5",
    "price >= 10.5 and seen < '2026-01-01 00:30:00'",
    "pos.lat > 0 and note is not null",
    "day != '2026-01-01' and ok = true",
]
_ODD_REGIONS = ["a*b", "{c,d}", "50% e", "f=g", "[h]?", "i+j", "_k", "ö"]
_ODD_REGIONS += ["#7", "order#42", ".l", "m.crc", "n.tmp", "_spark_metadata", "o._COPYING_"]


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> GoldenTable:
    """A table in which half of the slices have logs."""
    return unpack("v9_mor_compacted", tmp_path_factory.mktemp("golden"))


@pytest.mark.parametrize("name", TABLES)
def test_every_query_returns_the_rows_of_apache_hudi(
    spark: SparkSession, name: str, tmp_path: Path
) -> None:
    golden = unpack(name, tmp_path)
    for answer, query in queries_of(golden).items():
        found, expected = ours(spark, golden, query), apaches(spark, golden, answer)
        assert found.schema == expected.schema, answer
        assert sorted_rows(found) == sorted_rows(expected), answer


def test_spark_reads_plain_files_and_workers_read_slices_with_logs(
    spark: SparkSession, compacted: GoldenTable
) -> None:
    scan = compacted.table.scan()
    plain = {str(s.base.name) for s in plain_slices(compacted.table, scan) if s.base}
    frame = ours(spark, compacted, Snapshot())
    assert 0 < len(plain) < len(scan.slices)
    assert files_read_by_spark(frame) == plain
    assert "FileScan parquet" in plan_of(frame)
    assert "MapInArrow" in plan_of(frame)


def test_workers_read_files_that_spark_cannot_reach(
    spark: SparkSession, compacted: GoldenTable
) -> None:
    frame = read_table(spark, compacted.root, spark_reads_files=False)
    assert "FileScan" not in plan_of(frame)
    assert sorted_rows(frame) == sorted_rows(apaches(spark, compacted, "snapshot"))


def test_spark_does_not_read_files_of_older_schemas(spark: SparkSession, tmp_path: Path) -> None:
    golden = unpack("v9_mor_evolved", tmp_path)
    scan = golden.table.scan(ReadOptimized())
    assert scan.slices
    assert not plain_slices(golden.table, scan)


@pytest.mark.parametrize("where", _CONDITIONS)
def test_spark_and_workers_filter_alike(
    spark: SparkSession, compacted: GoldenTable, where: str
) -> None:
    expected = compacted.table.scan(columns=["id", "qty"], where=where).to_table()
    frame = read_table(spark, compacted.root, columns=["id", "qty"], where=where)
    found = [row.asDict() for row in frame.collect()]
    assert 0 < len(found) < compacted.expected("snapshot").num_rows
    assert sorted(found, key=str) == sorted(expected.to_pylist(), key=str)


def test_pruned_partitions_are_not_read(spark: SparkSession, compacted: GoldenTable) -> None:
    frame = ours(spark, compacted, Snapshot(), "_hoodie_partition_path = 'r1'")
    scan = compacted.table.scan(where="_hoodie_partition_path = 'r1'")
    plain = plain_slices(compacted.table, scan)
    assert files_read_by_spark(frame) == {str(s.base.name) for s in plain if s.base}
    assert len(plain) < len(scan.slices)
    merged = ReadShares.of_scan(scan.with_slices([s for s in scan.slices if s not in plain]), 2)
    assert f"step=1, splits={len(merged.shares)})" in plan_of(frame)
    assert ours(spark, compacted, Snapshot(), "region = 'nowhere'").collect() == []


def test_worker_receives_only_its_slices(compacted: GoldenTable) -> None:
    scan = compacted.table.scan(columns=["id"])
    function = pickle.loads(pickle.dumps(ReadShares.of_scan(scan, parallelism=2)))
    assert isinstance(function.read, partial)
    assert function.read.args[0].slices == ()
    shares = [pickle.loads(one) for one in function.shares]
    assert len(shares) == 2 < len(scan.slices)
    assert sorted(chain(*shares), key=str) == sorted(scan.slices, key=str)
    assert len(pickle.dumps(function)) < 50_000


def test_folder_names_are_not_treated_as_patterns(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "a {b} 100% *"
    storage = open_storage(StorageLocation(str(root)))
    tables.make(storage)
    writer = tables.writer(storage)
    rows = [tables.Row(f"k{number}", region=name) for number, name in enumerate(_ODD_REGIONS)]
    tables.commit(writer, rows)
    tables.commit(writer, [tables.Row("k0", ts=1, v=7, region=_ODD_REGIONS[0])])
    frame = read_table(spark, root, columns=["id", "region", "v"])
    expected = [(row.id, row.region, 7 if row.id == "k0" else 0) for row in rows]
    assert sorted(map(tuple, frame.collect())) == sorted(expected)
    assert len(files_read_by_spark(frame)) == len(rows) - 2, "one has a log, one Spark passes over"


@pytest.mark.parametrize("seed", range(3))
def test_tasks_of_several_slices_return_the_rows_of_a_scan(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    storage = open_storage(StorageLocation(str(tmp_path)))
    tables.make(storage)
    writer, expected = tables.writer(storage), dict[str, tuple[int, int]]()
    random = Random(seed)
    for at in range(4):
        rows = [_random_change(random, key, at) for key in random.sample(range(60), 40)]
        tables.commit(writer, rows)
        expected |= {row.id: (at, row.v) for row in rows if row.kind is ChangeKind.UPSERT}
        for row in rows:
            if row.kind is ChangeKind.DELETE:
                expected.pop(row.id, None)
    frame = read_table(spark, tmp_path, columns=["id", "ts", "v"])
    found = [(row.id, (row.ts, row.v)) for row in frame.collect()]
    assert sorted(found) == sorted(expected.items())
    assert dict(found) == tables.contents(storage)
    assert "splits=2)" in plan_of(frame), "16 file groups, read by two tasks"


def _random_change(random: Random, key: int, at: int) -> tables.Row:
    kind = random.choice([ChangeKind.UPSERT, ChangeKind.UPSERT, ChangeKind.DELETE])
    return tables.Row(f"k{key}", at, random.randrange(100), f"r{key % 8}", kind)


def test_unknown_column_is_refused_immediately(spark: SparkSession, compacted: GoldenTable) -> None:
    with pytest.raises(InvalidConfig, match="no_such"):
        read_table(spark, compacted.root, columns=["no_such"])


def test_file_cleaned_meanwhile_requires_a_new_plan(spark: SparkSession, tmp_path: Path) -> None:
    golden = unpack("v9_mor_recordindex", tmp_path)
    plain = plain_slices(golden.table, golden.table.scan())
    assert plain[0].base is not None
    (golden.root / plain[0].base.path).unlink()
    with pytest.raises(SnapshotChanged, match=str(plain[0].base.name)):
        read_table(spark, golden.root)


def test_workers_read_a_store_that_spark_cannot_reach(
    spark: SparkSession, s3_server: S3Server
) -> None:
    location = s3_server.location()
    storage = open_storage(location)
    tables.make(storage)
    tables.commit(tables.writer(storage), [tables.Row("k1", v=3)])
    with pytest.raises(InvalidConfig, match="spark_reads_files"):
        read_table(spark, location.url, storage_options=location.options)
    frame = read_table(
        spark,
        location.url,
        columns=["id", "v"],
        storage_options=location.options,
        spark_reads_files=False,
    )
    assert [tuple(row) for row in frame.collect()] == [("k1", 3)]
