"""Each rule of a rollback, next to a second writer that is alive and continues."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from lakemark.config.table_properties import TableType
from lakemark.errors import Fenced, HudiError, Refused, SnapshotChanged, WriteConflict
from lakemark.execution.runner import LocalRunner
from lakemark.model.action import COMMITS, Action, State
from lakemark.model.commit_metadata import CommitMetadata, WriteStat
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.operations.archive import archive
from lakemark.operations.compact import request_compaction
from lakemark.operations.metadata_table import keep_metadata_table, metadata_differences
from lakemark.operations.table_writer import TableWriter
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.services.restore import restore
from lakemark.storage import Storage
from lakemark.storage.storage import NotFound
from lakemark.timeline.content import encode_rollback_plan
from lakemark.timeline.locks.open_lock import open_lock
from lakemark.timeline.locks.table_lock import LeaseLost
from lakemark.transaction.heartbeat import HEARTBEAT_FOLDER, HeartbeatExpired, WriterAlive
from lakemark.transaction.instant_files import has_all_files
from lakemark.transaction.rollback import plan_rollback, recover, roll_back, roll_back_named
from lakemark.transaction.rollback_checks import replaced_since
from lakemark.transaction.table_context import TableContext
from lakemark.transaction.transaction import Transaction
from lakemark.write.file_group_write import write_file_group
from lakemark.write.markers import marked_files
from tests.protocol.actors import (
    A_HEARTBEAT_AND_MORE_S,
    A_LEASE_AND_MORE_S,
    ARCHIVAL,
    Mode,
    open_writer,
)
from tests.protocol.virtual_time import VirtualTime, on_virtual_time
from tests.storages import SimulatedCrash
from tests.storages.interrupted_storage import InterruptedStorage
from tests.table_services import archived_names
from tests.tables import Row, by_bucket, changes, commit, data_files, write_files
from tests.unit.transaction.shared_table import (
    Table,
    complete_as_apache,
    inflight,
    next_time,
    prepare,
)
from tests.unit.transaction.timelines import TimelineInMaking, replacing, written

V6, V9 = FormatVersion.V6, FormatVersion.V9
IN_METADATA = ".hoodie/metadata/.hoodie/timeline"


@pytest.fixture
def clock() -> Iterator[VirtualTime]:
    with on_virtual_time() as virtual:
        yield virtual


def die() -> None:
    raise SimulatedCrash


# Who is undone


@pytest.mark.parametrize("version", [V6, V9])
@pytest.mark.parametrize("table_type", TableType)
def test_the_commit_of_a_living_writer_is_left_and_that_of_a_dead_one_is_undone(
    clock: VirtualTime, table_type: TableType, version: FormatVersion
) -> None:
    table = Table(clock, table_type, version)
    living, dead = table.open(), table.open()
    ours = write_files(living, [Row("b", 2, 2)])
    theirs = write_files(dead, [Row("c", 2, 2, region="south")])
    table.wait_until_dead(living)
    assert recover(table.open().table.context) == [dead.pending_instant]
    assert not [path for path in data_files(table.storage) if path.startswith("south")]
    living.commit(ours, {})
    with pytest.raises(HeartbeatExpired):
        dead.commit(theirs, {})
    assert table.rows() == {"a": 1, "b": 2}
    assert table.beats() == []
    assert marked_files(table.storage, dead.pending_instant) == []


def test_an_instant_without_a_heartbeat_is_left_until_it_is_as_old_as_a_dead_writers(
    clock: VirtualTime,
) -> None:
    table = Table(clock)
    to = table.open()
    written = write_files(to, [Row("b", 2, 2)])
    table.storage.delete([f"{HEARTBEAT_FOLDER}/{to.pending_instant}"])
    assert recover(table.open().table.context) == []
    assert table.open().clear_dead() == []
    assert [i.requested_at for i in table.pending()] == [to.pending_instant]
    clock.sleep(A_HEARTBEAT_AND_MORE_S)
    other = table.open()
    assert other.clear_dead() == [to.pending_instant]
    with pytest.raises(HeartbeatExpired):
        to.commit(written, {})
    assert table.rows() == {"a": 1}


def test_a_writer_that_beats_again_before_the_lock_is_acquired_is_left(
    clock: VirtualTime,
) -> None:
    table = Table(clock)
    slow = table.open()
    written = write_files(slow, [Row("b", 2, 2)])
    clock.sleep(A_HEARTBEAT_AND_MORE_S)
    path = f"{HEARTBEAT_FOLDER}/{slow.pending_instant}"
    meeting = InterruptedStorage(table.storage, lambda: table.storage.put(path, b""))
    other = table.open(meeting)
    meeting.is_before = lambda _, method, path: ".locks/" in path
    assert recover(other.table.context) == []
    assert meeting.stopped_at
    complete_as_apache(slow, written)
    assert table.rows() == {"a": 1, "b": 2}


def test_an_instant_that_was_requested_after_the_first_look_is_left(clock: VirtualTime) -> None:
    """An instant is kept if its heartbeat was seen only once, which does not prove a death."""
    table = Table(clock)
    dead = table.open()
    write_files(dead, [Row("b", 2, 2)])
    clock.sleep(A_HEARTBEAT_AND_MORE_S)
    new = table.open()

    def begin_and_fall_silent() -> None:
        write_files(new, [Row("c", 2, 2)])
        clock.sleep(A_HEARTBEAT_AND_MORE_S)

    meeting = InterruptedStorage(table.storage, begin_and_fall_silent)
    other = open_writer(meeting, clock, lease_s=2 * A_HEARTBEAT_AND_MORE_S)
    meeting.is_before = lambda _, method, path: ".locks/" in path
    assert recover(other.table.context) == [dead.pending_instant]
    assert [i.requested_at for i in table.pending()] == [new.pending_instant]


def test_the_only_writer_of_a_table_refuses_to_undo_a_living_one(clock: VirtualTime) -> None:
    table = Table(clock)
    living = table.open()
    written = write_files(living, [Row("b", 2, 2)])
    with pytest.raises(WriterAlive):
        recover(table.open(mode=Mode.SINGLE).table.context)
    living.commit(written, {})
    assert table.rows() == {"a": 1, "b": 2}


@pytest.mark.parametrize("kind", ["compaction", "clean"])
def test_plans_of_others_are_left(clock: VirtualTime, kind: str) -> None:
    table = Table(clock)
    store = table.open().table.store
    name = store.clock.next_instant(store.load().newest_time)
    planned = Instant(name, Action(kind), State.REQUESTED)
    store.create(planned)
    clock.sleep(A_HEARTBEAT_AND_MORE_S)
    assert recover(table.open().table.context) == []
    assert table.pending() == [planned]


# What completes, or is about to, while it is undone


def by_recovery(table: Table, through: Storage, target: TableWriter) -> object:
    return recover(table.open(through).table.context)


def by_name(table: Table, through: Storage, target: TableWriter) -> object:
    return roll_back_named(table.open(through).table.context, target.pending_instant)


def by_itself(table: Table, through: Storage, target: TableWriter) -> object:
    return roll_back(table.open(through).table.context, inflight(target))


Undo = Callable[[Table, Storage, TableWriter], object]
each_way = pytest.mark.parametrize("undo", [by_recovery, by_name, by_itself])


@each_way
def test_once_a_rollback_is_requested_its_target_cannot_be_published(
    clock: VirtualTime, undo: Undo
) -> None:
    table = Table(clock)
    target = table.open()
    prepare(target, write_files(target, [Row("b", 2, 2)]))
    clock.sleep(A_HEARTBEAT_AND_MORE_S)
    outcomes: list[str] = []

    def publish() -> None:
        with pytest.raises(NotFound):
            target.table.store.publish(inflight(target), next_time(target), lambda: None)
        outcomes.append("not published")

    meeting = InterruptedStorage(table.storage, publish)
    meeting.is_before = lambda _, method, path: path.endswith(".rollback.requested")
    undo(table, meeting, target)
    assert outcomes == ["not published"]
    assert table.rows() == {"a": 1}
    assert not table.pending()
    assert not [p for p in data_files(table.storage) if target.pending_instant in p]


@pytest.mark.parametrize("undo", [by_recovery, by_itself])
def test_a_target_that_completed_before_it_was_withdrawn_is_not_undone(
    clock: VirtualTime, undo: Undo
) -> None:
    table = Table(clock)
    target = table.open()
    written = write_files(target, [Row("b", 2, 2)])
    clock.sleep(A_HEARTBEAT_AND_MORE_S)
    meeting = InterruptedStorage(table.storage, lambda: complete_as_apache(target, written))
    meeting.is_before = lambda _, method, path: path.startswith(".hoodie/.aux/prepared")
    assert not undo(table, meeting, target)
    assert meeting.stopped_at
    assert table.rows() == {"a": 1, "b": 2}
    assert not table.pending()


def test_a_commit_that_completes_before_an_operator_undoes_it_is_undone_as_a_whole(
    clock: VirtualTime,
) -> None:
    table = Table(clock)
    target = table.open()
    written = write_files(target, [Row("b", 2, 2)])
    clock.sleep(A_HEARTBEAT_AND_MORE_S)
    meeting = InterruptedStorage(table.storage, lambda: complete_as_apache(target, written))
    meeting.is_before = lambda _, method, path: path.startswith(".hoodie/.aux/prepared")
    by_name(table, meeting, target)
    assert table.rows() == {"a": 1}
    assert not table.pending()


@each_way
def test_content_that_its_target_prepares_during_a_rollback_is_never_published(
    clock: VirtualTime, undo: Undo
) -> None:
    """Content that arrives late is never published, although its writer had checked the lock."""
    table = Table(clock)
    target = table.open()
    written = write_files(target, [Row("b", 2, 2)])
    clock.sleep(A_HEARTBEAT_AND_MORE_S)
    meeting = InterruptedStorage(table.storage, lambda: prepare(target, written))
    meeting.is_before = lambda _, method, path: (
        (method, path[:21]) == ("put", ".hoodie/.aux/prepared")
    )
    undo(table, meeting, target)
    assert meeting.stopped_at
    with pytest.raises(NotFound):
        target.table.store.publish(inflight(target), next_time(target), lambda: None)
    assert table.rows() == {"a": 1}


# Rollbacks of others


def leave_a_rollback(table: Table, target: TableWriter, *, is_begun: bool = True) -> Instant:
    """Leave a rollback whose writer is alive and has deleted nothing yet."""
    context = table.open().table.context
    content = encode_rollback_plan(plan_rollback(context, target.pending_instant))
    name = context.generate_time(context.timeline.load().newest_time)
    requested = Instant(name, Action.ROLLBACK, State.REQUESTED)
    context.timeline.create(requested, content)
    if is_begun:
        context.timeline.create(requested.inflight())
    table.storage.put(f"{HEARTBEAT_FOLDER}/{name}", b"")
    return requested


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_rollback_that_another_is_at_work_on_is_left_to_it_with_its_target(
    clock: VirtualTime, is_begun: bool
) -> None:
    table = Table(clock)
    target = table.open()
    write_files(target, [Row("b", 2, 2)])
    clock.sleep(A_HEARTBEAT_AND_MORE_S)
    rollback = leave_a_rollback(table, target, is_begun=is_begun)
    assert recover(table.open().table.context) == []
    assert {i.requested_at for i in table.pending()} == {
        target.pending_instant,
        rollback.requested_at,
    }
    clock.sleep(A_HEARTBEAT_AND_MORE_S)
    assert recover(table.open().table.context) == [target.pending_instant]
    assert not table.pending()
    assert table.beats() == []


def test_a_pending_rollback_keeps_its_target_from_being_published(clock: VirtualTime) -> None:
    table = Table(clock)
    target, elsewhere = table.open(), table.open()
    written = write_files(target, [Row("b", 2, 2)])
    others = write_files(elsewhere, [Row("c", 2, 2, region="south")])
    table.storage.delete([f"{HEARTBEAT_FOLDER}/{target.pending_instant}"])
    rollback = leave_a_rollback(table, target)
    with pytest.raises(Fenced, match=f"rollback {rollback.requested_at} is about to remove it"):
        target.commit(written, {})
    elsewhere.commit(others, {})
    assert table.rows() == {"a": 1, "c": 2}


def test_the_rollback_of_a_named_instant_goes_on_with_the_one_that_is_pending(
    clock: VirtualTime,
) -> None:
    table = Table(clock)
    target = table.open()
    write_files(target, [Row("b", 2, 2)])
    clock.sleep(A_HEARTBEAT_AND_MORE_S)
    rollback = leave_a_rollback(table, target)
    by_name(table, table.storage, target)
    done = table.open().table.timeline.completed(Action.ROLLBACK)
    assert [one.requested_at for one in done] == [rollback.requested_at]
    assert not table.pending()


def test_a_completed_rollback_keeps_a_writer_that_went_on_from_publishing(
    clock: VirtualTime,
) -> None:
    table = Table(clock)
    target = table.open()
    written = write_files(target, [Row("b", 2, 2)])
    clock.sleep(A_HEARTBEAT_AND_MORE_S)
    recover(table.open().table.context)
    target.table.context.storage.put(f"{HEARTBEAT_FOLDER}/{target.pending_instant}", b"")
    assert target._transaction is not None
    assert target._transaction._heartbeat is not None
    target._transaction._heartbeat._beaten_at_s = clock.time()  # as a clock that was set back
    with pytest.raises(Fenced, match="another writer rolled it back"):
        target.commit(written, {})
    assert table.rows() == {"a": 1}


def request_rollback(context: TableContext, target: Instant) -> Instant:
    """Create a rollback of a completed commit, as a process that then dies."""
    name = context.generate_time(target.completed_at)
    pending = Instant(name, Action.ROLLBACK, State.REQUESTED)
    plan = plan_rollback(context, target.requested_at)
    context.timeline.create(pending, encode_rollback_plan(plan))
    return pending


def test_the_rollback_that_another_process_left_does_not_undo_what_others_have_built_on(
    clock: VirtualTime,
) -> None:
    table = Table(clock)
    newest = commit(table.open(), [Row("b", 2, 2)])
    context = table.open().table.context
    request_rollback(context, newest)
    commit(table.open(), [Row("b", 3, 3)])
    with pytest.raises(Refused, match="is later"):
        roll_back_named(context, newest.requested_at)
    clock.sleep(A_HEARTBEAT_AND_MORE_S)
    assert recover(context) == []
    assert table.rows() == {"a": 1, "b": 3}
    assert table.pending() == []


def test_rollback_of_a_commit_that_others_built_on_is_refused_although_files_of_it_are_lost(
    clock: VirtualTime,
) -> None:
    table = Table(clock)
    newest = commit(table.open(), [Row("b", 2, 2)])
    context = table.open().table.context
    context.timeline.create(request_rollback(context, newest).inflight())
    later = commit(table.open(), [Row("c", 3, 3)])
    context.storage.delete([p for p in data_files(context.storage) if newest.requested_at in p][:1])
    with pytest.raises(Refused, match="is later"):
        roll_back_named(context, newest.requested_at)
    assert {newest, later} <= set(table.open().table.timeline.completed())


# What stands in the way of a rollback


def test_a_commit_whose_writer_is_alive_is_not_undone_by_name(clock: VirtualTime) -> None:
    table = Table(clock)
    living = table.open()
    written = write_files(living, [Row("b", 2, 2)])
    for undo in (plan_rollback, roll_back_named):
        with pytest.raises(Refused, match="is being written: its writer's heartbeat is alive"):
            undo(table.open().table.context, living.pending_instant)
    living.commit(written, {})
    assert table.rows() == {"a": 1, "b": 2}


def test_the_commit_that_a_living_writer_goes_on_from_is_not_undone(clock: VirtualTime) -> None:
    table = Table(clock)
    newest = commit(table.open(), [Row("b", 2, 2)]).requested_at
    living = table.open()
    written = write_files(living, [Row("c", 3, 3)])
    with pytest.raises(Refused, match="is being written"):
        roll_back_named(table.open().table.context, newest)
    living.commit(written, {})
    assert table.rows() == {"a": 1, "b": 2, "c": 3}


def test_a_commit_over_which_a_writer_without_the_lock_has_begun_is_not_undone(
    clock: VirtualTime,
) -> None:
    table = Table(clock)
    newest = commit(table.open(), [Row("b", 2, 2)]).requested_at
    living = table.open(mode=Mode.SINGLE)
    write_files(living, [Row("c", 3, 3)])
    with pytest.raises(Refused, match="is being written"):
        roll_back_named(table.open().table.context, newest)
    assert table.rows() == {"a": 1, "b": 2}


def test_a_writer_does_not_publish_over_a_commit_that_was_undone_meanwhile(
    clock: VirtualTime,
) -> None:
    table = Table(clock)
    newest = commit(table.open(), [Row("b", 2, 2)]).requested_at
    living = table.open()
    written: list[WriteStat] = []

    def begin() -> None:  # as Apache Hudi does, without the lock
        living.table.context = open_writer(table.storage, clock, Mode.SINGLE).table.context
        written.extend(write_files(living, [Row("c", 3, 3)]))

    meeting = InterruptedStorage(table.storage, begin)
    meeting.is_before = lambda _, method, path: path.endswith(".rollback.requested")
    roll_back_named(table.open(meeting).table.context, newest)
    with pytest.raises(Fenced, match="on which it is based, was rolled back"):
        living.commit(written, {})
    assert table.rows() == {"a": 1}


def test_nothing_is_undone_or_published_while_a_restore_is_pending(clock: VirtualTime) -> None:
    table = Table(clock)
    dead, living = table.open(), table.open()
    write_files(dead, [Row("b", 2, 2)])
    written = write_files(living, [Row("c", 2, 2, region="south")])
    table.wait_until_dead(living)
    store = table.open().table.store
    restore = Instant(next_time(living), Action.RESTORE, State.REQUESTED)
    store.create(restore)
    context = table.open().table.context
    for refused in (
        lambda: recover(context),
        lambda: plan_rollback(context, dead.pending_instant),
        lambda: roll_back_named(context, dead.pending_instant),
    ):
        with pytest.raises(Refused, match="complete it first"):
            refused()
    with pytest.raises(Fenced, match="is under way"):
        living.commit(written, {})
    assert len(table.pending()) == 3


def test_recovery_refuses_a_pending_restore_though_there_is_nothing_to_undo(
    clock: VirtualTime,
) -> None:
    table = Table(clock)
    context = table.open().table.context
    name = context.generate_time(context.timeline.load().newest_time)
    context.timeline.create(Instant(name, Action.RESTORE, State.REQUESTED))
    with pytest.raises(Refused, match="complete it first"):
        recover(context)


def test_nothing_is_undone_if_a_restore_began_before_the_lock_was_acquired(
    clock: VirtualTime,
) -> None:
    table = Table(clock)
    dead = table.open()
    write_files(dead, [Row("b", 2, 2)])
    clock.sleep(A_HEARTBEAT_AND_MORE_S)
    restore = Instant(next_time(dead), Action.RESTORE, State.REQUESTED)
    meeting = InterruptedStorage(table.storage, lambda: dead.table.store.create(restore))
    meeting.is_before = lambda _, method, path: ".locks/" in path
    with pytest.raises(Refused, match="complete it first"):
        recover(table.open(meeting).table.context)
    assert len(table.pending()) == 2


# Our own


@pytest.mark.parametrize("mode", Mode)
def test_what_is_left_of_an_instant_that_another_undid_is_deleted_by_its_writer(
    clock: VirtualTime, mode: Mode
) -> None:
    table = Table(clock)
    replaced = table.open(mode=mode)
    (written,) = write_files(replaced, [Row("b", 2, 2)])
    clock.sleep(A_HEARTBEAT_AND_MORE_S)
    recover(table.open().table.context)
    late = written.path or ""
    table.storage.put(late, b"a late attempt")
    instant = inflight(replaced)
    if mode is Mode.MULTIPLE:
        assert roll_back(replaced.table.context, instant)
    else:
        with pytest.raises(Fenced, match="the newer writer continues"):
            roll_back(replaced.table.context, instant)
    assert late not in data_files(table.storage)
    assert marked_files(table.storage, instant.requested_at) == []


def test_heartbeat_of_a_completed_commit_is_deleted_although_its_savepoint_is_pending(
    clock: VirtualTime,
) -> None:
    table = Table(clock)
    to = table.open()
    complete_as_apache(to, write_files(to, [Row("b", 2, 2)]))
    savepoint = Instant(inflight(to).requested_at, Action.SAVEPOINT, State.INFLIGHT)
    table.storage.create(to.table.store.path_of(savepoint), b"")
    clock.sleep(A_HEARTBEAT_AND_MORE_S)
    assert table.beats() == [savepoint.requested_at]
    recover(table.open().table.context)
    assert table.beats() == []


@pytest.mark.parametrize("version", [V6, V9])
@pytest.mark.parametrize("table_type", TableType)
def test_inflight_file_that_appears_again_after_its_commit_was_archived_is_deleted(
    clock: VirtualTime, table_type: TableType, version: FormatVersion
) -> None:
    """An inflight file that a store creates a second time is deleted, and no row is lost."""
    table = Table(clock, table_type, version)
    for value in range(2, 9):
        commit(table.open(), [Row("a", value, value)])
    first, second, *_ = table.open().table.timeline.completed(*COMMITS)
    archive(table.open().table, ARCHIVAL, None)
    store = table.open().table.store
    for archived in (first, second):
        pending = Instant(archived.requested_at, archived.action, State.INFLIGHT)
        table.storage.put(store.path_of(pending), b"")
    assert table.rows() == {"a": 8}
    clock.sleep(A_HEARTBEAT_AND_MORE_S)
    assert recover(table.open().table.context) == []
    assert table.pending() == []
    assert table.rows() == {"a": 8}
    commit(table.open(), [Row("b", 9, 9)])
    assert table.rows() == {"a": 8, "b": 9}


@pytest.mark.parametrize("archiver_dies", [False, True])
@pytest.mark.parametrize("table_type", TableType)
def test_only_commit_that_is_not_archived_is_not_rolled_back(
    clock: VirtualTime, table_type: TableType, archiver_dies: bool
) -> None:
    """The only commit that is not archived stays, even if an archiver died before its deletions."""
    table = Table(clock, table_type)
    for value in range(2, 9):
        commit(table.open(), [Row("a", value, value)])
    archiver = InterruptedStorage(table.storage, die)
    archiver.is_before = lambda number, method, path: (
        archiver_dies and method == "delete" and path.startswith(".hoodie/timeline/2")
    )
    with suppress(SimulatedCrash):
        archive(table.open(archiver).table, ARCHIVAL, None)
    assert (archiver.stopped_at is not None) == archiver_dies
    archived = {name for name, _ in archived_names(table.storage)}
    active = [i.requested_at for i in table.open().table.timeline.completed(*COMMITS)]
    kept = [name for name in active if name not in archived]
    for name in reversed(kept[1:]):
        roll_back_named(table.open().table.context, name)
    with pytest.raises(Refused, match="all earlier commits are archived"):
        roll_back_named(table.open().table.context, kept[0])
    expected = 8 - len(kept) + 1
    assert table.rows() == {"a": expected}
    commit(table.open(), [Row("b", 9, 9)])
    assert table.rows() == {"a": expected, "b": 9}


@pytest.mark.parametrize("is_archived", [False, True])
def test_own_commit_that_completed_unnoticed_is_not_reported_as_undone(
    clock: VirtualTime, is_archived: bool
) -> None:
    """Its writer learns that it completed, so that it does not write the rows a second time."""
    table = Table(clock)
    to = table.open()
    complete_as_apache(to, write_files(to, [Row("b", 2, 2)]))
    instant = inflight(to)
    if is_archived:
        clock.sleep(A_HEARTBEAT_AND_MORE_S)
        other = table.open()
        for value in range(3, 9):
            commit(other, [Row("a", value, value)])
        archive(other.table, ARCHIVAL, None)
        assert table.open().table.timeline.find(instant.requested_at) is None
    expected = table.rows()
    assert not roll_back(to.table.context, instant)
    assert table.rows() == expected
    assert expected["b"] == 2


def test_files_of_an_instant_of_which_no_rollback_is_known_are_kept(clock: VirtualTime) -> None:
    """Files are kept, because rows of an instant without a rollback may have been acknowledged."""
    table = Table(clock)
    to = table.open()
    (written,) = write_files(to, [Row("b", 2, 2)])
    instant = inflight(to)
    table.open().table.store.forget(instant)
    roll_back(table.open().table.context, instant)
    assert written.path in data_files(table.storage)


@pytest.mark.parametrize("ends", ["dies", "goes on"])
def test_the_metadata_table_forgets_an_undone_commit_and_is_continued(
    clock: VirtualTime, ends: str
) -> None:
    table = Table(clock)
    assert keep_metadata_table(table.open().table)

    def stop() -> None:
        if ends == "dies":
            raise SimulatedCrash
        clock.sleep(A_HEARTBEAT_AND_MORE_S)
        recover(table.open().table.context)

    stopping = InterruptedStorage(table.storage, stop)
    stopping.is_before = lambda _, method, path: (
        method == "publish" and path.startswith(".hoodie/timeline/")
    )
    with pytest.raises((SimulatedCrash, HudiError)):
        commit(table.open(stopping), [Row("b", 2, 2)])
    clock.sleep(A_HEARTBEAT_AND_MORE_S)
    recover(table.open().table.context)
    after = table.open().table
    assert keep_metadata_table(after) is None
    assert metadata_differences(after) == []
    assert table.rows() == {"a": 1}


def test_a_rollback_that_lost_the_lock_takes_nothing_out_of_the_metadata_table(
    clock: VirtualTime,
) -> None:
    table = Table(clock)
    assert keep_metadata_table(table.open().table)

    dying = InterruptedStorage(table.storage, die)
    dying.is_before = lambda _, method, path: (
        method == "publish" and path.startswith(".hoodie/timeline/")
    )
    with pytest.raises(SimulatedCrash):
        commit(table.open(dying), [Row("b", 2, 2)])
    clock.sleep(A_HEARTBEAT_AND_MORE_S)
    prepared: list[str] = []

    def is_before(number: int, method: str, path: str) -> bool:
        if method == "put" and "prepared" in path:
            prepared.append(path)
        return bool(prepared) and (method, path) == ("list_folder", IN_METADATA)

    losing = InterruptedStorage(table.storage, lambda: clock.sleep(A_LEASE_AND_MORE_S))
    losing.is_before = is_before
    before = table.storage.list_folder(IN_METADATA)
    with pytest.raises(LeaseLost):
        recover(table.open(losing).table.context)
    assert losing.stopped_at
    assert table.storage.list_folder(IN_METADATA) == before


# Compactions, whose plans are anybody's


def compactable(clock: VirtualTime) -> Table:
    table = Table(clock, TableType.MERGE_ON_READ)
    commit(table.open(), [Row("a", 2, 2)])
    return table


def plan_a_compaction(table: Table) -> Instant:
    to = table.open()
    ((planned, _),) = to.compactions_to_do(CompactionPolicy(1))
    return planned


@pytest.mark.parametrize("mode", Mode)
def test_a_plan_that_a_living_writer_executes_is_not_taken_up(
    clock: VirtualTime, mode: Mode
) -> None:
    table = compactable(clock)
    planned = plan_a_compaction(table)
    first = Transaction.resume(table.open().table.context, planned)
    other = table.open(mode=mode).table.context
    with pytest.raises(WriteConflict, match="another writer, whose heartbeat is alive"):
        Transaction.resume(other, planned)
    clock.sleep(A_HEARTBEAT_AND_MORE_S)
    second = Transaction.resume(other, planned)
    assert second.instant.requested_at == first.instant.requested_at
    second.stop_heartbeat()


@pytest.mark.parametrize("became", ["completed", "removed"])
def test_a_plan_that_was_completed_or_removed_is_not_taken_up(
    clock: VirtualTime, became: str
) -> None:
    table = compactable(clock)
    planned = plan_a_compaction(table)
    if became == "completed":
        assert table.open().compact_if_due(CompactionPolicy(9), LocalRunner(1))
    else:
        table.open().table.store.forget(planned)
    for mode in Mode:
        with pytest.raises(WriteConflict, match="removed by another writer"):
            Transaction.resume(table.open(mode=mode).table.context, planned)
    assert not table.pending()
    assert table.beats() == []


def test_the_rollback_of_a_compaction_keeps_its_plan_for_a_living_writer(
    clock: VirtualTime,
) -> None:
    table = compactable(clock)
    planned = plan_a_compaction(table)
    dead = Transaction.resume(table.open().table.context, planned)
    clock.sleep(A_HEARTBEAT_AND_MORE_S)
    assert recover(table.open().table.context) == []
    assert roll_back(table.open().table.context, dead.instant)
    assert table.pending() == [planned]
    with pytest.raises(HudiError):
        dead.commit(CommitMetadata(compacted=True))
    assert len(table.open().compact_if_due(CompactionPolicy(9), LocalRunner(1))) == 1
    assert table.rows() == {"a": 2}


@pytest.mark.parametrize("act", ["commit", "compact", "roll back", "start"])
@pytest.mark.parametrize("version", [V6, V9])
def test_a_compaction_that_appears_after_its_plan_was_removed_stops_nobody(
    clock: VirtualTime, version: FormatVersion, act: str
) -> None:
    """Writers continue although the store creates an inflight file late, after a rollback."""
    table = Table(clock, TableType.MERGE_ON_READ, version)
    commit(table.open(), [Row("a", 2, 2)])
    ((done, _),) = table.open().compact_if_due(CompactionPolicy(1), LocalRunner(1))
    roll_back_named(table.open().table.context, done.requested_at)
    newest = commit(table.open(), [Row("a", 3, 3)])
    late = Instant(done.requested_at, Action.COMPACTION, State.INFLIGHT)
    table.open().table.store.create(late, b"")
    if act == "commit":
        commit(table.open(), [Row("a", 4, 4)])
    elif act == "compact":
        table.open().compact_if_due(CompactionPolicy(1), LocalRunner(1))
    elif act == "roll back":
        roll_back_named(table.open().table.context, newest.requested_at)
    assert table.rows() == {"a": {"commit": 4, "roll back": 2}.get(act, 3)}
    clock.sleep(A_HEARTBEAT_AND_MORE_S)
    recover(table.open().table.context)
    assert table.pending() == []
    assert table.rows() == {"a": {"commit": 4, "roll back": 2}.get(act, 3)}


@pytest.mark.parametrize("version", [V6, V9])
def test_snapshot_has_changed_if_a_plan_was_removed_and_its_compaction_appears_late(
    clock: VirtualTime, version: FormatVersion
) -> None:
    table = Table(clock, TableType.MERGE_ON_READ, version)
    commit(table.open(), [Row("a", 2, 2)])
    planned = request_compaction(table.open().table)
    assert planned is not None
    store = table.open().table.store
    store.forget(planned[0])
    store.create(planned[0].inflight(), b"")
    with pytest.raises(SnapshotChanged, match="was removed; load the timeline again"):
        store.read_pending_compaction(planned[0])
    assert store.read_pending_compaction(planned[0].inflight()).operations == ()


def test_a_compaction_that_appears_after_a_restore_is_removed_at_the_next_start(
    clock: VirtualTime,
) -> None:
    table = Table(clock, TableType.MERGE_ON_READ)
    (first,) = table.open().table.timeline.completed()
    commit(table.open(), [Row("a", 2, 2)])
    ((done, _),) = table.open().compact_if_due(CompactionPolicy(1), LocalRunner(1))
    restore(table.open().table.context, first.requested_at, False)
    late = Instant(done.requested_at, Action.COMPACTION, State.INFLIGHT)
    table.open().table.store.create(late, b"")
    recover(table.open().table.context)
    assert table.pending() == []
    assert table.rows() == {"a": 1}


@pytest.mark.parametrize("later", ["clustering", "log compaction"])
def test_files_that_a_later_commit_replaced_may_be_missing(later: str) -> None:
    """Replaced files, and their change data, may be missing, because cleans delete them."""
    at = TimelineInMaking()
    stat = WriteStat(
        file_id="1",
        path="north/1",
        partition_path="north",
        file_size_in_bytes=1,
        cdc_stats={"north/1.cdc": 1},
    )
    done = at.commit(Action.COMMIT, CommitMetadata(write_stats=(stat,)))
    if later == "clustering":
        at.commit(Action.REPLACE_COMMIT, replacing(("north", "1")))
    else:
        at.commit(Action.DELTA_COMMIT, written(("north", "1"), compacted=True))
    context = TableContext(storage=at.storage, timeline=at.store, lock=open_lock(at.storage))
    replaced = replaced_since(done, at.load(), at.store)
    assert has_all_files(context, done, replaced) == (later == "clustering")


def compaction_whose_rollback_died(
    clock: VirtualTime, version: FormatVersion, method: str = "publish", suffix: str = ".rollback"
) -> tuple[Table, Instant]:
    """Create a table whose completed compaction was made pending again by a process that then died.

    The process died before its request of this method for a path with this suffix.
    """
    table = Table(clock, TableType.MERGE_ON_READ, version)
    for value in (1, 2):
        commit(table.open(), [Row("a", value, value)])
    ((done, _),) = table.open().compact_if_due(CompactionPolicy(1), LocalRunner(1))
    dying = InterruptedStorage(table.storage, die)
    dying.is_before = lambda _, sent, path: sent == method and path.endswith(suffix)
    with pytest.raises(SimulatedCrash):
        roll_back_named(table.open(dying).table.context, done.requested_at)
    clock.sleep(A_HEARTBEAT_AND_MORE_S)
    return table, done


def test_a_completed_compaction_whose_rollback_died_at_its_end_is_not_executed_again(
    clock: VirtualTime,
) -> None:
    table, done = compaction_whose_rollback_died(clock, V9, "delete", ".compaction.inflight")
    assert [i.requested_at for i in table.pending()] == [done.requested_at]
    recover(table.open().table.context)
    assert table.pending() == []
    assert table.rows() == {"a": 2}


def test_a_dead_commit_is_undone_beside_a_compaction_whose_rollback_died(
    clock: VirtualTime,
) -> None:
    """Recovery of both succeeds: the plan is not read after the rollback has deleted it."""
    table, done = compaction_whose_rollback_died(clock, V9)
    dead = table.open()
    dead.begin()
    clock.sleep(A_HEARTBEAT_AND_MORE_S)
    undone = recover(table.open().table.context)
    assert set(undone) == {done.requested_at, dead.pending_instant}
    assert table.pending() == []
    assert table.rows() == {"a": 2}


@pytest.mark.parametrize("version", [V6, V9])
def test_rows_in_the_slice_of_a_compaction_whose_rollback_died_are_kept(
    clock: VirtualTime, version: FormatVersion
) -> None:
    """Rows of later commits stay, although their logs in version 6 are named after the plan."""
    table, _ = compaction_whose_rollback_died(clock, version)
    commit(table.open(), [Row("a", 3, 3), Row("b", 3, 3)])
    assert recover(table.open().table.context)
    assert table.rows() == {"a": 3, "b": 3}
    commit(table.open(), [Row("c", 4, 4)])
    table.open().compact_if_due(CompactionPolicy(1), LocalRunner(1))
    recover(table.open().table.context)
    assert table.rows() == {"a": 3, "b": 3, "c": 4}
    assert table.pending() == []


@pytest.mark.parametrize("version", [V6, V9])
def test_rows_for_a_slice_that_is_rolled_back_meanwhile_are_written_again(
    clock: VirtualTime, version: FormatVersion
) -> None:
    table, _ = compaction_whose_rollback_died(clock, version)
    late = table.open()
    context = late.begin()
    assignment = late.assigner.assign_file_groups()
    assert recover(table.open().table.context)
    written = [
        stat
        for bucket, part in by_bucket(changes([Row("a", 3, 3)]), late.settings.index)
        for stat in write_file_group(context, assignment.task(bucket), [part])
    ]
    if version is V6:
        with pytest.raises(WriteConflict, match=r"the slice of compaction .* was rolled back"):
            late.commit(written, {})
        late.abandon()
        commit(late, [Row("a", 3, 3)])
    else:
        late.commit(written, {})
    assert table.rows() == {"a": 3}
