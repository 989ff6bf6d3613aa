"""lakemark and Apache Hudi execute each other's log compactions, and read what they wrote."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lakemark.execution.runner import LocalRunner
from lakemark.model.action import Action
from lakemark.operations.compact_logs import compact_logs, schedule_log_compaction
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.read.queries import Snapshot
from lakemark.storage import StorageLocation
from tests.interop import lakemark
from tests.interop.lakemark import LakemarkWriter
from tests.interop.oracle import ApacheTable, Oracle
from tests.interop.same_rows import assert_same_rows

pytestmark = pytest.mark.oracle

SCHEMA = pa.schema([("id", pa.string()), ("region", pa.string()), ("at", pa.int64())])


def opened(path: Path) -> OpenTable:
    return open_table(StorageLocation(str(path)))


def changed(at: int, *keys: int) -> pa.Table:
    names, regions = [f"k{key}" for key in keys], [f"r{key % 2}" for key in keys]
    return pa.table([names, regions, [at] * len(keys)], schema=SCHEMA)


def written(path: Path, version: int) -> tuple[ApacheTable, LakemarkWriter]:
    """Write a base file and three logs with updates, late updates and deletes."""
    twin = ApacheTable(
        "t", ["id"], ["region"], ["at"], "MERGE_ON_READ", version, has_metadata=version == 9
    )
    writer = LakemarkWriter.open(path, twin, SCHEMA)
    writer.upsert(changed(5, *range(8)))
    writer.upsert(changed(7, 0, 1, 2, 3))
    writer.delete(changed(8, 2, 3))
    writer.upsert(changed(6, 0, 4, 5))
    return twin, writer


def assert_same(oracle: Oracle, path: Path, expected: pa.Table) -> None:
    """Check that both read the expected rows."""
    ours = lakemark.read_snapshot(path)
    assert_same_rows(ours, oracle.read(path))
    columns = SCHEMA.names
    assert ours.select(columns).sort_by("id") == expected.select(columns).sort_by("id")


@pytest.mark.parametrize("planner", ["lakemark", "Apache Hudi"])
@pytest.mark.parametrize("version", [6, 8, 9])
def test_each_executes_the_plan_of_the_other(
    oracle: Oracle, tmp_path: Path, version: int, planner: str
) -> None:
    path = tmp_path / "t"
    twin, writer = written(path, version)
    before = lakemark.read_snapshot(path)
    past = opened(path).timeline.completed(Action.DELTA_COMMIT)[-1].requested_at
    metadata = {"hoodie.metadata.enable": str(twin.has_metadata).lower()}
    if planner == "lakemark":
        planned = schedule_log_compaction(opened(path), 2)
        assert planned is not None
        instant = planned[0].requested_at
        oracle.compact_logs(path, instant, options=twin.write_options() | metadata)
    else:
        options = twin.write_options() | metadata
        (instant,) = oracle.compact_logs(path, options=options)
        ((done, _),) = compact_logs(opened(path), LocalRunner(1))
        assert done.requested_at == instant
    assert_same(oracle, path, before)
    as_of = {"as.of.instant": past}
    ours = opened(path).scan(Snapshot(past)).to_reader().read_all()
    assert_same_rows(ours, oracle.read(path, options=as_of))

    # Both continue the table, and compact it with the log of the log compaction.
    oracle.write(path, changed(9, 0, 6), twin)
    writer = LakemarkWriter.open(path, twin, SCHEMA)
    writer.upsert(changed(10, 1, 7))
    assert compact_logs(opened(path), LocalRunner(1), min_logs=2)
    after = lakemark.read_snapshot(path)
    assert_same(oracle, path, after)
    assert oracle.compact(path, options=twin.write_options() | metadata)
    assert_same(oracle, path, after)
    if twin.has_metadata:
        assert metadata_differences(opened(path)) == []
