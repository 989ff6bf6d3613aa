"""Overwrites and deletions of partitions: their rows, indexes, conflicts and undoing."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest

import lakemark
from lakemark.config.table_properties import TableType
from lakemark.errors import InvalidConfig, InvalidRecords, Refused, Unsupported
from lakemark.model.commit_metadata import CommitMetadata, Operation
from lakemark.operations.compact import request_compaction
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.open_table import open_table
from lakemark.operations.table_writer import TableWriter
from lakemark.operations.write import RowWriter
from lakemark.read.queries import Incremental, Snapshot
from lakemark.storage import StorageLocation, open_storage
from lakemark.storage.properties_file import read_properties, replace_properties
from tests.rings import ring_writer
from tests.table_services import make_plain
from tests.tables import INDEX, Row, commit, lookup_writer, make, writer
from tests.unit.operations.tables import (
    SCHEMA,
    contents,
    create,
    files,
    instants,
    operations,
    reopen,
    rows,
)
from tests.unit.operations.test_two_writers import before_first_commit, short_pauses

__all__ = ["short_pauses"]

TYPES = ("MERGE_ON_READ", "COPY_ON_WRITE")
FIRST = (("a", "north", 5, 1), ("b", "north", 5, 2), ("c", "south", 5, 3), ("d", "west", 5, 4))

each_type = pytest.mark.parametrize("table_type", TYPES)
each_version = pytest.mark.parametrize("version", [6, 8, 9])
each_index = pytest.mark.parametrize("index", ["bucket", "lookup"])


def made(
    table_type: str = TYPES[0],
    version: int = 9,
    index: str = "bucket",
    *,
    metadata_table: bool = True,
    buckets: int = 4,
) -> lakemark.Table:
    """Create a table with rows in three partitions, and with logs if its type has them."""
    table = lakemark.create(
        f"memory://{uuid4().hex}/orders",
        schema=SCHEMA,
        record_key="id",
        partition_by="region",
        ordering="ts",
        table_type=table_type,
        version=version,
        index=index,
        buckets=buckets,
        metadata_table=metadata_table,
    )
    table.upsert(rows(*FIRST))
    table.upsert(rows(("a", "north", 6, 10), ("c", "south", 6, 30)))
    return table


@each_type
@each_version
@each_index
def test_overwrite_replaces_the_rows_of_its_partitions(
    table_type: str, version: int, index: str
) -> None:
    table = made(table_type, version, index)
    new = rows(("a", "north", 0, 7), ("e", "north", 1, 8), ("e", "north", 2, 9), ("x", "new", 1, 1))
    result = table.insert_overwrite(new)
    assert (result.inserts, result.replaced_groups > 0) == (4, True)
    kept = {"c": ("south", 6, 30), "d": ("west", 5, 4)}
    replaced = {"a": ("north", 0, 7), "e": ("north", 2, 9), "x": ("new", 1, 1)}
    assert contents(table) == kept | replaced
    table.upsert(rows(("a", "north", 1, 11), ("b", "north", 1, 12)))
    assert contents(table)["a"] == ("north", 1, 11)
    assert contents(table)["b"] == ("north", 1, 12)
    assert operations(table)[-2] == Operation.INSERT_OVERWRITE
    assert table.metadata_differences() == []


@each_type
@each_version
@each_index
def test_overwrite_of_the_table_replaces_all_rows(
    table_type: str, version: int, index: str
) -> None:
    table = made(table_type, version, index)
    table.insert_overwrite_table(rows(("a", "east", 1, 1)))
    assert contents(table) == {"a": ("east", 1, 1)}
    table.insert_overwrite_table(rows())
    assert contents(table) == {}
    table.upsert(rows(*FIRST))
    assert len(contents(table)) == len(FIRST)
    assert table.metadata_differences() == []


@each_type
@each_version
@each_index
def test_deletion_of_partitions_reports_and_removes_their_rows(
    table_type: str, version: int, index: str
) -> None:
    table = made(table_type, version, index)
    planned = table.delete_partitions(["*th", "west"], dry_run=True)
    assert (planned.instant, len(contents(table))) == (None, 4)
    assert [one.path for one in planned.partitions] == ["north", "south", "west"]
    north, _, west = planned.partitions
    assert (west.file_groups, west.files, west.rows) == (1, 1, 1)
    assert north.rows == (2 if table_type == "COPY_ON_WRITE" else None)
    assert north.size_bytes > 0
    deleted = table.delete_partitions(["*th"])
    assert deleted.partitions == planned.partitions[:2]
    assert instants(table, "replacecommit") == [deleted.instant]
    assert contents(table) == {"d": ("west", 5, 4)}
    table.upsert(rows(("c", "south", 1, 1)))
    assert contents(table)["c"] == ("south", 1, 1)
    assert table.delete_partitions("north").instant is None, "it has no rows"
    assert table.metadata_differences() == []


@each_type
@each_version
def test_queries_of_other_times_see_a_replacement_at_its_time(
    table_type: str, version: int
) -> None:
    table = made(table_type, version)
    before = instants(table, "commit", "deltacommit")[-1]
    table.insert_overwrite(rows(("b", "north", 1, 8)))
    table.delete_partitions("south")
    now = reopen(table.location)
    old = now.scan(Snapshot(as_of=before), ["id", "v"]).to_table().to_pylist()
    assert {row["id"]: row["v"] for row in old} == {"a": 10, "b": 2, "c": 30, "d": 4}
    instant = now.timeline.find(before)
    assert instant is not None
    begin = before if version == 6 else instant.completed_at
    assert begin is not None
    changed = now.scan(Incremental(begin), ["id", "v"]).to_table().to_pylist()
    assert changed == [{"id": "b", "v": 8}]


@pytest.mark.parametrize("mode", ["op_key_only", "data_before", "data_before_after"])
@each_type
def test_change_data_has_the_deleted_and_the_new_rows(table_type: str, mode: str) -> None:
    table = lakemark.create(
        f"memory://{uuid4().hex}/orders",
        schema=SCHEMA,
        record_key="id",
        partition_by="region",
        ordering="ts",
        table_type=table_type,
        buckets=1,
        cdc=mode,
    )
    table.upsert(rows(*FIRST))
    table.upsert(rows(("a", "north", 6, 10)))
    begin = instants(table, "commit", "deltacommit")[-1]
    table.insert_overwrite(rows(("a", "north", 1, 8)))
    table.delete_partitions("south")
    found = reopen(table.location).changes(begin).to_reader().read_all().to_pylist()
    changes = [(one["op"], json.loads(one["before"] or one["after"])["v"]) for one in found]
    assert sorted(changes) == [("d", 2), ("d", 3), ("d", 10), ("i", 8)]


@each_type
def test_record_and_secondary_index_follow_replacements(tmp_path: Path, table_type: str) -> None:
    storage = open_storage(StorageLocation(str(tmp_path)))
    make(storage, TableType(table_type), ["record_index", "secondary_index_v"])
    to = lookup_writer(storage)
    commit(to, [Row("a", 1, 1), Row("b", 1, 2), Row("c", 1, 2, "south")])
    commit(to, [Row("a", 2, 2)])
    table = lakemark.open(tmp_path)
    given = {"id": ["b", "d"], "region": ["north"] * 2, "ts": [1, 1], "v": [2, 1]}
    table.insert_overwrite(pa.table(given))
    assert located(tmp_path) == {"b": "north", "c": "south", "d": "north"}
    for value, keys in ((1, ["d"]), (2, ["b", "c"])):
        found = reopen(table.location).scan(columns=["id"], where=f"v = {value}").to_table()
        assert sorted(found["id"].to_pylist()) == keys
    assert table.metadata_differences() == []
    deleted = table.delete_partitions("north")
    assert located(tmp_path) == {"c": "south"}
    assert table.metadata_differences() == []
    assert deleted.instant is not None
    table.rollback(deleted.instant)
    assert located(tmp_path) == {"b": "north", "c": "south", "d": "north"}
    assert table.metadata_differences() == []
    given = {"id": ["d"], "region": ["west"], "ts": [1], "v": [2]}
    table.insert_overwrite_table(pa.table(given))
    assert located(tmp_path) == {"d": "west"}
    assert table.metadata_differences() == []


def located(path: Path) -> dict[str, str]:
    """Return the partition of each key in the record index."""
    table = open_table(StorageLocation(str(path)))
    index = table.metadata_writer.record_index(table.timeline)
    assert index is not None
    found = pa.concat_tables(index.scan()).to_pylist()
    return {row["record_key"]: row["partition_path"] for row in found}


def test_rollback_of_a_deletion_restores_a_compacted_record_index(tmp_path: Path) -> None:
    storage = open_storage(StorageLocation(str(tmp_path)))
    make(storage, indexes=["record_index"])
    to = lookup_writer(storage)
    commit(to, [Row("a", 1, 1), Row("b", 1, 2, "south")])
    table = lakemark.open(tmp_path)
    deleted = table.delete_partitions("north")
    for _ in range(12):  # the metadata table is compacted after some commits
        RowWriter(open_table(StorageLocation(str(tmp_path)))).commit_schema()
    newest = instants(table, "deltacommit")
    for one in reversed(newest[-12:]):
        table.rollback(one)
    assert deleted.instant is not None
    table.rollback(deleted.instant)
    lakemark.open(tmp_path).upsert(rows(("c", "west", 1, 1)).set_column(3, "v", pa.array([1])))
    assert located(tmp_path) == {"a": "north", "b": "south", "c": "west"}
    assert metadata_differences(open_table(StorageLocation(str(tmp_path)))) == []


@pytest.mark.parametrize("act", ["delete", "overwrite", "upsert"])
@pytest.mark.parametrize("builds", ["index", "metadata table"])
@each_type
def test_rollback_drops_an_index_that_was_built_after_the_commit(
    tmp_path: Path, table_type: str, act: str, builds: str
) -> None:
    storage = open_storage(StorageLocation(str(tmp_path)))
    make(storage, TableType(table_type), [] if builds == "index" else ["record_index"])
    commit(lookup_writer(storage), [Row("a", 1, 1), Row("b", 1, 2), Row("c", 1, 2, "south")])
    table = lakemark.open(tmp_path)
    before = contents(table)
    given = pa.table({"id": ["a", "x"], "region": ["north"] * 2, "ts": [2, 2], "v": [3, 3]})
    if act == "delete":
        undone = table.delete_partitions("north").instant
    else:
        undone = (table.insert_overwrite if act == "overwrite" else table.upsert)(given).instant
    assert undone is not None
    if builds == "index":
        table.create_index("record_index")
    else:
        table.rebuild_metadata_table()
    table.rollback(undone)
    assert contents(table) == before
    new = {"id": ["a", "e"], "region": ["north"] * 2, "ts": [3, 3], "v": [4, 5]}
    lakemark.open(tmp_path).upsert(pa.table(new))
    assert located(tmp_path) == {"a": "north", "b": "north", "c": "south", "e": "north"}
    assert contents(table) == before | {"a": ("north", 3, 4), "e": ("north", 3, 5)}
    assert metadata_differences(open_table(StorageLocation(str(tmp_path)))) == []


@each_type
@each_version
def test_rollback_is_refused_if_a_savepoint_keeps_only_older_slices_of_a_replaced_group(
    table_type: str, version: int
) -> None:
    table = made(table_type, version)
    table.savepoint(instants(table, "commit", "deltacommit")[1])
    table.upsert(rows(("a", "north", 7, 70)))
    if table_type == "MERGE_ON_READ":
        table.compact()
    deleted = table.delete_partitions("north").instant
    assert deleted is not None
    assert any(path.startswith("north") for path in table.clean(retain_versions=1).files)
    listed = open_storage(StorageLocation(table.location)).list_folder("north")[1]
    assert any(info.name.endswith(".parquet") for info in listed), "the savepoint keeps it"
    with pytest.raises(Refused, match="which it replaced, was cleaned"):
        table.rollback(deleted)
    assert set(contents(table)) == {"c", "d"}


@pytest.mark.parametrize("indexes", [(), ("record_index",)])
def test_key_with_a_row_in_a_kept_partition_is_refused(
    tmp_path: Path, indexes: tuple[str, ...]
) -> None:
    storage = open_storage(StorageLocation(str(tmp_path)))
    make(storage, indexes=indexes)
    commit(lookup_writer(storage, global_keys=True), [Row("a", 1, 1), Row("b", 1, 1, "south")])
    table = lakemark.open(tmp_path)

    def given(*pairs: tuple[str, str]) -> pa.Table:
        listed = [{"id": key, "region": region, "ts": 2, "v": 2} for key, region in pairs]
        return pa.Table.from_pylist(listed, schema=writer(storage).schema)

    with pytest.raises(InvalidRecords, match="'b' has a row in partition 'south'"):
        table.insert_overwrite(given(("b", "north")))
    with pytest.raises(InvalidRecords, match="'x' in several partitions"):
        table.insert_overwrite_table(given(("x", "north"), ("x", "west")))
    table.insert_overwrite(given(("b", "north"), ("c", "south")))
    assert {key: row[0] for key, row in contents(table).items()} == {"b": "north", "c": "south"}
    table.insert_overwrite_table(given(("b", "west")))
    assert {key: row[0] for key, row in contents(table).items()} == {"b": "west"}


@each_version
def test_pending_compaction_is_executed_before_its_file_groups_are_replaced(version: int) -> None:
    table = made(version=version)
    opened = open_table(StorageLocation(table.location))
    assert request_compaction(opened)
    table.insert_overwrite(rows(("b", "north", 1, 8)))
    assert contents(table)["b"] == ("north", 1, 8)
    assert not reopen(table.location).timeline.pending()
    assert len(instants(table, "commit")) == 1


@pytest.mark.parametrize("act", ["insert_overwrite", "insert_overwrite_table", "delete"])
@each_type
@each_version
def test_replacement_includes_rows_that_another_writer_adds_meanwhile(
    table_type: str, version: int, act: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = create(str(tmp_path / "orders"), table_type, version)
    ours.upsert(rows(*FIRST))
    theirs = reopen(ours.location)

    def meanwhile() -> None:
        theirs.upsert(rows(("n1", "north", 9, 9), ("n2", "north", 9, 9), ("b", "north", 9, 9)))

    with before_first_commit(monkeypatch, meanwhile):
        if act == "delete":
            ours.delete_partitions("north")
        else:
            getattr(ours, act)(rows(("z", "north", 1, 1)))
    new = {} if act == "delete" else {"z": ("north", 1, 1)}
    kept = {} if act == "insert_overwrite_table" else {"c": ("south", 5, 3), "d": ("west", 5, 4)}
    assert contents(ours) == new | kept


@each_type
@each_version
def test_write_is_repeated_if_its_partition_was_replaced_meanwhile(
    table_type: str, version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = create(str(tmp_path / "orders"), table_type, version)
    ours.upsert(rows(*FIRST))
    theirs = reopen(ours.location)
    with before_first_commit(monkeypatch, lambda: theirs.delete_partitions("north")):
        ours.upsert(rows(("a", "north", 6, 6)))
    assert contents(ours) == {
        "a": ("north", 6, 6),
        "c": ("south", 5, 3),
        "d": ("west", 5, 4),
    }
    with before_first_commit(monkeypatch, lambda: theirs.delete_partitions("north")):
        ours.insert_overwrite(rows(("b", "north", 6, 6)))
    assert contents(ours)["b"] == ("north", 6, 6)
    assert "a" not in contents(ours)


def test_replacement_of_other_partitions_is_no_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = create(str(tmp_path / "orders"))
    ours.upsert(rows(*FIRST))
    theirs = reopen(ours.location)
    with before_first_commit(monkeypatch, lambda: theirs.delete_partitions("south")):
        ours.insert_overwrite(rows(("b", "north", 6, 6)))
    assert not instants(ours, "rollback")
    assert contents(ours) == {"b": ("north", 6, 6), "d": ("west", 5, 4)}


@each_type
@each_version
def test_replaced_files_are_cleaned_and_never_return(table_type: str, version: int) -> None:
    table = made(table_type, version)
    old = files(table)
    table.insert_overwrite(rows(("a", "north", 1, 7)))
    table.delete_partitions("south")
    for ts in range(4):
        table.upsert(rows(("w", "west", ts, ts)))
    table.archive(min_commits=1, max_commits=2, retain_commits=1)
    assert len(instants(table, "replacecommit")) == 2, "their files are not cleaned yet"
    cleaned = set(table.clean(retain_commits=2).files)
    assert {path for path in old if not path.startswith("west")} <= cleaned
    table.upsert(rows(("w", "west", 9, 9)))
    table.archive(min_commits=1, max_commits=2, retain_commits=1)
    assert not instants(table, "replacecommit")
    expected = {"a": ("north", 1, 7), "d": ("west", 5, 4), "w": ("west", 9, 9)}
    assert contents(table) == expected
    assert table.metadata_differences() == []
    table.rebuild_metadata_table()
    assert contents(table) == expected


@each_type
@each_version
def test_restore_and_rollback_bring_replaced_rows_back(table_type: str, version: int) -> None:
    table = made(table_type, version)
    before = contents(table)
    kept = table.savepoint()
    overwritten = table.insert_overwrite(rows(("a", "north", 1, 7))).instant
    assert overwritten is not None
    table.rollback(overwritten)
    assert contents(table) == before
    table.insert_overwrite_table(rows(("z", "north", 1, 7)))
    table.delete_partitions("north")
    assert contents(table) == {}
    table.restore(kept)
    assert contents(table) == before


@each_version
def test_file_group_that_is_compacted_after_its_replacement_never_returns(version: int) -> None:
    table = made(version=version, metadata_table=False, buckets=INDEX.bucket_count)
    opened = open_table(StorageLocation(table.location))
    planned = request_compaction(opened)
    assert planned is not None
    replace_as_apache_hudi(writer(opened.storage), "north")
    expected = {"c": ("south", 6, 30), "d": ("west", 5, 4)}
    assert contents(table) == expected
    opened.refresh()
    for ts in range(4):
        table.upsert(rows(("w", "west", ts, ts)))
    table.clean(retain_commits=1)
    assert table.compact().files
    for ts in range(4, 10):
        table.upsert(rows(("w", "west", ts, ts)))
    for _ in range(2):
        table.archive(min_commits=1, max_commits=2, retain_commits=1)
        assert contents(table) == expected | {"w": ("west", 9, 9)}
        table.clean(retain_commits=1)
    assert not instants(table, "replacecommit")


def test_deletion_is_refused_with_a_remedy(tmp_path: Path) -> None:
    table = made()
    with pytest.raises(InvalidConfig, match="no partition 'nort'; its partitions are: 'north'"):
        table.delete_partitions(["*th", "nort"])
    assert table.delete_partitions("east*").partitions == ()
    for nothing in ([], [""]):
        with pytest.raises(InvalidConfig, match="name the partitions"):
            table.delete_partitions(nothing)
    flat = lakemark.create(tmp_path / "flat", schema=SCHEMA, record_key="id", ordering="ts")
    flat.upsert(rows(*FIRST))
    with pytest.raises(InvalidConfig, match="is not partitioned"):
        flat.delete_partitions("*")
    flat.insert_overwrite(rows(("a", "north", 1, 7)))
    assert contents(flat) == {"a": ("north", 1, 7)}


def test_pattern_that_is_the_path_of_a_partition_deletes_no_other_partition() -> None:
    table = made()
    table.upsert(rows(("s", "*th", 1, 1)))
    with pytest.raises(InvalidConfig, match=r"'\*th', in which .* also matches 'north'"):
        table.delete_partitions("*th")
    table.delete_partitions(["north", "south"])
    assert [one.path for one in table.delete_partitions("*th").partitions] == ["*th"]
    assert set(contents(table)) == {"d"}


def test_marked_deletes_are_refused_and_columns_may_be_added() -> None:
    table = made()
    added = rows(("a", "north", 1, 7)).append_column("more", pa.array([1]))
    with pytest.raises(InvalidConfig, match="no column 'more'"):
        table.insert_overwrite(added)
    table.insert_overwrite(added, add_columns=True)
    found = reopen(table.location).scan(columns=["id", "more"]).to_table().to_pylist()
    assert {row["id"]: row["more"] for row in found} == {"a": 1, "c": None, "d": None}


def test_tables_with_consistent_hashing_are_refused(tmp_path: Path) -> None:
    storage = open_storage(StorageLocation(str(tmp_path)))
    make_plain(storage)
    commit(ring_writer(storage), [Row("a", 1, 1)])
    table = lakemark.open(tmp_path)
    with pytest.raises(Unsupported, match="hash rings name the file groups"):
        table.delete_partitions("north")
    with pytest.raises(Unsupported, match="hash rings name the file groups"):
        table.insert_overwrite(pa.table({"id": ["a"], "region": ["north"], "ts": [1], "v": [1]}))
    replace_as_apache_hudi(ring_writer(storage), "north")
    with pytest.raises(Refused, match="no query would find rows written to it"):
        commit(ring_writer(storage), [Row("a", 2, 2)])


def replace_as_apache_hudi(to: TableWriter, partition: str) -> None:
    """Replace the file groups of a partition without the checks of lakemark."""
    groups = to.table.view().file_groups(partition)
    to.begin(Operation.DELETE_PARTITION)
    assert to._transaction is not None
    metadata = CommitMetadata(
        operation=Operation.DELETE_PARTITION,
        replaced_file_ids={partition: tuple(one.id.file_id for one in groups)},
        extra_metadata=to._table_facts(),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lakemark.transaction.transaction.check_conflicts", lambda *_, **__: None)
        to._transaction.commit(metadata)


@pytest.mark.parametrize("partitioned", [False, True])
def test_keys_that_an_index_has_in_replaced_file_groups_are_refused(partitioned: bool) -> None:
    """Apache Hudi 1.2.0 leaves such keys when it overwrites a table with a partitioned index."""
    table = made(index="lookup")
    table.create_index("record_index", partitioned=partitioned)
    path = table.location
    storage = open_storage(StorageLocation(path))
    properties = read_properties(storage)
    names = [name for name in properties.metadata_partitions if name != "record_index"]
    without = properties.with_metadata_partitions(names)
    replace_properties(storage, properties, without, lambda: None)
    reopen(path).delete_partitions(["south"])
    replace_properties(storage, read_properties(storage), properties, lambda: None)
    again = rows(("c", "south", 7, 7))
    with pytest.raises(
        Refused, match=r"'c' in file group .*, which queries do not read.*--rebuild"
    ):
        reopen(path).upsert(again)
    reopen(path).rebuild_metadata_table()
    reopen(path).upsert(again)
    assert contents(table)["c"] == ("south", 7, 7)
    assert reopen(path).metadata_differences() == []
