"""The record index whose keys are unique only within a partition of the table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakemark
from lakemark.config.parquet_settings import PARQUET_DEFAULTS
from lakemark.config.table_properties import TableType
from lakemark.errors import InvalidConfig, Unsupported, WriteConflict
from lakemark.execution.runner import LocalRunner
from lakemark.metadata.index_definition import (
    define_record_index,
    define_secondary_index,
    read_definitions,
)
from lakemark.metadata.metadata_compaction import EVERY_DELTA_COMMITS
from lakemark.metadata.metadata_store import MetadataStore
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.metadata.partition_shards import PartitionedChanges, path_of_series, series_prefix
from lakemark.metadata.record_index_records import KeysOfGroup, encode_locations
from lakemark.model.changes import ChangeKind
from lakemark.model.file_slice import FileGroupId
from lakemark.model.format_version import WRITTEN, FormatVersion
from lakemark.operations.cluster import cluster_table
from lakemark.operations.create_index import create_index
from lakemark.operations.drop_index import drop_index
from lakemark.operations.metadata_table import (
    drop_metadata_table,
    metadata_differences,
    rebuild_metadata_table,
)
from lakemark.operations.table_indexes import list_indexes
from lakemark.read.file_group_reader import FileGroupReader
from lakemark.services.clustering_plan import ClusteringPolicy
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage.folder_storage import FolderStorage
from lakemark.storage.properties_file import read_properties
from lakemark.timeline.clock import UTC_CLOCK
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.transaction.rollback import roll_back_named
from tests.storages.interrupted_storage import InterruptedStorage
from tests.table_services import new_storage
from tests.tables import Row, commit, lookup_writer, write_files, writer
from tests.unit.metadata.partitioned_indexes import (
    MERGE_ON_READ,
    NAME,
    SIZING,
    index_of,
    indexed,
    new_table,
    reopened,
    rows_of,
    shards_in,
    table_with_rows,
)

#: Characters that are escaped in the ids of file groups, and others.
ODD_PATHS = ("2026-11-28", "a=b_c/d e", "é%2F[x]")

each_type = pytest.mark.parametrize("table_type", TableType)
each_version = pytest.mark.parametrize("version", WRITTEN)


def delete(key: str, ts: int, region: str = "north") -> Row:
    return Row(key, ts, region=region, kind=ChangeKind.DELETE)


# Names


@pytest.mark.parametrize(
    ("path", "prefix"),
    [
        ("north", "record-index-north-"),
        ("", "record-index--"),
        ("2026-11-28", "record-index-2026%2D11%2D28-"),
        ("day=1/h_2", "record-index-day%3D1%2Fh%5F2-"),
        ("a%b é", "record-index-a%25b é-"),
    ],
)
def test_ids_of_file_groups_contain_the_escaped_path(path: str, prefix: str) -> None:
    assert series_prefix(path) == prefix
    assert path_of_series(prefix) == path


# Commits


@each_version
@each_type
def test_a_key_has_a_location_in_each_partition(
    table_type: TableType, version: FormatVersion
) -> None:
    to = new_table(table_type, version)
    assert indexed(to) == set()
    commit(to, [Row("a", 1), Row("b", 1), Row("c", 1), Row("a", 1, region="south")])
    assert indexed(to) == {"north/a", "north/b", "north/c", "south/a"}
    commit(to, [Row("a", 2, 2), delete("b", 2), delete("a", 2, "south"), delete("x", 2)])
    assert indexed(to) == {"north/a", "north/c"}
    commit(to, [Row("a", 3, 3, "south"), delete("c", 0), Row("a", 3, 3, region=ODD_PATHS[0])])
    assert indexed(to) == {"north/a", "north/c", "south/a", f"{ODD_PATHS[0]}/a"}
    if table_type is MERGE_ON_READ:
        assert to.compact_if_due(CompactionPolicy(1), LocalRunner(1))
    for number in range(EVERY_DELTA_COMMITS + 1):
        path = ODD_PATHS[number % len(ODD_PATHS)]
        commit(to, [Row("a", 10 + number), Row(f"k{number}", 1, region=path)])
        assert indexed(to) == rows_of(to.table.storage)
    assert to.table.metadata_writer.compacted_at, "the metadata table was compacted"
    assert shards_in(to.table.storage) == {
        f"{series_prefix(path)}0000-0" for path in ("north", "south", *ODD_PATHS)
    }
    rebuild_metadata_table(to.table)
    assert indexed(to) == rows_of(to.table.storage)
    commit(to, [Row("a", 99, 99, "west"), Row("a", 99, 99, "south")])
    assert indexed(to) == rows_of(to.table.storage)


def test_no_data_file_is_searched_for_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    to = new_table()
    commit(to, [Row("a", 1), Row("a", 1, region="south")])

    def fail(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(FileGroupReader, "read_base_keys", fail)
    commit(to, [Row("a", 2), Row("b", 2, region="south")])
    assert indexed(to) == {"north/a", "south/a", "south/b"}


@each_version
def test_a_rollback_removes_the_file_groups_of_a_new_partition(version: FormatVersion) -> None:
    to = new_table(version=version)
    commit(to, [Row("a", 1)])
    undone = commit(to, [delete("a", 2), Row("a", 2, region="south")])
    assert indexed(to) == {"south/a"}
    roll_back_named(to.table.context, undone.requested_at)
    to = reopened(to.table.storage)
    assert indexed(to) == {"north/a"}
    assert shards_in(to.table.storage) == {"record-index-north-0000-0"}
    commit(to, [Row("b", 3), Row("a", 3, region="south")])
    assert indexed(to) == {"north/a", "north/b", "south/a"}


def test_a_new_partition_has_as_many_file_groups_as_a_pending_writer_has_created() -> None:
    """Otherwise a key would be in another file group as soon as that writer has completed."""
    to = new_table()
    commit(to, [Row("a", 1)])
    own = f"{METADATA_FOLDER}/{NAME}"
    pending = [f".record-index-south-{n:04d}-0_20991128100000000.log.1_0-0-0" for n in (0, 2)]
    for name in pending:
        to.table.storage.create(f"{own}/{name}", b"x")
    commit(to, [Row("a", 2, region="south"), Row("b", 2, region="south")])
    to.table.storage.delete([f"{own}/{name}" for name in pending])
    assert len([one for one in shards_in(to.table.storage) if "south" in one]) == 3
    to = reopened(to.table.storage)
    assert indexed(to) == {"north/a", "south/a", "south/b"}
    commit(to, [Row(key, 3, region="south") for key in "abcdefg"])
    assert indexed(to) == rows_of(to.table.storage)


@each_type
def test_of_two_writers_that_add_a_key_to_a_partition_the_second_writes_again(
    table_type: TableType,
) -> None:
    first = new_table(table_type)
    commit(first, [Row("a", 1)])
    second, third = reopened(first.table.storage), reopened(first.table.storage)
    same, other = (
        write_files(second, [Row("b", 2, 2)]),
        write_files(third, [Row("b", 2, 2, "west")]),
    )
    commit(first, [Row("b", 1, 1)])
    third.commit(other, {})
    with pytest.raises(WriteConflict, match="north"):
        second.commit(same, {})
    second.abandon()
    assert indexed(first) == {"north/a", "north/b", "west/b"}


def test_clustered_rows_are_located_in_their_new_file_groups() -> None:
    to = new_table(TableType.COPY_ON_WRITE)
    for key in "abc":
        commit(to, [Row(key, 1), Row(key, 1, region="south")])
    to.table.base_files = PARQUET_DEFAULTS
    assert cluster_table(to.table, ClusteringPolicy())
    assert indexed(to) == rows_of(to.table.storage)
    commit(reopened(to.table.storage), [Row("a", 2, 2), Row("a", 2, 2, region="south")])
    assert indexed(to) == rows_of(to.table.storage)


# Queries


def test_a_query_by_key_reads_the_file_groups_with_the_key_in_its_partitions() -> None:
    to = new_table()
    rows = [Row(key, 1, region=path) for key in "abcdef" for path in ("north", "south")]
    commit(to, rows)
    table = writer(to.table.storage).table
    for where, paths in (
        ("id = 'a'", ["north", "south"]),
        ("id = 'a' and region = 'south'", ["south"]),
    ):
        scan = table.scan(columns=["region"], where=where)
        assert [one.group.partition_path for one in scan.slices] == paths
        assert sorted(scan.to_table()["region"].to_pylist()) == paths
    assert table.scan(record_keys=["x"]).slices == ()


# Creation


def test_the_index_is_created_while_others_write() -> None:
    to = table_with_rows()
    commit(to, [delete("b", 2), Row("c", 2, region=ODD_PATHS[1])])

    def write() -> None:
        commit(reopened(to.table.storage), [Row("d", 3), Row("a", 3, region=ODD_PATHS[2])])

    storage = InterruptedStorage(to.table.storage, write)
    storage.is_before = lambda _, method, path: method in ("open", "read") and "north/" in path
    assert create_index(reopened(storage).table, NAME, partitioned=True) == NAME
    assert storage.stopped_at is not None
    to = reopened(to.table.storage)
    assert indexed(to) == rows_of(to.table.storage) > {"south/a", f"{ODD_PATHS[2]}/a"}
    (found,) = list_indexes(to.table)
    assert found.is_partitioned
    commit(to, [Row("d", 4), Row("d", 4, region="west")])
    assert indexed(to) == rows_of(to.table.storage)
    drop_index(to.table, NAME)
    assert NAME not in read_definitions(to.table.storage)
    commit(to, [Row("e", 5)])
    create_index(reopened(to.table.storage).table, NAME, partitioned=True)
    assert indexed(to) == rows_of(to.table.storage)


def test_partitions_without_rows_have_file_groups_too() -> None:
    """Apache Hudi fails to write to a partition that has none."""
    to = table_with_rows(Row("a", 1), table_type=TableType.COPY_ON_WRITE)
    to.table.storage.create("empty/.hoodie_partition_metadata", b"x=1")
    rebuild_metadata_table(to.table)
    create_index(to.table, NAME, partitioned=True)
    assert shards_in(to.table.storage) == {"record-index-empty-0000-0", "record-index-north-0000-0"}


def test_an_index_of_other_keys_must_be_dropped_first() -> None:
    to = table_with_rows(Row("a", 1), Row("b", 1, region="south"))
    create_index(to.table, NAME)
    with pytest.raises(InvalidConfig, match=r"unique in the whole table; .* drop it first"):
        create_index(to.table, NAME, partitioned=True)
    drop_index(to.table, NAME)
    create_index(to.table, NAME, partitioned=True)
    with pytest.raises(InvalidConfig, match=r"unique in a partition; .* drop it first"):
        create_index(to.table, NAME)
    with pytest.raises(InvalidConfig, match="for the index record_index only"):
        create_index(to.table, "bloom_filters", partitioned=True)


def test_a_dropped_metadata_table_leaves_no_partitioned_index() -> None:
    to = new_table()
    commit(to, [Row("a", 1), Row("b", 1, region="south")])
    drop_metadata_table(to.table)
    to = reopened(to.table.storage)
    create_index(to.table, NAME)
    assert not list_indexes(to.table)[0].is_partitioned
    assert metadata_differences(to.table) == []


# Refusals


def test_a_secondary_index_needs_keys_of_the_whole_table() -> None:
    to = new_table()
    commit(to, [Row("a", 1)])
    with pytest.raises(Unsupported, match=r"of the whole table, .* table index drop .* create "):
        create_index(to.table, "note", "v")
    storage, partition = to.table.storage, "secondary_index_v"
    define_secondary_index(storage, partition, "v", "V2", lambda: None)
    stored = read_properties(storage)
    names = [*stored.stored_metadata_partitions, partition]
    storage.put(".hoodie/hoodie.properties", stored.with_metadata_partitions(names).to_bytes())
    with pytest.raises(
        Unsupported, match=r"secondary index .* drop it \(lakemark table index drop"
    ):
        commit(reopened(storage), [Row("b", 1)])
    assert rows_of(storage) == {"north/a"}


def test_keys_of_the_whole_table_need_an_index_of_the_whole_table() -> None:
    to = new_table()
    commit(to, [Row("a", 1)])
    mover = lookup_writer(to.table.storage, SIZING, global_keys=True)
    with pytest.raises(Unsupported, match="has a partitioned record index, which does not show"):
        commit(mover, [Row("a", 2, region="south")])
    mover.abandon()
    drop_index(mover.table, NAME)
    mover = lookup_writer(to.table.storage, SIZING, global_keys=True)
    commit(mover, [Row("a", 2, region="south")])
    with pytest.raises(InvalidConfig, match="keep each record key unique in the whole table"):
        create_index(reopened(to.table.storage).table, NAME, partitioned=True)


def test_a_commit_of_keys_of_the_whole_table_meets_no_partitioned_index() -> None:
    to = table_with_rows(Row("a", 1))
    create_index(to.table, NAME)
    mover = lookup_writer(to.table.storage, SIZING, global_keys=True)
    written = write_files(mover, [Row("a", 2, region="south")])
    drop_index(reopened(to.table.storage).table, NAME)
    create_index(reopened(to.table.storage).table, NAME, partitioned=True)
    with pytest.raises(WriteConflict, match="has keys of each partition"):
        mover.commit(written, {})
    mover.abandon()
    assert indexed(reopened(to.table.storage)) == {"north/a"}


# Differences


def test_a_location_that_no_lookup_finds_is_reported() -> None:
    to = new_table()
    commit(to, [Row("a", 1), Row("b", 1, region="south")])
    (south,) = index_of(to).lookup(pa.array(["b"])).to_pylist()
    moved = KeysOfGroup(
        FileGroupId("south", south["file_id"]), south["instant_time"], pa.array(["b"])
    )
    changes = {
        "north": encode_locations([moved], pa.array([], pa.string()), UTC_CLOCK),
        "south": encode_locations([], pa.array(["b"]), UTC_CLOCK),
    }
    instant = commit(to, [])
    own = FolderStorage(to.table.storage, METADATA_FOLDER)
    instants = TimelineStore(own)
    store = MetadataStore(own, instants, instants.load())
    counts = {"north": 1, "south": 1}
    store.commit(instant, {NAME: PartitionedChanges(changes, counts, {})}, lambda: None)
    found = metadata_differences(reopened(to.table.storage).table)
    assert {(one.path.partition("/")[0], one.stored, one.found) for one in found} == {
        (NAME, "a location of 1 keys, such as 'b'", "another file group"),
        ("south", "no location of 1 keys, such as 'b'", "a row"),
    }


def test_a_partition_with_a_dot_in_its_path_is_refused() -> None:
    """Apache Hudi does not recognise the names of its logs either, and fails."""
    to = new_table()
    commit(to, [Row("a", 1)])
    with pytest.raises(Unsupported, match=r"'v1\.2' has a dot in its path"):
        write_files(to, [Row("a", 1, region="v1.2")])
    to.abandon()
    assert indexed(reopened(to.table.storage)) == {"north/a"}
    other = table_with_rows(Row("a", 1, region="v1.2"))
    with pytest.raises(Unsupported, match=r"'v1\.2' has a dot in its path"):
        create_index(other.table, NAME, partitioned=True)
    assert list_indexes(reopened(other.table.storage).table) == []


@pytest.mark.parametrize("region", ["p" * 192, "-" * 64, "é" * 96])
def test_a_partition_is_refused_before_a_file_of_the_index_has_too_long_a_name(
    region: str,
) -> None:
    to = new_table()
    commit(to, [Row("a", 1)])
    with pytest.raises(Unsupported, match=r"has a path of more than 191 bytes"):
        write_files(to, [Row("a", 1, region=region)])
    to.abandon()
    assert indexed(reopened(to.table.storage)) == {"north/a"}
    commit(to, [Row("a", 1, region=region[:-1])])
    names = to.table.storage.list_tree(f"{METADATA_FOLDER}/{NAME}")
    assert max(len(one.path.rpartition("/")[2].encode()) for one in names) <= 255


# Programs


def test_a_program_creates_and_uses_the_index(tmp_path: Path) -> None:
    rows = pa.table({"day": ["1", "1", "2"], "id": ["a", "b", "a"], "v": [1, 2, 3]})
    table = lakemark.create(
        tmp_path / "t", schema=rows.schema, record_key="id", partition_by=["day"], index="lookup"
    )
    table.create_index(NAME, partitioned=True)
    table.upsert(rows)
    table.insert(rows.set_column(0, "day", pa.array(["1", "3", "3"])), duplicates="drop")
    assert table.metadata_differences() == []
    found = table.scan(columns=["day", "id"], where="id = 'a'").to_table().to_pylist()
    assert sorted(row["day"] for row in found) == ["1", "2", "3"]
    table.insert_overwrite(pa.table({"day": ["1"], "id": ["a"], "v": [9]}))
    assert table.metadata_differences() == []
    table.delete(where="day = '2'")
    table.delete_partitions("3")
    assert table.metadata_differences() == []
    assert [(row["day"], row["v"]) for row in table.scan().to_table().to_pylist()] == [("1", 9)]


def test_a_lookup_is_limited_to_some_partitions() -> None:
    to = new_table()
    commit(to, [Row("a", 1), Row("a", 1, region="south"), Row("b", 1, region="west")])
    index = index_of(to)
    for paths, found in ((None, 2), (["north"], 1), (["south", "north"], 2), (["west", "x"], 0)):
        assert index.lookup(pa.array(["a"]), paths).num_rows == found


def test_the_definition_is_apaches() -> None:
    storage = new_storage()
    define_record_index(storage, lambda: None, partitioned=True)
    assert read_definitions(storage)[NAME].options == {"isPartitioned": "true"}
