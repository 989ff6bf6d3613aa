"""Apache Hudi and lakemark overwrite and delete partitions of one table in turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakemark
from lakemark.read.queries import Incremental
from tests.depth import sample
from tests.interop.oracle import CLEANS_AND_ARCHIVES, ApacheTable, Oracle
from tests.interop.same_rows import assert_same_rows
from tests.interop.test_lookup_index import RECORD_INDEX

pytestmark = pytest.mark.oracle

SCHEMA = pa.schema(
    [("id", pa.string()), ("region", pa.string()), ("ts", pa.int64()), ("v", pa.int32())]
)
REGIONS = ("north", "south", "west")
TWIN = ApacheTable("orders", ["id"], ["region"], ["ts"], has_metadata=True)
THROUGH_METADATA = {"hoodie.metadata.enable": "true"}

TableTypeName = Literal["MERGE_ON_READ", "COPY_ON_WRITE"]
KINDS: list[tuple[TableTypeName, int, str]] = [
    (table_type, version, index)
    for table_type in ("MERGE_ON_READ", "COPY_ON_WRITE")
    for version in (9, 8, 6)
    for index in ("bucket", "lookup", "record_index")
    if (version, index) != (6, "record_index")
]
APACHES: Mapping[str, Mapping[str, str]] = {
    "bucket": {},
    "lookup": {"hoodie.index.type": "SIMPLE"},
    "record_index": {"hoodie.index.type": "RECORD_INDEX", **RECORD_INDEX},
}


def _rows(numbers: range, ts: int, region: str | None = None) -> pa.Table:
    """Create one row for each number; a key is in one region unless another is given."""
    columns = {
        "id": [f"k{n}" for n in numbers],
        "region": [region or REGIONS[n % 3] for n in numbers],
        "ts": [ts] * len(numbers),
        "v": [n * ts for n in numbers],
    }
    return pa.table(columns, schema=SCHEMA)


def _of(region: str, ts: int) -> pa.Table:
    return _rows(range(REGIONS.index(region), 15, 3), ts)


def _agree(oracle: Oracle, path: Path, count: int) -> None:
    """Check that both read the same rows, and that the metadata table equals the files.

    Apache Hudi does not narrow the statistics of a partition that it overwrites or deletes.
    """
    table = lakemark.open(path)
    ours = table.snapshot(SCHEMA.names).read_all()
    assert ours.num_rows == count
    assert_same_rows(ours, oracle.read(path, options=THROUGH_METADATA).select(SCHEMA.names))
    assert [one for one in table.metadata_differences() if not one.path.endswith("/")] == []
    with oracle.named("checked", path):
        found = oracle.query(
            "CALL validate_metadata_table_files(table => 'checked', verbose => true)"
        )
    for _, name, on_storage, in_metadata, *sizes in (row.values() for row in found.to_pylist()):
        assert on_storage == in_metadata, name
        assert len(set(sizes)) == 1, name
    if "record_index" in table.properties.metadata_partitions:
        for n in range(15):
            scan = table.scan(columns=["id"], record_keys=[f"k{n}"])
            rows = ours.filter(pc.equal(ours["id"], f"k{n}"))
            assert scan.to_table().num_rows == rows.num_rows


@pytest.mark.parametrize(("table_type", "version", "index"), sample(KINDS, one_in=4))
def test_both_replace_partitions_in_turn(
    oracle: Oracle, tmp_path: Path, table_type: TableTypeName, version: int, index: str
) -> None:
    path = tmp_path / "orders"
    twin = replace(TWIN, table_type=table_type, version=version, extra=APACHES[index])
    oracle.write(path, _rows(range(15), 1), twin)
    table = lakemark.open(path, buckets=2 if index == "bucket" else None)
    table.upsert(_rows(range(6), 2))
    table.insert_overwrite(_of("north", 3).slice(0, 4))
    _agree(oracle, path, 14)
    oracle.write(path, _rows(range(3, 12), 4), twin)
    _agree(oracle, path, 14)
    oracle.write(path, _of("south", 5).slice(0, 3), twin, "insert_overwrite")
    _agree(oracle, path, 12)
    table.refresh()
    table.delete_partitions("w*")
    _agree(oracle, path, 7)
    with oracle.named("orders", path), oracle.settings(twin.write_options()):
        oracle.execute("ALTER TABLE orders DROP PARTITION (region = 'north')")
    _agree(oracle, path, 3)
    table.refresh()
    table.upsert(_rows(range(6), 6))
    _agree(oracle, path, 7)
    table.insert_overwrite_table(_rows(range(8), 7))
    _agree(oracle, path, 8)
    oracle.write(path, _rows(range(4), 8), twin, "insert_overwrite_table")
    _agree(oracle, path, 4)
    table.refresh()
    before = table.timeline.completed()[-1]
    table.upsert(_rows(range(6), 9))
    begin = before.requested_at if version == 6 else before.completed_at
    assert begin is not None
    ours = table.scan(Incremental(begin), SCHEMA.names).to_table()
    options = {"hoodie.datasource.read.begin.instanttime": begin}
    assert_same_rows(ours, oracle.read(path, "incremental", options).select(SCHEMA.names))
    for ts in range(10, 15):
        oracle.write(path, _rows(range(1), ts), twin, options=CLEANS_AND_ARCHIVES)
    _agree(oracle, path, 6)
    table.refresh()
    table.clean(retain_commits=1)
    table.upsert(_rows(range(6), 20))
    table.archive(min_commits=1, max_commits=2, retain_commits=1)
    _agree(oracle, path, 6)
