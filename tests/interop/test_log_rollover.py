"""Apache Hudi reads, compacts and continues commits that have several logs of a file group."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakemark.model.changes import ChangeKind
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from lakemark.write import new_log_file
from lakemark.write.file_group_write import write_file_group
from tests.interop import lakemark
from tests.interop.change_rows import CDC, list_changes
from tests.interop.lakemark import LakemarkWriter
from tests.interop.oracle import ApacheTable, Oracle
from tests.interop.same_rows import assert_same_rows
from tests.tables import by_bucket

pytestmark = pytest.mark.oracle

SCHEMA = pa.schema([("id", pa.string()), ("region", pa.string()), ("at", pa.int64())])


def changed(at: int, *keys: int) -> pa.Table:
    names, regions = [f"k{key}" for key in keys], [f"r{key % 2}" for key in keys]
    return pa.table([names, regions, [at] * len(keys)], schema=SCHEMA)


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_log_file, "_PIECE_BYTES", 1)


def orders(version: int, **changed: Any) -> ApacheTable:
    table = ApacheTable("t", ["id"], ["region"], ["at"], "MERGE_ON_READ", version)
    return replace(table, has_metadata=version == 9, **changed)


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
    oracle: Oracle, tmp_path: Path, version: int
) -> None:
    path, twin = tmp_path / "t", orders(version)
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


@pytest.mark.parametrize("version", [6, 8, 9])
def test_apache_hudi_rolls_back_all_logs_of_a_commit(
    oracle: Oracle, tmp_path: Path, version: int
) -> None:
    path, twin = tmp_path / "t", orders(version)
    to = LakemarkWriter.open(path, twin, SCHEMA)
    to.upsert(changed(5, *range(8)))
    to.upsert(changed(6, 0, 1))
    before = lakemark.read_snapshot(path)
    assert commit_in_small_logs(to, to.changes(changed(7, *range(6)), ChangeKind.UPSERT)) == 6
    to.writer.table.refresh()
    undone = to.writer.table.timeline.instants[-1].requested_at
    metadata = {"hoodie.metadata.enable": str(twin.has_metadata).lower()}
    assert oracle.rollback(path, undone, twin.version_options | metadata)
    assert_same_rows(lakemark.read_snapshot(path), before)
    assert_same_rows(before, oracle.read(path))
    to = LakemarkWriter.open(path, twin, SCHEMA)
    assert commit_in_small_logs(to, to.changes(changed(8, 0, 2), ChangeKind.UPSERT)) == 2
    oracle.write(path, changed(9, 2, 3), twin)
    assert_same_rows(lakemark.read_snapshot(path), oracle.read(path))
    if twin.has_metadata:
        assert metadata_differences(open_table(StorageLocation(str(path)))) == []


def test_changes_in_several_logs_of_a_commit_are_the_same_for_both(
    oracle: Oracle, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    twin = orders(9, log_format="avro", extra={"hoodie.table.cdc.enabled": "true"})
    oracle.write(path, changed(5, *range(4)), twin)
    to = LakemarkWriter.open(path, twin, SCHEMA)
    updates = to.changes(changed(6, 0, 1, 2, 8), ChangeKind.UPSERT)
    deletes = to.changes(changed(6, 3), ChangeKind.DELETE)
    assert commit_in_small_logs(to, updates, deletes) == 5
    assert commit_in_small_logs(to, to.changes(changed(7, 0, 2, 3), ChangeKind.UPSERT)) == 3
    expected = [
        *(("i", f"k{key}", None, 5) for key in range(4)),
        *(("u", f"k{key}", 5, 6) for key in range(3)),
        ("i", "k8", None, 6),
        ("d", "k3", 5, None),
        ("u", "k0", 6, 7),
        ("u", "k2", 6, 7),
        ("i", "k3", None, 7),
    ]
    ours = open_table(StorageLocation(str(path))).changes("000").to_table()
    for found in (ours, oracle.read(path, "incremental", CDC)):
        assert list_changes(found, "at") == sorted(expected, key=str)
