"""A column that is new in the table: each partition says that it has no value of it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from table.hudi_table import open_table
from table.metadata.column_statistics import PartitionStatistics
from table.metadata.opening import open_metadata_table
from table.storage import StorageLocation
from table.timeline.clock import UTC_CLOCK
from tests.interop.lakemark import LakemarkWriter
from tests.interop.oracle import ApacheTable

SCHEMA = pa.schema([("id", pa.string()), ("p", pa.string()), ("ts", pa.int64())])
WIDER = SCHEMA.append(pa.field("more", pa.string()))
TABLE = ApacheTable("t", ["id"], ["p"], ["ts"], has_metadata=True, bucket_count=1)


@pytest.mark.parametrize("same_process", [True, False])
def test_other_partitions_have_no_value_of_a_new_column(tmp_path: Path, same_process: bool) -> None:
    path = tmp_path / "t"
    writer = LakemarkWriter.open(path, TABLE, SCHEMA)
    writer.upsert(pa.table({"id": ["a", "z", "y"], "p": ["p", "q", "q"], "ts": [1, 1, 1]}, SCHEMA))
    writer = LakemarkWriter.open(path, TABLE, WIDER)
    writer.upsert(pa.table({"id": ["b"], "p": ["p"], "ts": [2], "more": ["new"]}, WIDER))
    assert _of_partitions(path) == {"p": ("new", "new", 1, 2), "q": (None, None, 2, 2)}
    if not same_process:
        writer = LakemarkWriter.open(path, TABLE, WIDER)
    writer.upsert(pa.table({"id": ["x"], "p": ["q"], "ts": [3], "more": ["old"]}, WIDER))
    assert _of_partitions(path)["q"] == ("old", "old", 2, 3)
    assert open_table(StorageLocation(str(path))).metadata_differences() == []


def _of_partitions(path: Path) -> dict[str, tuple[object, ...]]:
    """Bounds of the new column by partition, and how many nulls and values there are."""
    table = open_table(StorageLocation(str(path)))
    metadata = open_metadata_table(table.storage, table.properties, table.timeline, UTC_CLOCK)
    assert metadata is not None
    rows = PartitionStatistics(metadata).of_column("more", pa.string()).to_pylist()
    return {path: tuple(known) for path, *known in (row.values() for row in rows)}
