"""A commit needs few requests for each file group, and lists no data folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa
import pytest

from lakemark.index.bucket import BucketIndex, file_id, groups_by_bucket
from lakemark.model.column_ranges import ColumnRanges, indexed_columns
from lakemark.model.commit_metadata import WriteStat
from lakemark.model.file_names import BaseFileName
from lakemark.model.file_slice import FileGroupId
from lakemark.model.meta_columns import with_meta_columns
from lakemark.operations.archive import archive
from lakemark.operations.table_writer import TableWriter
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.storage import StorageLocation, open_storage
from tests.storages import CountingStorage
from tests.table_services import HISTORY, make_plain
from tests.tables import Row, by_bucket, changes, commit, contents, make, write_files, writer

#: Requests of a commit that are not for its files: timeline, lock, prepared content, markers.
OWN_REQUESTS = 22

#: What the metadata table adds: properties, two states, a log in each of four file groups, content
#: that is prepared, looked at, published and withdrawn.
METADATA_REQUESTS = 11

FIXED_REQUESTS = OWN_REQUESTS + METADATA_REQUESTS

#: What an archival asks of the history: a listing, the newest manifest and its number, a data file,
#: the next manifest and its number, and two manifests that are kept.
ARCHIVAL_REQUESTS = 10

#: Marker, its removal, and the file.
REQUESTS_PER_FILE = 3


def test_a_commit_asks_little_and_lists_no_data_folder() -> None:
    storage = CountingStorage(open_storage(StorageLocation("memory://requests/one")))
    make(storage)
    rows = [Row(f"k{i}", 1, 1, region=f"region{i % 4}") for i in range(100)]
    to = writer(storage)
    commit(to, rows)
    for batch in range(2, 5):
        storage.forget()
        commit(to, [Row(row.id, batch, batch, row.region) for row in rows])
        files = len(by_bucket(changes(rows)))
        assert len(storage.requests) <= FIXED_REQUESTS + REQUESTS_PER_FILE * files
        listed = [r.path for r in storage.requests if r.method.startswith("list")]
        assert all(path.startswith(".hoodie/") for path in listed), listed
        assert not [path for path in listed if path.startswith(".hoodie/metadata")], listed
    assert set(contents(storage).values()) == {(4, 4)}


def test_round_trips_that_wait_for_each_other_do_not_grow_with_the_files() -> None:
    storage = CountingStorage(open_storage(StorageLocation("memory://requests/two")))
    make(storage)
    to = writer(storage)
    commit(to, [Row(f"k{i}", 1, 1, region=f"region{i % 16}") for i in range(400)])
    written = write_files(to, [Row(f"k{i}", 2, 2, region=f"region{i % 16}") for i in range(400)])
    storage.forget()
    to.commit(written, {})
    sequential = [r for r in storage.requests if r.method != "delete"]
    assert len(sequential) <= FIXED_REQUESTS, [f"{r.method} {r.path}" for r in sequential]


def test_a_commit_to_a_table_of_many_files_asks_no_more_and_lists_none_of_them() -> None:
    few, many = (_requests_of_a_commit(groups) for groups in (200, 2_000))
    assert sorted(few) == sorted(many)
    assert not [method for method, folder in many if method.startswith("list") and not folder]


def test_only_what_a_commit_wrote_is_placed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit maps only its own file groups. Mapping all of them would take longer than it."""
    placed: list[int] = []

    def counting(
        groups: Sequence[FileGroupId], count_in: Callable[[str], int]
    ) -> dict[tuple[str, int], FileGroupId]:
        placed.append(len(groups))
        return groups_by_bucket(groups, count_in)

    monkeypatch.setattr("lakemark.operations.file_group_assigner.groups_by_bucket", counting)
    storage = CountingStorage(open_storage(StorageLocation("memory://requests/placed")))
    make(storage)
    to = writer(storage)
    rows = [Row(f"k{i}", 1, 1, region=f"region{i % 8}") for i in range(200)]
    commit(to, rows)
    commit(to, rows[:1])
    commit(to, rows[1:3])
    commit(to, rows[:1])
    groups = len(by_bucket(changes(rows)))
    assert placed == [0, groups, 1, 2]
    assert len(contents(storage)) == 200


def test_an_archival_asks_little_of_a_history_however_long_it_is() -> None:
    storage = CountingStorage(open_storage(StorageLocation("memory://requests/archival")))
    make_plain(storage)
    to = writer(storage)
    for number in range(30):
        commit(to, [Row("k", number, number)])
        storage.forget()
        if archive(to.table, ArchivalPolicy(2, 3, delta_commits_to_compact=1), None):
            asked = [r for r in storage.requests if r.path.startswith(HISTORY)]
            is_merged = any(r.path.endswith("_1.parquet") for r in asked)
            waited_for = [r for r in asked if r.method != "delete"]
            assert is_merged or len(waited_for) <= ARCHIVAL_REQUESTS, asked


def _requests_of_a_commit(groups: int) -> list[tuple[str, bool]]:
    """List the requests of a commit to one group: method, and whether it is below ``.hoodie``."""
    storage = CountingStorage(open_storage(StorageLocation(f"memory://requests/{groups}")))
    make(storage)
    to = writer(storage)
    to.settings = replace(to.settings, index=BucketIndex(groups, ("id",)))
    _claim_files(to, groups)
    commit(to, [Row("k", 1, 1)])
    storage.forget()
    commit(to, [Row("k", 2, 2)])
    return [(r.method, r.path.startswith(".hoodie/")) for r in storage.requests]


def _claim_files(to: TableWriter, groups: int) -> None:
    """Commit the write stats of a base file in each bucket; the files do not exist."""
    instant = to.begin().instant
    names = [
        BaseFileName(file_id(n, "north", instant, "orders"), "0-0-0", instant, "parquet")
        for n in range(groups)
    ]
    schema = with_meta_columns(to.schema)
    indexed = pa.schema([schema.field(name) for name in indexed_columns(schema)])
    nothing = ColumnRanges.of_nulls(indexed, 1)
    stats = [
        WriteStat(
            file_id=name.file_id,
            path=f"north/{name}",
            partition_path="north",
            file_size_in_bytes=1,
            column_ranges=nothing,
        )
        for name in names
    ]
    to.commit(stats, {})
