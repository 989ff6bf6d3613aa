"""The specification of the storage format, for demands that no other test proves.

Most tests write with the public API, and look at the files of a small table.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark
from lakemark.codec.varint import zigzag
from lakemark.config.table_properties import PROPERTIES_PATH, TableProperties
from lakemark.errors import CorruptData, InvalidConfig
from lakemark.index.bucket import shared_file_id
from lakemark.log.delete_block import read_deletes
from lakemark.log.log_block import BlockType, HeaderKey, rollback_block
from lakemark.log.log_reader import read_blocks
from lakemark.model.action import Action
from lakemark.model.file_names import BaseFileName, LogFileName
from lakemark.model.file_slice import FileGroupId
from lakemark.model.meta_columns import COMMIT_TIME, FILE_NAME, META_COLUMNS, RECORD_KEY
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.read.queries import ReadOptimized
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.write.partitioner import task_number
from tests.merging.written_table import KEY
from tests.spec.recorded_table import History, Write, copy_on_write, every_action
from tests.spec.tables import event_time
from tests.unit.operations.tables import FAST, contents, create, reopen, rows

TRIPS = pa.schema(
    [("id", pa.string()), ("country", pa.string()), ("city", pa.string()), ("ts", pa.int64())]
)

#: Two partitions whose first buckets have the same number in write tokens, a hash of 31 bits.
SAME_NUMBER = ("7fae9d40", "99218ace")


def trips(path: Path, *partition_by: str, index: str = "bucket") -> lakemark.Table:
    """Create a table of trips, and write three of them."""
    table = lakemark.create(
        path,
        schema=TRIPS,
        record_key="id",
        partition_by=partition_by,
        ordering="ts",
        index=index,
        multi_writer=FAST,
    )
    cities = [("1", "brazil", "sao_paulo"), ("2", "brazil", "rio"), ("3", "india", "chennai")]
    written = [{"id": i, "country": one, "city": city, "ts": 1} for i, one, city in cities]
    table.upsert(pa.Table.from_pylist(written, TRIPS))
    return table


def data_files(path: Path) -> list[Path]:
    """List the data files of a table, relative to its folder."""
    found = (one.relative_to(path) for one in path.rglob("*") if one.is_file())
    return sorted(
        one
        for one in found
        if one.parts[0] != ".hoodie" and one.name != ".hoodie_partition_metadata"
    )


def opened(table: lakemark.Table) -> OpenTable:
    return open_table(StorageLocation(table.location))


# Data layout


def test_each_partition_value_is_a_level_of_folders(tmp_path: Path) -> None:
    trips(tmp_path / "t", "country", "city")
    folders = {str(file.parent) for file in data_files(tmp_path / "t")}
    assert folders == {"brazil/sao_paulo", "brazil/rio", "india/chennai"}


def test_files_of_a_table_without_partitions_are_in_its_folder(tmp_path: Path) -> None:
    trips(tmp_path / "t")
    assert {str(file.parent) for file in data_files(tmp_path / "t")} == {"."}


def test_partition_columns_stay_in_data_files(tmp_path: Path) -> None:
    trips(tmp_path / "t", "country", "city")
    for file in data_files(tmp_path / "t"):
        stored = pq.read_table(tmp_path / "t" / file, partitioning=None).to_pylist()
        assert {f"{row['country']}/{row['city']}" for row in stored} == {str(file.parent)}


def test_the_metadata_of_a_table_is_below_hoodie(tmp_path: Path) -> None:
    trips(tmp_path / "t")
    hoodie = tmp_path / "t" / ".hoodie"
    assert {"hoodie.properties", "timeline", "metadata"} <= {one.name for one in hoodie.iterdir()}


def test_properties_are_shared_by_writers_and_readers(tmp_path: Path) -> None:
    """Another process needs only the path, because the table stores how its rows are merged."""
    trips(tmp_path / "t", "country")
    table = lakemark.open(tmp_path / "t", multi_writer=FAST)
    stored = table.properties
    assert stored.record_key_fields == ("id",)
    assert stored.ordering_fields == ("ts",)
    late = [{"id": "1", "country": "brazil", "city": "late", "ts": 0}]
    table.upsert(pa.Table.from_pylist(late, TRIPS))
    found = lakemark.open(tmp_path / "t").snapshot(["id", "city"]).read_all().to_pylist()
    assert {"id": "1", "city": "sao_paulo"} in found


def test_properties_without_a_default_must_be_given(tmp_path: Path) -> None:
    """Without a record key or a name there is no table."""
    with pytest.raises(InvalidConfig, match="record_key"):
        lakemark.create(tmp_path / "t", schema=TRIPS, record_key=[])
    assert not (tmp_path / "t").exists()
    with pytest.raises(CorruptData, match=r"hoodie\.table\.name"):
        TableProperties.parse(b"hoodie.table.type=COPY_ON_WRITE\n")


# Data model


def test_a_key_identifies_one_record_of_each_partition(tmp_path: Path) -> None:
    table = trips(tmp_path / "t", "country")
    for ts in (2, 3):
        changed = [
            {"id": "1", "country": one, "city": f"at {ts}", "ts": ts} for one in ("brazil", "india")
        ]
        table.upsert(pa.Table.from_pylist(changed, TRIPS))
    found = table.snapshot(["country", "id", "city"]).read_all().to_pylist()
    assert sorted(tuple(row.values()) for row in found) == [
        ("brazil", "1", "at 3"),
        ("brazil", "2", "rio"),
        ("india", "1", "at 3"),
        ("india", "3", "chennai"),
    ]


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_row_that_arrives_after_a_newer_delete_depends_on_the_stored_delete(
    table_type: str, tmp_path: Path
) -> None:
    """A copy-on-write table keeps no delete, and a merge-on-read table until a compaction."""
    schema = TRIPS.append(pa.field("_hoodie_is_deleted", pa.bool_()))
    row = {"id": "1", "country": "brazil", "city": "rio", "ts": 10, "_hoodie_is_deleted": False}
    delete = {**row, "ts": 20, "_hoodie_is_deleted": True}
    for changes, expected in (([row, delete], []), ([delete, row], [10])):
        path = tmp_path / str(len(expected))
        table = lakemark.create(
            path, schema=schema, record_key="id", ordering="ts", table_type=table_type, buckets=1
        )
        for change in ({**row, "ts": 1}, *changes):
            table.upsert(pa.Table.from_pylist([change], schema))
            if table_type == "MERGE_ON_READ":
                table.compact()
        assert table.snapshot(["ts"]).read_all()["ts"].to_pylist() == expected


def test_the_same_changes_again_change_no_row(tmp_path: Path) -> None:
    """Merging is idempotent, also for deletes."""
    table = event_time(tmp_path)
    for _ in range(2):
        table.upsert({KEY: "1", "ts": 10, "state": "created"}, {KEY: "2", "ts": 10})
        table.delete({KEY: "2", "ts": 20})
        table.upsert({KEY: "1", "ts": 20, "state": "paid"})
        assert [(row[KEY], row["state"]) for row in table.rows()] == [("1", "paid")]


def test_each_record_is_stored_with_the_meta_fields(tmp_path: Path) -> None:
    table = trips(tmp_path / "t", "country")
    commit = table.timeline.completed()[-1]
    for file in data_files(tmp_path / "t"):
        stored = pq.read_table(tmp_path / "t" / file, partitioning=None)
        assert stored.column_names == [*META_COLUMNS, *TRIPS.names]
        for row in stored.to_pylist():
            assert row[COMMIT_TIME] == commit.requested_at
            assert row[RECORD_KEY] == row["id"]
            assert row["_hoodie_partition_path"] == str(file.parent)
            assert row[FILE_NAME] == file.name


def test_a_record_keeps_the_time_of_the_commit_that_wrote_it(tmp_path: Path) -> None:
    """A later commit, a compaction and other records in the file do not change it."""
    table = create(str(tmp_path / "t"), buckets=1)
    table.upsert(rows(("a", "north", 1, 1), ("b", "north", 1, 1)))
    table.upsert(rows(("b", "north", 2, 2)))
    first, second = [one.requested_at for one in table.timeline.completed()][-2:]
    for act in (lambda: None, table.compact):
        act()
        found = table.snapshot(["id", COMMIT_TIME]).read_all().to_pylist()
        assert {row["id"]: row[COMMIT_TIME] for row in found} == {"a": first, "b": second}


def test_sequence_numbers_are_unique_within_a_commit(tmp_path: Path) -> None:
    """No two records of a commit have one, even if file groups have the same number in names."""
    one, other = SAME_NUMBER
    groups = [FileGroupId(path, shared_file_id(0)) for path in SAME_NUMBER]
    assert len({task_number(group) for group in groups}) == 1
    table = create(str(tmp_path / "t"), buckets=1)
    for ts in (1, 2):  # base files, then logs
        table.upsert(rows(*[(key, path, ts, 1) for key in "abc" for path in (one, other)]))
        found = table.snapshot(["_hoodie_commit_seqno"]).read_all().column(0).to_pylist()
        assert len({*found}) == len(found) == 6


def test_file_names_of_logged_rows_are_file_ids(tmp_path: Path) -> None:
    """In a base file, the field has the name of the file; in a log, it has the file id."""
    table = create(str(tmp_path / "t"), buckets=1)
    table.upsert(rows(("a", "north", 1, 1), ("b", "north", 1, 1)))
    table.upsert(rows(("b", "north", 2, 2)))
    (base,) = {str(one.base.name) for one in opened(table).view().latest_slices() if one.base}
    found = table.snapshot(["id", FILE_NAME]).read_all().to_pylist()
    assert {row["id"]: row[FILE_NAME] for row in found} == {"a": base, "b": base.partition("_")[0]}


# Metadata


def test_the_metadata_table_is_a_merge_on_read_table() -> None:
    storage = copy_on_write().storage
    stored = TableProperties.parse(storage.read(".hoodie/metadata/.hoodie/hoodie.properties"))
    assert stored.is_merge_on_read
    assert stored.record_key_fields == ("key",)
    folders, _ = storage.list_folder(".hoodie/metadata")
    partitions = {folder.rstrip("/").rpartition("/")[2] for folder in folders} - {".hoodie"}
    assert {"files", "column_stats", "bloom_filters"} <= partitions
    for partition in partitions:
        assert storage.head(f".hoodie/metadata/{partition}/.hoodie_partition_metadata")


# File layout


def test_data_files_are_named_after_their_commits() -> None:
    """A base file has the time of the commit or service, and a log that of its delta commit."""
    history = every_action()
    completed = {
        i.requested_at: i.action
        for _, i, _ in history.states()
        if i.is_completed and i.action is not Action.SAVEPOINT
    }
    bases, logs = Counter[Action](), Counter[Action]()
    for write in history.writes:
        name = write.path.rpartition("/")[2]
        if write.path.startswith(".hoodie/") or write.method != "close":
            continue
        base, log = BaseFileName.parse(name), LogFileName.parse(name)
        assert (base is None) != (log is None), name
        if base is not None and base.instant in completed:
            bases[completed[base.instant]] += 1
            assert base.extension == "parquet"
        if log is not None and log.instant in completed:
            logs[completed[log.instant]] += 1
    assert {*bases} == {Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT}
    assert {*logs} == {Action.DELTA_COMMIT}


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_updates_write_a_slice_or_a_log(table_type: str, tmp_path: Path) -> None:
    """A batch of updates makes a new slice in copy-on-write, and a log of the slice otherwise."""
    table = create(str(tmp_path / "t"), table_type, buckets=1)
    for ts in (1, 2, 3):
        table.upsert(rows(("a", "north", ts, ts)))
    times = [one.requested_at for one in table.timeline.completed()][-3:]
    (group,) = opened(table).view().file_groups()
    if table_type == "COPY_ON_WRITE":
        assert [one.base_instant for one in group.slices] == times
        assert not any(one.logs for one in group.slices)
    else:
        (only,) = group.slices
        assert only.base_instant == times[0]
        assert [log.name.instant for log in only.logs] == times[1:]


def test_a_compaction_makes_the_next_slice(tmp_path: Path) -> None:
    """It applies all logs, and a read-optimized query has their rows only afterwards."""
    table = create(str(tmp_path / "t"), buckets=1)
    for ts in (1, 2, 3):
        table.upsert(rows(("a", "north", ts, ts)))
    assert table.read_optimized(["v"]).read_all().to_pylist() == [{"v": 1}]
    table.compact()
    assert table.scan(ReadOptimized(), ["v"]).to_reader().read_all().to_pylist() == [{"v": 3}]
    *_, newest = next(iter(opened(table).view().file_groups())).slices
    assert (newest.base is not None, newest.logs) == (True, ())


# Log files


@pytest.mark.parametrize(
    ("log_format", "expected"),
    [("avro", BlockType.AVRO_DATA), ("parquet", BlockType.PARQUET_DATA)],
)
def test_the_format_of_data_blocks_can_be_chosen(
    log_format: str, expected: BlockType, tmp_path: Path
) -> None:
    table = event_time(tmp_path)
    table = type(table)(table.path, table.schema, log_format=log_format)
    table.upsert({KEY: "1", "ts": 1, "state": "created"})
    table.upsert({KEY: "1", "ts": 2, "state": "paid"})
    (log,) = table.path.glob(".*.log.*")
    with log.open("rb") as file:
        (block,) = read_blocks(file, log.stat().st_size, log.name)
    assert block.type is expected
    assert table.rows(["state"]) == [{"state": "paid"}]


def test_a_command_block_has_a_command_and_no_content(tmp_path: Path) -> None:
    data = rollback_block("20260101000000009", "20260101000000001")
    (tmp_path / "log").write_bytes(data)
    with (tmp_path / "log").open("rb") as file:
        (block,) = read_blocks(file, len(data), "log")
        assert block.type is BlockType.COMMAND
        assert block.content.read() == b""
        assert block.header[HeaderKey.COMMAND_BLOCK_TYPE] == "0"


# Readers


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_query_keeps_its_snapshot(table_type: str, tmp_path: Path) -> None:
    """Commits and compactions that complete after a query was planned do not change its rows."""
    table = create(str(tmp_path / "t"), table_type)
    table.upsert(rows(("a", "north", 1, 1)))
    other = reopen(table.location)
    planned, late = table.scan(columns=["id", "v"]), reopen(table.location).scan(columns=["v"])
    other.upsert(rows(("a", "north", 2, 2), ("b", "south", 2, 2)))
    if table_type == "MERGE_ON_READ":
        other.compact()
    assert planned.to_reader().read_all().to_pylist() == [{"id": "a", "v": 1}]
    assert late.to_reader().read_all().to_pylist() == [{"v": 1}]
    assert contents(other) == {"a": ("north", 2, 2), "b": ("south", 2, 2)}


def test_a_commit_that_has_not_completed_is_not_read() -> None:
    """A new reader finds all rows of a commit or none, at each write of copy-on-write commits."""
    history = copy_on_write()
    assert _changes_of_rows(history, [*range(len(history.writes))]) == [Action.COMMIT] * 2


def test_rows_change_only_when_a_write_completes() -> None:
    """No table service changes rows at any time; a restore does when it withdraws a commit."""
    history = every_action()
    steps = [n for n, write in enumerate(history.writes) if _is_of_timeline(history, write)]
    assert _changes_of_rows(history, sorted({n - before for n in steps for before in (0, 1)})) == [
        *[Action.DELTA_COMMIT] * 4,
        *[Action.REPLACE_COMMIT] * 2,
        *[Action.DELTA_COMMIT] * 2,
        Action.DELTA_COMMIT,  # is withdrawn
    ]


def _changes_of_rows(history: History, reads: list[int]) -> list[Action]:
    """Replay a history, and read after some of its writes.

    Returns:
        For each change of the rows, the action whose completed file appeared or disappeared.
    """
    storage = open_storage(StorageLocation(f"memory://{uuid4().hex}/t"))
    rows: list[tuple[object, ...]] = []
    changing: list[Action] = []
    for number, write in enumerate(history.writes):
        if write.method == "delete":
            storage.delete([write.path])
        elif write.content or write.method == "create":
            storage.put(write.path, write.content)
        if number in reads:
            before, rows = rows, _rows(storage)
            if rows != before:
                assert _is_of_timeline(history, write), write.path
                instant = history.layout.parse(write.path.rpartition("/")[2])
                assert instant is not None and instant.is_completed, write.path
                changing.append(instant.action)
    return changing


def _rows(storage: Storage) -> list[tuple[object, ...]]:
    table = OpenTable(storage, TableProperties.parse(storage.read(PROPERTIES_PATH)))
    if table.schema is None:
        return []
    found = table.scan(columns=["id", "ts", "v"]).to_reader().read_all().to_pylist()
    return sorted(tuple(row.values()) for row in found)


def _is_of_timeline(history: History, write: Write) -> bool:
    folder, _, name = write.path.rpartition("/")
    return folder == history.layout.folder and history.layout.parse(name) is not None


# Writers


def test_deletes_are_stored_without_data(tmp_path: Path) -> None:
    """A delete has only its key, its partition and its ordering value, in a block of its own."""
    table = create(str(tmp_path / "t"), buckets=1)
    table.upsert(rows(("a", "north", 1, 1234567), ("b", "north", 1, 1)))
    table.delete(["a"])
    (log,) = (tmp_path / "t" / "north").glob(".*.log.*")
    with log.open("rb") as file:
        (block,) = read_blocks(file, log.stat().st_size, log.name)
    deletes = read_deletes(block)
    assert deletes.record_keys.to_pylist() == ["a"]
    assert deletes.partition_paths.to_pylist() == ["north"]
    (ordering,), _ = deletes.ordering_as([pa.int64()])
    assert ordering.to_pylist() == [1]
    assert zigzag(1234567) not in log.read_bytes(), "a value of the row, as Avro stores it"
    assert contents(table) == {"b": ("north", 1, 1)}
