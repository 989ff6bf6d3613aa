"""Tables with a record index whose keys are unique only within a partition, for tests."""

from __future__ import annotations

import pyarrow as pa

from lakemark.config.parquet_settings import PARQUET_DEFAULTS, ParquetSettings
from lakemark.config.table_properties import TableType
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.metadata.record_index import RecordIndex
from lakemark.model.file_names import BaseFileName, LogFileName
from lakemark.model.format_version import FormatVersion
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.table_writer import TableWriter
from lakemark.storage import Storage
from tests.table_services import new_storage
from tests.tables import Row, commit, lookup_writer, make, writer

NAME = "record_index"
MERGE_ON_READ = TableType.MERGE_ON_READ

#: Two records fill a file, so that partitions have several file groups.
SIZING = ParquetSettings(max_file_bytes=2 * PARQUET_DEFAULTS.record_bytes, small_file_bytes=0)


def new_table(
    table_type: TableType = MERGE_ON_READ, version: FormatVersion = FormatVersion.V9
) -> TableWriter:
    storage = new_storage()
    make(storage, table_type, [NAME], version, partitioned=True)
    return reopened(storage)


def reopened(storage: Storage) -> TableWriter:
    return lookup_writer(storage, SIZING)


def index_of(to: TableWriter) -> RecordIndex:
    table = to.table
    table.refresh()
    index = table.metadata_writer.record_index(table.timeline)
    assert index is not None and index.is_partitioned
    return index


def indexed(to: TableWriter) -> set[str]:
    """Return partition and key of each location, after a comparison with the rows.

    Each location must be in the file group in which a lookup searches its key.
    """
    index = index_of(to)
    assert metadata_differences(reopened(to.table.storage).table) == []
    found = [row for rows in index.scan() for row in rows.to_pylist()]
    for row in found:
        key, path = row["record_key"], row["partition_path"]
        assert index.lookup(pa.array([key]), [path]).to_pylist() == [row]
    return {f"{row['partition_path']}/{row['record_key']}" for row in found}


def shards_in(storage: Storage) -> set[str]:
    """Return the ids of the index's file groups, as the names of their files show them."""
    names = [info.name for info in storage.list_tree(f"{METADATA_FOLDER}/{NAME}")]
    parsed = (BaseFileName.parse(name) or LogFileName.parse(name) for name in names)
    return {one.file_id for one in parsed if one is not None}


def rows_of(storage: Storage) -> set[str]:
    rows = writer(storage).table.scan(columns=["region", "id"]).to_table().to_pylist()
    listed = [f"{row['region']}/{row['id']}" for row in rows]
    assert len(set(listed)) == len(listed), "a key is stored twice in a partition"
    return set(listed)


def table_with_rows(*rows: Row, table_type: TableType = MERGE_ON_READ) -> TableWriter:
    storage = new_storage()
    make(storage, table_type)
    to = reopened(storage)
    commit(to, rows or [Row("a", 1), Row("b", 1), Row("a", 1, region="south")])
    return to
