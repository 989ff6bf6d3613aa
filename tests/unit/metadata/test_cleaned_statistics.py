"""Statistics of a file are removed when a clean deletes the file."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakemark.config.table_properties import TableType
from lakemark.metadata.column_stats.lookup import ColumnStatistics
from lakemark.metadata.metadata_table_opener import MetadataTableOpener
from lakemark.operations.clean import clean
from lakemark.services.cleaning_plan import CleaningPolicy, Retention
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
