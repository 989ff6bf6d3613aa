"""lakemark and Apache Hudi continue each other's tables that have no bucket index.

Apache Hudi finds the keys that lakemark added, and lakemark those that Apache Hudi added: no key is
stored twice, and both read the rows of the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakemark
from lakemark.index.bucket import find_bucket
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from lakemark.view.file_system_view import FileSystemView
from tests.depth import sample
from tests.interop.oracle import ApacheTable, Oracle

pytestmark = pytest.mark.oracle

SCHEMA = pa.schema(
    [("id", pa.string()), ("region", pa.string()), ("ts", pa.int64()), ("v", pa.int32())]
)
REGIONS = ("north", "south")

#: Each insert of Apache Hudi creates file groups of ten records.
SEVERAL_GROUPS = {
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.copyonwrite.insert.auto.split": "false",
    "hoodie.copyonwrite.insert.split.size": "10",
}


#: Settings of Apache Hudi 1.2.0, and the setting that its writers of older tables know.
RECORD_INDEX = {
    "hoodie.metadata.global.record.level.index.enable": "true",
    "hoodie.metadata.record.index.enable": "true",
}


class Kind(NamedTuple):
    """One kind of table that Apache Hudi creates."""

    index_type: str
    table_type: Literal["MERGE_ON_READ", "COPY_ON_WRITE"]
    version: int
    has_metadata: bool = False

    def __str__(self) -> str:
        metadata = "-metadata" if self.has_metadata else ""
        return f"{self.index_type}-{self.table_type}-v{self.version}{metadata}"

    def table(self) -> ApacheTable:
        extra = {"hoodie.index.type": self.index_type}
        if self.index_type == "RECORD_INDEX":
            extra |= RECORD_INDEX
        keys, ordering = (["id"], ["region"]), ["ts"]
        return ApacheTable(
            "orders",
            *keys,
            ordering,
            table_type=self.table_type,
            version=self.version,
            has_metadata=self.has_metadata,
            extra=extra,
        )


KINDS = [
    Kind("SIMPLE", "MERGE_ON_READ", 9),
    Kind("BLOOM", "MERGE_ON_READ", 9, has_metadata=True),
    Kind("BLOOM", "COPY_ON_WRITE", 9),
    Kind("BLOOM", "MERGE_ON_READ", 8),
    Kind("SIMPLE", "COPY_ON_WRITE", 8),
    Kind("SIMPLE", "MERGE_ON_READ", 6),
    Kind("BLOOM", "COPY_ON_WRITE", 6),
    Kind("GLOBAL_SIMPLE", "MERGE_ON_READ", 9),
    Kind("RECORD_INDEX", "MERGE_ON_READ", 9, has_metadata=True),
    Kind("RECORD_INDEX", "COPY_ON_WRITE", 9, has_metadata=True),
    Kind("RECORD_INDEX", "MERGE_ON_READ", 8, has_metadata=True),
    Kind("RECORD_INDEX", "COPY_ON_WRITE", 8, has_metadata=True),
    Kind("RECORD_INDEX", "MERGE_ON_READ", 6, has_metadata=True),
    Kind("RECORD_INDEX", "COPY_ON_WRITE", 6, has_metadata=True),
]
each_kind = pytest.mark.parametrize("kind", sample(KINDS, one_in=2), ids=str)


@dataclass
class Model:
    """The rows of the table, which the largest ordering value of each key decides."""

    rows: dict[str, tuple[int, int]] = field(default_factory=dict)
    values: Iterable[int] = field(default_factory=count)

    def upserts(self, numbers: Iterable[int], ts: int) -> pa.Table:
        """Create rows with new values, and apply them."""
        made = [(f"k{n:03d}", ts, value) for n, value in zip(numbers, self.values, strict=False)]
        for key, at, value in made:
            if key not in self.rows or self.rows[key][0] <= at:
                self.rows[key] = at, value
        ids, times, values = zip(*made, strict=True)
        regions = [region_of(key) for key in ids]
        return pa.table([ids, regions, times, values], schema=SCHEMA)

    def deletes(self, numbers: Iterable[int]) -> list[str]:
        keys = [f"k{n:03d}" for n in numbers]
        for key in keys:
            self.rows.pop(key, None)
        return keys


def region_of(key: str) -> str:
    return REGIONS[int(key[1:]) % len(REGIONS)]


def check(oracle: Oracle, path: Path, model: Model) -> None:
    """Check that both read the rows of the model, and that no key is stored twice."""
    for rows in (lakemark.open(path).snapshot(SCHEMA.names).read_all(), oracle.read(path)):
        found = rows.select(SCHEMA.names).to_pylist()
        assert len({row["id"] for row in found}) == len(found), "a key is stored twice"
        assert {row["id"]: (row["ts"], row["v"]) for row in found} == model.rows
        assert all(row["region"] == region_of(row["id"]) for row in found)
    table = lakemark.open(path)
    if "record_index" in table.properties.metadata_partitions:
        assert table.metadata_differences() == []


def view_of(path: Path) -> FileSystemView:
    return open_table(StorageLocation(str(path))).view()


def compact(oracle: Oracle, path: Path, by: str) -> None:
    if by == "lakemark":
        lakemark.open(path).compact()
    else:
        oracle.compact(path)


@each_kind
def test_both_continue_the_table(oracle: Oracle, tmp_path: Path, kind: Kind) -> None:
    path, apache, model = tmp_path / "orders", kind.table(), Model()
    compactors: Sequence[str] = ("lakemark", "apache") if kind.version != 8 else ("apache",) * 2
    oracle.write(path, model.upserts(range(60), 10), apache, options=SEVERAL_GROUPS)
    oracle.write(path, model.upserts(range(5, 25), 20), apache)
    assert len(view_of(path).file_groups()) >= 6
    table = lakemark.open(path)
    is_indexed = "record_index" in table.properties.metadata_partitions
    assert is_indexed is (kind.index_type == "RECORD_INDEX")
    table.upsert(model.upserts([*range(15, 35), *range(60, 70)], 30))
    table.upsert(model.upserts([*range(20), *range(70, 72)], 15))  # some of them are late
    table.delete(model.deletes([1, 2, 61, 62]))
    check(oracle, path, model)
    # Apache Hudi finds the keys that lakemark added, and adds a deleted key again.
    oracle.write(path, model.upserts([0, 1, 61, *range(63, 80)], 40), apache)
    check(oracle, path, model)
    table.refresh()
    table.upsert(model.upserts([*range(64, 90), 2], 50))
    for by in compactors:
        if kind.table_type == "MERGE_ON_READ":
            compact(oracle, path, by)
            check(oracle, path, model)
        table = lakemark.open(path)
        table.upsert(model.upserts([*range(0, 95, 3)], 60))
        table.delete(model.deletes([3, 5, 90]))
        check(oracle, path, model)
        oracle.write(path, model.upserts([*range(0, 99, 2)], 70), apache)
        check(oracle, path, model)


def test_new_keys_go_to_the_file_that_apache_hudi_would_fill(
    oracle: Oracle, tmp_path: Path
) -> None:
    """Both fill the smallest base file without logs, so that files reach the same size."""
    path, model = tmp_path / "orders", Model()
    apache = Kind("SIMPLE", "MERGE_ON_READ", 9).table()
    oracle.write(path, model.upserts(range(0, 40, 2), 10), apache, options=SEVERAL_GROUPS)
    oracle.write(path, model.upserts(range(0, 10, 2), 20), apache)  # a log of some groups
    groups = {group.id: group.for_readers for group in view_of(path).file_groups()}
    lakemark.open(path).upsert(model.upserts(range(40, 44, 2), 30))
    (changed,) = (
        group
        for group in view_of(path).file_groups()
        if group.id not in groups or group.for_readers != groups[group.id]
    )
    before = groups.get(changed.id)
    assert changed.for_readers is not None
    assert not changed.for_readers.logs
    free = [one for one in groups.values() if one is not None and not one.logs]
    if free:
        assert before in free
        sizes = [one.base.size_bytes for one in free if one.base]
        assert before is not None and before.base is not None
        assert before.base.size_bytes == min(sizes)
    oracle.write(path, model.upserts(range(44, 48, 2), 40), apache)
    check(oracle, path, model)


def test_ids_of_new_file_groups_do_not_look_like_buckets(oracle: Oracle, tmp_path: Path) -> None:
    path, model = tmp_path / "orders", Model()
    apache = Kind("BLOOM", "COPY_ON_WRITE", 9).table()
    oracle.write(path, model.upserts(range(10), 10), apache)
    known = {group.id for group in view_of(path).file_groups()}
    table = lakemark.open(path)
    with pytest.raises(lakemark.InvalidConfig, match="no fixed number of buckets"):
        lakemark.open(path, buckets=4).upsert(model.upserts([1], 1))
    more = pa.table([["k1000"], ["west"], [1], [1]], schema=SCHEMA)
    table.upsert(more)
    (added,) = (g.id for g in view_of(path).file_groups() if g.id not in known)
    assert find_bucket(added.file_id) is None
    oracle.write(path, more.set_column(3, "v", pa.array([2], pa.int32())), apache)
    found = oracle.read(path).filter(pc.field("id") == "k1000")
    assert found["v"].to_pylist() == [2]
