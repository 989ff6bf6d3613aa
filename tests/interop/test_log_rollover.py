"""Apache Hudi reads, compacts and continues commits that have several logs of a file group."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lakemark.model.changes import ChangeKind
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from lakemark.write import new_log_file
from lakemark.write.file_group_write import write_file_group
from tests.interop import lakemark
from tests.interop.lakemark import LakemarkWriter
from tests.interop.oracle import ApacheTable, Oracle
from tests.interop.same_rows import assert_same_rows
from tests.tables import by_bucket

pytestmark = pytest.mark.oracle

SCHEMA = pa.schema([("id", pa.string()), ("region", pa.string()), ("at", pa.int64())])


def changed(at: int, *keys: int) -> pa.Table:
    names, regions = [f"k{key}" for key in keys], [f"r{key % 2}" for key in keys]
    return pa.table([names, regions, [at] * len(keys)], schema=SCHEMA)


def commit_in_small_logs(to: LakemarkWriter, *parts: pa.Table) -> int:
    """Commit changes in logs of one change each, and return the number of logs."""
    context, assignment = to.writer.begin(), to.writer.assigner.assign_file_groups()
    limited = replace(context, max_log_bytes=1).use_storage(context.storage)
    stats = [
        stat
        for bucket, part in by_bucket(pa.concat_tables(parts), to.writer.settings.index)
        for stat in write_file_group(limited, assignment.task(bucket), [part])
    ]
    to.writer.commit(stats, {})
    return len(stats)


@pytest.mark.parametrize("version", [6, 8, 9])
def test_apache_hudi_reads_all_logs_of_a_commit(
    oracle: Oracle, tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_log_file, "_PIECE_BYTES", 1)
    path = tmp_path / "t"
    twin = ApacheTable(
        "t", ["id"], ["region"], ["at"], "MERGE_ON_READ", version, has_metadata=version == 9
    )
    to = LakemarkWriter.open(path, twin, SCHEMA)
    to.upsert(changed(5, *range(8)))
    to.upsert(changed(6, 0, 1))
    updates = to.changes(changed(7, *range(6)), ChangeKind.UPSERT)
    deletes = to.changes(changed(8, 6), ChangeKind.DELETE)
    assert commit_in_small_logs(to, updates, deletes) == 7

    def assert_same(expected: dict[str, int]) -> None:
        ours = lakemark.read_snapshot(path)
        assert dict(zip(ours["id"].to_pylist(), ours["at"].to_pylist(), strict=True)) == expected
        assert_same_rows(ours, oracle.read(path))

    expected = dict.fromkeys([f"k{n}" for n in range(6)], 7) | {"k7": 5}
    assert_same(expected)
    oracle.write(path, changed(9, 0, 7), twin)
    expected |= {"k0": 9, "k7": 9}
    assert_same(expected)
    to = LakemarkWriter.open(path, twin, SCHEMA)
    assert commit_in_small_logs(to, to.changes(changed(10, 1, 2, 3), ChangeKind.UPSERT)) == 3
    expected |= dict.fromkeys(["k1", "k2", "k3"], 10)
    assert_same(expected)
    metadata = {"hoodie.metadata.enable": str(twin.has_metadata).lower()}
    assert oracle.compact(path, options=twin.write_options() | metadata)
    assert_same(expected)
    if twin.has_metadata:
        assert metadata_differences(open_table(StorageLocation(str(path)))) == []
