"""The secondary indexes that lakemark updates with each commit, and by which it skips files."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakemark
from lakemark import SkipReason
from lakemark.config.parquet_settings import PARQUET_DEFAULTS, ParquetSettings
from lakemark.config.table_properties import TableType
from lakemark.errors import InvalidConfig, Unsupported, WriteConflict
from lakemark.execution.runner import LocalRunner
from lakemark.metadata.index_definition import DEFINITIONS_PATH, read_definitions
from lakemark.metadata.metadata_compaction import EVERY_DELTA_COMMITS
from lakemark.metadata.metadata_store import MetadataStore
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.metadata.record_changes import RecordChanges
from lakemark.metadata.secondary_columns import SecondaryColumn
from lakemark.metadata.secondary_index import RECORDS, SecondaryIndex, encode_keys
from lakemark.metadata.secondary_index_records import encode_index_keys
from lakemark.model.changes import ChangeKind
from lakemark.model.format_version import FormatVersion
from lakemark.operations.change_version import change_table_version
from lakemark.operations.compact import request_compaction
from lakemark.operations.create_index import create_index
from lakemark.operations.drop_index import drop_index
from lakemark.operations.metadata_table import metadata_differences, rebuild_metadata_table
from lakemark.operations.open_table import OpenTable
from lakemark.operations.table_writer import TableWriter
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import Storage
from lakemark.storage.folder_storage import FolderStorage
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.transaction.rollback import roll_back_named
from tests.depth import examples
from tests.golden.golden_table import unpack
from tests.golden.shared_tables import SharedTables
from tests.table_services import new_storage
from tests.tables import Row, commit, lookup_writer, make, write_files
from tests.unit.metadata.metadata_tables import ApachesTable

NAME = "secondary_index_v"
OF_EACH_VERSION = ["v8_mor_secondary_index", "v9_mor_secondary_index"]
NO_KEYS = pa.array([], pa.string())

#: Two records fill a file, so that partitions have several file groups.
SIZING = ParquetSettings(max_file_bytes=2 * PARQUET_DEFAULTS.record_bytes, small_file_bytes=0)

MERGE_ON_READ = TableType.MERGE_ON_READ
each_type = pytest.mark.parametrize("table_type", TableType)


def new_table(
    table_type: TableType = MERGE_ON_READ,
    version: FormatVersion = FormatVersion.V9,
    indexes: tuple[str, ...] = ("record_index", NAME),
) -> TableWriter:
    storage = new_storage()
    make(storage, table_type, indexes, version)
    return lookup_writer(storage, SIZING)


def indexed(table: OpenTable, partition: str = NAME) -> dict[str, str | None]:
    """Return the value of each key in the index, after a comparison with the rows."""
    table = lookup_writer(table.storage).table
    assert metadata_differences(table) == []
    metadata = table.snapshot.metadata_with(PartitionKind.SECONDARY_INDEX)
    assert metadata is not None
    found = pa.concat_tables([RECORDS.empty_table(), *SecondaryIndex(metadata, partition).scan()])
    rows = found.to_pylist()
    by_key = {row["record_key"]: row["secondary_key"] for row in rows}
    assert len(by_key) == len(rows), "a key has two values"
    for value in set(by_key.values()):
        keys = SecondaryIndex(metadata, partition).lookup([value])["record_key"].to_pylist()
        assert sorted(keys) == sorted(key for key, one in by_key.items() if one == value)
    return by_key


def delete(key: str, ts: int, region: str = "north") -> Row:
    return Row(key, ts, region=region, kind=ChangeKind.DELETE)


# Records


@pytest.mark.parametrize("name", OF_EACH_VERSION)
def test_the_records_are_apaches(name: str, shared_tables: SharedTables) -> None:
    """Each record is in the file group in which Apache Hudi writes it, with the same bytes."""
    table = ApachesTable.at(shared_tables[name].root)
    (partition,) = table.metadata.partitions_of_kind(PartitionKind.SECONDARY_INDEX)
    scanned = pa.concat_tables(SecondaryIndex(table.metadata, partition).scan())
    version = table.metadata.definitions[partition].version
    column = SecondaryColumn(partition, "note", version)
    keys = encode_keys(*(part.combine_chunks() for part in scanned.columns))
    ours = encode_index_keys(keys, NO_KEYS, column).by_shard(10)
    for one in table.metadata.slices(partition):
        stored = table.metadata.rows.newest_entries(one)
        number = int(one.group.file_id.removesuffix("-0")[-4:])
        assert (
            ours[number].written == RecordChanges.of(stored.keys.to_pylist(), stored.values).written
        )


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.tuples(st.none() | st.text("ab$\\\0é\n"), st.text("a$\\\0", min_size=1))))
def test_any_value_and_key_are_encoded_like_apaches(rows: list[tuple[str | None, str]]) -> None:
    values, record_keys = (pa.array([row[n] for row in rows], pa.string()) for n in range(2))
    expected = [
        "$".join(
            "\0" if text is None else "".join("\\" * (c in "\\$\0") + c for c in text)
            for text in row
        )
        for row in rows
    ]
    assert encode_keys(values, record_keys).to_pylist() == expected


# Commits


@pytest.mark.parametrize(
    ("table_type", "version"),
    [
        (MERGE_ON_READ, FormatVersion.V8),
        (MERGE_ON_READ, FormatVersion.V9),
        (TableType.COPY_ON_WRITE, FormatVersion.V9),
    ],
)
def test_the_index_has_the_values_of_the_rows(
    table_type: TableType, version: FormatVersion
) -> None:
    to = new_table(table_type, version)
    commit(to, [Row("a", 1, 1), Row("b", 1, 1), Row("c", 1, 2), Row("s", 1, 3, region="south")])
    assert indexed(to.table) == {"a": "1", "b": "1", "c": "2", "s": "3"}
    commit(to, [Row("a", 2, 2), delete("b", 2), delete("s", 2, "south"), delete("x", 2)])
    assert indexed(to.table) == {"a": "2", "c": "2"}
    commit(to, [delete("c", 0), Row("a", 1, 9), Row("b", 3, 3, region="south"), Row("x", 1, 1)])
    assert indexed(to.table) == {"a": "2", "b": "3", "c": "2", "x": "1"}, "late changes lose"
    if table_type is MERGE_ON_READ:
        commit(to, [Row("c", 4, 4)])
        assert to.compact_if_due(CompactionPolicy(1), LocalRunner(1))
        assert indexed(to.table) == {"a": "2", "b": "3", "c": "4", "x": "1"}
    for number in range(EVERY_DELTA_COMMITS + 1):
        commit(to, [Row("a", 10 + number, number), Row(f"k{number}", 1, number)])
    found = indexed(to.table)
    assert found["a"] == str(EVERY_DELTA_COMMITS)
    assert [found[f"k{number}"] for number in range(EVERY_DELTA_COMMITS + 1)] == [
        str(number) for number in range(EVERY_DELTA_COMMITS + 1)
    ]
    assert to.table.metadata_writer.compacted_at, "the metadata table was compacted"


@each_type
def test_values_of_a_pending_compaction_are_those_that_queries_read(table_type: TableType) -> None:
    to = new_table(table_type)
    commit(to, [Row("a", 1, 1), Row("b", 1, 1)])
    commit(to, [Row("a", 5, 5)])
    if table_type is MERGE_ON_READ:
        assert request_compaction(to.table) is not None
    commit(to, [Row("a", 3, 3), Row("b", 2, 2)])
    assert indexed(to.table) == {"a": "5", "b": "2"}
    if table_type is MERGE_ON_READ:
        assert to.compact_if_due(CompactionPolicy(1), LocalRunner(1))
    assert indexed(to.table) == {"a": "5", "b": "2"}


@each_type
def test_a_rollback_restores_the_index(table_type: TableType) -> None:
    to = new_table(table_type)
    commit(to, [Row("a", 1, 1), Row("b", 1, 1)])
    undone = commit(to, [delete("a", 2), Row("b", 2, 2), Row("c", 2, 2, region="south")])
    assert indexed(to.table) == {"b": "2", "c": "2"}
    roll_back_named(to.table.context, undone.requested_at)
    to = lookup_writer(to.table.storage, SIZING)
    assert indexed(to.table) == {"a": "1", "b": "1"}
    commit(to, [Row("c", 3, 3), Row("a", 3, 3)])
    assert indexed(to.table) == {"a": "3", "b": "1", "c": "3"}


def test_the_index_is_built_again_with_the_metadata_table() -> None:
    to = new_table(version=FormatVersion.V8)
    commit(to, [Row("a", 1, 1), Row("b", 1, 1), Row("s", 1, 1, region="south")])
    commit(to, [Row("a", 2, 2), delete("b", 2)])
    before = indexed(to.table)
    rebuild_metadata_table(to.table)
    assert NAME in to.table.properties.metadata_partitions
    assert indexed(to.table) == before == {"a": "2", "s": "1"}
    commit(to, [Row("c", 3, 3), Row("a", 3, 3)])
    assert indexed(to.table) == {"a": "3", "c": "3", "s": "1"}


# Creating and dropping


def test_an_index_is_created_and_dropped() -> None:
    to = new_table(indexes=("record_index",))
    commit(to, [Row("a", 1, 1), Row("b", 1, 2)])
    prepared = write_files(to, [Row("c", 1, 3)])
    other = lookup_writer(to.table.storage, SIZING)
    assert create_index(other.table, "v", "v") == NAME
    assert create_index(other.table, "v", "v") == NAME
    assert indexed(other.table) == {"a": "1", "b": "2"}
    with pytest.raises(WriteConflict, match=r"created after the commit with .* began"):
        to.commit(prepared, {})
    to.abandon()
    commit(to, [Row("c", 1, 3)])
    assert indexed(to.table) == {"a": "1", "b": "2", "c": "3"}
    with pytest.raises(InvalidConfig, match="has an index 'v' of column 'v'"):
        create_index(other.table, "v", "ts")
    create_index(other.table, "other", "ts")
    commit(to, [Row("d", 1, 4)])
    assert indexed(to.table, "secondary_index_other") == dict.fromkeys("abcd", "1")
    drop_index(to.table, "v")
    assert NAME not in to.table.properties.metadata_partitions
    assert NAME not in read_definitions(to.table.storage)
    commit(to, [Row("a", 2, 2)])
    assert indexed(to.table, "secondary_index_other") == {**dict.fromkeys("bcd", "1"), "a": "2"}
    with pytest.raises(InvalidConfig, match="has no index 'v'"):
        drop_index(to.table, "v")


def test_an_index_that_was_created_again_for_another_column_stops_a_commit() -> None:
    to = new_table()
    commit(to, [Row("a", 1, 1)])
    prepared = write_files(to, [Row("a", 2, 2)])
    other = lookup_writer(to.table.storage, SIZING)
    drop_index(other.table, "v")
    create_index(other.table, "v", "ts")
    with pytest.raises(WriteConflict, match="column 'ts'"):
        to.commit(prepared, {})
    to.abandon()
    commit(to, [Row("a", 3, 3)])
    assert indexed(to.table) == {"a": "3"}


@pytest.mark.parametrize(
    ("name", "column", "error"),
    [
        ("v!", "v", "use lower-case letters"),
        ("w", "w", "has no column 'w'"),
        ("p", "price", "is of type decimal128"),
    ],
)
def test_an_index_that_lakemark_would_not_update_is_not_created(
    name: str, column: str, error: str, tmp_path: Path
) -> None:
    table = _of_every_kind(tmp_path)
    with pytest.raises(lakemark.HudiError, match=error):
        create_index(table, name, column)
    assert "secondary" not in ",".join(table.properties.metadata_partitions)


def test_a_table_without_a_record_index_gets_no_secondary_index() -> None:
    to = new_table(indexes=())
    commit(to, [Row("a", 1, 1)])
    with pytest.raises(Unsupported, match="has no record index"):
        create_index(to.table, "v", "v")


def _of_every_kind(tmp_path: Path) -> OpenTable:
    golden = unpack("v9_mor_recordindex", tmp_path)
    return golden.table


def test_an_index_survives_changes_of_the_version() -> None:
    to = new_table(TableType.COPY_ON_WRITE)
    commit(to, [Row("a", 1, 1), Row("b", 1, 2)])
    storage = to.table.storage
    change_table_version(to.table, FormatVersion.V8, LocalRunner(1))
    to = lookup_writer(storage, SIZING)
    commit(to, [Row("a", 2, 2)])
    assert indexed(to.table) == {"a": "2", "b": "2"}
    assert read_definitions(storage)[NAME].version == "V1"
    change_table_version(to.table, FormatVersion.V6, LocalRunner(1))
    to = lookup_writer(storage, SIZING)
    assert NAME not in to.table.properties.metadata_partitions
    assert NAME not in read_definitions(storage), "version 6 has no secondary indexes"
    commit(to, [Row("a", 3, 3)])
    assert metadata_differences(to.table) == []


# Tables that are refused


def test_an_index_without_a_definition_is_refused() -> None:
    to = new_table()
    commit(to, [Row("a", 1, 1)])
    stored = json.loads(to.table.storage.read(DEFINITIONS_PATH))
    del stored["indexDefinitions"][NAME]
    to.table.storage.put(DEFINITIONS_PATH, json.dumps(stored).encode())
    for act in (
        lambda one: commit(one, [Row("b", 1)]),
        lambda one: one.recover(),
        lambda one: rebuild_metadata_table(one.table),
    ):
        with pytest.raises(Unsupported, match=f"index {NAME} without a column"):
            act(lookup_writer(to.table.storage))


def test_an_index_of_other_values_is_refused_by_name(tmp_path: Path) -> None:
    root = unpack("v9_mor_secondary_index", tmp_path).root
    path = root / DEFINITIONS_PATH
    stored = json.loads(path.read_bytes())
    stored["indexDefinitions"]["secondary_index_idx_note"]["sourceFields"] = ["price"]
    path.write_text(json.dumps(stored))
    table = lakemark.open(root)
    rows = table.snapshot(list(table.schema.names[5:]) if table.schema else None).read_all()
    for act in (lambda: lakemark.open(root).upsert(rows), lambda: lakemark.open(root).compact()):
        with pytest.raises(Unsupported, match=r"column 'price', whose type is decimal128\(12, 2\)"):
            act()
    price = rows["price"][0]
    found = table.scan(columns=["price"], where=pc.field("price") == price).to_table()
    assert found.num_rows, "queries do not use the index"


# Differences


def test_wrong_and_missing_values_are_reported() -> None:
    to = new_table()
    commit(to, [Row("a", 1, 1), Row("b", 1, 2)])
    column = SecondaryColumn(NAME, "v", "V2")
    wrong = encode_index_keys(pa.array(["7$a"]), pa.array(["2$b"]), column)
    table = _with_records(to.table.storage, wrong).table
    found = {(one.path, one.aspect, one.stored, one.found) for one in metadata_differences(table)}
    assert found == {
        (f"{METADATA_FOLDER}/{NAME}", NAME, "no value of 1 records, such as '2$b'", "a row"),
        (f"{METADATA_FOLDER}/{NAME}", NAME, "a value of 1 records, such as '7$a'", "no row"),
    }


def _with_records(storage: Storage, changes: RecordChanges) -> TableWriter:
    """Commit some changes to the index with a commit that changes no data."""
    instant = commit(lookup_writer(storage), [])
    own = FolderStorage(storage, METADATA_FOLDER)
    instants = TimelineStore(own)
    MetadataStore(own, instants, instants.load()).commit(instant, {NAME: changes}, lambda: None)
    return lookup_writer(storage, SIZING)


# Queries


CONDITIONS = {
    "v = 3": ["c"],
    "v = 3 and ts = 1": ["c"],
    "v in (1, 4)": ["a", "d"],
    "v = 1 or v = 4": ["a", "d"],
    "v = 1 or ts = 1": list("abcde"),
    "v = 9": [],
    "v = 1 and v = 2": [],
    "not v = 1": ["b", "c", "d"],
    "v is null": ["e"],
    "v is null or v = 2": ["b", "e"],
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_query_reads_only_the_file_groups_with_the_values(condition: str) -> None:
    to = new_table()
    commit(to, [Row(key, 1, v) for v, key in enumerate("abcd", 1)])
    commit(to, [Row("e", 1, None)])  # type: ignore[arg-type]
    table = lookup_writer(to.table.storage).table
    scan = table.scan(columns=["id"], where=condition)
    assert sorted(scan.to_table()["id"].to_pylist()) == CONDITIONS[condition]
    explanation = table.explain(where=condition)
    assert set(explanation.read) == set(scan.slices)
    if condition in ("v = 3", "v = 9", "v is null"):
        assert len(scan.slices) == len(CONDITIONS[condition])
        assert SkipReason.SECONDARY_INDEX in {one.reason for one in explanation.skipped}
        assert "by secondary index" in str(explanation)


@pytest.mark.parametrize("name", OF_EACH_VERSION)
def test_values_in_a_table_of_apache_hudi_are_found(name: str, tmp_path: Path) -> None:
    golden = unpack(name, tmp_path)
    expected = golden.expected("snapshot")
    for note in expected["note"].to_pylist()[:8]:
        where = pc.field("note").is_null() if note is None else pc.field("note") == note
        found = golden.table.scan(columns=["id"], where=where).to_table()["id"].to_pylist()
        assert sorted(found) == sorted(expected.filter(where)["id"].to_pylist())
    explanation = golden.table.explain(where="note = 'no such note'")
    assert not explanation.read
    assert {one.reason for one in explanation.skipped} == {SkipReason.SECONDARY_INDEX}


# Tables of Apache Hudi


@pytest.mark.parametrize("name", OF_EACH_VERSION)
def test_a_table_of_apache_hudi_is_continued(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path).root
    table = lakemark.open(root)
    assert table.schema is not None
    rows = table.snapshot(list(table.schema.names[5:])).read_all()
    notes = pa.array([f"note {n % 3}$\\" if n % 4 else None for n in range(6)])
    at = rows.schema.get_field_index("note")
    new = rows.slice(0, 6).set_column(at, "note", notes)
    ts = rows.schema.get_field_index("ts")
    new = new.set_column(ts, "ts", pc.add(new["ts"], 10_000))
    table.upsert(new)
    _check_against_rows(root)
    table.delete(new["id"].to_pylist()[:2])
    _check_against_rows(root)
    table.compact()
    table.upsert(rows.slice(2, 10).set_column(ts, "ts", pc.add(rows.slice(2, 10)["ts"], 20_000)))
    _check_against_rows(root)


def _check_against_rows(root: Path) -> None:
    table = lakemark.open(root)
    assert table.metadata_differences() == []
    rows = table.snapshot(["id", "note"]).read_all().to_pylist()
    for note in {row["note"] for row in rows}:
        where = pc.field("note").is_null() if note is None else pc.field("note") == note
        found = table.scan(columns=["id"], where=where).to_table()["id"].to_pylist()
        assert sorted(found) == sorted(row["id"] for row in rows if row["note"] == note)
