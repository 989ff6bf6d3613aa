"""A bulk insert on Spark stores the rows of a DataFrame in one commit."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import lakemark
from lakemark.errors import InvalidConfig, InvalidRecords
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.operations.open_table import open_table
from lakemark.operations.share_write import ShareWrite, WrittenShare
from lakemark.operations.write_result import WriteResult
from lakemark.spark import row_shares, write
from lakemark.storage import StorageLocation
from tests.unit.operations.tables import SCHEMA, files, operations

pytestmark = pytest.mark.spark

_ROWS = 3000
_VALUES = (
    "concat('k', lpad(cast(id * 7919 % 3000 as string), 5, '0')) as id",
    "concat('r', cast(id % 3 as string)) as region",
    "id as ts",
    "cast(id * 2 as bigint) as v",
)


@pytest.fixture
def table(tmp_path: Path) -> lakemark.Table:
    return lakemark.create(
        tmp_path / "orders",
        schema=SCHEMA,
        record_key="id",
        partition_by="region",
        ordering="ts",
        index="lookup",
    )


def bulk_insert(table: lakemark.Table, rows: DataFrame, **options: Any) -> WriteResult:
    return write(rows, table, "bulk_insert", **options)


def frame(spark: SparkSession, tasks: int = 4) -> DataFrame:
    return spark.range(0, _ROWS, 1, tasks).selectExpr(*_VALUES)


def expected(rows: DataFrame) -> list[dict[str, object]]:
    return sorted((row.asDict() for row in rows.collect()), key=str)


def data_files(table: lakemark.Table) -> list[str]:
    """Return the paths of all base files on the disk."""
    root = Path(table.location)
    paths = (str(path.relative_to(root)) for path in root.rglob("*.parquet"))
    return sorted(path for path in paths if not path.startswith(".hoodie"))


def timeline_names(table: lakemark.Table) -> list[str]:
    return sorted(path.name for path in (Path(table.location) / ".hoodie/timeline").iterdir())


def stored(table: lakemark.Table) -> list[dict[str, object]]:
    found = lakemark.open(table.location).snapshot(SCHEMA.names).read_all().to_pylist()
    return sorted(found, key=str)


@pytest.mark.parametrize(
    ("sort", "tasks"), [("none", None), ("partition", None), ("global", 3), ("global", None)]
)
def test_rows_of_a_dataframe_are_inserted_in_one_commit(
    spark: SparkSession, table: lakemark.Table, sort: str, tasks: int | None
) -> None:
    rows, before = frame(spark), operations(table)
    result = bulk_insert(table, rows, sort=sort, tasks=tasks)
    assert result.inserts == _ROWS
    assert operations(table) == [*before, "BULK_INSERT"]
    assert stored(table) == expected(rows)
    assert result.files == len(files(table))
    assert not lakemark.open(table.location).metadata_differences()


def test_a_global_sort_divides_the_keys_of_a_partition_among_the_files(
    spark: SparkSession, table: lakemark.Table
) -> None:
    bulk_insert(table, frame(spark), sort="global", tasks=6)
    ranges: dict[str, list[tuple[str, str]]] = {}
    for path in files(table):
        keys = pq.read_table(Path(table.location) / path, columns=["id"]).column("id")
        assert pc.all(pc.less(keys[:-1], keys[1:])).as_py() in (True, None), "sorted in the file"
        low, high = pc.min_max(keys).as_py().values()
        ranges.setdefault(path.partition("/")[0], []).append((low, high))
    assert max(map(len, ranges.values())) > 1, "a partition is divided among tasks"
    for each in ranges.values():
        assert all(one[1] < other[0] for one, other in pairwise(sorted(each)))


def test_a_later_upsert_finds_the_rows(spark: SparkSession, table: lakemark.Table) -> None:
    bulk_insert(table, frame(spark), sort="global", tasks=2)
    newest = frame(spark).limit(50).selectExpr("id", "region", "ts + 10000 as ts", "v")
    table.upsert(pa.Table.from_pylist([row.asDict() for row in newest.collect()], SCHEMA))
    found = stored(table)
    assert len(found) == _ROWS
    assert sum(int(str(row["ts"])) >= 10_000 for row in found) == 50


@pytest.mark.parametrize("sort", ["none", "global"])
def test_a_row_that_cannot_be_stored_undoes_the_whole_insert(
    spark: SparkSession, table: lakemark.Table, sort: str
) -> None:
    bad = frame(spark).selectExpr("nullif(id, 'k00007') as id", "region", "ts", "v")
    with pytest.raises(InvalidRecords, match="record key"):
        bulk_insert(table, bad, sort=sort)
    assert data_files(table) == []
    assert not lakemark.open(table.location).timeline.pending()
    table.upsert(pa.Table.from_pylist([{"id": "a", "region": "r1", "ts": 1, "v": 1}], SCHEMA))
    assert len(stored(table)) == 1


def test_a_share_whose_rows_arrive_in_another_order_is_written_again(
    spark: SparkSession, table: lakemark.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task of the first attempt writes a file, is lost, and then reads its rows in reverse."""
    rows, attempts = frame(spark, tasks=1), list[str]()
    original = row_shares._run

    def run(divided: DataFrame, share_write: ShareWrite) -> list[WrittenShare]:
        attempts.append(share_write.context.instant)
        if len(attempts) == 1:
            original(divided, share_write)
            divided = divided.orderBy("ts", ascending=False).coalesce(1)
        return original(divided, share_write)

    monkeypatch.setattr(row_shares, "_run", run)
    result = bulk_insert(table, rows)
    assert len(set(attempts)) == 2, "the first attempt was rolled back"
    assert stored(table) == expected(rows)
    assert sorted(data_files(table)) == files(table)
    assert result.inserts == _ROWS


def test_the_order_of_arrival_does_not_change_the_files_of_a_global_sort(
    spark: SparkSession, table: lakemark.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, attempts = frame(spark, tasks=1), list[str]()
    original = row_shares._run

    def run(divided: DataFrame, share_write: ShareWrite) -> list[WrittenShare]:
        attempts.append(share_write.context.instant)
        original(divided.orderBy("ts", ascending=False).coalesce(1), share_write)
        return original(divided.orderBy("ts").coalesce(1), share_write)

    monkeypatch.setattr(row_shares, "_run", run)
    bulk_insert(table, rows, sort="global", tasks=1)
    assert len(attempts) == 1, "the second task found its own bytes"
    assert stored(table) == expected(rows)


def test_wrong_arguments_are_refused_before_an_instant_exists(
    spark: SparkSession, table: lakemark.Table
) -> None:
    more = frame(spark).selectExpr("*", "'x' as extra")
    before = timeline_names(table)
    with pytest.raises(InvalidConfig, match="extra"):
        bulk_insert(table, more)
    with pytest.raises(InvalidConfig, match="tasks is 0; pass a positive integer"):
        bulk_insert(table, frame(spark), sort="global", tasks=0)
    with pytest.raises(InvalidConfig, match="tasks is 3, but with sort='none'"):
        bulk_insert(table, frame(spark), tasks=3)
    assert timeline_names(table) == before
    bulk_insert(table, more, add_columns=True)
    assert "extra" in lakemark.open(table.location).snapshot().schema.names


BUCKETED = [
    {"index": "bucket", "table_type": "merge_on_read"},
    {"index": "bucket", "table_type": "copy_on_write"},
    {"index": "consistent_hashing"},
]


def create_with_buckets(path: Path, given: dict[str, Any]) -> lakemark.Table:
    return lakemark.create(
        path,
        schema=SCHEMA,
        record_key="id",
        partition_by="region",
        ordering="ts",
        buckets=2,
        **given,
    )


@pytest.mark.parametrize("given", BUCKETED, ids=lambda one: "-".join(one.values()))
def test_each_bucket_is_one_file_group_whose_rows_are_merged(
    spark: SparkSession, tmp_path: Path, given: dict[str, Any]
) -> None:
    table, rows = create_with_buckets(tmp_path / "orders", given), frame(spark)
    assert bulk_insert(table, rows).inserts == _ROWS
    assert stored(table) == expected(rows)
    groups = view_of(table)
    assert len(groups) == 2 * 3, "two buckets in each of three partitions"
    assert len(files(table)) == len(groups), "each group has one base file"
    newer = frame(spark, tasks=3).selectExpr("id", "region", "ts + 10000 as ts", "v + 1 as v")
    older = newer.where("ts % 2 = 0").selectExpr("id", "region", "ts - 20000 as ts", "v - 2 as v")
    result = bulk_insert(table, newer.unionAll(older), tasks=3, sort="none")
    assert result.inserts == newer.count() + older.count()
    assert stored(table) == expected(newer), "keys are stored once, and older rows lose"
    assert view_of(table) == groups
    twin = create_with_buckets(tmp_path / "twin", given)
    for part in (rows, newer):
        twin.bulk_insert(pa.Table.from_pylist([r.asDict() for r in part.collect()], SCHEMA))
    assert stored(twin) == stored(table)
    assert buckets_of(twin) == buckets_of(table)
    assert not lakemark.open(table.location).metadata_differences()


@pytest.mark.parametrize("given", BUCKETED, ids=lambda one: "-".join(one.values()))
def test_a_task_that_runs_again_publishes_the_rows_of_its_buckets_once(
    spark: SparkSession, tmp_path: Path, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tasks write all files, are lost, and then read their rows in another order."""
    table, attempts = create_with_buckets(tmp_path / "orders", given), list[str]()
    original = row_shares._run

    def run(divided: DataFrame, share_write: ShareWrite) -> list[WrittenShare]:
        attempts.append(share_write.context.instant)
        original(divided, share_write)
        return original(divided.sortWithinPartitions("ts", ascending=False), share_write)

    monkeypatch.setattr(row_shares, "_run", run)
    for more in (0, 1):
        rows = frame(spark).selectExpr("id", "region", f"ts + {more} as ts", f"v + {more} as v")
        assert bulk_insert(table, rows, tasks=2).inserts == _ROWS
        assert stored(table) == expected(rows)
    assert len(attempts) == 2, "the second tasks found their own bytes"
    assert sum(1 for path in files(table) if path.endswith(".parquet")) == len(view_of(table))


def test_rows_without_a_key_get_the_numbers_of_their_task_and_row(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = lakemark.create(
        tmp_path / "events", schema=SCHEMA, record_key=(), partition_by="region", index="lookup"
    )
    rows = frame(spark, tasks=3)
    with pytest.raises(InvalidConfig, match="tasks is 2, but the table has automatic record keys"):
        bulk_insert(table, rows, sort="global", tasks=2)
    assert bulk_insert(table, rows, sort="global").inserts == _ROWS
    table.create_index("record_index")
    assert bulk_insert(table, rows, sort="global").inserts == _ROWS
    assert stored(table) == sorted(2 * expected(rows), key=str)
    assert table.metadata_differences() == [], "the tasks return the keys for the record index"
    keys = table.snapshot([RECORD_KEY]).read_all()[RECORD_KEY]
    instants = {key.partition("_")[0] for key in keys.to_pylist()}
    made = {f"{i}_{task}_{row}" for i in instants for task in range(3) for row in range(1000)}
    assert len(instants) == 2
    assert set(keys.to_pylist()) == made


def view_of(table: lakemark.Table) -> set[str]:
    """Return the file groups of a table."""
    view = open_table(StorageLocation(table.location)).view()
    return {str(one.group) for one in view.latest_slices()}


def buckets_of(table: lakemark.Table) -> dict[tuple[str, str], set[str]]:
    """Return the record keys in each file group, by partition and bucket."""
    view, found = open_table(StorageLocation(table.location)).view(), {}
    for one in view.latest_slices():
        assert one.base is not None
        keys = pq.read_table(Path(table.location) / one.base.path, columns=["id"])["id"]
        # The rest of the file id of a bucket index differs between tables.
        found[one.group.partition_path, one.group.file_id[:8]] = set(keys.to_pylist())
    return found
