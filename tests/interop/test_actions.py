"""One program finishes, undoes or archives an action that the other one began.

``docs/actions.md`` lists the tests of each action.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest

import lakemark
from lakemark.model.action import COMMITS, Action
from lakemark.model.instant import Instant
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.operations.restore import restore_table
from lakemark.storage import StorageLocation
from lakemark.timeline.locks.open_lock import open_lock
from lakemark.transaction.table_context import LOCK_WAIT_S
from tests.clocks import SharedClock
from tests.interop.oracle import ApacheTable, Oracle, OracleError
from tests.interop.random_history.apache_acts import REFUSED
from tests.interop.random_history.heartbeats import age_heartbeats, heartbeats_decide
from tests.interop.same_rows import assert_same_rows
from tests.interop.test_lookup_index import RECORD_INDEX
from tests.storages import SimulatedCrash, WatchedStorage
from tests.table_services import archived_names

pytestmark = pytest.mark.oracle

SCHEMA = pa.schema(
    [("id", pa.string()), ("region", pa.string()), ("ts", pa.int64()), ("v", pa.int64())]
)
TableKind = Literal["MERGE_ON_READ", "COPY_ON_WRITE"]

#: Names of base files are the same in all versions; the timelines of 8 and 9 have one layout.
KINDS: list[tuple[int, TableKind]] = [
    (9, "MERGE_ON_READ"),
    (9, "COPY_ON_WRITE"),
    (6, "MERGE_ON_READ"),
]
each_kind = pytest.mark.parametrize(("version", "table_type"), KINDS)
#: Leaves the writes of a failed process for a later clean or writer.
_FAILING = {**REFUSED, "hoodie.clean.failed.writes.policy": "LAZY"}

#: Apache Hudi archives only commits, cleans and rollbacks; lakemark archives all actions.
_KEPT_BY_APACHE_HUDI = {Action.RESTORE, Action.INDEXING}


def twin(version: int = 9, table_type: TableKind = "MERGE_ON_READ") -> ApacheTable:
    keys = ["id"], ["region"], ["ts"]
    return ApacheTable("orders", *keys, table_type, version, has_metadata=version == 9)


def rows(ts: int, *numbers: int) -> pa.Table:
    columns = [
        [f"k{n}" for n in numbers],
        [f"r{n % 2}" for n in numbers],
        [ts] * len(numbers),
        [ts * n for n in numbers],
    ]
    return pa.table(columns, schema=SCHEMA)


def opened(path: Path) -> OpenTable:
    return open_table(StorageLocation(str(path)))


def completed(path: Path, *actions: Action) -> list[Instant]:
    return list(opened(path).timeline.completed(*actions))


def agreed(oracle: Oracle, path: Path) -> pa.Table:
    """Check that both read the same rows, and return them; the metadata table is right, too.

    Apache Hudi does not narrow the statistics of a partition.
    """
    table = lakemark.open(path)
    ours = table.snapshot().read_all()
    for through in {False, bool(table.properties.metadata_partitions)}:
        assert_same_rows(
            ours, oracle.read(path, options={"hoodie.metadata.enable": str(through).lower()})
        )
    assert [one for one in table.metadata_differences() if not one.path.endswith("/")] == []
    return ours.select(SCHEMA.names).sort_by("id")


def leave_plan(path: Path, action: Action, act: Callable[[], object]) -> str:
    """Let Apache Hudi act, and leave what it leaves if it dies right after its inflight instant.

    Returns:
        The requested time of the instant.
    """
    before = path.with_name("before")
    shutil.copytree(path, before)
    act()
    done = completed(path, action)[-1]
    name, folder = done.requested_at, Path(opened(path).store.path_of(done)).parent
    planned = [
        file
        for file in (path / folder).glob(f"{name}*")
        if file.name.endswith((".requested", ".inflight"))
    ]
    assert len(planned) == 2
    for file in planned:
        shutil.copy(file, before / folder / file.name)
    shutil.rmtree(path)
    before.rename(path)
    return name


def stop_after(path: Path, action: Action, act: Callable[[OpenTable], object]) -> None:
    """Let a process of lakemark die right after it has created the inflight instant of an action.

    Its lock expires at once.
    """
    table, clock, begun = opened(path), SharedClock(), list[str]()

    def die(method: str, written: str) -> None:
        if begun:
            raise SimulatedCrash
        if written.endswith(f".{action}.inflight"):
            begun.append(written)

    dying = WatchedStorage(table.storage, die)
    with pytest.raises(SimulatedCrash):
        act(OpenTable(dying, table.properties, lock=open_lock(dying, clock=clock)))
    open_lock(table.storage, clock=clock).acquire(LOCK_WAIT_S).release()


@each_kind
@pytest.mark.parametrize("operation", ["upsert", "insert_overwrite"])
def test_lakemark_rolls_back_the_commit_of_a_dead_process_of_apache(
    oracle: Oracle,
    tmp_path: Path,
    version: int,
    table_type: TableKind,
    operation: Literal["upsert", "insert_overwrite"],
) -> None:
    path, apache = tmp_path / "orders", twin(version, table_type)
    oracle.write(path, rows(1, 1, 2, 3, 4), apache)
    before = agreed(oracle, path)
    with pytest.raises(OracleError, match="alidat"):
        oracle.write(path, rows(2, 1, 5), apache, operation, _FAILING)
    (pending,) = opened(path).timeline.pending()
    assert agreed(oracle, path) == before
    age_heartbeats(path, living=())
    with heartbeats_decide(path):
        table = lakemark.open(path, buckets=2)
        table.upsert(rows(3, 2, 6))
    assert table.timeline.find(pending.requested_at) is None
    assert completed(path, Action.ROLLBACK)
    agreed(oracle, path)
    oracle.write(path, rows(4, 3), apache)
    agreed(oracle, path)


@pytest.mark.parametrize("version", [9, 6])
def test_apache_rolls_back_the_overwrite_of_a_dead_process_of_lakemark(
    oracle: Oracle, tmp_path: Path, version: int
) -> None:
    path, apache = tmp_path / "orders", twin(version)
    oracle.write(path, rows(1, 1, 2, 3, 4), apache)
    lakemark.open(path, buckets=2).upsert(rows(2, 2))
    before = agreed(oracle, path)
    stop_after(
        path,
        Action.REPLACE_COMMIT,
        lambda table: lakemark.Table(table, 2).insert_overwrite(rows(3, 1, 5)),
    )
    assert agreed(oracle, path) == before
    oracle.write(path, rows(4, 3, 6), apache)
    assert not opened(path).timeline.pending()
    assert completed(path, Action.ROLLBACK)
    assert agreed(oracle, path).num_rows == before.num_rows + 1


@each_kind
def test_lakemark_finishes_a_rollback_that_apache_planned(
    oracle: Oracle, tmp_path: Path, version: int, table_type: TableKind
) -> None:
    path, apache = tmp_path / "orders", twin(version, table_type)
    oracle.write(path, rows(1, 1, 2, 3, 4), apache)
    before = agreed(oracle, path)
    undone = oracle.write(path, rows(2, 1, 5), apache).requested_at
    options = apache.write_options()
    name = leave_plan(path, Action.ROLLBACK, lambda: oracle.rollback(path, undone, options))
    table = lakemark.open(path, buckets=2)
    table.rollback(undone)
    assert [i.requested_at for i in completed(path, Action.ROLLBACK)] == [name]
    assert agreed(oracle, path) == before
    oracle.write(path, rows(3, 2), apache)
    agreed(oracle, path)


@each_kind
def test_each_finishes_a_restore_that_the_other_planned(
    oracle: Oracle, tmp_path: Path, version: int, table_type: TableKind
) -> None:
    path, apache = tmp_path / "orders", twin(version, table_type)
    kept = oracle.write(path, rows(1, 1, 2, 3, 4), apache).requested_at
    before = agreed(oracle, path)
    with oracle.named("orders", path), oracle.settings(apache.write_options()):
        oracle.query(f"CALL create_savepoint(table => 'orders', commit_time => '{kept}')")
    assert [*lakemark.open(path).savepoints] == [kept]

    def restore_by_apache() -> None:
        with oracle.settings(apache.write_options()):
            oracle.query(f"CALL rollback_to_savepoint(path => '{path}', instant_time => '{kept}')")

    lakemark.open(path, buckets=2).upsert(rows(2, 1, 5))
    oracle.write(path, rows(3, 2, 6), apache)
    name = leave_plan(path, Action.RESTORE, restore_by_apache)
    lakemark.open(path).restore()
    assert [i.requested_at for i in completed(path, Action.RESTORE)] == [name]
    assert agreed(oracle, path) == before

    lakemark.open(path, buckets=2).upsert(rows(4, 1, 7))
    oracle.write(path, rows(5, 2, 8), apache)
    stop_after(path, Action.RESTORE, lambda table: restore_table(table, kept))
    (pending,) = opened(path).timeline.pending(Action.RESTORE)
    restore_by_apache()
    assert completed(path, Action.RESTORE)[-1].requested_at == pending.requested_at
    assert agreed(oracle, path) == before
    lakemark.open(path, buckets=2).upsert(rows(6, 1, 9))
    oracle.write(path, rows(7, 2), apache)
    assert agreed(oracle, path).num_rows == before.num_rows + 1


@pytest.mark.parametrize("archiver", ["lakemark", "Apache Hudi"])
def test_every_action_is_read_from_the_history_of_either(
    oracle: Oracle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, archiver: str
) -> None:
    # Only instants before a compaction of the metadata table are archived.
    monkeypatch.setattr("lakemark.metadata.metadata_compaction.EVERY_DELTA_COMMITS", 2)
    path = tmp_path / "orders"
    apache = replace(twin(), extra={"hoodie.index.type": "RECORD_INDEX", **RECORD_INDEX})
    oracle.write(path, rows(1, 1, 2, 3, 4), apache)
    table = lakemark.open(path)
    table.upsert(rows(2, 1, 2))
    table.upsert(rows(3, 1, 3))
    table.compact_logs(min_logs=2)
    table.compact()
    table.create_index("bloom_filters")
    table.upsert(rows(4, 1))
    table.rollback(completed(path, *COMMITS)[-1].requested_at)
    kept = table.savepoint()
    table.upsert(rows(5, 1))
    table.restore(kept)
    table.delete_savepoint(kept)
    table.insert_overwrite(rows(6, 1, 3, 5))
    table.cluster("v")
    table.delete_partitions("r0")
    table.upsert(rows(7, 1, 2))
    table.clean(retain_commits=1)
    actions = {i.action for i in completed(path, *Action)}
    for ts in range(8, 14):
        table.upsert(rows(ts, 1))
        table.compact()
    before = agreed(oracle, path)
    names = {(i.requested_at, i.action.value) for i in completed(path, *Action)}
    if archiver == "lakemark":
        table.archive(min_commits=2, max_commits=3, retain_commits=1)
    else:
        with oracle.named("orders", path), oracle.settings(apache.write_options()):
            oracle.query(
                "CALL archive_commits(table => 'orders', min_commits => 3, max_commits => 4, "
                "retain_commits => 1, enable_metadata => true)"
            )
    moved = {*archived_names(opened(path).storage)}
    kept_active = _KEPT_BY_APACHE_HUDI if archiver == "Apache Hudi" else set()
    assert {Action(action) for _, action in moved} == actions - kept_active
    active = {(i.requested_at, i.action.value) for i in completed(path, *Action)}
    assert names <= moved | active
    assert not moved & active
    for instant in opened(path).store.load_archived().instants():
        if instant.action in COMMITS:
            assert opened(path).store.read_commit(instant).operation is not None
    assert agreed(oracle, path) == before
    with oracle.named("orders", path):
        listed = oracle.query(
            "CALL show_archived_commits(table => 'orders', limit => 1000, "
            "start_ts => '20000101000000000', end_ts => '29990101000000000')"
        )
    assert set(listed["commit_time"].to_pylist()) == {
        name for name, action in moved if Action(action) in COMMITS
    }
    table.refresh()
    table.upsert(rows(20, 1, 2))
    oracle.write(path, rows(21, 3), apache)
    agreed(oracle, path)
