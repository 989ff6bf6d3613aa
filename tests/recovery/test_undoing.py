"""What a rollback of a completed commit, a savepoint and a restore undo, keep and refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import pytest

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.edit import write_checkpoint
from checkpoints.lookup import find_progress
from lakemark.config.table_properties import TableType
from lakemark.errors import Fenced, InvalidConfig, Refused
from lakemark.execution.runner import LocalRunner
from lakemark.model.action import Action, State
from lakemark.model.file_slice import FileSlice
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.model.restore_plan import EMPTY_TABLE
from lakemark.operations import restore as operations
from lakemark.operations.compact import request_compaction
from lakemark.operations.table_writer import TableWriter
from lakemark.services.archival import archive
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.services.restore import plan_restore, restore
from lakemark.services.savepoint import create_savepoint, delete_savepoint, savepoints
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.rollback import plan_rollback, roll_back_named
from lakemark.transaction.streamer_progress import DEFAULT_IDENTITY
from tests.clocks import SharedClock, on_clock
from tests.storages import FaultyStorage, SimulatedCrash
from tests.table_services import archived_names, copy_of, make_plain, new_storage
from tests.tables import Row, commit, contents, data_files, write_files, writer

COMMITS = (
    [Row("a", 1, 1), Row("b", 1, 1), Row("c", 1, 1, region="south")],
    [Row("a", 2, 2), Row("d", 2, 2), Row("e", 2, 2, region="west")],
    [Row("b", 3, 3), Row("f", 3, 3, region="east")],
)
#: The rows after each commit, by a model: the newest of each key.
STATES = [
    {row.id: (row.ts, row.v) for rows in COMMITS[: count + 1] for row in rows}
    for count in range(len(COMMITS))
]
CLOCK = SharedClock()


def started(storage: Storage) -> TableWriter:
    to = on_clock(writer(storage), CLOCK)
    to.settings = replace(to.settings, metadata_table=False)
    return to


def compact(storage: Storage) -> Instant:
    policy = CompactionPolicy(after_commits=1)
    ((instant, _),) = started(storage).compact_if_due(policy, LocalRunner(1))
    return instant


def table_of(table_type: TableType, compacts_before: int | None = None) -> Storage:
    """A table of three commits, without a metadata table; the rows are those of ``STATES``."""
    return copy_of(_written(table_type, compacts_before))


@cache
def _written(table_type: TableType, compacts_before: int | None) -> Storage:
    storage = new_storage()
    make_plain(storage, table_type)
    for number, rows in enumerate(COMMITS):
        if number == compacts_before:
            compact(storage)
        commit(started(storage), rows)
    return storage


def commits(storage: Storage) -> list[Instant]:
    kinds = (Action.DELTA_COMMIT, Action.COMMIT)
    table = started(storage).table
    found = table.timeline.completed(*kinds)
    return [i for i in found if not table.store.read_commit(i).compacted]


def slices_as_of(of: TableWriter) -> Callable[[Timeline, str], Iterable[FileSlice]]:
    def found(timeline: Timeline, instant: str) -> Iterable[FileSlice]:
        of.table.refresh(timeline)
        return of.table.view().as_of(instant).latest_slices()

    return found


def keep(of: TableWriter, instant: str) -> None:
    create_savepoint(of.table.context, instant, slices_as_of(of), "ann", "before the change")


def restore_to(of: TableWriter, instant: str | None) -> None:
    restore(of.table.context, instant, of.table.properties.is_merge_on_read)


def assert_nothing_left(storage: Storage) -> None:
    """Check that nothing is pending, and every data file belongs to a completed instant."""
    timeline = started(storage).table.timeline
    assert not timeline.pending()
    completed = {i.requested_at for i in timeline.completed() if i.action.is_write}
    strays = [p for p in data_files(storage) if not any(name in p for name in completed)]
    assert not strays


def test_rollback_of_an_inflight_compaction_keeps_its_plan() -> None:
    storage = table_of(TableType.MERGE_ON_READ)
    policy = CompactionPolicy(after_commits=1)
    counting = FaultyStorage(table_of(TableType.MERGE_ON_READ))
    started(counting).compact_if_due(policy, LocalRunner(1))
    with pytest.raises(SimulatedCrash):
        dying = FaultyStorage(storage, counting.writes - 6, "before")
        started(dying).compact_if_due(policy, LocalRunner(1))
    (pending,) = started(storage).table.timeline.pending(Action.COMPACTION)
    assert pending.state is State.INFLIGHT
    undone = roll_back_named(started(storage).table.context, pending.requested_at)
    assert undone.files
    assert not [path for path in data_files(storage) if pending.requested_at in path]
    (planned,) = started(storage).table.timeline.pending()
    assert (planned.requested_at, planned.state) == (pending.requested_at, State.REQUESTED)
    with pytest.raises(Refused, match="no file was written"):
        roll_back_named(started(storage).table.context, pending.requested_at)
    assert compact(storage).requested_at == pending.requested_at
    assert contents(storage) == STATES[2]


def test_savepoint_lists_the_files_that_a_query_as_of_it_reads() -> None:
    storage = table_of(TableType.MERGE_ON_READ)
    kept = commits(storage)[1].requested_at
    keep(started(storage), kept)
    table = started(storage).table
    ((name, savepoint),) = savepoints(table.timeline, table.store).items()
    assert name == kept
    seen = table.view().as_of(kept).latest_slices()
    bases = {str(one.base.name) for one in seen if one.base}
    assert {name for names in savepoint.files.values() for name in names} == bases | {
        str(log.name) for one in seen for log in one.logs
    }


@pytest.mark.parametrize("table_type", TableType)
def test_writer_is_fenced_if_the_table_is_restored_while_it_writes(
    table_type: TableType,
) -> None:
    storage = table_of(table_type)
    late = started(storage)
    written = write_files(late, [Row("z", 9, 9)])
    restore_to(started(storage), commits(storage)[0].requested_at)
    with pytest.raises(Fenced):
        late.commit(written, {})
    started(storage).recover()
    assert contents(storage) == STATES[0]
    assert_nothing_left(storage)


def test_restore_undoes_a_compaction_and_keeps_older_logs() -> None:
    storage = table_of(TableType.MERGE_ON_READ, compacts_before=2)
    second = commits(storage)[1]
    keep(started(storage), second.requested_at)
    plan = plan_restore(started(storage).table.timeline, second.requested_at, True)
    assert [one.action for one in plan.instants] == [Action.DELTA_COMMIT, Action.COMMIT]
    restore_to(started(storage), second.requested_at)
    assert contents(storage) == STATES[1]
    assert_nothing_left(storage)
    table = started(storage).table
    (restored,) = table.timeline.completed(Action.RESTORE)
    assert table.store.read_restore_plan(restored.requested_at) == plan


def archive_all_but_one(storage: Storage) -> None:
    policy = ArchivalPolicy(1, 2, delta_commits_to_compact=None)
    assert archive(started(storage).table.context, policy, None, lambda _: ())


@pytest.mark.parametrize("version", [FormatVersion.V6, FormatVersion.V9], ids=str)
def test_restore_to_the_empty_table_undoes_archived_commits_too(version: FormatVersion) -> None:
    storage = new_storage()
    make_plain(storage, version=version)
    for rows in COMMITS:
        commit(started(storage), rows)
        started(storage).compact_if_due(CompactionPolicy(after_commits=1), LocalRunner(1))
    write_checkpoint(started(storage).table, DEFAULT_IDENTITY, KafkaCheckpoint("t", {0: 3}))
    archive_all_but_one(storage)
    assert len(archived_names(storage)) > len(COMMITS)
    assert contents(storage) == STATES[2]
    write_files(started(storage), [Row("z", 9, 9)])  # its writer has died
    before, table = data_files(storage), started(storage).table

    undone = operations.restore_table(table, EMPTY_TABLE)
    deleted = [path for plan in undone for paths in plan.files.values() for path in paths]
    assert sorted(deleted) == [f"{storage.location.url}/{path}" for path in before]
    table = started(storage).table
    assert (contents(storage), data_files(storage), archived_names(storage)) == ({}, [], [])
    assert [i.action for i in table.timeline.instants] == [Action.RESTORE]
    assert find_progress(table, table.timeline) is None

    commit(started(storage), [Row("y", 7, 7)])
    assert contents(storage) == {"y": (7, 7)}
    assert len(commits(storage)) == 1
    assert find_progress(table, started(storage).table.timeline) is None


def test_restore_to_the_empty_table_is_refused_while_a_savepoint_exists() -> None:
    storage = table_of(TableType.MERGE_ON_READ)
    first = commits(storage)[0].requested_at
    keep(started(storage), first)
    with pytest.raises(Refused, match=f"savepoint {first} is later; delete it first"):
        restore_to(started(storage), EMPTY_TABLE)
    assert contents(storage) == STATES[2]


def test_late_file_of_an_archived_commit_that_a_restore_undid_is_not_read(tmp_path: Path) -> None:
    storage = open_storage(StorageLocation(str(tmp_path)))  # it can set modification times
    make_plain(storage, TableType.COPY_ON_WRITE)
    for rows in COMMITS:
        commit(started(storage), rows)
    archive_all_but_one(storage)
    late = data_files(storage)[0]
    content = storage.read(late)
    restore_to(started(storage), EMPTY_TABLE)
    storage.put(late, content)
    assert storage.set_modified_at(late, datetime.now(UTC) + timedelta(hours=1))
    commit(started(storage), [Row("y", 7, 7)])
    assert contents(storage) == {"y": (7, 7)}


def test_plan_of_another_restore_is_refused_while_one_is_pending() -> None:
    first, second, _ = commits(table_of(TableType.MERGE_ON_READ))
    counting = FaultyStorage(table_of(TableType.MERGE_ON_READ))
    restore_to(started(counting), first.requested_at)
    storage = table_of(TableType.MERGE_ON_READ)
    with pytest.raises(SimulatedCrash):
        dying = FaultyStorage(storage, counting.writes - 3, "before")
        restore_to(started(dying), first.requested_at)
    table = started(storage).table
    for asked in (None, first.requested_at):
        assert operations.plan_restore(table, asked).restore_to == first.requested_at
    with pytest.raises(InvalidConfig, match=f"restores to {first.requested_at} .* complete it"):
        operations.plan_restore(table, second.requested_at)
    restore_to(started(storage), None)
    assert contents(storage) == STATES[0]


def test_writer_is_fenced_if_its_base_was_rolled_back() -> None:
    storage = table_of(TableType.MERGE_ON_READ)
    newest = commits(storage)[-1].requested_at
    late = started(storage)
    written = write_files(late, [Row("z", 9, 9)])
    timeline = storage.list_folder(".hoodie/timeline")[1]
    own = [info.path for info in timeline if late.pending_instant in info.path]
    states = {path: storage.read(path) for path in own}
    storage.delete(own)  # the rollback checked for writers before this one began
    roll_back_named(started(storage).table.context, newest)
    for path, content in states.items():
        storage.create(path, content)
    with pytest.raises(Fenced, match="was rolled back"):
        late.commit(written, {})
    started(storage).recover()
    assert contents(storage) == STATES[1]


def test_rollback_or_restore_that_would_lose_rows_is_refused() -> None:
    storage = table_of(TableType.MERGE_ON_READ)
    first, second, third = (i.requested_at for i in commits(storage))
    context = started(storage).table.context
    for name, kind, message in (
        (second, Refused, "is later"),
        ("20200101000000000", InvalidConfig, "not on the active timeline"),
    ):
        for undo in (plan_rollback, roll_back_named):
            with pytest.raises(kind, match=message):
                undo(context, name)
    keep(started(storage), third)
    with pytest.raises(Refused, match=r"savepoint \d+ keeps it"):
        roll_back_named(context, third)
    with pytest.raises(Refused, match="is later; delete it first"):
        restore_to(started(storage), first)
    with pytest.raises(Refused, match="exists"):
        keep(started(storage), third)
    delete_savepoint(context, third)
    with pytest.raises(InvalidConfig, match="no savepoint"):
        delete_savepoint(context, third)
    with pytest.raises(InvalidConfig, match="not the requested time of a completed commit"):
        restore_to(started(storage), "20200101000000000")
    dead = started(storage)
    write_files(dead, [Row("z", 9, 9)])
    with pytest.raises(Refused, match="is being written"):
        roll_back_named(context, third)
    assert contents(storage) == STATES[2]


def test_commit_that_a_compaction_plan_includes_cannot_be_rolled_back() -> None:
    storage = table_of(TableType.MERGE_ON_READ)
    third = commits(storage)[-1].requested_at
    to = started(storage)
    assert request_compaction(to.table) is not None
    with pytest.raises(Refused, match="was planned after it"):
        roll_back_named(to.table.context, third)
    compaction = compact(storage)
    roll_back_named(started(storage).table.context, compaction.requested_at)
    roll_back_named(started(storage).table.context, third)
    assert contents(storage) == STATES[1]
