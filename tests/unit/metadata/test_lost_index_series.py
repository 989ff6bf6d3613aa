"""A partitioned record index without the file groups of a partition never hides or doubles rows."""

from __future__ import annotations

import pytest

from lakemark.config.table_properties import TableType
from lakemark.errors import HudiError, Retriable, Unsupported
from lakemark.metadata.metadata_compaction import EVERY_DELTA_COMMITS
from lakemark.metadata.metadata_files import first_log_file
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.operations.create_index import create_index
from lakemark.operations.drop_index import drop_index
from lakemark.operations.metadata_table import keep_metadata_table, metadata_differences
from lakemark.storage import Storage
from tests.storages.interrupted_storage import InterruptedStorage
from tests.tables import Row, commit, writer
from tests.unit.metadata.partitioned_indexes import (
    NAME,
    indexed,
    new_table,
    reopened,
    rows_of,
    table_with_rows,
)

FOLDER = f"{METADATA_FOLDER}/{NAME}"


def lose_series(storage: Storage, path: str) -> None:
    """Delete the files of the index for one partition."""
    names = [info.path for info in storage.list_tree(FOLDER)]
    lost = [name for name in names if f"record-index-{path}-" in name]
    assert lost
    storage.delete(lost)


def regions_with_a(storage: Storage) -> list[str]:
    found = writer(storage).table.scan(columns=["region"], where="id = 'a'").to_table()
    return sorted(found["region"].to_pylist())


@pytest.mark.parametrize("is_created_again", [False, True])
def test_an_open_reader_finds_keys_after_the_index_was_dropped(is_created_again: bool) -> None:
    to = table_with_rows()
    create_index(to.table, NAME, partitioned=True)
    reader = writer(to.table.storage).table
    assert reader.scan(columns=["v"]).to_table().num_rows == 3
    other = reopened(to.table.storage).table
    drop_index(other, NAME)
    if is_created_again:
        create_index(other, NAME, partitioned=True)
    found = reader.scan(columns=["region"], where="id = 'a'").to_table()
    assert sorted(found["region"].to_pylist()) == ["north", "south"]


def test_a_writer_adds_no_stored_key_while_the_index_is_dropped() -> None:
    to = table_with_rows()
    create_index(to.table, NAME, partitioned=True)
    storage = to.table.storage
    dropping = InterruptedStorage(storage, lambda: drop_index(reopened(storage).table, NAME))
    late = reopened(dropping)
    late.begin()
    late.abandon()
    dropping.is_before = lambda _, method, path: "list" in method and path.rstrip("/") == FOLDER
    with pytest.raises(Retriable, match="was dropped meanwhile"):
        commit(late, [Row("a", 2, 9)])
    assert dropping.stopped_at is not None
    late.abandon()
    commit(reopened(storage), [Row("a", 2, 9)])
    assert rows_of(storage) == {"north/a", "north/b", "south/a"}


@pytest.mark.parametrize("commits", [0, 2 * EVERY_DELTA_COMMITS + 2])
def test_a_lost_series_is_found_before_a_key_looks_new(commits: int) -> None:
    to = new_table(TableType.COPY_ON_WRITE)
    commit(to, [Row("a", 1), Row("b", 1), Row("a", 1, region="south")])
    for number in range(commits):
        commit(to, [Row(f"k{number}", 1, region="south")])
    storage, before = to.table.storage, rows_of(to.table.storage)
    lose_series(storage, "north")
    assert regions_with_a(storage) == ["north", "south"]
    for row in (Row("a", 2, 9), Row("z", 2, 9, region="south")):
        late = reopened(storage)
        with pytest.raises(Unsupported, match="--rebuild --run"):
            commit(late, [row])
        late.abandon()
    found = metadata_differences(reopened(storage).table)
    assert (FOLDER, "files") in {(one.path, one.aspect) for one in found}
    to = reopened(storage)
    assert keep_metadata_table(to.table) is not None
    commit(to, [Row("a", 2, 9)])
    assert indexed(to) == rows_of(storage) == before


def test_all_lost_files_of_a_new_index_are_found() -> None:
    to = table_with_rows()
    create_index(to.table, NAME, partitioned=True)
    storage = to.table.storage
    for path in ("north", "south"):
        lose_series(storage, path)
    assert regions_with_a(storage) == ["north", "south"]
    with pytest.raises(HudiError, match="--rebuild --run"):
        commit(reopened(storage), [Row("a", 2, 9)])


def test_a_series_with_a_gap_is_built_again() -> None:
    """A rollback may leave a gap if another writer has relied on file groups that it removes."""
    to = new_table()
    instant = commit(to, [Row("a", 1)]).requested_at
    storage = to.table.storage
    third = f"{FOLDER}/.record-index-north-0002-0_{instant}.log.1_0-0-0"
    storage.create(third, first_log_file(instant))
    late = reopened(storage)
    with pytest.raises(Unsupported, match=r"without a gap.*--rebuild --run"):
        commit(late, [Row("a", 2)])
    late.abandon()
    to = reopened(storage)
    assert "without a gap" in (keep_metadata_table(to.table) or "")
    commit(to, [Row("a", 3)])
    assert indexed(to) == rows_of(storage) == {"north/a"}
