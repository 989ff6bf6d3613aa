"""The record index that lakemark updates with each commit, and by which it finds stored keys."""

from __future__ import annotations

import json
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakemark
from lakemark.config import keys
from lakemark.config.parquet_settings import PARQUET_DEFAULTS, ParquetSettings
from lakemark.config.table_properties import TableType
from lakemark.errors import Refused, Unsupported, WriteConflict
from lakemark.execution.runner import LocalRunner
from lakemark.metadata import bootstrap
from lakemark.metadata.difference import Difference
from lakemark.metadata.index_definition import DEFINITIONS_PATH
from lakemark.metadata.metadata_compaction import EVERY_DELTA_COMMITS
from lakemark.metadata.metadata_store import MetadataStore
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.metadata.record_changes import RecordChanges
from lakemark.metadata.record_index import RecordIndex
from lakemark.metadata.record_index_records import (
    KeysOfGroup,
    count_record_index_groups,
    encode_locations,
)
from lakemark.model.changes import ChangeKind
from lakemark.model.file_slice import FileGroupId
from lakemark.model.format_version import WRITTEN, FormatVersion
from lakemark.operations.metadata_table import (
    keep_metadata_table,
    metadata_differences,
    rebuild_metadata_table,
)
from lakemark.operations.table_writer import TableWriter
from lakemark.read.file_group_reader import FileGroupReader
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.storage.folder_storage import FolderStorage
from lakemark.storage.properties_file import read_properties
from lakemark.timeline.clock import UTC_CLOCK, TimelineClock
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.transaction.rollback import roll_back_named
from tests.golden.golden_table import unpack
from tests.golden.shared_tables import SharedTables
from tests.table_services import new_storage
from tests.tables import Row, commit, contents, lookup_writer, make, write_files, writer
from tests.unit.metadata.metadata_tables import ApachesTable
from tests.unit.metadata.written_tables import written_table

NAME = PartitionKind.RECORD_INDEX.stored_name
OF_EACH_VERSION = [
    "v6_mor_recordindex",
    "v8_mor_recordindex",
    "v9_mor_recordindex",
    "v9_mor_partitioned_record_index",
]
NO_KEYS = pa.array([], pa.string())

#: Two records fill a file, so that partitions have several file groups.
SIZING = ParquetSettings(max_file_bytes=2 * PARQUET_DEFAULTS.record_bytes, small_file_bytes=0)

each_type = pytest.mark.parametrize("table_type", TableType)
each_version = pytest.mark.parametrize("version", WRITTEN)
MERGE_ON_READ = TableType.MERGE_ON_READ


def new_table(
    table_type: TableType = MERGE_ON_READ, version: FormatVersion = FormatVersion.V9
) -> TableWriter:
    storage = new_storage()
    make(storage, table_type, [NAME], version)
    return lookup_writer(storage, SIZING)


def index_of(to: TableWriter) -> RecordIndex:
    table = to.table
    table.refresh()
    index = table.metadata_writer.record_index(table.timeline)
    assert index is not None
    return index


def indexed(to: TableWriter) -> dict[str, str]:
    """Return the partition of each key in the index, after a comparison with the rows."""
    rows = pa.concat_tables(index_of(to).scan()).to_pylist()
    assert metadata_differences(to.table) == []
    return {row["record_key"]: row["partition_path"] for row in rows}


def delete(key: str, ts: int, region: str = "north") -> Row:
    return Row(key, ts, region=region, kind=ChangeKind.DELETE)


# Records


@pytest.mark.parametrize("name", OF_EACH_VERSION)
def test_the_records_are_apaches(name: str, shared_tables: SharedTables) -> None:
    table = ApachesTable.at(shared_tables[name].root)
    located = pa.concat_tables(RecordIndex(table.metadata).scan()).to_pylist()
    assert located
    ours = encode_locations(
        [
            KeysOfGroup(
                FileGroupId(row["partition_path"], row["file_id"]),
                row["instant_time"],
                pa.array([row["record_key"]]),
            )
            for row in located
        ],
        NO_KEYS,
        UTC_CLOCK,
    )
    stored = RecordChanges.union(
        RecordChanges.of(part.keys.to_pylist(), part.values)
        for part in map(table.metadata.rows.newest_entries, table.metadata.slices(NAME))
    )
    assert ours.written.keys == stored.written.keys
    # A compaction of Apache Hudi stores the name of the file in the last of the five meta fields.
    values = (one.written.values.to_pylist() for one in (ours, stored))
    for our, theirs in zip(*values, strict=True):
        assert our == theirs or (theirs[4] and theirs.endswith(our[5:]))
    for _, _, are_found in RecordIndex(table.metadata).scan_shards():
        assert pc.all(are_found).as_py(), "each key is in the file group in which we search it"


@pytest.mark.parametrize(
    "file_id",
    [
        "6a4c5ef7-92a9-5b0f-8f6c-1d1f4f0f3b52-0",
        "ffffffff-ffff-ffff-ffff-ffffffffffff-12",
        "00000000-0000-0000-0000-000000000000",
        "00000003-92a9-5b0f-8f6c",
        "6A4C5EF7-92a9-5b0f-8f6c-1d1f4f0f3b52-0",
        "6a4c5ef7-92a9-5b0f-8f6c-1d1f4f0f3b52-01",
        "é",
    ],
)
def test_any_location_is_read_as_it_was_written(file_id: str) -> None:
    group, instant = FileGroupId("a=é/b", file_id), "20261126101112013"
    added = KeysOfGroup(group, instant, pa.array(["k", "\U0001f600"]))
    table = written_table(NAME, None, encode_locations([added], NO_KEYS, UTC_CLOCK))
    for row in pa.concat_tables(RecordIndex(table).scan()).to_pylist():
        assert (row["partition_path"], row["file_id"]) == (group.partition_path, file_id)
        assert row["instant_time"] == instant
    removed = encode_locations([], pa.array(["k"]), UTC_CLOCK)
    assert not [*RecordIndex(written_table(NAME, None, removed)).scan()]


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Sydney"])
@pytest.mark.parametrize("instant", ["20370701120000013", "20400701120000013", "20401226120000013"])
def test_instants_of_far_summers_are_read_in_the_zone_of_the_timeline(
    zone: str, instant: str
) -> None:
    """As in Java, the last rule of a zone for summer time has no end."""
    clock = TimelineClock(ZoneInfo(zone))
    added = KeysOfGroup(FileGroupId("north", "file"), instant, pa.array(["k"]))
    table = written_table(NAME, None, encode_locations([added], NO_KEYS, clock))
    (row,) = pa.concat_tables(RecordIndex(table, clock).scan()).to_pylist()
    assert row["instant_time"] == instant


def test_a_large_index_has_more_file_groups() -> None:
    assert [count_record_index_groups(10**power) for power in (0, 6, 9, 13)] == [10, 10, 89, 10_000]


# Commits


@each_version
@each_type
def test_the_index_has_the_keys_of_the_rows(table_type: TableType, version: FormatVersion) -> None:
    to = new_table(table_type, version)
    commit(to, [Row("a", 1), Row("b", 1), Row("c", 1), Row("s", 1, region="south")])
    assert indexed(to) == {"a": "north", "b": "north", "c": "north", "s": "south"}
    commit(to, [Row("a", 2, 2), delete("b", 2), delete("s", 2, "south"), delete("x", 2)])
    assert indexed(to) == {"a": "north", "c": "north"}
    commit(to, [delete("c", 0), Row("b", 3, 3, region="south"), Row("x", 1)])
    assert indexed(to) == {"a": "north", "b": "south", "c": "north", "x": "north"}
    if table_type is MERGE_ON_READ:
        assert to.compact_if_due(CompactionPolicy(1), LocalRunner(1))
    for number in range(EVERY_DELTA_COMMITS + 1):
        commit(to, [Row("a", 10 + number), Row(f"k{number}", 1)])
        assert len(indexed(to)) == 5 + number
    assert to.table.metadata_writer.compacted_at, "the metadata table was compacted"
    assert contents(to.table.storage).keys() == indexed(to).keys()


@each_type
def test_a_record_keeps_its_instant_when_its_row_is_updated(table_type: TableType) -> None:
    to = new_table(table_type)
    first = commit(to, [Row("a", 1)])
    commit(to, [Row("a", 2), Row("b", 2)])
    (row,) = index_of(to).lookup(pa.array(["a"])).to_pylist()
    assert row["instant_time"] == first.requested_at


def test_no_data_file_is_searched_for_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    to = new_table()
    commit(to, [Row("a", 1), Row("b", 1)])

    def fail(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(FileGroupReader, "read_base_keys", fail)
    commit(to, [Row("a", 2), Row("c", 2)])
    assert indexed(to).keys() == {"a", "b", "c"}


@each_type
@pytest.mark.parametrize("kind", [ChangeKind.UPSERT, ChangeKind.DELETE])
@pytest.mark.parametrize("region", ["south", "west"])
def test_a_key_in_another_partition_is_refused(
    table_type: TableType, kind: ChangeKind, region: str
) -> None:
    to = new_table(table_type)
    commit(to, [Row("a", 1, 1), Row("s", 1, 1, region="south")])
    with pytest.raises(Refused, match="'a' has a row in partition 'north', and"):
        commit(to, [Row("b", 2, 2), Row("a", 2, 2, region=region, kind=kind)])
    to.abandon()
    assert contents(to.table.storage) == {"a": (1, 1), "s": (1, 1)}
    commit(to, [delete("a", 3)])
    commit(to, [Row("a", 4, 4, region=region)])
    assert indexed(to) == {"a": region, "s": "south"}


@each_type
def test_a_new_key_in_two_partitions_of_a_batch_is_refused(table_type: TableType) -> None:
    to = new_table(table_type)
    commit(to, [Row("b", 1)])
    with pytest.raises(Refused, match="adds record key 'a' to two file groups"):
        commit(to, [Row("a", 2), Row("a", 2, region="south")])
    to.abandon()
    assert indexed(to) == {"b": "north"}


@each_type
def test_of_two_writers_that_add_a_key_the_second_writes_again(table_type: TableType) -> None:
    first = new_table(table_type)
    commit(first, [Row("a", 1)])
    second = lookup_writer(first.table.storage, SIZING)
    prepared = write_files(second, [Row("b", 2, 2)])
    commit(first, [Row("b", 1, 1, region="south")])
    with pytest.raises(WriteConflict, match="'b' to partition 'south'"):
        second.commit(prepared, {})
    second.abandon()
    assert indexed(first) == {"a": "north", "b": "south"}


@each_version
@each_type
def test_a_rollback_restores_the_index(table_type: TableType, version: FormatVersion) -> None:
    to = new_table(table_type, version)
    commit(to, [Row("a", 1), Row("b", 1)])
    undone = commit(to, [delete("a", 2), Row("c", 2, region="south")])
    assert indexed(to) == {"b": "north", "c": "south"}
    roll_back_named(to.table.context, undone.requested_at)
    to = lookup_writer(to.table.storage, SIZING)
    assert indexed(to) == {"a": "north", "b": "north"}
    commit(to, [Row("c", 3), Row("a", 3)])
    assert indexed(to) == {"a": "north", "b": "north", "c": "north"}


@each_version
@each_type
def test_the_index_is_built_again_with_the_metadata_table(
    table_type: TableType, version: FormatVersion
) -> None:
    to = new_table(table_type, version)
    commit(to, [Row("a", 1), Row("b", 1), Row("s", 1, region="south")])
    commit(to, [Row("a", 2), delete("b", 2)])
    before = indexed(to)
    rebuild_metadata_table(to.table)
    assert NAME in to.table.properties.metadata_partitions
    assert indexed(to) == before == {"a": "north", "s": "south"}
    commit(to, [Row("c", 3), Row("a", 3)])
    assert indexed(to) == {**before, "c": "north"}
    definition = json.loads(to.table.storage.read(DEFINITIONS_PATH))["indexDefinitions"][NAME]
    assert definition["indexOptions"] == {"isPartitioned": "false"}


def test_an_index_of_repeated_keys_is_not_built() -> None:
    storage = new_storage()
    make(storage)
    to = lookup_writer(storage)
    commit(to, [Row("a", 1), Row("a", 1, region="south")])
    properties = to.table.properties.without_metadata_table()
    values = {**properties.values, keys.DROPPED_INDEXES: NAME}
    storage.put(".hoodie/hoodie.properties", type(properties)(values).to_bytes())
    with pytest.raises(Refused, match=r"'a' has a row in the file groups north/.* and south/"):
        keep_metadata_table(writer(storage).table)


# Tables that are refused


def test_a_table_with_a_bucket_index_is_refused() -> None:
    storage = new_storage()
    make(storage, indexes=[NAME])
    with pytest.raises(Unsupported, match="a record index and a bucket index"):
        commit(writer(storage), [Row("a", 1)])
    assert not writer(storage).table.timeline.instants


def test_an_index_that_appears_during_a_commit_stops_it() -> None:
    storage = new_storage()
    make(storage)
    to = lookup_writer(storage)
    commit(to, [Row("a", 1)])
    written = write_files(to, [Row("b", 1)])
    other = writer(storage)
    properties = other.table.properties.without_metadata_table()
    values = {**properties.values, keys.DROPPED_INDEXES: NAME}
    storage.put(".hoodie/hoodie.properties", type(properties)(values).to_bytes())
    keep_metadata_table(writer(storage).table)
    with pytest.raises(WriteConflict, match=r"its keys were not collected"):
        to.commit(written, {})
    to.abandon()
    assert indexed(lookup_writer(storage)) == {"a": "north"}


# Differences


def test_wrong_and_missing_locations_are_reported() -> None:
    to = new_table()
    commit(to, [Row("a", 1), Row("b", 1), Row("s", 1, region="south")])
    (south,) = index_of(to).lookup(pa.array(["s"])).to_pylist()
    moved = KeysOfGroup(
        FileGroupId("south", south["file_id"]), south["instant_time"], pa.array(["a", "x"])
    )
    to = _with_records(to.table.storage, encode_locations([moved], pa.array(["b"]), UTC_CLOCK))
    found = {(one.path.partition("/")[0], one.stored, one.found) for one in _differences(to)}
    assert found == {
        ("north", "no location of 2 keys, such as 'a'", "a row"),
        ("south", "a location of 2 keys, such as 'a'", "no row"),
    }
    with pytest.raises(Refused, match="'a' has a row in partition 'south'"):
        commit(to, [Row("a", 2)])


def test_a_location_in_a_missing_file_group_is_refused() -> None:
    to = new_table()
    commit(to, [Row("a", 1)])
    absent = FileGroupId("north", "6a4c5ef7-92a9-5b0f-8f6c-1d1f4f0f3b52-0")
    added = KeysOfGroup(absent, "20261126101112013", pa.array(["x"]))
    to = _with_records(to.table.storage, encode_locations([added], NO_KEYS, UTC_CLOCK))
    assert [one.stored for one in _differences(to)] == ["a location of 1 keys, such as 'x'"]
    with pytest.raises(Refused, match=r"'x' in file group .*, which queries do not read"):
        commit(to, [Row("x", 2)])


def _differences(to: TableWriter) -> list[Difference]:
    return metadata_differences(to.table)


def _with_records(storage: Storage, changes: RecordChanges) -> TableWriter:
    """Commit some changes to the record index with a commit that changes no data."""
    instant = commit(lookup_writer(storage), [])
    own = FolderStorage(storage, METADATA_FOLDER)
    instants = TimelineStore(own)
    MetadataStore(own, instants, instants.load()).commit(instant, {NAME: changes}, lambda: None)
    return lookup_writer(storage, SIZING)


# Tables of Apache Hudi


@pytest.mark.parametrize("name", OF_EACH_VERSION)
def test_a_dropped_index_is_built_before_the_next_write(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path).root
    table = lakemark.open(root)
    assert table.schema is not None
    rows = table.snapshot(list(table.schema.names[5:])).read_all()
    storage = open_storage(StorageLocation(str(root)))
    bootstrap.drop_metadata_table(storage, read_properties(storage), lambda: None)
    table.upsert(rows)
    for one in (table, lakemark.open(root)):
        one.upsert(rows)
        assert NAME in one.properties.metadata_partitions
        assert one.metadata_differences() == []


@pytest.mark.parametrize("name", OF_EACH_VERSION)
def test_a_table_of_apache_hudi_is_continued(name: str, tmp_path: Path) -> None:
    root = unpack(name, tmp_path).root
    table = lakemark.open(root)
    assert table.metadata_differences() == []
    rows = table.snapshot(list(table.schema.names[5:])).read_all() if table.schema else None
    assert rows is not None
    key = table.properties.record_key_fields[0]
    new = rows.slice(0, 3).set_column(
        rows.schema.get_field_index(key), key, _renamed(rows.slice(0, 3)[key])
    )
    table.upsert(pa.concat_tables([rows.slice(2, 4), new]))
    assert table.metadata_differences() == []
    gone = lakemark.open(root).snapshot(["_hoodie_record_key"]).read_all()[0].to_pylist()[:4]
    table.delete(gone)
    assert table.metadata_differences() == []
    table.compact()
    table.upsert(rows)
    assert table.metadata_differences() == []
    found = lakemark.open(root).snapshot(["_hoodie_record_key"]).read_all()[0]
    assert len(pc.unique(found)) == len(found) > rows.num_rows
    one = found[-1].as_py()
    assert lakemark.open(root).scan(record_keys=[one]).to_table().num_rows == 1


def _renamed(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_integer(column.type):
        return pc.add(column, pa.scalar(100_000, column.type))
    return pc.binary_join_element_wise(column, "new", "-")
