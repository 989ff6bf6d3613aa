"""lakemark finds long keys of Apache Hudi, whose statistics leave out some keys of the file.

A row group has no bounds if the keys at both ends are too long together. Apache Hudi then records a
range of the other row groups.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import lakemark
from lakemark.metadata.column_stats.lookup import ColumnStatistics
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.operations import change_assigner
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from tests.interop.oracle import ApacheTable, Oracle

pytestmark = pytest.mark.oracle

#: Row groups of a hundred rows, in one file that is sorted by key.
OPTIONS = {
    "hoodie.index.type": "SIMPLE",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.bulkinsert.shuffle.parallelism": "1",
    "hoodie.bulkinsert.sort.mode": "GLOBAL_SORT",
    "hoodie.parquet.block.size": "2000",
    "hoodie.parquet.page.size": "1000",
    "hoodie.parquet.small.file.limit": "0",
}


@pytest.mark.parametrize("version", [6, 9])
def test_keys_without_statistics_are_found(
    oracle: Oracle, tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_assigner, "_MIN_FILES", 1)
    path = tmp_path / "t"
    table = ApacheTable(
        "t", ["id"], [], ["v"], "COPY_ON_WRITE", version, has_metadata=True, extra=OPTIONS
    )
    ids = [*(f"k{n:03d}" for n in range(350)), "z" + "x" * 5000]
    rows = pa.table({"id": ids, "v": pa.array([1] * len(ids), pa.int64())})
    oracle.write(path, rows, table, operation="bulk_insert")
    (file,) = path.glob("*.parquet")
    group = pq.read_metadata(file).row_group(3)
    names = [group.column(n).path_in_schema for n in range(group.num_columns)]
    assert not group.column(names.index(RECORD_KEY)).statistics.has_min_max
    # A key that is not found would be added to the smallest file.
    few = pa.table({"id": ["a"], "v": pa.array([1], pa.int64())})
    oracle.write(path, few, table, operation="insert")
    metadata = open_table(StorageLocation(str(path))).snapshot.metadata_with(
        PartitionKind.COLUMN_STATS
    )
    assert metadata is not None
    stored = ColumnStatistics(metadata).of_column(RECORD_KEY, pa.string())
    assert sorted(stored.column("max").to_pylist()) == ["a", "k299"]

    opened = lakemark.open(path, only_writer=True)
    for column in ("id", RECORD_KEY):
        found = opened.snapshot(where=pc.field(column) == "k320").read_all()
        assert found["id"].to_pylist() == ["k320"]
    changed = ["k000", "k320", ids[-1]]
    opened.upsert(pa.table({"id": changed, "v": [2, 2, 2]}))
    found = oracle.read(path)
    values = dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))
    assert found.num_rows == len(ids) + 1, "no key is stored twice"
    assert {key for key, value in values.items() if value == 2} == {*changed}
