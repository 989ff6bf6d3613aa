"""Cleans, restores, savepoints and rollbacks of several processes do not damage the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import pytest

from lakemark.config.table_properties import PROPERTIES_PATH, TableProperties, TableType
from lakemark.errors import Fenced, HudiError, Refused
from lakemark.execution.runner import LocalRunner
from lakemark.log.log_block import rollback_block
from lakemark.model.action import COMMITS, Action, State
from lakemark.model.clean_plan import CleanPlan
from lakemark.model.clustering_plan import ClusteringGroup, ClusteringPlan, PlannedSlice
from lakemark.model.compaction_plan import CompactionOperation, CompactionPlan
from lakemark.model.file_names import LogFileName
from lakemark.model.file_slice import FileGroupId, FileSlice
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.model.restore_plan import EMPTY_TABLE, RestorePlan, UndoneInstant
from lakemark.model.rollback_plan import RollbackPlan
from lakemark.operations.archive import archive
from lakemark.operations.clean import clean
from lakemark.operations.metadata_table import (
    compact_metadata_table,
    drop_metadata_table,
    keep_metadata_table,
    maintain_metadata_table,
    metadata_differences,
)
from lakemark.operations.table_writer import TableWriter
from lakemark.services import archival, cleaning
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.services.plan_completion import complete_plan
from lakemark.services.restore import restore
from lakemark.services.savepoint import create_savepoint, delete_savepoint
from lakemark.storage.storage import NotFound
from lakemark.timeline.content import (
    encode_clean_metadata,
    encode_clustering_plan,
    encode_compaction_plan,
    encode_restore_metadata,
    encode_restore_plan,
    encode_rollback_metadata,
    encode_rollback_plan,
)
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.undone_instants import find_undone
from lakemark.transaction.carried_metadata import CHECKPOINT_KEY
from lakemark.transaction.heartbeat import HEARTBEAT_FOLDER
from lakemark.transaction.instant_files import awaited_logs, has_rollback_block
from lakemark.transaction.rollback import plan_rollback, roll_back_named
from lakemark.transaction.transaction import Transaction
from lakemark.upgrade.change import change_version
from lakemark.view.file_system_view import FileSystemView
from tests.protocol.actors import (
    A_HEARTBEAT_AND_MORE_S,
    A_LEASE_AND_MORE_S,
    ARCHIVAL,
    CLEANING,
    METADATA,
    slices_as_of,
)
from tests.protocol.virtual_time import VirtualTime, on_virtual_time
from tests.storages import SimulatedCrash
from tests.storages.interrupted_storage import InterruptedStorage
from tests.tables import Row, commit, data_files, write_files
from tests.unit.transaction.shared_table import Table, inflight, next_time, prepare
from tests.unit.transaction.timelines import TimelineInMaking, replacing, written


@pytest.fixture
def clock() -> Iterator[VirtualTime]:
    with on_virtual_time() as virtual:
        yield virtual


def with_commits(
    clock: VirtualTime,
    count: int = 3,
    table_type: TableType = TableType.COPY_ON_WRITE,
    version: FormatVersion = FormatVersion.V9,
) -> Table:
    table = Table(clock, table_type, version)
    for value in range(2, 2 + count):
        commit(table.open(), [Row("a", value, value)])
    return table


def commits(table: Table) -> list[Instant]:
    return list(table.open().table.timeline.completed(*COMMITS))


def plan_clean(table: Table) -> tuple[Instant, CleanPlan]:
    to = table.open()

    def view_at(timeline: Timeline) -> FileSystemView:
        to.table.refresh(timeline)
        return to.table.view()

    requested = cleaning.request(to.table.context, view_at, CLEANING)
    assert requested is not None
    return requested


def keep(of: TableWriter, name: str) -> object:
    return create_savepoint(of.table.context, name, slices_as_of(of), "ann", "")


def restore_to(of: TableWriter, name: str) -> object:
    return restore(of.table.context, name, of.table.properties.is_merge_on_read)


def undo(of: TableWriter, name: str) -> object:
    return roll_back_named(of.table.context, name)


def has_metadata_table(table: Table) -> bool:
    properties = TableProperties.parse(table.storage.read(PROPERTIES_PATH))
    return bool(properties.metadata_partitions)


# Cleans


def test_a_clean_that_was_planned_before_an_archived_restore_deletes_nothing(
    clock: VirtualTime,
) -> None:
    """A paused writer creates its plan after the restore was archived."""
    table = with_commits(clock, 5)
    late, planned = plan_clean(table)
    content = table.storage.read(table.open().table.store.path_of(late))
    table.open().table.store.forget(late)
    restore_to(table.open(), commits(table)[-3].requested_at)
    assert set(data_files(table.storage)) & set(planned.paths), "the plan names files of the table"
    for key in "bcdef":
        commit(table.open(), [Row(key, 9, 9)])
    assert archive(table.open().table, ARCHIVAL, None)
    assert not table.open().table.timeline.completed(Action.RESTORE)
    table.open().table.store.create(late, content)
    assert cleaning.claim(table.open().table.context, late) is None
    assert late not in table.pending()


def test_a_clean_that_another_writer_executes_is_left_to_it(clock: VirtualTime) -> None:
    table = with_commits(clock)
    pending, _ = plan_clean(table)
    table.storage.put(f"{HEARTBEAT_FOLDER}/{pending.requested_at}", b"")
    before = data_files(table.storage)
    assert clean(table.open().table, CLEANING) == []
    assert data_files(table.storage) == before
    table.storage.delete([f"{HEARTBEAT_FOLDER}/{pending.requested_at}"])
    assert len(clean(table.open().table, CLEANING)) == 1


def test_a_clean_whose_plan_was_removed_meanwhile_is_not_published(clock: VirtualTime) -> None:
    table = with_commits(clock)
    pending, planned = plan_clean(table)
    meeting = InterruptedStorage(table.storage, lambda: table.open().table.store.forget(pending))
    meeting.is_before = lambda _, method, path: ".locks/" in path
    with pytest.raises(Fenced, match="its plan was removed"):
        cleaning.execute(table.open(meeting).table.context, pending, planned)
    assert not table.open().table.timeline.completed(Action.CLEAN)


def test_a_clean_that_two_processes_execute_is_completed_once(clock: VirtualTime) -> None:
    table = with_commits(clock)
    pending, planned = plan_clean(table)
    done: list[Instant] = []

    def finish() -> None:
        context = table.open().table.context
        done.append(cleaning.execute(context, pending.inflight(), planned)[0])

    meeting = InterruptedStorage(table.storage, finish)
    meeting.is_before = lambda _, method, path: ".locks/" in path
    ours, _ = cleaning.execute(table.open(meeting).table.context, pending, planned)
    assert [ours] == done
    names = [info.name for info in table.storage.list_folder(".hoodie/timeline")[1]]
    assert sum(name.endswith(".clean") for name in names) == 1


def clean_until(table: Table, method: str, suffix: str) -> None:
    """Run a clean whose process dies before this request, and then roll back an older commit."""
    abandoned = table.open()
    write_files(abandoned, [Row("b", 9, 9, region="south")])
    dying = InterruptedStorage(table.storage, die)
    dying.is_before = lambda _, asked, path: asked == method and path.endswith(suffix)
    with pytest.raises(SimulatedCrash):
        clean(table.open(dying).table, CLEANING)
    assert table.open().table.timeline.pending(Action.CLEAN)
    table.wait_until_dead()
    assert table.open().recover()


def die() -> None:
    raise SimulatedCrash


def test_a_clean_that_is_removed_leaves_no_heartbeat(clock: VirtualTime) -> None:
    table = with_commits(clock)
    clean_until(table, "create", ".clean.inflight")
    removed = table.pending()[0].requested_at
    # The process died before it could remove its heartbeat.
    table.storage.put(f"{HEARTBEAT_FOLDER}/{removed}", b"")
    table.wait_until_dead()
    clean(table.open().table, CLEANING)
    assert removed not in {i.requested_at for i in table.open().table.timeline.instants}
    assert table.beats() == []


def test_a_clean_that_the_metadata_table_records_is_completed_after_a_rollback(
    clock: VirtualTime,
) -> None:
    table = with_commits(clock)
    assert keep_metadata_table(table.open().table)
    clean_until(table, "publish", ".clean")
    (pending,) = table.pending()
    clean(table.open().table, CLEANING)
    after = table.open().table
    assert pending.requested_at in {i.requested_at for i in after.timeline.completed(Action.CLEAN)}
    assert metadata_differences(after) == []
    assert table.rows() == {"a": 4}


# What is refused beside a clean, and after one


@pytest.mark.parametrize("act", [keep, undo, restore_to])
def test_what_a_pending_clean_may_be_deleting_is_neither_kept_nor_brought_back(
    clock: VirtualTime, act: Callable[[TableWriter, str], object]
) -> None:
    table = with_commits(clock)
    name = commits(table)[-2 if act is restore_to else -1].requested_at
    pending, _ = plan_clean(table)
    with pytest.raises(Refused, match=str(pending.requested_at)):
        act(table.open(), name)
    assert table.rows() == {"a": 4}
    assert clean(table.open().table, CLEANING)


def test_a_commit_whose_replaced_files_were_cleaned_is_not_undone(clock: VirtualTime) -> None:
    table = with_commits(clock)
    assert clean(table.open().table, CLEANING)
    with pytest.raises(Refused, match="which it replaced, was cleaned"):
        undo(table.open(), commits(table)[-1].requested_at)
    assert table.rows() == {"a": 4}


def test_a_state_whose_files_were_cleaned_is_not_kept(clock: VirtualTime) -> None:
    table = with_commits(clock)
    name = commits(table)[0].requested_at
    assert clean(table.open().table, CLEANING)
    with pytest.raises(Refused, match="may be gone"):
        keep(table.open(), name)


def test_nothing_is_kept_while_a_restore_is_pending(clock: VirtualTime) -> None:
    table = with_commits(clock)
    to = table.open()
    to.table.store.create(Instant(next_time(to), Action.RESTORE, State.REQUESTED))
    with pytest.raises(Refused, match="complete it first"):
        keep(table.open(), commits(table)[-1].requested_at)


# Savepoints


@pytest.mark.parametrize("state", [State.REQUESTED, State.INFLIGHT])
def test_a_rollback_that_a_savepoint_refused_is_not_executed_later(
    clock: VirtualTime, state: State
) -> None:
    """Apache Hudi requests a rollback before it finds that the commit has a savepoint."""
    table = with_commits(clock)
    *_, newest = commits(table)
    context = table.open().table.context
    content = encode_rollback_plan(plan_rollback(context, newest.requested_at))
    keep(table.open(), newest.requested_at)
    at = context.generate_time(context.timeline.load().newest_time)
    refused = Instant(at, Action.ROLLBACK, State.REQUESTED)
    context.timeline.create(refused, content)
    if state is State.INFLIGHT:
        context.timeline.create(refused.inflight())
    before = commits(table)
    delete_savepoint(context, newest.requested_at)
    clock.sleep(A_HEARTBEAT_AND_MORE_S)
    table.open().recover()
    assert (table.pending(), commits(table)) == ([], before)
    assert table.rows() == {"a": 4}


def test_a_rollback_that_has_undone_a_log_before_the_savepoint_is_executed(
    clock: VirtualTime,
) -> None:
    """In version 6, Apache Hudi keeps the log, and adds a block that undoes it.

    Without the rollback, the rows would stay undone although their commit counts as completed.
    """
    table, found = logs_of_version_6(clock)
    *_, newest = commits(table)
    context = table.open().table.context
    content = encode_rollback_plan(plan_rollback(context, newest.requested_at))
    keep(table.open(), newest.requested_at)
    begun = Instant(next_time(table.open()), Action.ROLLBACK, State.REQUESTED)
    context.timeline.create(begun, content)
    context.timeline.create(begun.inflight())
    undone = LogFileName.parse(found.logs[-1].path.rpartition("/")[2])
    assert undone is not None
    command = replace(undone, version=undone.version + 1)
    block = rollback_block(begun.requested_at, newest.requested_at)
    table.storage.create(found.logs[-1].path.replace(str(undone), str(command)), block)
    clock.sleep(A_HEARTBEAT_AND_MORE_S)
    with pytest.raises(Refused, match="delete that first"):
        table.open().recover()
    delete_savepoint(context, newest.requested_at)
    assert table.pending() == [begun.inflight()]
    table.open().recover()
    assert (table.pending(), newest in commits(table)) == ([], False)
    assert table.rows() == {"a": 2}


# Restores


def test_a_restore_leaves_nothing_of_what_came_after(clock: VirtualTime) -> None:
    table = with_commits(clock)
    assert keep_metadata_table(table.open().table)
    first, second, *later = commits(table)
    context = table.open().table.context
    content = encode_rollback_plan(plan_rollback(context, later[-1].requested_at))
    at = context.generate_time(context.timeline.load().newest_time)
    context.timeline.create(Instant(at, Action.ROLLBACK, State.REQUESTED), content)
    restore_to(table.open(), second.requested_at)
    assert commits(table) == [first, second]
    assert table.pending() == []
    assert not has_metadata_table(table)
    assert table.storage.list_tree(".hoodie/metadata") == []
    assert table.rows() == {"a": 2}


def test_commit_that_a_restore_undoes_can_no_longer_be_published(clock: VirtualTime) -> None:
    """The commit fails, although its writer checked the lock before the restore acquired it."""
    table = with_commits(clock)
    before = commits(table)
    late = table.open()
    written = write_files(late, [Row("b", 9, 9)])
    restoring = InterruptedStorage(table.storage, lambda: prepare(late, written))
    restoring.is_before = lambda _, method, path: path.endswith(".restore.requested")
    restore_to(table.open(restoring), before[1].requested_at)
    assert restoring.stopped_at
    with pytest.raises(NotFound):
        late.table.store.publish(inflight(late), next_time(late), lambda: None)
    assert commits(table) == before[:2]
    assert table.rows() == {"a": 2}


def test_a_restore_over_commits_that_were_archived_is_refused(clock: VirtualTime) -> None:
    table = with_commits(clock)
    _, second, third, _ = commits(table)
    keep(table.open(), second.requested_at)
    table.open().table.store.archive([third], lambda: None)  # as other archivers may
    with pytest.raises(Refused, match="was archived"):
        restore_to(table.open(), second.requested_at)
    assert table.rows() == {"a": 4}


def test_savepoint_of_version_6_is_restored_after_an_upgrade(clock: VirtualTime) -> None:
    """The restore needs no log that an earlier restore deleted.

    A savepoint of version 6 lists all logs of a slice, also such logs.
    """
    table = with_commits(clock, 3, TableType.MERGE_ON_READ, FormatVersion.V6)
    third = commits(table)[2].requested_at
    keep(table.open(), third)
    restore_to(table.open(), third)
    assert table.open().compact_if_due(CompactionPolicy(1), LocalRunner(1))
    change_version(table.open().table.context, FormatVersion.V8)
    commit(table.open(), [Row("a", 9, 9)])
    restore_to(table.open(), third)
    assert table.rows() == {"a": 3}


def test_an_archived_restore_shows_after_a_downgrade_which_instants_it_has_undone(
    clock: VirtualTime,
) -> None:
    """Its plan has no place in the archive of version 6, so it becomes active again."""
    table = with_commits(clock)
    kept, *undone = (i.requested_at for i in commits(table)[-3:])
    restore_to(table.open(), kept)
    for value in range(10, 15):
        commit(table.open(), [Row("a", value, value)])
    assert archive(table.open().table, ARCHIVAL, None)
    assert not table.open().table.timeline.completed(Action.RESTORE)
    for version in (FormatVersion.V6, FormatVersion.V9):
        change_version(table.open().table.context, version)
        store, timeline = table.open().table.store, table.open().table.timeline
        assert timeline.completed(Action.RESTORE), f"in version {version:d}"
        found = find_undone(store, [*undone, "20250101"], timeline, store.load_archived())
        assert found == set(undone)
    for value in (15, 16):
        commit(table.open(), [Row("a", value, value)])
    assert archive(table.open().table, ARCHIVAL, None)
    store, timeline = table.open().table.store, table.open().table.timeline
    assert not timeline.completed(Action.RESTORE)
    assert find_undone(store, undone, timeline, store.load_archived()) == set(undone)
    assert table.rows() == {"a": 16}


def test_archiver_keeps_all_while_another_process_drops_the_metadata_table(
    clock: VirtualTime,
) -> None:
    table = with_commits(clock)
    assert keep_metadata_table(table.open().table)
    for value in range(5, 12):
        commit(table.open(), [Row("a", value, value)])
    before = commits(table)
    meeting = InterruptedStorage(table.storage, lambda: drop_metadata_table(table.open().table))
    to = table.open(meeting)
    meeting.is_before = lambda _, method, path: path == ".hoodie/metadata/.hoodie/hoodie.properties"
    archive(to.table, ARCHIVAL, None)
    assert meeting.stopped_at is not None
    assert commits(table) == before
    archive(table.open().table, ARCHIVAL, None)
    assert len(commits(table)) < len(before)
    assert table.rows() == {"a": 11}


def test_metadata_table_that_another_process_drops_is_not_maintained(
    clock: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = with_commits(clock)
    assert keep_metadata_table(table.open().table)
    to = table.open()
    monkeypatch.setattr("lakemark.metadata.metadata_compaction.EVERY_DELTA_COMMITS", 2)
    for value in range(5, 12):
        commit(to, [Row("a", value, value)])
    drop_metadata_table(table.open().table)
    assert maintain_metadata_table(to.table, METADATA) is None
    commit(to, [Row("a", 12, 12)])
    assert table.rows() == {"a": 12}


def test_restore_to_a_commit_that_its_archiver_has_still_to_delete_is_refused(
    clock: VirtualTime,
) -> None:
    table = with_commits(clock)
    oldest, second, *_ = commits(table)

    archiver = InterruptedStorage(table.storage, die)
    to = table.open(archiver)
    archiver.is_before = lambda _, method, path: (
        method == "delete" and path.startswith(".hoodie/timeline/2")
    )
    with pytest.raises(SimulatedCrash):
        to.table.store.archive([oldest, second], lambda: None)
    with pytest.raises(Refused, match="restore to a later commit"):
        restore_to(table.open(), second.requested_at)
    assert table.rows() == {"a": 4}


def test_clean_that_died_before_it_completed_is_completed_after_an_older_dead_commit_was_undone(
    clock: VirtualTime,
) -> None:
    """The clean is completed, so that no commit can be undone whose older files it deleted."""
    table = Table(clock)
    dead = table.open()
    write_files(dead, [Row("b", 1, 1, region="south")])
    for value in range(2, 6):
        commit(table.open(), [Row("a", value, value)])
    requested, planned = plan_clean(table)
    assert planned.files

    cleaner = InterruptedStorage(table.storage, die)
    to = table.open(cleaner)
    cleaner.is_before = lambda _, method, path: method == "put" and ".aux/prepared" in path
    with pytest.raises(SimulatedCrash):
        clean(to.table, CLEANING)
    clock.sleep(A_HEARTBEAT_AND_MORE_S)
    other = table.open()
    assert other.recover() == [dead.pending_instant]
    clean(other.table, CLEANING)
    assert [i.requested_at for i in table.open().table.timeline.completed(Action.CLEAN)] == [
        requested.requested_at
    ]
    for name in [i.requested_at for i in reversed(commits(table))][:-1]:
        with suppress(Refused):
            undo(table.open(), name)
    assert table.rows()["a"] >= 3


def test_commit_whose_replaced_files_an_archived_clean_deleted_is_not_rolled_back(
    clock: VirtualTime,
) -> None:
    table = with_commits(clock)
    clean(table.open().table, CLEANING)
    for completed in table.open().table.timeline.completed(Action.CLEAN):
        table.open().table.store.archive([completed], lambda: None)
    assert not table.open().table.timeline.completed(Action.CLEAN)
    with pytest.raises(Refused, match="was cleaned"):
        for name in [i.requested_at for i in reversed(commits(table))]:
            undo(table.open(), name)
    assert table.rows()["a"] >= 2


# Histories


def test_a_rollback_of_an_attempt_does_not_take_a_commit_of_the_history_back() -> None:
    at = TimelineInMaking()
    done = at.commit(Action.COMMIT, written(("north", "1")))
    kept = at.commit(Action.COMMIT, written(("north", "1")))
    undone = at.begin(Action.COMMIT)
    for name in (done.requested_at, undone.requested_at):
        rollback = at.begin(Action.ROLLBACK)
        plan = RollbackPlan(name, Action.COMMIT, {})
        at.publish(rollback, encode_rollback_metadata(plan, rollback.requested_at, 1))
    at.store.forget(undone)
    at.store.archive([done], lambda: None)
    names = [done.requested_at, undone.requested_at]
    archived = at.store.load_archived()
    assert find_undone(at.store, names, at.load(), archived) == {undone.requested_at}
    assert at.load().find(kept.requested_at) == kept


@pytest.mark.parametrize("reaches_back", [True, False])
def test_rollback_of_a_compaction_shows_nothing_if_the_archive_was_shortened(
    reaches_back: bool,
) -> None:
    """The compaction may have been executed again, and its archived instant may be lost."""
    at = TimelineInMaking()
    before = [at.commit(Action.DELTA_COMMIT, written(("north", "1")))] if reaches_back else []
    undone = at.begin(Action.COMPACTION)
    after = at.commit(Action.DELTA_COMMIT, written(("north", "1")))
    at.commit(Action.DELTA_COMMIT, written(("north", "1")))
    rollback = at.begin(Action.ROLLBACK)
    plan = RollbackPlan(undone.requested_at, Action.COMPACTION, {})
    at.publish(rollback, encode_rollback_metadata(plan, rollback.requested_at, 1))
    at.store.forget(undone)
    at.store.archive([*before, after], lambda: None)
    found = find_undone(at.store, [undone.requested_at], at.load(), at.store.load_archived())
    assert found == ({undone.requested_at} if reaches_back else set())


@pytest.mark.parametrize("is_archived", [True, False])
@pytest.mark.parametrize("is_ours", [True, False])
def test_only_a_restore_that_deleted_archived_files_has_undone_archived_instants(
    is_ours: bool, is_archived: bool
) -> None:
    """Apache Hudi's restore to the same time keeps these files, and queries read them."""
    at = TimelineInMaking()
    name = at.next_time()
    requested = at.request(Action.RESTORE, encode_restore_plan(RestorePlan(EMPTY_TABLE, ())))
    content = encode_restore_metadata(requested.requested_at, 1, [], deletes_archived=is_ours)
    completed = at.publish(at.begin(Action.RESTORE, requested), content)
    if is_archived:
        at.store.archive([completed], lambda: None)
    found = find_undone(at.store, [name], at.load(), at.store.load_archived())
    assert found == ({name} if is_ours else set())


def test_an_archived_restore_shows_which_instants_it_has_undone() -> None:
    at = TimelineInMaking()
    kept, undone, unknown = at.next_time(), at.next_time(), at.next_time()
    plan = RestorePlan(kept, (UndoneInstant(undone, Action.DELTA_COMMIT),))
    requested = at.request(Action.RESTORE, encode_restore_plan(plan))
    content = encode_restore_metadata(requested.requested_at, 1, [], deletes_archived=False)
    completed = at.publish(at.begin(Action.RESTORE, requested), content)
    at.store.archive([completed], lambda: None)
    archived = at.store.load_archived()
    assert find_undone(at.store, [undone, unknown], at.load(), archived) == {undone}


def logs_of_version_6(clock: VirtualTime) -> tuple[Table, FileSlice]:
    """Return a table whose file slice has a log of each of two commits."""
    table = with_commits(clock, 2, TableType.MERGE_ON_READ, FormatVersion.V6)
    (found,) = table.open().table.view().latest_slices()
    assert len(found.logs) >= 2
    return table, found


def test_a_log_that_was_deleted_after_the_listing_is_not_compacted(clock: VirtualTime) -> None:
    """A rollback of another process deletes the logs of its commit, which no plan names."""
    table, found = logs_of_version_6(clock)
    operation = replace(CompactionOperation.of(found), log_files=(), log_bytes=0)
    plan, view = CompactionPlan((operation,)), table.open().table.view()
    *kept, deleted = (log.path for log in found.logs)
    table.storage.delete([deleted])
    (completed,) = complete_plan(plan, next_time(table.open()), view, table.storage).operations
    assert [f"{operation.group.partition_path}/{name}" for name in completed.log_files] == kept


def test_a_log_that_was_deleted_after_the_listing_undoes_nothing(clock: VirtualTime) -> None:
    table, found = logs_of_version_6(clock)
    first, *_, last = (log.path for log in found.logs)
    cleaned = InterruptedStorage(table.storage, lambda: table.storage.delete([last]))
    cleaned.is_before = lambda _, method, path: path == last
    assert not has_rollback_block(table.open(cleaned).table.context, first, "20250101")
    assert cleaned.stopped_at


def test_a_dead_savepoint_is_deleted_also_if_its_commit_is_archived_already(
    clock: VirtualTime,
) -> None:
    """Apache Hudi archives commits with a pending savepoint."""
    table = with_commits(clock, 4)
    saved = commits(table)[0].requested_at
    assert archive(table.open().table, ARCHIVAL, None)
    store = table.open().table.store
    store.create(Instant(saved, Action.SAVEPOINT, State.INFLIGHT))
    for value in range(10, 13):
        commit(table.open(), [Row("a", value, value)])
    assert archive(table.open().table, ARCHIVAL, None)
    assert table.pending() == []


def test_logs_in_plans_of_all_table_services_are_awaited() -> None:
    at = TimelineInMaking(FormatVersion.V6)
    group = FileGroupId("north", "1")
    operation = CompactionOperation(
        group=group, base_instant=at.next_time(), data_file=None, log_files=("compacted",)
    )
    at.request(Action.LOG_COMPACTION, encode_compaction_plan(CompactionPlan((operation,))))
    planned = PlannedSlice(group=group, log_files=("clustered",))
    plan = ClusteringPlan(input_groups=(ClusteringGroup(slices=(planned,)),))
    at.request(Action.REPLACE_COMMIT, encode_clustering_plan(plan, "file:///t"))
    at.request(Action.REPLACE_COMMIT)  # an overwrite
    assert awaited_logs(at.store, at.load()) == {"north/compacted", "north/clustered"}


@pytest.mark.parametrize("is_cleaned", [True, False])
def test_a_replacement_stays_active_until_what_it_replaced_was_cleaned(is_cleaned: bool) -> None:
    at = TimelineInMaking()
    replacement = at.commit(Action.REPLACE_COMMIT, replacing(("north", "1")))
    others = [at.commit(Action.COMMIT, written(("north", "2"))) for _ in range(6)]
    retained = others[0] if is_cleaned else replacement
    begun = at.begin(Action.CLEAN)
    plan = CleanPlan(
        policy="KEEP_LATEST_COMMITS",
        files={},
        earliest_retained=retained.requested_at,
        earliest_action="commit",
    )
    at.publish(begun, encode_clean_metadata(plan, begun.requested_at, 1))
    chosen = archival.propose(at.store, at.load(), ArchivalPolicy(2, 4), None, lambda _: ())
    assert (replacement in chosen) == is_cleaned


# What else a change must say


def test_a_compaction_carries_the_checkpoint_on(clock: VirtualTime) -> None:
    table = Table(clock, TableType.MERGE_ON_READ)
    checkpoint = {CHECKPOINT_KEY: "orders,0:17"}
    commit(table.open(), [Row("a", 2, 2)], checkpoint)
    ((_, metadata),) = table.open().compact_if_due(CompactionPolicy(1), LocalRunner(1))
    assert checkpoint.items() <= metadata.extra_metadata.items()
    stored = table.open().table.store.read_commit(commits(table)[-1])
    assert stored.compacted
    assert checkpoint.items() <= stored.extra_metadata.items()


def test_a_compaction_that_another_writer_has_completed_is_not_rolled_back(
    clock: VirtualTime,
) -> None:
    table = Table(clock, TableType.MERGE_ON_READ)
    commit(table.open(), [Row("a", 2, 2)])
    other = table.open()
    meeting = InterruptedStorage(table.storage, lambda: other.table.refresh())
    meeting.is_before = lambda _, method, path: method == "publish" and path.endswith(".commit")
    ((done, _),) = table.open(meeting).compact_if_due(CompactionPolicy(1), LocalRunner(1))
    # The other writer saw the compaction while it was inflight.
    assert other.table.timeline.pending(Action.COMPACTION)
    assert other.compact_if_due(CompactionPolicy(10), LocalRunner(1)) == []
    assert done in table.open().table.timeline.completed(Action.COMMIT)
    assert not table.open().table.timeline.completed(Action.ROLLBACK)


def test_a_rollback_that_never_began_is_given_up_if_its_target_was_compacted_and_cleaned(
    clock: VirtualTime,
) -> None:
    table = Table(clock, TableType.MERGE_ON_READ)
    commit(table.open(), [Row("a", 2, 2)])
    dying = InterruptedStorage(table.storage, die)
    dying.is_before = lambda _, method, path: method == "put" and HEARTBEAT_FOLDER in path
    with pytest.raises(SimulatedCrash):
        undo(table.open(dying), commits(table)[-1].requested_at)
    assert table.open().table.timeline.pending(Action.ROLLBACK)
    table.wait_until_dead()
    table.open().compact_if_due(CompactionPolicy(1), LocalRunner(1))
    assert clean(table.open().table, CLEANING)
    table.open().recover()
    assert table.pending() == []
    assert table.rows() == {"a": 2}


def test_nothing_is_cleaned_or_kept_while_a_completed_commit_may_still_become_pending(
    clock: VirtualTime,
) -> None:
    """Old files stay while a late request may still bring back their rows."""
    table = Table(clock, TableType.COPY_ON_WRITE)
    for value in (1, 2):
        commit(table.open(), [Row("a", value, value)])
    newest = commits(table)[-1]
    late: list[str] = []

    def keep_request() -> None:
        late.append(f"{newest.requested_at}_{newest.completed_at}.commit")
        raise SimulatedCrash

    dying = InterruptedStorage(table.storage, keep_request)
    dying.is_before = lambda _, method, path: (
        method == "delete" and path.startswith(f".hoodie/timeline/{newest.requested_at}_")
    )
    with pytest.raises(SimulatedCrash):
        undo(table.open(dying), newest.requested_at)
    to = table.open().table
    assert cleaning.propose(to.store, to.timeline, to.view, CLEANING) is None
    assert not clean(to, CLEANING)
    with pytest.raises(Refused, match=r"is being rolled back by \d+\.rollback"):
        keep(table.open(), newest.requested_at)
    with pytest.raises(Refused, match=r"is being rolled back by \d+\.rollback"):
        restore_to(table.open(), newest.requested_at)
    table.storage.delete([f".hoodie/timeline/{name}" for name in late])
    table.wait_until_dead()
    table.open().recover()
    assert table.rows() == {"a": 1}
    commit(table.open(), [Row("a", 3, 3)])
    assert clean(table.open().table, CLEANING)
    assert table.rows() == {"a": 3}


@pytest.mark.parametrize("table_type", TableType)
@pytest.mark.parametrize("key", ["a", "b"])
def test_a_later_commit_is_kept_only_after_the_rollback_of_an_older_one_was_removed(
    clock: VirtualTime, table_type: TableType, key: str
) -> None:
    """A savepoint is refused while a commit of its state is being rolled back."""
    table = Table(clock, table_type)
    for value in (1, 2):
        commit(table.open(), [Row("a", value, value)])
    undone = commits(table)[-1].requested_at
    dying = InterruptedStorage(table.storage, die)
    dying.is_before = lambda _, method, path: (
        method == "delete" and path.startswith(f".hoodie/timeline/{undone}_")
    )
    with pytest.raises(SimulatedCrash):
        undo(table.open(dying), undone)
    commit(table.open(), [Row(key, 3, 3)])
    later = commits(table)[-1].requested_at
    for act in (keep, restore_to):
        with pytest.raises(Refused, match=f"rollback TABLE {undone} --run"):
            act(table.open(), later)
    with pytest.raises(Refused, match="is later; roll that back first"):
        undo(table.open(), undone)
    assert not table.open().table.timeline.pending(Action.ROLLBACK)
    assert keep(table.open(), later)
    assert table.rows() == {"a": 2, key: 3}


@pytest.mark.parametrize("table_type", TableType)
def test_a_commit_is_kept_that_others_replaced_and_cleaned_beside_its_dead_rollback(
    clock: VirtualTime, monkeypatch: pytest.MonkeyPatch, table_type: TableType
) -> None:
    """The replaced commit stays if its rollback died, and its files were cleaned since.

    Unlike lakemark, Apache Hudi may clean while a completed commit is being rolled back.
    """
    table = with_commits(clock, 2, table_type)
    newest = commits(table)[-1]
    dying = InterruptedStorage(table.storage, die)
    dying.is_before = lambda _, method, path: (
        method == "delete" and path.startswith(f".hoodie/timeline/{newest.requested_at}_")
    )
    with pytest.raises(SimulatedCrash):
        undo(table.open(dying), newest.requested_at)
    for value in (8, 9):
        commit(table.open(), [Row("a", value, value)])
        table.open().compact_if_due(CompactionPolicy(1), LocalRunner(1))
    monkeypatch.setattr("lakemark.services.cleaning.rollbacks_of_completed_commits", lambda *_: {})
    clean(table.open().table, CLEANING)
    assert not any(newest.requested_at in path for path in data_files(table.storage))
    table.wait_until_dead()
    table.open().recover()
    assert table.pending() == []
    assert newest in commits(table)
    assert table.rows() == {"a": 9}


def test_a_table_of_another_version_has_no_metadata_table_of_the_old_one(
    clock: VirtualTime,
) -> None:
    table = with_commits(clock)
    assert keep_metadata_table(table.open().table)
    change_version(table.open().table.context, FormatVersion.V8)
    assert not has_metadata_table(table)
    assert table.storage.list_tree(".hoodie/metadata") == []
    assert table.rows() == {"a": 4}


def test_the_metadata_table_is_not_compacted_while_a_commit_that_it_has_is_pending(
    clock: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = with_commits(clock)
    assert keep_metadata_table(table.open().table)
    monkeypatch.setattr("lakemark.metadata.metadata_compaction.EVERY_DELTA_COMMITS", 2)

    class Stopped(HudiError):
        pass

    def stop() -> None:
        raise Stopped

    stopping = InterruptedStorage(table.storage, stop)
    stopping.is_before = lambda _, method, path: (
        method == "publish" and path.startswith(".hoodie/timeline/")
    )
    with pytest.raises(Stopped):
        commit(table.open(stopping), [Row("w", 9, 9, region="west")])

    def compactions() -> int:
        names = table.storage.list_folder(".hoodie/metadata/.hoodie/timeline")[1]
        return sum(info.name.endswith(".commit") for info in names)

    before = compactions()
    for value in range(3):
        commit(table.open(), [Row("a", 10 + value, 10 + value)])
    assert compactions() == before


@pytest.mark.parametrize("version", [FormatVersion.V6, FormatVersion.V9])
def test_a_writer_does_not_repeat_a_compaction_of_the_metadata_table_by_another_process(
    clock: VirtualTime, monkeypatch: pytest.MonkeyPatch, version: FormatVersion
) -> None:
    table = with_commits(clock, 1, TableType.MERGE_ON_READ, version)
    assert keep_metadata_table(table.open().table)
    to = table.open()
    for value in (3, 4):
        commit(to, [Row("a", value, value)])
    monkeypatch.setattr("lakemark.metadata.metadata_compaction.EVERY_DELTA_COMMITS", 2)
    compact_metadata_table(table.open().table)
    commit(to, [Row("a", 5, 5)])
    listed = table.storage.list_tree(".hoodie/metadata/.hoodie")
    assert sum(info.name.endswith(".commit") for info in listed) == 1
    assert metadata_differences(table.open().table) == []
    assert table.rows() == {"a": 5}


def test_metadata_table_that_was_compacted_with_a_commit_is_dropped_if_that_is_rolled_back(
    clock: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metadata table is dropped, because its base files list the files of the commit.

    A rollback cannot remove them there. Once the active timeline begins after the commit, they
    would count as valid.
    """
    table = with_commits(clock, 1)
    assert keep_metadata_table(table.open().table)
    monkeypatch.setattr("lakemark.metadata.metadata_compaction.EVERY_DELTA_COMMITS", 2)
    for value in (3, 4):
        commit(table.open(), [Row("a", value, value)])
    compact_metadata_table(table.open().table)
    undo(table.open(), commits(table)[-1].requested_at)
    assert not has_metadata_table(table)
    assert table.rows() == {"a": 3}
    assert keep_metadata_table(table.open().table) == "there is none"
    assert metadata_differences(table.open().table) == []


def test_compaction_plan_that_is_removed_leaves_no_heartbeat(clock: VirtualTime) -> None:
    table = with_commits(clock, 2, TableType.MERGE_ON_READ)
    executor = table.open()
    ((planned, _),) = executor.compactions_to_do(CompactionPolicy(1))
    Transaction.resume(executor.table.context, planned)
    clock.sleep(A_HEARTBEAT_AND_MORE_S)
    commit(table.open(), [Row("a", 9, 9)])
    restore_to(table.open(), commits(table)[-1].requested_at)
    assert [i.requested_at for i in table.pending()] == [planned.requested_at]
    table.open().compact_if_due(CompactionPolicy(99), LocalRunner(1))
    assert table.pending() == []
    assert table.beats() == []
    assert table.rows() == {"a": 9}


@pytest.mark.parametrize("version", [FormatVersion.V6, FormatVersion.V9])
def test_base_file_that_lands_after_its_compaction_of_the_metadata_table_was_removed_is_not_used(
    clock: VirtualTime, monkeypatch: pytest.MonkeyPatch, version: FormatVersion
) -> None:
    table = with_commits(clock, 1, TableType.COPY_ON_WRITE, version)
    assert keep_metadata_table(table.open().table)
    for value in (3, 4):
        commit(table.open(), [Row("a", value, value)])
    monkeypatch.setattr("lakemark.metadata.metadata_compaction.EVERY_DELTA_COMMITS", 2)

    def others_commit() -> None:
        clock.sleep(A_LEASE_AND_MORE_S)
        monkeypatch.setattr("lakemark.metadata.metadata_compaction.EVERY_DELTA_COMMITS", 99)
        commit(table.open(), [Row("a", 5, 5)])

    late = InterruptedStorage(table.storage, others_commit)
    to = table.open(late)
    late.is_before = lambda _, method, path: method == "create" and path.endswith(".hfile")
    with pytest.raises(HudiError):
        compact_metadata_table(to.table)
    assert late.stopped_at is not None
    commit(table.open(), [Row("a", 6, 6)])
    assert metadata_differences(table.open().table) == []
    assert table.rows() == {"a": 6}
    monkeypatch.setattr("lakemark.metadata.metadata_compaction.EVERY_DELTA_COMMITS", 2)
    compact_metadata_table(table.open().table)
    assert metadata_differences(table.open().table) == []
    assert table.rows() == {"a": 6}
