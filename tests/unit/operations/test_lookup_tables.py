"""Tables without a bucket index: keys are looked up, and new keys go only to base files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakemark
from lakemark.config.parquet_settings import PARQUET_DEFAULTS, ParquetSettings
from lakemark.config.table_properties import TableType
from lakemark.errors import InvalidConfig, WriteConflict
from lakemark.execution.runner import LocalRunner
from lakemark.index.bucket import find_bucket
from lakemark.index.key_lookup import NEW_KEY
from lakemark.index.lookup import LookupIndex
from lakemark.model.changes import ChangeKind
from lakemark.model.commit_metadata import CommitMetadata, WriteStat
from lakemark.model.format_version import WRITTEN, FormatVersion
from lakemark.operations.table_index import has_bucket_index, table_index
from lakemark.operations.table_writer import TableWriter
from lakemark.operations.writer_settings import WriterSettings
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.write.file_sizing import divide_new_keys, estimate_record_bytes
from tests.depth import examples
from tests.table_services import make_plain
from tests.tables import (
    Row,
    commit,
    contents,
    data_files,
    lookup_writer,
    make,
    write_files,
    writer,
)

#: Four records fill a file, whatever its size.
SIZING = ParquetSettings(max_file_bytes=4 * PARQUET_DEFAULTS.record_bytes, small_file_bytes=0)

each_type = pytest.mark.parametrize("table_type", TableType)
each_version = pytest.mark.parametrize("version", WRITTEN)
MERGE_ON_READ = TableType.MERGE_ON_READ


def new_storage() -> Storage:
    return open_storage(StorageLocation(f"memory://{uuid4().hex}/t"))


def new_table(
    table_type: TableType = MERGE_ON_READ,
    sizing: ParquetSettings = PARQUET_DEFAULTS,
    version: FormatVersion = FormatVersion.V9,
) -> TableWriter:
    storage = new_storage()
    make_plain(storage, table_type, version)
    return lookup_writer(storage, sizing)


def logs(to: TableWriter) -> list[str]:
    return [path for path in data_files(to.table.storage) if ".log." in path]


def file_ids(to: TableWriter) -> set[str]:
    return {group.id.file_id for group in to.table.view().file_groups()}


def compact(to: TableWriter) -> None:
    assert to.compact_if_due(CompactionPolicy(1), LocalRunner(1))


@each_version
@each_type
def test_updates_go_to_the_group_of_their_key_and_new_keys_to_base_files(
    table_type: TableType, version: FormatVersion
) -> None:
    to = new_table(table_type, SIZING, version)
    commit(to, [Row(key, 1, 1) for key in "abcdef"])
    before = file_ids(to)
    assert len(before) == 2
    commit(to, [Row("a", 2, 2), Row("g", 2, 2), Row("x", 2, 2, region="south")])
    assert len(file_ids(to)) == 4, "a new group for the new key of each partition"
    assert len(logs(to)) == (1 if table_type is MERGE_ON_READ else 0)
    expected = dict.fromkeys("bcdef", (1, 1)) | dict.fromkeys("agx", (2, 2))
    assert contents(to.table.storage) == expected
    if table_type is MERGE_ON_READ:
        compact(to)
        commit(to, [Row("a", 3, 3), Row("g", 3, 3), Row("h", 3, 3)])
        expected |= dict.fromkeys("agh", (3, 3))
        assert contents(to.table.storage) == expected


@each_version
def test_new_keys_of_a_merge_on_read_table_fill_its_smallest_file_without_logs(
    version: FormatVersion,
) -> None:
    to = new_table(version=version)
    commit(to, [Row("a", 1, 1), Row("b", 1, 1)])
    (group,) = file_ids(to)
    stats = write_files(to, [Row("b", 2, 2), Row("c", 2, 2)])
    to.commit(stats, {})
    assert file_ids(to) == {group}
    assert not logs(to), "the base file was rewritten with the update and the new key"
    (stat,) = stats
    assert (stat.num_inserts, stat.num_update_writes) == (1, 1)
    assert stat.prev_commit != "null"
    commit(to, [Row("a", 3, 3)])
    assert len(logs(to)) == 1, "a batch without new keys appends to a log"
    commit(to, [Row("a", 4, 4), Row("d", 4, 4)])
    assert len(file_ids(to)) == 2, "a group with logs receives no new keys"
    assert len(logs(to)) == 2
    expected = {"a": (4, 4), "b": (2, 2), "c": (2, 2), "d": (4, 4)}
    assert contents(to.table.storage) == expected
    compact(to)
    commit(to, [Row("e", 5, 5)])
    assert len(file_ids(to)) == 2
    assert contents(to.table.storage) == {**expected, "e": (5, 5)}


def test_deletes_of_keys_that_do_not_exist_write_nothing() -> None:
    to = new_table()
    commit(to, [Row("a", 1, 1)])
    before = data_files(to.table.storage)
    unknown = [Row(key, 2, kind=ChangeKind.DELETE) for key in "xy"]
    assert write_files(to, unknown) == []
    to.abandon()
    assert data_files(to.table.storage) == before
    commit(to, [*unknown, Row("a", 2, kind=ChangeKind.DELETE), Row("b", 2, 2)])
    assert contents(to.table.storage) == {"b": (2, 2)}


def test_key_that_only_a_log_contains_is_found() -> None:
    """A change arrives while a compaction is pending that will remove the deleted row."""
    to = new_table()
    commit(to, [Row(key, 1, 1) for key in "abc"])
    commit(to, [Row("a", 2, kind=ChangeKind.DELETE)])
    (planned,) = to.compactions_to_do(CompactionPolicy(1))
    commit(to, [Row("a", 3, 3)])
    compaction = to.begin_compaction(planned)
    assert compaction is not None
    to.publish_compaction(compaction, compaction.rewrite(LocalRunner(1)))
    compaction.stop_heartbeat()
    commit(to, [Row("a", 4, 4)])
    assert contents(to.table.storage) == {"a": (4, 4), "b": (1, 1), "c": (1, 1)}


def test_the_live_row_of_a_key_in_two_groups_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A global index of Apache Hudi moves a row to another partition, and later back."""
    to = new_table()
    commit(to, [Row("a", 1, 1), Row("b", 1, 1)])
    commit(to, [Row("a", 2, kind=ChangeKind.DELETE)])
    with monkeypatch.context() as patch:
        new = lambda _, __, keys, ___: np.full(len(keys), NEW_KEY, np.int32)  # noqa: E731
        patch.setattr(LookupIndex, "tag", new)
        commit(to, [Row("a", 3, 3)])
    assert len(file_ids(to)) == 2
    commit(to, [Row("a", 4, 4), Row("b", 4, 4)])
    assert contents(to.table.storage) == {"a": (4, 4), "b": (4, 4)}
    compact(to)
    assert contents(to.table.storage) == {"a": (4, 4), "b": (4, 4)}


def test_group_in_a_pending_compaction_receives_no_new_keys() -> None:
    to = new_table()
    commit(to, [Row("a", 1, 1)])
    commit(to, [Row("a", 2, 2)])
    assert to.compactions_to_do(CompactionPolicy(1))
    commit(to, [Row("b", 3, 3), Row("a", 3, 3)])
    assert len(file_ids(to)) == 2
    compact(to)
    assert contents(to.table.storage) == {"a": (3, 3), "b": (3, 3)}


@each_type
def test_two_writers_of_the_same_new_key_conflict(table_type: TableType) -> None:
    first = new_table(table_type, SIZING)
    commit(first, [Row("a", 1, 1)])
    second = lookup_writer(first.table.storage, SIZING)
    stats = write_files(first, [Row("k", 2, 2)])
    commit(second, [Row("k", 3, 3)])
    with pytest.raises(WriteConflict, match="both write new keys to partition 'north'"):
        first.commit(stats, {})
    first.abandon()
    commit(first, [Row("k", 4, 4)])
    assert contents(first.table.storage) == {"a": (1, 1), "k": (4, 4)}


def test_writers_of_different_partitions_and_of_updates_do_not_conflict() -> None:
    first = new_table(sizing=SIZING)
    commit(first, [Row("a", 1, 1), Row("b", 1, 1, region="south")])
    second = lookup_writer(first.table.storage, SIZING)
    stats = write_files(first, [Row("k", 2, 2), Row("b", 2, 2, region="south")])
    commit(second, [Row("l", 3, 3, region="south"), Row("a", 3, 3)])
    first.commit(stats, {})
    expected = {"a": (3, 3), "b": (2, 2), "k": (2, 2), "l": (3, 3)}
    assert contents(first.table.storage) == expected


def test_file_ids_are_never_those_of_a_bucket_index() -> None:
    to = new_table(sizing=ParquetSettings(max_file_bytes=1, small_file_bytes=0))
    commit(to, [Row(f"k{n}", 1, 1) for n in range(200)])
    assert len(file_ids(to)) == 200
    assert all(find_bucket(name) is None for name in file_ids(to))
    assert not has_bucket_index(writer(to.table.storage).table)


def test_commits_record_no_bucket_settings() -> None:
    to = new_table()
    instant = commit(to, [Row("a", 1, 1)])
    extra = to.table.store.read_commit(instant).extra_metadata
    assert not [key for key in extra if "bucket" in key]


def test_table_with_bucket_index_keeps_it() -> None:
    storage = new_storage()
    make(storage)
    commit(writer(storage), [Row("a", 1, 1)])
    index = table_index(writer(storage).table, None)
    assert index is not None
    assert index.bucket_count == 2


def test_bucket_count_of_a_table_without_buckets_is_refused_by_name() -> None:
    to = new_table()
    commit(to, [Row("a", 1, 1)])
    with pytest.raises(
        InvalidConfig, match=r"has no fixed number of buckets, as the id of .*buckets=3"
    ):
        table_index(writer(to.table.storage).table, 3)


def test_table_of_both_kinds_of_indexes_is_refused() -> None:
    storage = new_storage()
    make(storage)
    bucketed = writer(storage)
    bucketed.settings = _Unrecorded(bucketed.settings.index)
    commit(bucketed, [Row(f"k{n}", 1, 1) for n in range(20)])
    looked_up = lookup_writer(storage)
    commit(looked_up, [Row("x", 1, 1, region="south")])
    with pytest.raises(InvalidConfig, match="file groups of a bucket index, such as"):
        table_index(writer(storage).table, None)


class _Unrecorded(WriterSettings):
    """Settings of a writer that records no bucket count in its commits, like Apache Hudi."""

    def index_metadata(self) -> dict[str, str]:
        return {}


# The model

KEYS = st.sampled_from("abcdefgh")
REGIONS = st.sampled_from(["north", "south"])
CHANGES = st.builds(
    Row,
    KEYS,
    st.integers(1, 6),
    st.integers(0, 9),
    REGIONS,
    st.sampled_from([ChangeKind.UPSERT] * 3 + [ChangeKind.DELETE]),
)
SIZINGS = st.sampled_from(
    [
        SIZING,
        ParquetSettings(),
        ParquetSettings(max_file_bytes=2 * PARQUET_DEFAULTS.record_bytes, small_file_bytes=1 << 30),
    ]
)


@dataclass
class Model:
    """The rows by partition and key, in a table in which the later commit wins."""

    rows: dict[tuple[str, str], int] = field(default_factory=dict)

    def apply(self, changes: Iterable[Row]) -> None:
        for row in changes:
            if row.kind is ChangeKind.UPSERT:
                self.rows[row.region, row.id] = row.v
            else:
                self.rows.pop((row.region, row.id), None)


def by_commit_time(changes: Iterable[Row], ts: int) -> list[Row]:
    """Return the changes with one ordering value, so that the later one wins."""
    return [Row(row.id, ts, row.v, row.region, row.kind) for row in changes]


def rows_of(storage: Storage) -> dict[tuple[str, str], int]:
    found = writer(storage).table.scan(columns=["id", "region", "v"]).to_table().to_pylist()
    rows = {(row["region"], row["id"]): row["v"] for row in found}
    assert len(rows) == len(found), "a key is stored twice"
    return rows


@each_type
@each_version
@settings(deadline=None, max_examples=examples(5))
@given(
    steps=st.lists(st.none() | st.lists(CHANGES, min_size=1, max_size=8), min_size=2, max_size=7),
    sizing=SIZINGS,
)
def test_rows_are_those_of_the_model(
    table_type: TableType,
    version: FormatVersion,
    steps: list[list[Row] | None],
    sizing: ParquetSettings,
) -> None:
    to, model = new_table(table_type, sizing, version), Model()
    for ts, step in enumerate(steps, 1):
        if step is None:
            to.compact_if_due(CompactionPolicy(1), LocalRunner(1))
            continue
        changes = by_commit_time(step, ts)
        commit(to, changes)
        model.apply(changes)
        assert rows_of(to.table.storage) == model.rows


# Sizes


def stat(records: int, size_bytes: int, path: str) -> WriteStat:
    return WriteStat(path=path, num_writes=records, total_write_bytes=size_bytes)


def test_record_size_is_that_of_the_newest_commit_with_more_than_a_small_file() -> None:
    sizing = ParquetSettings(max_file_bytes=1200, small_file_bytes=1000)
    base, log = "p/a_0-0-0_001.parquet", "p/.a_001.log.1_0-0-0"
    old = CommitMetadata(write_stats=(stat(10, 2000, base),))
    large = CommitMetadata(write_stats=(stat(10, 600, base), stat(10, 500, base)))
    small, logged = (
        CommitMetadata(write_stats=(stat(1, 900, base),)),
        CommitMetadata(write_stats=(stat(1, 9000, log),)),
    )
    assert estimate_record_bytes([small, logged, large, old], sizing) == 55
    assert estimate_record_bytes([small, logged], sizing) == PARQUET_DEFAULTS.record_bytes
    assert estimate_record_bytes([], ParquetSettings(record_bytes=7)) == 7


@given(
    count=st.integers(0, 10_000), record_bytes=st.integers(1, 500), max_bytes=st.integers(1, 5000)
)
def test_all_new_keys_get_a_file(count: int, record_bytes: int, max_bytes: int) -> None:
    divided = divide_new_keys(count, (), record_bytes, ParquetSettings(max_file_bytes=max_bytes))
    assert sum(one.count for one in divided) == count
    most = max(1, max_bytes // record_bytes)
    assert all(0 < one.count <= most for one in divided)
    assert all(one.count == most for one in divided[:-1])


@pytest.mark.parametrize(
    ("given", "num_files"),
    [
        ({"max_file_bytes": 4000, "record_bytes": 1000, "small_file_bytes": 1 << 20}, 3),
        ({"max_file_bytes": 1 << 30, "small_file_bytes": 0}, 2),
        ({"max_file_bytes": 1 << 30, "small_file_bytes": 1 << 20}, 1),
    ],
)
def test_files_have_the_sizes_of_the_python_api(
    tmp_path: Path, given: dict[str, Any], num_files: int
) -> None:
    storage = open_storage(StorageLocation(str(tmp_path / "t")))
    make(storage)
    commit(lookup_writer(storage), [Row("a", 1, 1)])
    table = lakemark.open(tmp_path / "t", base_files=ParquetSettings(**given))
    columns = ["id", "region", "ts", "v"]
    rows = pa.table([list("bcdef"), ["north"] * 5, [2] * 5, [2] * 5], names=columns)
    table.upsert(rows)
    assert len(file_ids(lookup_writer(storage))) == num_files
    assert table.scan().to_table().num_rows == 6


def test_lookup_through_the_python_api(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("lookup") / "orders"
    storage = open_storage(StorageLocation(str(path)))
    make(storage)
    commit(lookup_writer(storage), [Row("a", 1, 1), Row("b", 1, 1)])
    table = lakemark.open(path)
    columns = ["id", "region", "ts", "v"]
    new = pa.table([["a", "c"], ["north", "north"], [2, 2], [2, 2]], names=columns)
    assert table.upsert(new).upserts == 2
    assert table.delete(["b"]).deletes == 1
    table.compact()
    found = lakemark.open(path).snapshot(["id", "v"]).read_all().to_pylist()
    assert {row["id"]: row["v"] for row in found} == {"a": 2, "c": 2}
    with pytest.raises(InvalidConfig, match="has no fixed number of buckets"):
        lakemark.open(path, buckets=2).upsert(new)
