"""lakemark and Apache Hudi continue after a rollback, restore or compaction of the other."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest

from lakemark.execution.runner import LocalRunner
from lakemark.model.action import Action
from lakemark.operations.compact import Compaction, request_compaction
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.operations.orphan_removal import remove_orphans
from lakemark.storage import StorageLocation
from lakemark.timeline.locks.open_lock import open_lock
from lakemark.transaction.attempt import AttemptLost
from lakemark.transaction.rollback import roll_back_named
from streamer.cli import OK, main
from tests.clocks import SharedClock
from tests.interop import lakemark
from tests.interop.lakemark import LakemarkWriter
from tests.interop.oracle import ApacheTable, Oracle
from tests.interop.same_rows import assert_same_rows
from tests.storages import FaultyStorage, SimulatedCrash

pytestmark = pytest.mark.oracle

SCHEMA = pa.schema(
    [("id", pa.string()), ("region", pa.string()), ("ts", pa.int64()), ("v", pa.string())]
)

#: A time at which all files are old enough to be removed.
LATER = datetime.now(UTC) + timedelta(days=9)

each_version = pytest.mark.parametrize("version", [9, 8, 6])
#: The timelines of versions 8 and 9 have the same layout.
both_layouts = pytest.mark.parametrize("version", [9, 6])


def rows(ts: int, *ids: int) -> pa.Table:
    table = {
        "id": [f"k{i}" for i in ids],
        "region": [f"r{i % 2}" for i in ids],
        "ts": [ts] * len(ids),
        "v": [f"v{ts}" for _ in ids],
    }
    return pa.table(table, SCHEMA)


def twin(
    version: int,
    table_type: Literal["MERGE_ON_READ", "COPY_ON_WRITE"] = "MERGE_ON_READ",
    has_metadata: bool = False,
) -> ApacheTable:
    columns = ["id"], ["region"], ["ts"]
    return ApacheTable("t", *columns, table_type, version, has_metadata=has_metadata)


def agreed(oracle: Oracle, path: Path) -> pa.Table:
    """Check that both read the same rows, and return them without meta columns.

    Apache Hudi lists storage, and also uses the metadata table if there is one.
    """
    ours, table = lakemark.read_snapshot(path), open_table(StorageLocation(str(path)))
    for through in {False, bool(table.properties.metadata_partitions)}:
        enabled = str(through).lower()
        options = {"hoodie.metadata.enable": enabled, "hoodie.enable.data.skipping": enabled}
        assert_same_rows(ours, oracle.read(path, options=options))
    assert metadata_differences(table) == []
    return ours.select(SCHEMA.names)


def lakemark_table(path: Path, *words: str) -> None:
    what, *options = words
    assert main(["table", what, str(path), *options, "--json"]) == OK


def leave_failed_attempt(table: OpenTable) -> str:
    """Copy a base file, as the failed attempt of a task leaves it; return its path."""
    base = next(one.base for one in table.view().latest_slices() if one.base is not None)
    name = base.name
    other = f"{name.file_id}_77-88-99_{name.instant}.{name.extension}"
    path = f"{base.partition_path}/{other}"
    table.storage.put(path, table.storage.read(base.path))
    return path


@pytest.mark.parametrize(
    ("version", "table_type"),
    [
        (9, "MERGE_ON_READ"),
        (9, "COPY_ON_WRITE"),
        # Names of base files are the same in all versions, and version 8 rolls back as 9 does.
        (6, "MERGE_ON_READ"),
    ],
)
def test_each_continues_after_a_rollback_of_the_other(
    oracle: Oracle,
    tmp_path: Path,
    version: int,
    table_type: Literal["MERGE_ON_READ", "COPY_ON_WRITE"],
) -> None:
    path, table = tmp_path / "t", twin(version, table_type)
    LakemarkWriter.open(path, table, SCHEMA).upsert(rows(1, 1, 2, 3, 4))
    kept = LakemarkWriter.open(path, table, SCHEMA).upsert(rows(2, 1, 5)).requested_at
    after_kept = lakemark.read_snapshot(path).select(SCHEMA.names)

    undone = oracle.write(path, rows(3, 2, 6, 7), table).requested_at
    lakemark_table(path, "rollback", undone, "--run")
    assert_same_rows(agreed(oracle, path), after_kept)
    oracle.write(path, rows(4, 3, 8), table)
    lakemark_table(path, "savepoint", "--create", kept, "--user", "ann", "--run")
    shown = oracle.query(f"CALL show_savepoints(path => '{path}')")
    assert shown["savepoint_time"].to_pylist() == [kept]
    if table_type == "MERGE_ON_READ":
        lakemark_table(path, "compact", "--run")

    lakemark_table(path, "restore", "--to", kept, "--run")
    assert_same_rows(agreed(oracle, path), after_kept)
    oracle.write(path, rows(6, 1, 2, 10), table)
    # In version 6 Apache refuses to restore to a time before it built the metadata table.
    without = {"hoodie.metadata.enable": "false"} if version == 6 else {}
    with oracle.settings(table.version_options | without):
        oracle.query(f"CALL rollback_to_savepoint(path => '{path}', instant_time => '{kept}')")
    assert_same_rows(agreed(oracle, path), after_kept)

    ours = LakemarkWriter.open(path, table, SCHEMA)
    ours.writer.recover()
    ours.upsert(rows(7, 1, 11))
    agreed(oracle, path)
    with oracle.settings(table.version_options):
        oracle.query(f"CALL delete_savepoint(path => '{path}', instant_time => '{kept}')")
    ended = open_table(StorageLocation(str(path)))
    assert not ended.timeline.completed(Action.SAVEPOINT)
    assert ended.version == version

    late = leave_failed_attempt(ended)
    assert {one.path for one in remove_orphans(ended, now=LATER)} >= {late}
    agreed(oracle, path)
    lakemark_table(path, "restore", "--to-empty", "--run")
    assert oracle.read(path).num_rows == 0
    oracle.write(path, rows(8, 3, 12), table)
    LakemarkWriter.open(path, table, SCHEMA).upsert(rows(9, 12))
    assert sorted(agreed(oracle, path)["id"].to_pylist()) == ["k12", "k3"]


@each_version
def test_each_executes_the_compaction_that_the_other_planned(
    oracle: Oracle, tmp_path: Path, capsys: pytest.CaptureFixture[str], version: int
) -> None:
    path, table = tmp_path / "t", twin(version, has_metadata=version == 9)
    options = {"hoodie.metadata.enable": str(table.has_metadata).lower()}
    ours = LakemarkWriter.open(path, table, SCHEMA)
    ours.upsert(rows(1, 1, 2, 3, 4))
    ours.upsert(rows(2, 1, 2))
    lakemark_table(path, "compact", "--schedule")
    planned = json.loads(capsys.readouterr().out.splitlines()[0])["instant"]
    assert oracle.compact(path, "run", options=options) == [planned]
    agreed(oracle, path)

    oracle.write(path, rows(3, 2, 3, 5), table)
    (planned,) = oracle.compact(path, "schedule", options=options)
    capsys.readouterr()
    lakemark_table(path, "compact", "--run")
    assert json.loads(capsys.readouterr().out)["instant"] == planned
    expected = agreed(oracle, path)
    optimized = oracle.read(path, "read_optimized").select(SCHEMA.names)
    assert_same_rows(optimized, expected)


@both_layouts
def test_each_executes_the_compaction_that_the_other_began_and_abandoned(
    oracle: Oracle, tmp_path: Path, capsys: pytest.CaptureFixture[str], version: int
) -> None:
    path, table = tmp_path / "t", twin(version)
    options = {"hoodie.metadata.enable": "false"}
    ours = LakemarkWriter.open(path, table, SCHEMA)
    ours.upsert(rows(1, 1, 2, 3, 4))
    ours.upsert(rows(2, 1, 2))
    opened = open_table(StorageLocation(str(path)))
    planned = request_compaction(opened)
    assert planned is not None
    left = Compaction.begin(opened, planned)
    stats = left.rewrite(LocalRunner(1))
    name = planned[0].requested_at
    assert oracle.compact(path, "run", instant=name, options=options) == [name]
    assert not [stat.path for stat in stats if (path / (stat.path or "")).exists()]
    expected = agreed(oracle, path)
    with pytest.raises(AttemptLost, match="has already completed"):
        left.publish(stats, dict)
    assert_same_rows(agreed(oracle, path), expected)

    oracle.write(path, rows(3, 2, 3, 5), table)
    (name,) = oracle.compact(path, "schedule", options=options)
    assert oracle.compact(path, "run", instant=name, options=options) == [name]
    (done,) = (
        i
        for i in open_table(StorageLocation(str(path))).timeline.completed(Action.COMMIT)
        if i.requested_at == name
    )
    theirs = {file for file in path.rglob(f"*_{name}.parquet") if ".hoodie" not in file.parts}
    completed = path / open_table(StorageLocation(str(path))).store.path_of(done)
    completed.unlink()  # it died
    completed.with_name(f".{completed.name}.crc").unlink()
    capsys.readouterr()
    lakemark_table(path, "compact", "--run")
    assert json.loads(capsys.readouterr().out)["instant"] == name
    assert theirs
    assert not [file for file in theirs if file.exists()]
    assert_same_rows(oracle.read(path, "read_optimized").select(SCHEMA.names), agreed(oracle, path))


@both_layouts
def test_apache_finishes_a_rollback_of_a_completed_commit_whose_process_died(
    oracle: Oracle, tmp_path: Path, version: int
) -> None:
    path, table = tmp_path / "t", twin(version)
    ours = LakemarkWriter.open(path, table, SCHEMA)
    ours.upsert(rows(1, 1, 2, 3, 4))
    before = agreed(oracle, path)
    newest = ours.upsert(rows(2, 1, 5)).requested_at
    opened, clock = open_table(StorageLocation(str(path))), SharedClock()
    for nth in range(100):
        dying = FaultyStorage(opened.storage, nth, "after")
        # The dead process still holds the lock; on this clock its lease expires soon.
        lock = open_lock(dying, clock=clock)
        context = replace(OpenTable(dying, opened.properties).context, lock=lock)
        with pytest.raises(SimulatedCrash):
            roll_back_named(context, newest)
        found = open_table(StorageLocation(str(path))).timeline.find(newest)
        if found is None or not found.is_completed:
            break
    assert_same_rows(agreed(oracle, path), before)
    oracle.write(path, rows(3, 2), table)
    agreed(oracle, path)
    timeline = open_table(StorageLocation(str(path))).timeline
    assert not timeline.pending()
    assert timeline.find(newest) is None


@both_layouts
def test_lakemark_continues_after_apache_rolled_its_commit_back(
    oracle: Oracle, tmp_path: Path, version: int
) -> None:
    path, table = tmp_path / "t", twin(version, has_metadata=True)
    ours = LakemarkWriter.open(path, table, SCHEMA)
    ours.upsert(rows(1, 1, 2, 3, 4))
    before = agreed(oracle, path)
    newest = ours.upsert(rows(2, 1, 5)).requested_at
    assert oracle.rollback(path, newest, {"hoodie.metadata.enable": "true"})
    assert_same_rows(agreed(oracle, path), before)
    ours = LakemarkWriter.open(path, table, SCHEMA)
    ours.writer.recover()
    ours.upsert(rows(3, 1, 6))
    ours.compact()
    agreed(oracle, path)
    assert metadata_differences(open_table(StorageLocation(str(path)))) == []


@both_layouts
def test_apache_continues_the_metadata_table_that_a_restore_rebuilt(
    oracle: Oracle, tmp_path: Path, version: int
) -> None:
    path, table = tmp_path / "t", twin(version, has_metadata=True)
    kept = oracle.write(path, rows(1, 1, 2, 3, 4), table).requested_at
    before = agreed(oracle, path)
    oracle.write(path, rows(2, 1, 5), table)
    lakemark_table(path, "savepoint", "--create", kept, "--run")
    lakemark_table(path, "restore", "--to", kept, "--run")
    assert_same_rows(agreed(oracle, path), before)
    oracle.write(path, rows(3, 2, 6), table)
    agreed(oracle, path)
    assert open_table(StorageLocation(str(path))).properties.metadata_partitions
