"""A write from Spark has the effect of the same write from Python, in every kind of table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import lakemark
from lakemark.errors import InvalidConfig, InvalidRecords, Refused, Unsupported
from lakemark.operations.write_result import WriteResult
from lakemark.spark import row_shares, write
from lakemark.spark.row_shares import SparkShares

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("few_tasks")]

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("region", pa.string()),
        ("ts", pa.int64()),
        ("v", pa.int32()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)


class Kind(NamedTuple):
    index_kind: str
    table_type: str
    has_record_index: bool = False
    moves_rows: bool = False

    def __str__(self) -> str:
        more = (["record_index"] * self.has_record_index) + (["moves"] * self.moves_rows)
        return "-".join([self.index_kind, self.table_type, *more])

    @property
    def replaces_partitions(self) -> bool:
        return self.index_kind != "consistent_hashing"

    def create(self, path: Path) -> lakemark.Table:
        given: dict[str, Any] = {} if self.index_kind == "lookup" else {"buckets": 2}
        table = lakemark.create(
            path,
            schema=SCHEMA,
            record_key="id",
            partition_by="region",
            ordering="ts",
            index=self.index_kind,
            table_type=self.table_type,
            **given,
        )
        if self.has_record_index:
            table.upsert(rows([("first", "r0", 0)]))
            table.create_index("record_index")
        return lakemark.open(path, partition_change="move") if self.moves_rows else table


KINDS = [
    Kind("bucket", "merge_on_read"),
    Kind("bucket", "copy_on_write"),
    Kind("consistent_hashing", "merge_on_read"),
    Kind("lookup", "merge_on_read"),
    Kind("lookup", "copy_on_write", has_record_index=True),
    Kind("lookup", "merge_on_read", moves_rows=True),
]


def rows(listed: Iterable[tuple[str, str, int]], deleted: frozenset[str] = frozenset()) -> pa.Table:
    """Create rows with these keys, regions and times."""
    return pa.Table.from_pylist(
        [
            {"id": key, "region": region, "ts": ts, "v": ts, "_hoodie_is_deleted": key in deleted}
            for key, region, ts in listed
        ],
        SCHEMA,
    )


def numbered(numbers: Iterable[int], ts: int) -> list[tuple[str, str, int]]:
    return [(f"k{number:03d}", f"r{number % 3}", ts) for number in numbers]


def frame(spark: SparkSession, given: pa.Table) -> DataFrame:
    columns = "id string, region string, ts bigint, v int, _hoodie_is_deleted boolean"
    listed = [tuple(row.values()) for row in given.to_pylist()]
    return spark.createDataFrame(listed, columns)


def stored(table: lakemark.Table) -> list[dict[str, Any]]:
    found = lakemark.open(table.location).snapshot(["id", "region", "ts", "v"]).read_all()
    return sorted(found.to_pylist(), key=str)


def counts(result: WriteResult) -> tuple[int, ...]:
    return (result.upserts, result.inserts, result.skipped, result.deletes, result.replaced_groups)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_each_operation_has_the_effect_of_the_same_call_in_python(
    spark: SparkSession, tmp_path: Path, kind: Kind
) -> None:
    table, twin = kind.create(tmp_path / "orders"), kind.create(tmp_path / "twin")

    def check(result: WriteResult, other: WriteResult) -> None:
        assert counts(result) == counts(other)
        assert stored(table) == stored(twin)

    first = rows(numbered(range(60), 1))
    check(write(frame(spark, first), table), twin.upsert(first))
    # Updates, late rows, new rows, deletes, and a key twice.
    mixed = rows(
        [*numbered(range(20), 5), *numbered(range(20, 30), 0), *numbered([3, 70, 71], 9)],
        frozenset(["k005", "k070"]),
    )
    check(write(frame(spark, mixed), table, tasks=2), twin.upsert(mixed))
    keys = pa.table({"id": ["k001", "k071", "absent"]})
    found = spark.createDataFrame([("k001",), ("k071",), ("absent",), ("k001",)], "id string")
    check(write(found, table, "delete"), twin.delete(keys))
    if not kind.moves_rows:
        new = rows(numbered([2, 1, 80, 80], 7))
        check(
            write(frame(spark, new), table, "insert", duplicates="drop"),
            twin.insert(new, duplicates="drop"),
        )
    if kind.replaces_partitions:
        part = rows(numbered([90, 93, 93], 1))
        check(write(frame(spark, part), table, "insert_overwrite"), twin.insert_overwrite(part))
        regions = spark.createDataFrame([("r1",), ("r1",), ("absent",)], "region string")
        twin.delete_partitions("r1")
        assert write(regions, table, "delete_partition").replaced_groups
        assert stored(table) == stored(twin)
        check(
            write(frame(spark, first), table, "insert_overwrite_table"),
            twin.insert_overwrite_table(first),
        )
    assert not lakemark.open(table.location).metadata_differences()


def test_an_insert_into_a_table_with_lookup_stores_each_row(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = KINDS[3].create(tmp_path / "orders")
    given = rows(numbered([1, 2, 2, 3], 1))
    for _ in range(2):
        assert write(frame(spark, given), table, "insert").inserts == 4
    assert len(stored(table)) == 8
    assert len({row["id"] for row in stored(table)}) == 3


def test_rows_without_a_key_are_inserted_and_replaced(spark: SparkSession, tmp_path: Path) -> None:
    table = lakemark.create(
        tmp_path / "log", schema=SCHEMA, record_key=(), partition_by="region", index="lookup"
    )
    given = rows(numbered(range(9), 1))
    for _ in range(2):
        assert write(frame(spark, given), table, "insert").inserts == 9
    assert len(stored(table)) == 18
    write(frame(spark, rows(numbered([0], 2))), table, "insert_overwrite")
    assert [row["ts"] for row in stored(table) if row["region"] == "r0"] == [2]
    with pytest.raises(Unsupported, match="automatic record keys"):
        write(frame(spark, given), table)


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[3]], ids=str)
def test_a_stored_key_refuses_the_whole_insert(
    spark: SparkSession, tmp_path: Path, kind: Kind
) -> None:
    table = kind.create(tmp_path / "orders")
    table.upsert(rows(numbered([1], 1)))
    before = stored(table)
    for given, reason in (([1, 2], "already contains"), ([3, 3], "several of the rows")):
        with pytest.raises(InvalidRecords, match=reason):
            write(frame(spark, rows(numbered(given, 2))), table, "insert", duplicates="fail")
    with pytest.raises(InvalidRecords, match="marked as deleted"):
        write(frame(spark, rows(numbered([4], 1), frozenset(["k004"]))), table, "insert")
    assert stored(table) == before
    assert not lakemark.open(table.location).timeline.pending()


def test_rows_that_differ_when_they_are_evaluated_again_are_not_published(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = KINDS[3].create(tmp_path / "orders")
    table.upsert(rows(numbered([1], 1)))
    original = SparkShares.write

    def write_others(self: SparkShares, *given: Any) -> Any:
        self._rows = self._rows.withColumn("id", f.concat("id", f.lit("x")))
        return original(self, *given)

    monkeypatch.setattr(SparkShares, "write", write_others)
    with pytest.raises(Refused, match="evaluated the rows twice"):
        write(frame(spark, rows(numbered([1, 2], 2))), table)
    assert [row["ts"] for row in stored(table)] == [1]


def test_a_task_that_runs_again_finds_its_own_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, attempts = KINDS[3].create(tmp_path / "orders"), list[str]()
    original = row_shares._run

    def run(divided: DataFrame, share_write: Any) -> Any:
        attempts.append(share_write.context.instant)
        original(divided, share_write)
        return original(divided.sortWithinPartitions("ts", "id", ascending=False), share_write)

    monkeypatch.setattr(row_shares, "_run", run)
    for ts in (1, 2):
        write(frame(spark, rows(numbered(range(30), ts))), table, tasks=2)
    assert len(attempts) == 2, "the second tasks found their own bytes"
    assert [row["ts"] for row in stored(table)] == 30 * [2]


def test_what_cannot_be_written_is_refused_before_an_instant_exists(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = KINDS[0].create(tmp_path / "orders")
    given = frame(spark, rows(numbered([1], 1)))
    before = sorted(path.name for path in (tmp_path / "orders/.hoodie/timeline").iterdir())
    wrong: list[tuple[DataFrame, str, dict[str, Any], str]] = [
        (given, "merge", {}, "operation is 'merge'; choose one of 'upsert', 'insert'"),
        (given, "insert", {"duplicate": "drop"}, "no option 'duplicate'; did you mean duplicates"),
        (given, "upsert", {"nonsense": 1}, "no option 'nonsense'; options: duplicates, sort"),
        (given, "upsert", {"sort": "none"}, "sort does not fit operation upsert, only bulk_insert"),
        (given, "delete", {"tasks": 2}, "tasks does not fit operation delete"),
        (given, "upsert", {"tasks": 0}, "tasks is 0; pass a positive integer"),
        (given, "insert", {"duplicates": "skip"}, "duplicates is 'skip'"),
        (given.drop("id"), "upsert", {}, "lack column 'id', which belongs to the record key"),
        (
            given.drop("region"),
            "insert",
            {},
            "lack column 'region', which belongs to the part",
        ),
        (given.drop("ts"), "bulk_insert", {}, "lack column 'ts', which belongs to the ordering"),
        (given.drop("id"), "delete", {}, "lack column 'id', which belongs to the record key"),
        (given.select("id"), "delete_partition", {}, "lack column 'region'"),
        (given.withColumn("w", f.lit(1)), "upsert", {}, "has no column 'w'"),
        (given.withColumn("v", f.lit("a")), "upsert", {}, "column 'v' is string in the rows"),
        (
            given.withColumn("w", f.expr("make_interval(1)")),
            "upsert",
            {"add_columns": True},
            "column 'w' has Spark's type interval",
        ),
        (spark.readStream.format("rate").load(), "upsert", {}, "pass lakemark.spark.foreach_batch"),
    ]
    for rows_given, operation, options, message in wrong:
        with pytest.raises(InvalidConfig, match=message):
            write(rows_given, table, operation, **options)
    assert sorted(path.name for path in (tmp_path / "orders/.hoodie/timeline").iterdir()) == before
    assert write(given.withColumn("w", f.lit(1)), table, add_columns=True).upserts == 1
    assert "w" in lakemark.open(table.location).snapshot().schema.names


def test_rows_that_were_read_from_a_table_can_be_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    from lakemark.spark import read_table

    table, copy = KINDS[0].create(tmp_path / "orders"), KINDS[3].create(tmp_path / "copy")
    table.upsert(rows(numbered(range(10), 1)))
    read = read_table(spark, table.location)
    assert write(read, copy).upserts == 10
    assert stored(copy) == stored(table)
    assert write(read.where("region = 'r0'"), copy, "delete").deletes == 4
    assert replace(write(read.limit(0), copy), skipped=0) == WriteResult(), "there are no rows"


def test_rows_that_were_persisted_stay_persisted(spark: SparkSession, tmp_path: Path) -> None:
    table = KINDS[3].create(tmp_path / "orders")
    frame(spark, rows(numbered(range(5), 1))).createOrReplaceTempView("persisted_orders")
    spark.catalog.cacheTable("persisted_orders")
    try:
        for _ in range(2):
            assert write(spark.table("persisted_orders"), table).upserts == 5
            assert spark.catalog.isCached("persisted_orders")
    finally:
        spark.catalog.uncacheTable("persisted_orders")
        spark.catalog.dropTempView("persisted_orders")
