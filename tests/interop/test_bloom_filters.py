"""lakemark and Apache Hudi maintain the bloom filters in the metadata table in turn."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakemark.metadata.bloom_filters import BloomFilters
from lakemark.metadata.metadata_file_lister import MetadataFileLister
from lakemark.model.file_slice import BaseFile
from lakemark.operations.clean import clean
from lakemark.operations.metadata_table import metadata_differences, rebuild_metadata_table
from lakemark.operations.open_table import open_table
from lakemark.services.cleaning_plan import CleaningPolicy
from lakemark.storage import StorageLocation
from tests.depth import sample
from tests.interop.lakemark import LakemarkWriter
from tests.interop.oracle import ApacheTable, Oracle

pytestmark = pytest.mark.oracle

SCHEMA = pa.schema([("id", pa.string()), ("region", pa.string()), ("ts", pa.int64())])
BLOOM_FILTERS = {"hoodie.metadata.index.bloom.filter.enable": "true"}
TABLE = ApacheTable("t", ["id"], ["region"], ["ts"], has_metadata=True, extra=BLOOM_FILTERS)
#: Apache Hudi finds the file of each key by the bloom filters in the metadata table.
BY_BLOOM_FILTER = {
    **BLOOM_FILTERS,
    "hoodie.index.type": "BLOOM",
    "hoodie.bloom.index.use.metadata": "true",
}


def _rows(first: int, count: int, ts: int) -> pa.Table:
    rows = [(f"k{n}", "north" if n % 2 else "south", ts) for n in range(first, first + count)]
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


@pytest.mark.parametrize(
    ("table_type", "version"),
    sample(product(("MERGE_ON_READ", "COPY_ON_WRITE"), (9, 8, 6)), one_in=2),
)
def test_each_continues_the_bloom_filters_of_the_other(
    oracle: Oracle, tmp_path: Path, table_type: Any, version: int
) -> None:
    path, twin = tmp_path / "t", replace(TABLE, table_type=table_type, version=version)
    oracle.write(path, _rows(0, 8, 1), twin)
    _assert_complete(path)
    writer = LakemarkWriter.open(path, twin, SCHEMA)
    for ts in range(2, 10):
        writer.upsert(_rows(ts, 6, ts))
        if ts % 4 == 0:
            writer.delete(_rows(ts, 1, ts + 1))
            if table_type == "MERGE_ON_READ":
                writer.compact()
            clean(writer.writer.table, CleaningPolicy(commits=2))
        _assert_complete(path)
    if table_type == "MERGE_ON_READ":
        writer.compact()
    _assert_apache_finds_keys_by_filter(oracle, path, twin)
    _assert_complete(path)
    writer = LakemarkWriter.open(path, twin, SCHEMA)
    writer.upsert(_rows(30, 6, 40))
    rebuild_metadata_table(writer.writer.table)
    if table_type == "MERGE_ON_READ":
        writer.compact()
    _assert_apache_finds_keys_by_filter(oracle, path, twin)
    oracle.write(path, _rows(50, 4, 60), twin)
    _assert_complete(path)


def _assert_apache_finds_keys_by_filter(oracle: Oracle, path: Path, twin: ApacheTable) -> None:
    """Let Apache Hudi update all rows; a key that it does not find gets a second row."""
    before = oracle.read(path)
    rows = before.select(SCHEMA.names)
    newer = pa.array([value + 10 for value in rows.column("ts").to_pylist()])
    rows = rows.set_column(SCHEMA.get_field_index("ts"), "ts", newer)
    oracle.write(path, rows, replace(twin, extra=BY_BLOOM_FILTER))
    after = oracle.read(path)
    assert sorted(after.column("id").to_pylist()) == sorted(before.column("id").to_pylist())
    assert sorted(after.column("ts").to_pylist()) == sorted(newer.to_pylist())


def _assert_complete(path: Path) -> None:
    """Check that the metadata table has exactly the bloom filters of the base files."""
    table = open_table(StorageLocation(str(path)))
    metadata = table.metadata_opener.open(table.properties, table.timeline, table.store.clock)
    assert metadata is not None and "bloom_filters" in metadata.partitions
    listing = MetadataFileLister(metadata).list_files()
    bases = [f for files in listing.values() for f in files if isinstance(f, BaseFile)]
    files = {(base.partition_path, str(base.name)) for base in bases}
    assert files and set(BloomFilters(metadata).of_files(files)) == files
    assert metadata_differences(table) == []
