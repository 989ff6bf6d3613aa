"""Apache Hudi and lakemark continue each other's partitioned record indexes (RECORD_LEVEL_INDEX).

A key is unique only within a partition. But a batch of Apache Hudi 1.2.0 must have each key in one
partition, because it joins the rows of a batch with the index by the key alone
(``tagGlobalLocationBackToRecords`` of ``HoodieIndexUtils``). That Apache Hudi looks keys up in the
index is shown by an index that lacks a key: its upsert then adds a second row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest

import lakemark
from lakemark.metadata.metadata_store import MetadataStore
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.metadata.partition_shards import PartitionedChanges
from lakemark.metadata.record_index import RecordIndex
from lakemark.metadata.record_index_records import encode_locations
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.operations.write import RowWriter
from lakemark.storage import StorageLocation
from lakemark.storage.folder_storage import FolderStorage
from lakemark.timeline.clock import UTC_CLOCK
from lakemark.timeline.timeline_store import TimelineStore
from tests.depth import sample
from tests.interop.oracle import CLEANS_AND_ARCHIVES, ApacheTable, Oracle
from tests.interop.test_lookup_index import SCHEMA, SEVERAL_GROUPS

pytestmark = pytest.mark.oracle

NAME = "record_index"
RECORD_LEVEL_INDEX = {
    "hoodie.index.type": "RECORD_LEVEL_INDEX",
    "hoodie.metadata.record.level.index.enable": "true",
}
TABLE = ApacheTable(
    "orders", ["id"], ["region"], ["ts"], has_metadata=True, extra=RECORD_LEVEL_INDEX
)

#: Characters that Apache Hudi escapes in the ids of file groups, and others.
ODD = ("2026-11-28", "a_b", "é t")


@dataclass
class Model:
    """The rows of the table by partition and key, which the largest ordering value decides."""

    rows: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    values: Iterable[int] = field(default_factory=count)

    def upserts(self, ts: int, numbers: Mapping[str, Iterable[int]]) -> pa.Table:
        """Create rows in some partitions, and apply them."""
        places = [(region, f"k{n:03d}") for region, some in numbers.items() for n in some]
        made = [(*place, ts, value) for place, value in zip(places, self.values, strict=False)]
        for region, key, at, value in made:
            if (region, key) not in self.rows or self.rows[region, key][0] <= at:
                self.rows[region, key] = at, value
        paths, ids, times, values = zip(*made, strict=True)
        return pa.table([ids, paths, times, values], schema=SCHEMA)

    def deletes(self, numbers: Iterable[int], region: str) -> str:
        """Return the condition of rows to delete, which are removed from the model."""
        keys = [f"k{n:03d}" for n in numbers]
        for key in keys:
            del self.rows[region, key]
        return f"region = '{region}' and id in ({', '.join(map(repr, keys))})"


def open_at(path: Path) -> OpenTable:
    return open_table(StorageLocation(str(path)))


def index_of(path: Path) -> RecordIndex:
    table = open_at(path)
    index = table.metadata_writer.record_index(table.timeline)
    assert index is not None and index.is_partitioned
    return index


def check(oracle: Oracle, path: Path, model: Model) -> None:
    """Check that both read the rows of the model, and that the index has exactly their keys.

    Each key must be in the file group in which a lookup searches it.
    """
    table = lakemark.open(path)
    for rows in (table.snapshot(SCHEMA.names).read_all(), oracle.read(path)):
        found = rows.select(SCHEMA.names).to_pylist()
        assert {(row["region"], row["id"]): (row["ts"], row["v"]) for row in found} == model.rows
        assert len(found) == len(model.rows), "a key is stored twice in a partition"
    assert table.metadata_differences() == []
    index = index_of(path)
    for region in {region for region, _ in model.rows}:
        keys = sorted(key for one, key in model.rows if one == region)
        located = index.lookup(pa.array(keys), [region])
        assert sorted(located["record_key"].to_pylist()) == keys
        assert set(located["partition_path"].to_pylist()) == {region}


KINDS = [("MERGE_ON_READ", 9), ("COPY_ON_WRITE", 9), ("MERGE_ON_READ", 8), ("MERGE_ON_READ", 6)]


@pytest.mark.parametrize(("table_type", "version"), sample(KINDS, one_in=2))
def test_lakemark_continues_an_index_of_apache_hudi(
    oracle: Oracle,
    tmp_path: Path,
    table_type: Literal["MERGE_ON_READ", "COPY_ON_WRITE"],
    version: int,
) -> None:
    path, model = tmp_path / "orders", Model()
    apache = replace(TABLE, table_type=table_type, version=version)
    first = {"north": range(30), ODD[0]: range(30, 40)}
    oracle.write(path, model.upserts(10, first), apache, options=SEVERAL_GROUPS)
    table, numbers = lakemark.open(path), [*range(5, 15), 40]
    table.upsert(model.upserts(20, dict.fromkeys(["north", "south", *ODD], numbers)))
    table.upsert(model.upserts(5, {"north": range(3)}))  # late
    table.delete(where=model.deletes([1, 2, 40], "north"))
    check(oracle, path, model)
    again = {"north": [1, *range(8, 20)], "west": range(20, 30), ODD[1]: [2, *range(4, 8), 40]}
    oracle.write(path, model.upserts(30, again), apache)
    check(oracle, path, model)
    table.refresh()
    if table_type == "MERGE_ON_READ":
        table.compact()
    for ts in range(40, 46):
        places = dict.fromkeys([ODD[2], "west", f"new{ts}"], (ts, 8))
        table.upsert(model.upserts(ts, places))
    check(oracle, path, model)
    last = {"south": range(0, 20, 4), "new45": [45, 50], "west": [21, 41], "east": [5]}
    oracle.write(path, model.upserts(50, last), apache)
    check(oracle, path, model)


def test_apache_hudi_continues_an_index_of_lakemark(oracle: Oracle, tmp_path: Path) -> None:
    path, model = tmp_path / "orders", Model()
    bare = replace(TABLE, extra={"hoodie.index.type": "SIMPLE"})
    first = dict.fromkeys(["north", "south"], range(30))
    oracle.write(path, model.upserts(10, first), bare, options=SEVERAL_GROUPS)
    oracle.write(path, model.upserts(20, {"south": range(5, 10), ODD[0]: range(9, 12)}), bare)
    table = lakemark.open(path)
    table.create_index(NAME, partitioned=True)
    check(oracle, path, model)
    again = {"north": range(25, 30), ODD[0]: [9, 10, 31], ODD[1]: range(32, 35)}
    oracle.write(path, model.upserts(30, again), TABLE)
    check(oracle, path, model)
    table.refresh()
    table.upsert(model.upserts(40, dict.fromkeys(["north", "west", ODD[1]], range(33, 40))))
    table.delete(where=model.deletes([33, 5], "north"))
    oracle.write(path, model.upserts(50, {"north": [5, 33, 36], "west": [34, 40]}), TABLE)
    check(oracle, path, model)
    _lose(path, "north", "k000")
    oracle.write(path, model.upserts(60, {"north": [0]}), TABLE)
    found = oracle.read(path).select(["region", "id"]).to_pylist()
    assert found.count({"region": "north", "id": "k000"}) == 2, "Apache Hudi reads the index"


@pytest.mark.parametrize("deletes", sample(["apache", "lakemark"], one_in=2))
def test_deleted_partition_keeps_its_file_groups_in_the_index_for_its_return(
    oracle: Oracle, tmp_path: Path, deletes: str
) -> None:
    """Apache Hudi removes neither these file groups, nor those of partitions that it deletes."""
    path, model = tmp_path / "orders", Model()
    oracle.write(path, model.upserts(10, dict.fromkeys(["north", "south"], range(20))), TABLE)
    lakemark.open(path).upsert(model.upserts(20, dict.fromkeys(["north", "south"], range(5, 25))))
    model.rows = {place: row for place, row in model.rows.items() if place[0] != "south"}
    if deletes == "apache":
        with oracle.named("orders", path), oracle.settings(RECORD_LEVEL_INDEX):
            oracle.execute("ALTER TABLE orders DROP PARTITION (region = 'south')")
        again = {**CLEANS_AND_ARCHIVES, "hoodie.clean.commits.retained": "1"}
        oracle.write(path, model.upserts(30, {"north": [0, 30]}), TABLE, options=again)
        oracle.write(path, model.upserts(31, {"north": [1, 31]}), TABLE, options=again)
    else:
        lakemark.open(path).delete_partitions("south")
        for n in (0, 1):
            lakemark.open(path).upsert(model.upserts(30 + n, {"north": [n, 30 + n]}))
    lakemark.open(path).clean(retain_commits=1)
    check(oracle, path, model)
    # A clean of Apache Hudi also removes the partition from the list of all partitions.
    assert ("south" in open_at(path).view().partitions) is (deletes == "lakemark")
    assert not [*(path / "south").glob("*.parquet")]
    assert index_of(path).count_groups().keys() == {"north", "south"}
    oracle.write(path, model.upserts(40, {"south": range(3, 9)}), TABLE)
    check(oracle, path, model)
    lakemark.open(path).upsert(model.upserts(50, {"south": range(6, 12), "north": [2]}))
    check(oracle, path, model)
    assert index_of(path).count_groups().keys() == {"north", "south"}


def _lose(path: Path, region: str, key: str) -> None:
    """Remove the location of a key from the index, with a commit that changes no data."""
    table = open_at(path)
    counts = index_of(path).count_groups()
    gone = encode_locations([], pa.array([key]), UTC_CLOCK)
    RowWriter(table, None).commit_schema()
    instant = max(table.store.load().completed(), key=lambda one: one.completed_at or "")
    own = FolderStorage(table.storage, METADATA_FOLDER)
    instants = TimelineStore(own, version=table.version, clock=table.store.clock)
    store = MetadataStore(own, instants, instants.load())
    store.commit(instant, {NAME: PartitionedChanges({region: gone}, counts, {})}, lambda: None)
