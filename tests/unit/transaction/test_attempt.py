"""Of two attempts at one compaction, each deletes only files that it may delete."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from lakemark.config.table_properties import TableType
from lakemark.errors import HudiError, WriteConflict
from lakemark.execution.runner import LocalRunner
from lakemark.model.action import Action
from lakemark.model.commit_metadata import WriteStat
from lakemark.operations.compact import Compaction, pending_compactions
from lakemark.operations.table_writer import TableWriter
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import Storage
from lakemark.storage.storage import NotFound
from lakemark.timeline.locks.table_lock import LeaseLost
from lakemark.transaction.attempt import AttemptLost, discard
from lakemark.transaction.heartbeat import Heartbeat, HeartbeatPolicy
from lakemark.transaction.rollback import roll_back, roll_back_named
from tests.protocol.actors import A_HEARTBEAT_AND_MORE_S, A_LEASE_AND_MORE_S
from tests.protocol.virtual_time import VirtualTime, on_virtual_time
from tests.storages.interrupted_storage import InterruptedStorage
from tests.tables import Row, commit, data_files
from tests.unit.transaction.shared_table import Table


@pytest.fixture
def clock() -> Iterator[VirtualTime]:
    with on_virtual_time() as virtual:
        yield virtual


@pytest.fixture
def table(clock: VirtualTime) -> Table:
    """A table with a planned compaction."""
    made = Table(clock, TableType.MERGE_ON_READ)
    commit(made.open(), [Row("a", 2, 2)])
    assert made.open().compactions_to_do(CompactionPolicy(1))
    return made


class Attempt:
    """A process that has begun the compaction, and has written its files."""

    def __init__(self, table: Table, through: Storage | None = None) -> None:
        self.to: TableWriter = table.open(through)
        ((pending, plan),) = pending_compactions(self.to.table)
        self.compaction = Compaction.begin(self.to.table, (pending, plan))
        self.instant = self.compaction.execution.instant
        self.stats: list[WriteStat] = self.compaction.rewrite(LocalRunner(1))

    @property
    def paths(self) -> set[str]:
        return {stat.path or "" for stat in self.stats}

    def publish(self) -> None:
        self.compaction.publish(self.stats, dict)

    def undo(self) -> bool:
        return roll_back(self.to.table.context, self.instant)


def test_two_attempts_write_files_of_different_names(table: Table) -> None:
    first = Attempt(table)
    table.clock.sleep(A_HEARTBEAT_AND_MORE_S)
    second = Attempt(table)
    assert first.paths.isdisjoint(second.paths)
    assert first.paths.isdisjoint(data_files(table.storage)), "the second has deleted them"
    second.publish()
    assert table.rows() == {"a": 2}


def test_a_late_attempt_undoes_its_own_files_alone(table: Table) -> None:
    first = Attempt(table)
    table.clock.sleep(A_HEARTBEAT_AND_MORE_S)
    second = Attempt(table)
    for path in first.paths:  # as a task of the first that was late
        table.storage.put(path, b"late")
    assert first.undo()
    files = set(data_files(table.storage))
    assert second.paths <= files
    assert first.paths.isdisjoint(files)
    second.publish()
    assert table.rows() == {"a": 2}


def test_an_attempt_that_was_published_does_not_delete_its_files(table: Table) -> None:
    """A process that got no answer to its publication deletes no file of the published attempt."""
    ours = Attempt(table)
    ours.publish()
    context = ours.to.table.context
    discard(context, ours.instant, context.timeline.load())
    assert ours.paths <= set(data_files(table.storage))
    assert table.rows() == {"a": 2}


def test_a_late_attempt_publishes_nothing_and_deletes_its_own_files(table: Table) -> None:
    first = Attempt(table)
    table.clock.sleep(A_HEARTBEAT_AND_MORE_S)
    second = Attempt(table)
    transaction = first.compaction.execution._transaction
    assert transaction._heartbeat is not None
    transaction._heartbeat._beaten_at_s = table.clock.time()  # as a clock that was set back
    for path in first.paths:
        table.storage.put(path, b"late")
    with pytest.raises(AttemptLost):
        first.publish()
    files = set(data_files(table.storage))
    assert second.paths <= files
    assert first.paths.isdisjoint(files)


def test_an_attempt_cannot_be_published_once_the_next_deletes_its_files(table: Table) -> None:
    first = Attempt(table)
    store = first.to.table.store
    store.prepare(first.instant, b"content")
    table.clock.sleep(A_HEARTBEAT_AND_MORE_S)
    outcomes: list[str] = []

    def publish() -> None:
        with pytest.raises(NotFound):
            store.publish(
                first.instant, store.clock.next_instant(store.load().newest_time), lambda: None
            )
        outcomes.append("not published")

    meeting = InterruptedStorage(table.storage, publish)
    meeting.is_before = lambda _, method, path: method == "delete" and path in first.paths
    Attempt(table, meeting)
    assert outcomes == ["not published"]


def undo_by_name(table: Table, first: Attempt, through: Storage) -> None:
    roll_back_named(table.open(through).table.context, first.instant.requested_at)


def begin_the_next(table: Table, first: Attempt, through: Storage) -> None:
    Attempt(table, through)


@pytest.mark.parametrize("act", [undo_by_name, begin_the_next])
def test_a_process_without_the_lock_keeps_the_prepared_content_of_a_later_attempt(
    table: Table, act: Callable[[Table, Attempt, Storage], None]
) -> None:
    first = Attempt(table)
    table.clock.sleep(A_HEARTBEAT_AND_MORE_S)
    followed: list[Attempt] = []

    def others_go_on() -> None:
        table.clock.sleep(A_LEASE_AND_MORE_S)
        followed.append(Attempt(table))
        followed[0].to.table.store.prepare(followed[0].instant, b"content")

    meeting = InterruptedStorage(table.storage, others_go_on)
    meeting.is_before = lambda _, method, path: (
        method == "list_folder" and path == ".hoodie/.aux/prepared"
    )
    with pytest.raises(HudiError):
        act(table, first, meeting)
    assert meeting.stopped_at
    (second,) = followed
    assert second.to.table.store.is_prepared(second.instant)
    second.publish()
    assert table.rows() == {"a": 2}


@pytest.mark.parametrize("step", ["its files", "its inflight instant"])
def test_the_next_attempt_deletes_nothing_of_the_first_without_the_lock(
    table: Table, step: str
) -> None:
    first = Attempt(table)
    inflight = first.to.table.store.path_of(first.instant)
    table.clock.sleep(A_HEARTBEAT_AND_MORE_S)
    meeting = InterruptedStorage(table.storage, lambda: table.clock.sleep(A_LEASE_AND_MORE_S))
    if step == "its files":
        meeting.is_before = lambda _, method, path: method == "list_tree" and ".temp/" in path
    else:
        meeting.is_before = lambda _, method, path: method == "delete" and path in first.paths
    with pytest.raises(LeaseLost):
        Attempt(table, meeting)
    assert table.storage.head(inflight) is not None
    assert (first.paths <= set(data_files(table.storage))) == (step == "its files")


def test_a_late_rollback_does_not_remove_the_instant_of_the_attempt_that_followed(
    table: Table,
) -> None:
    first = Attempt(table)
    table.clock.sleep(A_HEARTBEAT_AND_MORE_S)
    followed: list[Attempt] = []

    def others_go_on() -> None:
        table.clock.sleep(A_LEASE_AND_MORE_S)
        table.open().table.store.forget(first.instant, keep_plan=True)
        followed.append(Attempt(table))

    meeting = InterruptedStorage(table.storage, others_go_on)
    prepared: list[str] = []

    def is_before(number: int, method: str, path: str) -> bool:
        if method == "publish":
            prepared.append(path)
            return False
        return bool(prepared)

    meeting.is_before = is_before
    with pytest.raises(HudiError):
        roll_back_named(table.open(meeting).table.context, first.instant.requested_at)
    followed[0].publish()
    done = table.open().table.timeline.completed(Action.COMMIT)
    assert [one.requested_at for one in done] == [first.instant.requested_at]
    assert table.rows() == {"a": 2}


def test_a_lost_attempt_keeps_the_heartbeat_of_the_attempt_that_replaced_it(table: Table) -> None:
    first = Attempt(table)
    table.clock.sleep(A_HEARTBEAT_AND_MORE_S)
    second = Attempt(table)
    with pytest.raises(AttemptLost):
        first.publish()
    first.compaction.stop_heartbeat()
    assert table.beats() == [second.instant.requested_at]
    with pytest.raises(WriteConflict, match="is alive"):
        Attempt(table)
    second.publish()
    assert table.beats() == []
    assert table.rows() == {"a": 2}


def test_an_attempt_that_begins_second_keeps_the_heartbeat_of_the_first(table: Table) -> None:
    """A refused second attempt does not delete the heartbeat of the first.

    Apache Hudi starts its heartbeat only after it has created the inflight instant.
    """
    ((planned, _),) = pending_compactions(table.open().table)

    def begin() -> None:
        to = table.open()
        to.table.store.create(planned.inflight(), b"")
        Heartbeat(table.storage, planned.requested_at, HeartbeatPolicy())

    meeting = InterruptedStorage(table.storage, begin)
    meeting.is_before = lambda _, method, path: (
        method == "create" and path.endswith(".compaction.inflight")
    )
    with pytest.raises(WriteConflict, match="begun by another writer"):
        Attempt(table, meeting)
    assert table.beats() == [planned.requested_at]


def test_a_late_rollback_keeps_the_heartbeat_of_the_attempt_that_followed(table: Table) -> None:
    first = Attempt(table)
    name = first.instant.requested_at
    table.clock.sleep(A_HEARTBEAT_AND_MORE_S)

    def begin_the_next() -> None:
        table.clock.sleep(A_LEASE_AND_MORE_S)
        Attempt(table)

    meeting = InterruptedStorage(table.storage, begin_the_next)
    forgotten: list[str] = []

    def is_before(number: int, method: str, path: str) -> bool:
        has_forgotten = bool(forgotten)
        forgotten.extend([path] if (method, path) == ("delete", inflight) else [])
        return has_forgotten

    inflight = first.to.table.store.path_of(first.instant)
    meeting.is_before = is_before
    with suppress(HudiError):
        roll_back_named(table.open(meeting).table.context, name)
    assert meeting.stopped_at
    assert table.beats() == [name]
