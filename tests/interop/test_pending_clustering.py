"""Apache Hudi plans a clustering of a bucket table, which neither it nor lakemark can execute."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lakemark.transaction.conflicts import ClusteringPlanned
from streamer.cli import OK, main
from tests.interop import lakemark
from tests.interop.lakemark import LakemarkWriter
from tests.interop.oracle import ApacheTable, Oracle
from tests.interop.same_rows import assert_same_rows

pytestmark = pytest.mark.oracle

SCHEMA = pa.schema(
    [("id", pa.string()), ("region", pa.string()), ("ts", pa.int64()), ("v", pa.int64())]
)


def _rows(at: int) -> pa.Table:
    return pa.table([["a", "b", "c"], ["x", "x", "y"], [at] * 3, [at] * 3], schema=SCHEMA)


@pytest.mark.parametrize("version", [9, 6])
def test_clustering_that_apache_planned_is_reported_and_can_be_rolled_back(
    oracle: Oracle, tmp_path: Path, version: int
) -> None:
    path, twin = tmp_path / "t", ApacheTable("t", ["id"], ["region"], ["ts"], version=version)
    writer = LakemarkWriter.open(path, twin, SCHEMA)
    writer.upsert(_rows(1))
    with oracle.settings(twin.version_options | {"hoodie.metadata.enable": "false"}):
        oracle.query(f"CALL run_clustering(path => '{path}', op => 'schedule')")
    writer = LakemarkWriter.open(path, twin, SCHEMA)
    (planned,) = writer.writer.table.timeline.pending()
    assert writer.writer.recover() == []
    publish = writer.begin_upsert(_rows(2))
    with pytest.raises(ClusteringPlanned, match=planned.requested_at):
        publish()
    writer.writer.abandon()
    assert main(["table", "rollback", str(path), planned.requested_at, "--run"]) == OK

    writer = LakemarkWriter.open(path, twin, SCHEMA)
    assert not writer.writer.table.timeline.pending()
    writer.upsert(_rows(3))
    assert_same_rows(lakemark.read_snapshot(path), oracle.read(path))
    oracle.write(path, _rows(4), twin)
    rows = lakemark.read_snapshot(path)
    assert rows["v"].to_pylist() == [4, 4, 4]
    assert_same_rows(rows, oracle.read(path))
