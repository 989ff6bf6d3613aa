"""Rows that a cluster holds are written as the same rows of one process, by any division."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakemark
from lakemark.errors import InvalidConfig, InvalidRecords, Refused
from lakemark.model.changes import CHANGE_KIND
from lakemark.model.commit_metadata import Operation
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY
from lakemark.operations.duplicate_keys import Duplicates
from lakemark.operations.share_write import (
    BUCKET_NUMBER,
    NUM_ROWS,
    RowPaths,
    SharedWrite,
    ShareWrite,
    WrittenShare,
)
from tests.unit.operations.tables import SCHEMA, contents, operations, rows


@dataclass
class LocalShares:
    """Rows that are divided among tasks of this process, in the way of Spark."""

    rows: pa.Table
    tasks: int = 3
    later: pa.Table | None = None
    gathered: list[str] = field(default_factory=list)

    def check(self, *, has_buckets: bool, has_automatic_keys: bool) -> None:
        pass

    def partition_paths(self, paths: RowPaths) -> Collection[str]:
        self.gathered.append("paths")
        found: list[str] = pc.unique(paths.of(self.rows)).to_pylist()
        return found

    def keys(self, write: ShareWrite) -> pa.Table:
        self.gathered.append("keys")
        names = [RECORD_KEY, PARTITION_PATH, CHANGE_KIND]
        counted = (
            write.changes(self.rows).select(names).group_by(names).aggregate([([], "count_all")])
        )
        return counted.select([*names, "count_all"]).rename_columns([*names, NUM_ROWS])

    def gather(self) -> pa.Table:
        self.gathered.append("rows")
        return self.rows

    def write(self, write: ShareWrite, numbers: pa.Table | None = None) -> list[WrittenShare]:
        given = self.rows if self.later is None else self.later
        changes = write.changes(given)
        if numbers is not None:
            listed = zip(*(numbers[name].to_pylist() for name in numbers.column_names), strict=True)
            known = {(key, path): number for key, path, number in listed}
            places = zip(*(changes[n].to_pylist() for n in numbers.column_names[:2]), strict=True)
            found = pa.array([known.get(place) for place in places], pa.int32())
            given = given.append_column(BUCKET_NUMBER, found).filter(found.is_valid())
            owners = given[BUCKET_NUMBER].to_numpy() % self.tasks
        else:
            owners = write.bucket_numbers(changes) % self.tasks
        written = []
        for task in range(self.tasks):
            own = given.filter(pa.array(owners == task))
            order = pa.array(np.random.default_rng(task).permutation(own.num_rows))
            written.append(write.write(task, [own.take(order)]))
        return written


INDEXES = ("bucket", "consistent_hashing", "lookup")


def create(path: Path, index: str) -> lakemark.Table:
    buckets: dict[str, Any] = {} if index == "lookup" else {"buckets": 3}
    return lakemark.create(
        path,
        schema=SCHEMA,
        record_key="id",
        partition_by="region",
        ordering="ts",
        index=index,
        **buckets,
    )


@pytest.mark.parametrize("index", INDEXES)
def test_an_upsert_of_shares_is_an_upsert(tmp_path: Path, index: str) -> None:
    table, twin = create(tmp_path / "orders", index), create(tmp_path / "twin", index)
    first = rows(*((f"k{n}", f"r{n % 2}", 1, n) for n in range(20)))
    second = rows(*((f"k{n}", f"r{n % 2}", n % 4, -n) for n in range(10, 30)), ("k9", "r1", 9, 9))
    for given in (first, second):
        shares = LocalShares(given)
        result = table.write_shares(SCHEMA, shares, SharedWrite(Operation.UPSERT))
        assert result.upserts == twin.upsert(given).upserts == given.num_rows
        wanted = {"bucket": [], "consistent_hashing": ["paths"], "lookup": ["keys"]}
        assert shares.gathered == wanted[index]
    assert contents(table) == contents(twin)
    assert operations(table) == operations(twin)


def test_shares_are_inserted_or_skipped_by_key(tmp_path: Path) -> None:
    for index in INDEXES:
        table = create(tmp_path / index, index)
        table.upsert(rows(("a", "r", 1, 1), ("b", "s", 1, 1)))
        given = LocalShares(rows(("a", "r", 2, 2), ("b", "r", 2, 2), ("c", "r", 3, 3)))
        wanted = SharedWrite(Operation.INSERT, duplicates=Duplicates.DROP)
        result = table.write_shares(SCHEMA, given, wanted)
        assert (result.inserts, result.skipped) == (2, 1)
        found = table.snapshot(["id", "region", "ts"]).read_all().to_pylist()
        assert sorted(tuple(row.values()) for row in found) == [
            ("a", "r", 1),
            ("b", "r", 2),
            ("b", "s", 1),
            ("c", "r", 3),
        ]


@pytest.mark.parametrize("index", ["bucket", "lookup"])
def test_shares_replace_partitions(tmp_path: Path, index: str) -> None:
    table, twin = create(tmp_path / "orders", index), create(tmp_path / "twin", index)
    for one in (table, twin):
        one.upsert(rows(("a", "r", 1, 1), ("b", "r", 1, 1), ("c", "s", 1, 1)))
    given = rows(("b", "r", 5, 5), ("d", "r", 1, 1), ("d", "r", 2, 2))
    for operation, call in (
        (Operation.INSERT_OVERWRITE, twin.insert_overwrite),
        (Operation.INSERT_OVERWRITE_TABLE, twin.insert_overwrite_table),
    ):
        result = table.write_shares(SCHEMA, LocalShares(given), SharedWrite(operation))
        other = call(given)
        assert (result.inserts, result.replaced_groups) == (other.inserts, other.replaced_groups)
        assert contents(table) == contents(twin)
    wanted = SharedWrite(Operation.INSERT_OVERWRITE_TABLE)
    nothing = LocalShares(SCHEMA.empty_table())
    assert table.write_shares(SCHEMA, nothing, wanted).replaced_groups
    assert contents(table) == {}


def test_partitions_of_shares_are_deleted_as_far_as_they_exist(tmp_path: Path) -> None:
    table = create(tmp_path / "orders", "bucket")
    table.upsert(rows(("a", "r", 1, 1), ("b", "s", 1, 1)))
    wanted = SharedWrite(Operation.DELETE_PARTITION)
    regions = pa.table({"region": ["r", "r", "absent"]})
    assert table.write_shares(regions.schema, LocalShares(regions), wanted).replaced_groups == 1
    assert list(contents(table)) == ["b"]
    assert table.write_shares(regions.schema, LocalShares(regions), wanted).instant is None
    with pytest.raises(InvalidConfig, match="lack column 'region'"):
        table.write_shares(pa.schema([]), LocalShares(regions), wanted)
    whole = lakemark.create(tmp_path / "whole", schema=SCHEMA, record_key="id")
    with pytest.raises(InvalidConfig, match="is not partitioned"):
        whole.write_shares(regions.schema, LocalShares(regions), wanted)


def test_an_overwrite_by_shares_stores_no_key_of_a_record_index_twice(tmp_path: Path) -> None:
    table = create(tmp_path / "orders", "lookup")
    table.upsert(rows(("a", "r", 1, 1), ("b", "s", 1, 1)))
    table.create_index("record_index")
    given, wanted = LocalShares(rows(("b", "r", 2, 2))), SharedWrite(Operation.INSERT_OVERWRITE)
    with pytest.raises(InvalidRecords, match="has a row in partition 's'"):
        table.write_shares(SCHEMA, given, wanted)
    table.write_shares(SCHEMA, LocalShares(rows(("c", "r", 2, 2))), wanted)
    assert sorted(contents(table)) == ["b", "c"]
    assert not lakemark.open(table.location).metadata_differences()


def test_shares_with_other_rows_than_their_keys_are_not_published(tmp_path: Path) -> None:
    table = create(tmp_path / "orders", "lookup")
    table.upsert(rows(("a", "r", 1, 1)))
    shares = LocalShares(rows(("a", "r", 2, 2), ("b", "r", 2, 2)), later=rows(("a", "r", 2, 2)))
    with pytest.raises(Refused, match="evaluated the rows twice"):
        table.write_shares(SCHEMA, shares, SharedWrite(Operation.UPSERT))
    assert contents(table) == {"a": ("r", 1, 1)}
    assert not lakemark.open(table.location).timeline.pending()


def test_rows_that_move_between_partitions_are_gathered(tmp_path: Path) -> None:
    table = lakemark.open(create(tmp_path / "orders", "lookup").location, partition_change="move")
    table.upsert(rows(("a", "r", 1, 1)))
    shares = LocalShares(rows(("a", "s", 2, 2)))
    table.write_shares(SCHEMA, shares, SharedWrite(Operation.UPSERT))
    assert shares.gathered == ["rows"]
    assert contents(table) == {"a": ("s", 2, 2)}
