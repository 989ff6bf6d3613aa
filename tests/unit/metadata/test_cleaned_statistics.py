"""Statistics of a file are removed when a clean deletes the file."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakemark.config.table_properties import TableType
from lakemark.metadata.column_stats.lookup import ColumnStatistics
from lakemark.metadata.metadata_table_opener import MetadataTableOpener
from lakemark.model.action import Action, State
from lakemark.operations.clean import clean
from lakemark.operations.metadata_table import metadata_differences
from lakemark.services.cleaning_plan import CleaningPolicy, Retention
from tests.storages import SimulatedCrash, WatchedStorage
from tests.table_services import new_storage
from tests.tables import Row, commit, data_files, make, writer


@pytest.mark.parametrize("is_defined", [True, False])
def test_a_clean_ends_the_statistics_of_the_files_that_it_deletes(is_defined: bool) -> None:
    storage = new_storage()
    make(storage, TableType.COPY_ON_WRITE)
    to = writer(storage)
    for ts in range(1, 4):
        commit(to, [Row("a", ts, ts)])
    if not is_defined:
        storage.delete([info.path for info in storage.list_tree(".hoodie/.index_defs")])
        to = writer(storage)
    before = len(data_files(storage))
    clean(to.table, CleaningPolicy(Retention.FILE_VERSIONS, file_versions=1))
    left = data_files(storage)
    assert len(left) < before

    table = to.table
    table.refresh()
    opener = MetadataTableOpener(storage)
    metadata = opener.open(table.properties, table.store.load(), table.store.clock)
    assert metadata is not None
    recorded = ColumnStatistics(metadata).of_column("v", pa.int64()).column("file_name").to_pylist()
    assert sorted(recorded) == sorted(path.rpartition("/")[2] for path in left)


def test_files_that_a_dead_clean_has_deleted_are_no_differences() -> None:
    storage = new_storage()
    make(storage, TableType.COPY_ON_WRITE, ("bloom_filters",))
    to = writer(storage)
    for ts in range(1, 4):
        commit(to, [Row("a", ts, ts)])
    before = len(data_files(storage))

    def die_at_publication(method: str, path: str) -> None:
        if method == "create" and len(data_files(storage)) < before:
            raise SimulatedCrash

    with pytest.raises(SimulatedCrash):
        clean(
            writer(WatchedStorage(storage, die_at_publication)).table,
            CleaningPolicy(Retention.FILE_VERSIONS, file_versions=1),
        )
    table = writer(storage).table
    (pending,) = table.timeline.pending(Action.CLEAN)
    assert pending.state is State.INFLIGHT
    assert metadata_differences(table) == []
    storage.delete(data_files(storage))
    assert metadata_differences(table)
