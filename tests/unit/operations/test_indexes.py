"""Indexes are created while other writers commit, listed and dropped."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import lakemark
from lakemark.codec.hfile.hfile_data_block import MAX_KEY_BYTES
from lakemark.config import keys
from lakemark.config.table_properties import TableType
from lakemark.errors import (
    InvalidConfig,
    InvalidRecords,
    Refused,
    Unsupported,
    WriteConflict,
)
from lakemark.execution.runner import LocalRunner
from lakemark.metadata import new_index, record_changes, spilled_entries
from lakemark.metadata.index_definition import (
    DEFINITIONS_PATH,
    define_secondary_index,
    read_definitions,
)
from lakemark.metadata.index_partitions import drop_partitions, stale_definitions
from lakemark.metadata.metadata_compaction import EVERY_DELTA_COMMITS
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.model.action import Action, State
from lakemark.model.changes import ChangeKind
from lakemark.model.format_version import WRITTEN, FormatVersion
from lakemark.model.index_plan import IndexPlan
from lakemark.model.instant import Instant
from lakemark.operations.clean import clean
from lakemark.operations.create_index import create_index, plan_index
from lakemark.operations.drop_index import drop_index
from lakemark.operations.metadata_table import (
    keep_metadata_table,
    metadata_differences,
    rebuild_metadata_table,
)
from lakemark.operations.table_indexes import IndexState, list_indexes
from lakemark.operations.table_writer import TableWriter
from lakemark.services.cleaning_plan import CleaningPolicy
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import Storage
from lakemark.storage.folder_storage import FolderStorage
from lakemark.storage.properties_file import read_properties
from lakemark.timeline.content import encode_index_plan
from lakemark.timeline.timeline_store import TimelineStore
from tests.protocol.actors import archive_instants, clean_up, compact, maintain_metadata
from tests.storages.interrupted_storage import InterruptedStorage
from tests.table_services import make_plain, new_storage
from tests.tables import (
    INDEXES,
    Row,
    commit,
    contents,
    lookup_writer,
    make,
    write_files,
    write_files_of,
    writer,
)

RECORD_INDEX, BLOOM_FILTERS, NOTE = "record_index", "bloom_filters", "secondary_index_note"
MERGE_ON_READ, COPY_ON_WRITE = TableType.MERGE_ON_READ, TableType.COPY_ON_WRITE
each_version = pytest.mark.parametrize("version", WRITTEN)
each_type = pytest.mark.parametrize("table_type", TableType)


def table_with_rows(
    table_type: TableType = MERGE_ON_READ,
    version: FormatVersion = FormatVersion.V9,
    indexes: Sequence[str] = (),
) -> TableWriter:
    storage = new_storage()
    make(storage, table_type, indexes, version)
    to = lookup_writer(storage)
    commit(to, [Row("a", 1, 1), Row("b", 1, 2), Row("s", 1, 3, region="south")])
    commit(to, [Row("b", 2, 4), Row("s", 2, region="south", kind=ChangeKind.DELETE)])
    return to


def of_another_process(to: TableWriter) -> TableWriter:
    return lookup_writer(to.table.storage)


def check(to: TableWriter, *names: str) -> None:
    """Check that the table has these indexes, and that they match the rows."""
    table = of_another_process(to).table
    assert metadata_differences(table) == []
    found = {one.name: one.state for one in list_indexes(table)}
    assert found == dict.fromkeys(names, IndexState.COMPLETE)
    assert not table.timeline.pending(Action.INDEXING)


@each_version
@each_type
def test_each_index_is_created_and_then_updated(
    table_type: TableType, version: FormatVersion
) -> None:
    to = table_with_rows(table_type, version)
    other = of_another_process(to)
    names = [RECORD_INDEX, BLOOM_FILTERS]
    for name in names:
        assert create_index(other.table, name) == name
        assert create_index(other.table, name) == name, "it exists"
    if version.logs_name_their_slice:
        with pytest.raises(Unsupported, match="have no secondary index"):
            create_index(other.table, "note", "v")
    else:
        assert create_index(other.table, "note", "v") == NOTE
        names.append("note")
    check(to, *names)
    commit(to, [Row("a", 3, 3), Row("c", 3, 3), Row("d", 3, 3, region="west")])
    commit(to, [Row("d", 4, region="west", kind=ChangeKind.DELETE)])
    check(to, *names)
    rebuild_metadata_table(to.table)
    check(to, *names)


@each_version
@each_type
def test_statistics_are_created_where_they_are_absent(
    table_type: TableType, version: FormatVersion
) -> None:
    to = table_with_rows(table_type, version)
    storage = to.table.storage
    names = (
        ["column_stats"] if version.logs_name_their_slice else ["column_stats", "partition_stats"]
    )
    with to.table.context.lock.hold(9) as lease:
        drop_partitions(storage, read_properties(storage), names, to.table.store.clock, lease.check)
    assert read_properties(storage).metadata_partitions == ("files",)
    to = lookup_writer(storage)
    commit(to, [Row("c", 3, 3)])
    if "partition_stats" in names:
        with pytest.raises(Unsupported, match="has no column_stats"):
            create_index(to.table, "partition_stats")

    def write() -> None:
        commit(to, [Row("a", 5, 50), Row("w", 5, 5, region="west")])

    for name in names:
        create_index(interrupted(to, write).table, name)
    assert metadata_differences(of_another_process(to).table) == []
    assert set(read_properties(storage).metadata_partitions) == {"files", *names}
    commit(to, [Row("a", 7, 7), Row("x", 7, 7)])
    assert metadata_differences(of_another_process(to).table) == []
    assert keep_metadata_table(of_another_process(to).table) is None


def test_an_index_is_added_to_a_metadata_table_with_archived_commits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Base files of archived compactions remain visible, although a later instant has a number."""
    monkeypatch.setattr("lakemark.metadata.metadata_compaction.EVERY_DELTA_COMMITS", 2)
    to = table_with_rows(indexes=(RECORD_INDEX,))
    for n in range(12):
        commit(to, [Row("a", 10 + n, n)])  # most file groups of the index never change
        compact(to)
        clean_up(to)
        archive_instants(to)
        maintain_metadata(to)
        to.table.refresh()
    check(to, RECORD_INDEX)
    own = TimelineStore(FolderStorage(to.table.storage, METADATA_FOLDER)).load()
    _, found = to.table.storage.list_folder(f"{METADATA_FOLDER}/{RECORD_INDEX}")
    named = {info.name.rpartition("_")[2].partition(".")[0] for info in found}
    assert any(time < own.instants[0].requested_at for time in named if time.startswith("2"))
    create_index(of_another_process(to).table, BLOOM_FILTERS)
    check(to, RECORD_INDEX, BLOOM_FILTERS)
    commit(of_another_process(to), [Row("c", 30, 30)])
    check(to, RECORD_INDEX, BLOOM_FILTERS)


@each_type
def test_partition_statistics_without_file_statistics_are_built_again(
    table_type: TableType,
) -> None:
    """``DROP INDEX column_stats`` of Apache Hudi leaves such a table."""
    to = table_with_rows(table_type)
    storage, names = to.table.storage, ["column_stats"]
    with to.table.context.lock.hold(9) as lease:
        drop_partitions(storage, read_properties(storage), names, to.table.store.clock, lease.check)
    for running in (to, lookup_writer(storage)):
        with pytest.raises(Unsupported, match=r"no column_stats.* --rebuild --run"):
            commit(running, [Row("a", 3, 3)])
    (difference,) = metadata_differences(of_another_process(to).table)
    assert (difference.path, difference.aspect) == (f"{METADATA_FOLDER}/column_stats", "files")
    assert contents(storage) == {"a": (1, 1), "b": (2, 4)}
    reason = keep_metadata_table(of_another_process(to).table)
    assert reason is not None and "no column_stats" in reason
    again = lookup_writer(storage)
    commit(again, [Row("a", 3, 3), Row("s", 3, 3, region="south")])
    assert metadata_differences(of_another_process(to).table) == []


def test_the_timeline_has_apaches_indexing_action() -> None:
    to = table_with_rows()
    newest = to.table.timeline.completed(Action.DELTA_COMMIT)[-1].requested_at
    create_index(to.table, RECORD_INDEX)
    store = TimelineStore(to.table.storage)
    (done,) = store.load().completed(Action.INDEXING)
    assert done.completed_at is not None
    own = TimelineStore(FolderStorage(to.table.storage, METADATA_FOLDER)).load()
    created = own.find(done.requested_at)
    assert created is not None and created.is_completed, "the commit that creates the partition"
    for state in (State.REQUESTED, State.INFLIGHT):
        path = store.path_of(Instant(done.requested_at, Action.INDEXING, state))
        assert to.table.storage.head(path) is not None
    (_, plan), *_ = store.pending_indexing(
        store.load().with_instant(Instant("99", Action.INDEXING, State.REQUESTED))
    )
    assert plan.partitions == ()
    content = to.table.storage.read(store.path_of(done))
    assert newest.encode() in content
    assert RECORD_INDEX.encode() in content


def interrupted(to: TableWriter, meanwhile: Callable[[], object]) -> TableWriter:
    """Open a process that is interrupted right before it reads the first data file."""
    storage = InterruptedStorage(to.table.storage, meanwhile)
    storage.is_before = lambda _, method, path: (
        method in ("open", "read") and path.startswith(("north/", "south/"))
    )
    return lookup_writer(storage)


@each_version
@each_type
@pytest.mark.parametrize("name", [RECORD_INDEX, BLOOM_FILTERS])
def test_commits_of_other_writers_are_caught_up(
    name: str, table_type: TableType, version: FormatVersion
) -> None:
    to = table_with_rows(table_type, version)

    def write() -> None:
        commit(to, [Row("a", 5, 5), Row("n", 5, 5), Row("w", 5, 5, region="west")])
        commit(to, [Row("b", 6, kind=ChangeKind.DELETE), Row("s", 6, 6, region="south")])

    other = interrupted(to, write)
    create_index(other.table, name)
    storage = other.table.storage
    assert isinstance(storage, InterruptedStorage)
    assert storage.stopped_at is not None
    check(to, name)
    commit(to, [Row("a", 7, 7), Row("x", 7, 7)])
    check(to, name)
    assert contents(to.table.storage) == {
        "a": (7, 7), "n": (5, 5), "w": (5, 5), "s": (6, 6), "x": (7, 7),
    }  # fmt: skip


def test_a_commit_right_before_the_lock_is_caught_up() -> None:
    to = table_with_rows()
    other = interrupted(to, lambda: commit(to, [Row("a", 5, 5), Row("n", 5, 5)]))
    storage = other.table.storage
    assert isinstance(storage, InterruptedStorage)
    have_read = False

    def is_before(_: int, method: str, path: str) -> bool:
        nonlocal have_read
        have_read = have_read or path.startswith("north/")
        return have_read and "/.locks/" in path

    storage.is_before = is_before
    create_index(other.table, RECORD_INDEX)
    assert storage.stopped_at is not None
    check(to, RECORD_INDEX)


def test_files_that_a_clean_deletes_meanwhile_are_read_from_later_slices() -> None:
    to = table_with_rows(COPY_ON_WRITE)

    def rewrite_and_clean() -> None:
        for ts in (5, 6, 7):
            commit(to, [Row("a", ts, ts), Row("t", ts, ts, region="south")])
        clean(to.table, CleaningPolicy(commits=1))

    create_index(interrupted(to, rewrite_and_clean).table, RECORD_INDEX)
    check(to, RECORD_INDEX)


def test_a_commit_that_began_before_is_written_again() -> None:
    to = table_with_rows()
    prepared = write_files(to, [Row("c", 5, 5)])
    create_index(of_another_process(to).table, RECORD_INDEX)
    with pytest.raises(WriteConflict, match="created after the commit"):
        to.commit(prepared, {})
    to.abandon()
    commit(to, [Row("c", 5, 5)])
    check(to, RECORD_INDEX)
    drop_index(of_another_process(to).table, RECORD_INDEX)
    commit(to, [Row("c", 6, 6)])
    check(to)


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("kind", [ChangeKind.DELETE, ChangeKind.COMMIT_TIME_DELETE])
def test_a_row_that_returns_with_a_pending_compaction_is_in_the_index(
    kind: ChangeKind, *, partitioned: bool
) -> None:
    """The compaction drops the delete to which the row has lost."""
    to = table_with_rows()
    commit(to, [Row("a", 9, kind=kind)])
    assert to.compactions_to_do(CompactionPolicy(1))
    commit(to, [Row("a", 5, 5)])
    other = of_another_process(to).table
    create_index(other, RECORD_INDEX, partitioned=partitioned)
    rebuild_metadata_table(other)
    check(to, RECORD_INDEX)
    assert of_another_process(to).compact_if_due(CompactionPolicy(1), LocalRunner(1))
    assert contents(to.table.storage)["a"] == (5, 5)
    check(to, RECORD_INDEX)
    commit(of_another_process(to), [Row("a", 20, 20)])
    assert contents(to.table.storage)["a"] == (20, 20)
    check(to, RECORD_INDEX)


@each_type
def test_a_commit_with_global_keys_does_not_rely_on_a_dropped_record_index(
    table_type: TableType,
) -> None:
    """Without the index, nothing shows that another commit has added the key elsewhere."""
    storage = new_storage()
    make(storage, table_type, [RECORD_INDEX])
    to, other = (lookup_writer(storage, global_keys=True) for _ in range(2))
    commit(to, [Row("a", 1, 1)])
    prepared = write_files(to, [Row("b", 2, 2)])
    drop_index(other.table, RECORD_INDEX)
    commit(other, [Row("b", 3, 3, region="south")])
    with pytest.raises(WriteConflict, match="was dropped after this commit"):
        to.commit(prepared, {})
    to.abandon()
    commit(to, [Row("b", 2, 2)])
    assert contents(storage) == {"a": (1, 1), "b": (3, 3)}


def test_a_program_continues_while_indexes_appear_and_disappear(tmp_path: Path) -> None:
    url = str(tmp_path / "t")
    schema = pa.schema([("id", pa.string()), ("note", pa.string()), ("ts", pa.int64())])

    def rows(*ids: str) -> pa.Table:
        return pa.table([list(ids), [f"n{one}" for one in ids], [1] * len(ids)], schema=schema)

    table = lakemark.create(url, schema=schema, record_key="id", index="lookup")
    table.upsert(rows("a", "b"))
    other = lakemark.open(url)
    assert other.indexes == []
    other.create_index("record_index")
    table.upsert(rows("a", "c"))
    other.create_index("notes", column="note")
    table.upsert(rows("d"))
    assert [(one.name, one.columns) for one in other.indexes] == [
        ("notes", ("note",)), ("record_index", ()),
    ]  # fmt: skip
    assert table.scan(where="note = 'nd'", columns=["id"]).to_table()["id"].to_pylist() == ["d"]
    assert table.metadata_differences() == []
    with pytest.raises(Refused, match=r"'notes' .* needs the record index"):
        other.drop_index("record_index")
    other.drop_index("notes")
    other.drop_index("record_index")
    table.upsert(rows("a", "e"))
    assert other.indexes == []
    assert table.metadata_differences() == []


# Creating again


@each_version
def test_an_index_is_dropped_and_created_again(version: FormatVersion) -> None:
    """Commits and compactions of the metadata table from before name files that are gone."""
    to = table_with_rows(version=version)
    create_index(to.table, RECORD_INDEX)
    for ts in range(10, 12 + EVERY_DELTA_COMMITS):
        commit(to, [Row("a", ts, ts), Row(f"n{ts}", ts, ts)])
    other = of_another_process(to)
    drop_index(other.table, RECORD_INDEX)
    check(to)
    assert not to.table.storage.list_tree(f"{METADATA_FOLDER}/{RECORD_INDEX}")
    commit(to, [Row("a", 50, 50), Row("new", 50, 50)])
    create_index(other.table, RECORD_INDEX)
    check(to, RECORD_INDEX)
    for ts in range(60, 62 + EVERY_DELTA_COMMITS):
        commit(to, [Row("a", ts, ts), Row(f"n{ts}", ts, ts)])
    check(to, RECORD_INDEX)


@each_version
def test_an_index_is_created_again_with_empty_file_groups(version: FormatVersion) -> None:
    """Recent commits name logs of file groups that are empty in the index that is created again."""
    to = table_with_rows(version=version)
    create_index(to.table, RECORD_INDEX)
    keys_of_all_groups = [Row(f"n{number}", 9, 9) for number in range(30)]
    commit(to, keys_of_all_groups)
    commit(to, [replace(row, ts=10, kind=ChangeKind.DELETE) for row in keys_of_all_groups])
    drop_index(to.table, RECORD_INDEX)
    create_index(to.table, RECORD_INDEX)
    check(to, RECORD_INDEX)
    assert keep_metadata_table(of_another_process(to).table) is None


# Refusals


def test_two_rows_of_a_key_refuse_a_record_index_and_leave_the_table_as_it_was() -> None:
    to = table_with_rows()
    commit(to, [Row("a", 5, 5, region="south")])
    before = read_properties(to.table.storage)
    with pytest.raises(Refused, match=r"'a' has a row in the file groups .* and "):
        create_index(of_another_process(to).table, RECORD_INDEX)
    assert read_properties(to.table.storage) == before
    check(to)
    commit(to, [Row("b", 9, 9)])
    check(to)


def test_a_refused_rebuild_keeps_the_metadata_table() -> None:
    to = table_with_rows()
    create_index(to.table, RECORD_INDEX)
    storage = to.table.storage
    stored = read_properties(storage)
    # A writer that knows no record index has added a second row of a key.
    storage.put(".hoodie/hoodie.properties", stored.without_metadata_partitions(
        [RECORD_INDEX]).to_bytes())  # fmt: skip
    commit(lookup_writer(storage), [Row("a", 5, 5, region="south")])
    storage.put(".hoodie/hoodie.properties", stored.to_bytes())
    again = lookup_writer(storage)
    with pytest.raises(Refused, match=r"'a' has a row in the file groups .* and "):
        rebuild_metadata_table(again.table)
    assert read_properties(storage) == stored
    assert storage.list_tree(METADATA_FOLDER)


@pytest.mark.parametrize(
    ("name", "column", "error", "message"),
    [
        ("files", None, InvalidConfig, "no index 'files'"),
        ("note", None, InvalidConfig, "name the column"),
        ("record_index", "v", InvalidConfig, "but not record_index"),
        ("secondary_index_v", "v", InvalidConfig, "nor a name that begins with secondary_index_"),
        ("note", "w", Unsupported, "has no record index"),
    ],
)
def test_indexes_that_cannot_be(
    name: str, column: str | None, error: type[Exception], message: str
) -> None:
    to = table_with_rows()
    with pytest.raises(error, match=message):
        create_index(to.table, name, column)
    check(to)


def test_statistics_of_partitions_need_an_upgrade_of_version_6() -> None:
    to = table_with_rows(TableType.MERGE_ON_READ, FormatVersion.V6)
    with pytest.raises(Unsupported, match=r"version 6, .* no partition_stats; upgrade the table"):
        create_index(to.table, "partition_stats")
    check(to)


@pytest.mark.parametrize("column", ["absent", "_hoodie_commit_time", "_hoodie_record_key"])
def test_a_secondary_index_needs_a_column_of_the_table(column: str) -> None:
    """Writers refuse a table with an index of another column."""
    to = table_with_rows()
    create_index(to.table, RECORD_INDEX)
    with pytest.raises(InvalidConfig, match=rf"no column '{column}' .* are: id, region, ts, v"):
        create_index(to.table, "note", column)
    check(to, RECORD_INDEX)


def test_a_secondary_index_of_fractions_is_refused(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("price", pa.float64())])
    table = lakemark.create(tmp_path / "t", schema=schema, record_key="id", index="lookup")
    table.create_index("record_index")
    with pytest.raises(Unsupported, match=r"'price' .* is of type double"):
        table.create_index("prices", column="price")


@pytest.mark.parametrize("index", ["bucket", "consistent_hashing"])
@pytest.mark.parametrize("has_metadata_table", [True, False])
def test_a_refused_record_index_leaves_a_table_with_buckets_as_it_was(
    index: str, has_metadata_table: bool, tmp_path: Path
) -> None:
    rows = pa.table({"id": ["a"], "v": [1]})
    table = lakemark.create(
        tmp_path / "t",
        schema=rows.schema,
        record_key="id",
        index=index,
        metadata_table=has_metadata_table,
    )
    table.upsert(rows)
    before = lakemark.open(tmp_path / "t").properties
    with pytest.raises(Unsupported, match="without a record index"):
        table.create_index("record_index")
    assert lakemark.open(tmp_path / "t").properties == before
    table.upsert(rows)


@pytest.mark.parametrize("names", [["record_index", "notes"], ["partition_stats"]])
def test_a_table_without_a_metadata_table_gets_one(names: list[str], tmp_path: Path) -> None:
    rows = pa.table({"id": ["a", "b"], "note": ["x", "y"]})
    table = lakemark.create(
        tmp_path / "t", schema=rows.schema, record_key="id", index="lookup", metadata_table=False
    )
    table.upsert(rows)
    with pytest.raises(Unsupported, match="has no record index"):
        table.create_index("notes", column="note")
    assert not lakemark.open(tmp_path / "t").properties.metadata_partitions
    for name in names:
        table.create_index(name, column="note" if name == "notes" else None)
    table.upsert(rows)
    assert table.metadata_differences() == []


def test_a_table_with_buckets_gets_bloom_filters_but_no_record_index() -> None:
    storage = new_storage()
    make(storage)
    to = writer(storage)
    commit(to, [Row("a", 1, 1)])
    with pytest.raises(Unsupported, match=r"has a bucket index, .* table.index: lookup"):
        create_index(to.table, RECORD_INDEX)
    create_index(to.table, BLOOM_FILTERS)
    commit(to, [Row("a", 2, 2), Row("b", 2, 2)])
    assert metadata_differences(writer(storage).table) == []


def test_an_index_that_does_not_exist_is_not_dropped() -> None:
    to = table_with_rows(indexes=INDEXES)
    with pytest.raises(InvalidConfig, match="has no index 'note'; it has: bloom_filters"):
        drop_index(to.table, "note")
    with pytest.raises(InvalidConfig, match=r"column_stats is a part .* table index statistics"):
        drop_index(to.table, "column_stats")


# Large indexes


@pytest.mark.parametrize(("column", "what"), [("id", "a record key"), ("note", "column 'note'")])
def test_a_value_too_long_for_an_index_is_refused_and_the_table_stays_as_it_was(
    column: str, what: str, tmp_path: Path
) -> None:
    """Apache Hudi reads the length of a key as a signed number of 16 bits."""
    rows = pa.table({"id": ["a"], "note": ["x"]})
    table = lakemark.create(
        tmp_path / "t", schema=rows.schema, record_key="id", index="lookup", version=9
    )
    table.upsert(rows)
    table.create_index("record_index")
    table.create_index("note", column="note")
    longest = {"id": "b", "note": "y", column: "\u00e9" * (MAX_KEY_BYTES // 2 - 1)}
    table.upsert(pa.Table.from_pylist([longest]))
    too_long = {"id": "c", "note": "z", column: "\u00e9" * 35_000}
    with pytest.raises(InvalidRecords, match=rf"{what} .*stores keys of at most 32,767 bytes"):
        table.upsert(pa.Table.from_pylist([too_long]))
    assert table.metadata_differences() == []
    table.upsert(pa.Table.from_pylist([{"id": "d", "note": "z"}, longest]))
    assert lakemark.open(tmp_path / "t").snapshot(["id"]).read_all().num_rows == 3
    assert table.metadata_differences() == []


def test_refused_creation_does_not_ask_to_drop_an_index_that_does_not_exist(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("day", pa.string())])
    long_key = [{"id": "b" * 40_000, "day": "1"}]
    two_rows = [{"id": "a", "day": "1"}, {"id": "a", "day": "2"}]
    for number, rows in enumerate((long_key, two_rows)):
        path = tmp_path / str(number)
        table = lakemark.create(
            path, schema=schema, record_key="id", partition_by="day", index="lookup"
        )
        table.upsert(pa.Table.from_pylist(rows))
        with pytest.raises((InvalidRecords, Refused), match="or do without the index"):
            table.create_index("record_index")
        assert table.indexes == []


def test_keys_that_are_too_long_do_not_stop_the_compaction_of_their_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits did not check the lengths of keys at first, so there are such indexes."""
    url, schema = tmp_path / "t", pa.schema([("id", pa.string())])
    table = lakemark.create(url, schema=schema, record_key="id", index="lookup")
    table.upsert(pa.Table.from_pylist([{"id": "a"}]))
    table.create_index("record_index")
    with monkeypatch.context() as unchecked:
        unchecked.setattr(record_changes, "MAX_KEY_BYTES", 1 << 16)
        table.upsert(pa.Table.from_pylist([{"id": "b" * 40_000}]))
    for n in range(EVERY_DELTA_COMMITS + 1):
        table.upsert(pa.Table.from_pylist([{"id": f"c{n}"}]))
    assert table.metadata_differences() == []


def test_an_index_of_more_keys_than_a_run_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spilled_entries.SpilledEntries.__init__, "__defaults__", (4096,))
    monkeypatch.setattr(new_index, "_GROUP_KEY_BYTES", 100)
    to = table_with_rows()
    commit(to, [Row(f"k{n:04d}", 5, n % 3) for n in range(2000)])
    create_index(to.table, RECORD_INDEX)
    create_index(to.table, "note", "v")
    check(to, RECORD_INDEX, "note")
    groups = to.table.storage.list_tree(f"{METADATA_FOLDER}/{RECORD_INDEX}")
    assert sum(one.name.endswith(".hfile") for one in groups) > 50
    commit(to, [Row("k0001", 6, 9), Row("z", 6, 9)])
    check(to, RECORD_INDEX, "note")


# Dead processes


def half_built(storage: Storage, at: str, *, is_own: bool) -> None:
    """Leave what a process leaves that died while it built a record index."""
    store = TimelineStore(storage)
    requested = Instant(at, Action.INDEXING, State.REQUESTED)
    plan = IndexPlan(partitions=(RECORD_INDEX,), up_to=at, is_own=is_own)
    store.create(requested, encode_index_plan(plan))
    store.create(requested.inflight())
    if not is_own:
        inflight = {keys.METADATA_PARTITIONS_INFLIGHT: RECORD_INDEX}
        stored = read_properties(storage)
        changed = type(stored)({**stored.values, **inflight})
        storage.put(".hoodie/hoodie.properties", changed.to_bytes())
    storage.create(f"{METADATA_FOLDER}/{RECORD_INDEX}/.hoodie_partition_metadata", b"x=1")


def test_a_half_built_index_of_apache_hudi_is_dropped_by_name() -> None:
    to = table_with_rows()
    half_built(to.table.storage, "20260101000000000", is_own=False)
    with pytest.raises(Unsupported, match="lakemark table index drop"):
        commit(of_another_process(to), [Row("b", 9, 9)])
    other = lookup_writer(to.table.storage)
    (found,) = list_indexes(other.table)
    assert (found.name, found.state) == (RECORD_INDEX, IndexState.BUILDING)
    drop_index(other.table, RECORD_INDEX)
    check(to)
    assert not to.table.storage.list_tree(f"{METADATA_FOLDER}/{RECORD_INDEX}")
    again = lookup_writer(to.table.storage)
    again.recover()
    commit(again, [Row("b", 9, 9)])
    create_index(again.table, RECORD_INDEX)
    check(again, RECORD_INDEX)


def test_the_next_writer_removes_what_a_dead_process_of_lakemark_left() -> None:
    to = table_with_rows()
    half_built(to.table.storage, "20260101000000000", is_own=True)
    again = of_another_process(to)
    again.recover()
    check(again)
    assert not to.table.storage.list_tree(f"{METADATA_FOLDER}/{RECORD_INDEX}")


def test_a_writer_without_a_metadata_table_removes_an_announcement_that_appears_late() -> None:
    """The request of a dead process arrived after the index and the metadata table were removed."""
    storage = new_storage()
    make_plain(storage)
    pending = Instant("20260101000000000", Action.INDEXING, State.INFLIGHT)
    TimelineStore(storage).create(pending)
    to = writer(storage)
    to.settings = replace(to.settings, metadata_table=False)
    to.recover()
    assert not TimelineStore(storage).load().pending()
    commit(to, [Row("a", 1, 1)])
    assert not to.table.properties.metadata_partitions


def test_a_stale_definition_is_removed_at_the_next_start() -> None:
    to = table_with_rows()
    storage = to.table.storage
    define_secondary_index(storage, NOTE, "v", "V2", lambda: None)
    keep_metadata_table(of_another_process(to).table)
    assert NOTE in read_definitions(storage), "Apache Hudi may be about to build the index"
    content = json.loads(storage.read(DEFINITIONS_PATH))
    assert NOTE in content["indexDefinitions"]
    assert stale_definitions(storage, now=datetime.now(UTC) + timedelta(minutes=3)) == [NOTE]
    rebuild_metadata_table(of_another_process(to).table)
    assert NOTE not in read_definitions(storage)


def test_a_dry_run_ignores_what_a_dead_process_of_lakemark_left() -> None:
    """Otherwise ``lakemark table index create --run`` would not remove it either."""
    to = table_with_rows()
    half_built(to.table.storage, "20260101000000000", is_own=True)
    assert plan_index(to.table, RECORD_INDEX) == RECORD_INDEX
    create_index(to.table, RECORD_INDEX)
    check(to, RECORD_INDEX)


# Bulk inserts


def test_a_bulk_insert_of_rows_with_automatic_keys_adds_them_to_the_indexes(
    tmp_path: Path,
) -> None:
    rows = pa.table({"note": ["x", "y", "x"], "n": [1, 2, 3]})
    table = lakemark.create(tmp_path / "t", schema=rows.schema, record_key=[], index="lookup")
    table.bulk_insert(rows)
    lakemark.open(tmp_path / "t").create_index("record_index")
    lakemark.open(tmp_path / "t").create_index("notes", column="note")
    table.bulk_insert(rows)
    table.insert(rows)
    assert table.metadata_differences() == []
    assert table.scan(where="note = 'x'").to_table().num_rows == 6


def test_a_bulk_insert_stops_if_a_record_index_appears(tmp_path: Path) -> None:
    """It does not look its keys up, so another row may have one of them."""
    rows = pa.table({"id": ["a"], "v": [1]})
    table = lakemark.create(tmp_path / "t", schema=rows.schema, record_key="id", index="lookup")
    table.upsert(rows)

    def arriving() -> Iterator[pa.RecordBatch]:
        yield from rows.to_batches()
        lakemark.open(tmp_path / "t").create_index("record_index")

    with pytest.raises(Unsupported, match="has a record index, in which each record key has one"):
        table.bulk_insert(arriving())
    assert table.scan().to_table().num_rows == 1
    table.upsert(rows)
    assert table.metadata_differences() == []


# Keys of later commits


def test_a_key_that_was_compacted_into_the_index_since_the_commit_began_is_a_conflict() -> None:
    to = table_with_rows()
    create_index(to.table, RECORD_INDEX)
    late = of_another_process(to)
    context = late.begin()
    other = of_another_process(to)
    for ts in range(10, 12 + EVERY_DELTA_COMMITS):
        commit(other, [Row("new", ts, ts, region="west"), Row(f"n{ts}", ts, ts)])

    with pytest.raises(WriteConflict, match="committed record keys of this batch meanwhile"):
        write_files_of(late, context, [Row("new", 99, 99, region="west")])
    late.abandon()
    commit(late, [Row("new", 99, 99, region="west")])
    check(late, RECORD_INDEX)
