"""Instants begin and complete correctly next to other writers, and leave nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

import pytest

from lakemark.config.table_properties import TableType
from lakemark.errors import Fenced, LockTimeout, OutcomeUnknown, StorageUnavailable, WriteConflict
from lakemark.execution.runner import LocalRunner
from lakemark.model.action import Action, State
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.instant import Instant
from lakemark.operations.table_writer import TableWriter
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import Storage
from lakemark.timeline.clock import UTC_CLOCK
from lakemark.timeline.content import encode_rollback_plan
from lakemark.transaction.heartbeat import HEARTBEAT_FOLDER
from lakemark.transaction.rollback import plan_rollback, roll_back
from lakemark.transaction.transaction import Transaction
from lakemark.write.markers import create_marker, marked_files
from tests.protocol.actors import A_HEARTBEAT_AND_MORE_S, SHARING, Mode, open_writer
from tests.protocol.virtual_time import VirtualTime, on_virtual_time
from tests.storages.interrupted_storage import InterruptedStorage
from tests.storages.wrapped_storage import WrappedStorage
from tests.tables import Row, commit, data_files, reopened, write_files
from tests.unit.transaction.shared_table import (
    PART_OF_A_HEARTBEAT_S,
    Table,
    beat,
    complete_as_apache,
    inflight,
    next_time,
)

T = TypeVar("T")


@pytest.fixture
def clock() -> Iterator[VirtualTime]:
    with on_virtual_time() as virtual:
        yield virtual


class Failing(WrappedStorage):
    """A storage that calls ``meanwhile`` instead of the first write that ``fails`` selects."""

    def __init__(
        self,
        inner: Storage,
        fails: Callable[[str, str], bool],
        meanwhile: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(inner)
        self._fails, self._meanwhile = fails, meanwhile
        self.has_failed = False

    def _writing(self, method: str, path: str, call: Callable[[], T]) -> T:
        if self.has_failed or not self._fails(method, path):
            return call()
        self.has_failed = True
        self._meanwhile()
        raise StorageUnavailable(path)


# It begins


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("state", ["requested", "inflight"])
def test_an_instant_that_could_not_be_created_has_no_heartbeat(
    clock: VirtualTime, state: str, mode: Mode
) -> None:
    table = Table(clock)
    failing = Failing(table.storage, lambda method, path: path.endswith(f".{state}"))
    with pytest.raises(StorageUnavailable):
        table.open(failing, mode).begin()
    assert table.beats() == []


def test_a_writer_takes_another_time_if_another_writer_was_faster(clock: VirtualTime) -> None:
    table = Table(clock)
    taken: list[str] = []

    def take_its_time() -> None:
        (requested,) = table.pending()
        table.open().table.store.create(requested.inflight(), b"{}")
        taken.append(requested.requested_at)

    meeting = InterruptedStorage(table.storage, take_its_time)
    meeting.is_before = lambda _, method, path: path.endswith(".inflight")
    ours = table.open(meeting)
    ours.begin()
    assert ours.pending_instant > taken[0]
    others = taken[0]  # the file of its heartbeat is the other writer's
    assert table.beats() == [others, ours.pending_instant]


def test_the_lock_is_kept_until_other_clocks_have_passed_the_new_instant(
    clock: VirtualTime,
) -> None:
    """The lock is held until no other clock is behind the new instant.

    Apache Hudi generates its time under the lock, without regard to the timeline.
    """
    table = Table(clock)
    ours = reopened(table.open(), multi_writer=replace(SHARING, clock_skew_ms=5_000))
    ours.begin()
    passed = clock.now() - UTC_CLOCK.parse(ours.pending_instant)
    assert passed.total_seconds() >= 5


def compactable(clock: VirtualTime) -> tuple[Table, Instant]:
    """Create a table with a planned compaction; return both."""
    table = Table(clock, TableType.MERGE_ON_READ)
    commit(table.open(), [Row("a", 2, 2)])
    ((planned, _),) = table.open().compactions_to_do(CompactionPolicy(1))
    return table, planned


def test_of_two_writers_that_claim_a_plan_at_the_same_time_one_waits_for_the_other(
    clock: VirtualTime,
) -> None:
    table, planned = compactable(clock)
    outcomes: list[str] = []

    def claim() -> None:
        with pytest.raises(LockTimeout):
            Transaction.resume(table.open().table.context, planned, lock_wait_s=0)
        outcomes.append("refused")

    meeting = InterruptedStorage(table.storage, claim)
    meeting.is_before = lambda _, method, path: method == "put" and HEARTBEAT_FOLDER in path
    Transaction.resume(table.open(meeting).table.context, planned).stop_heartbeat()
    assert outcomes == ["refused"]


# It is taken away


def executed(table: Table, planned: Instant) -> TableWriter:
    """Return a writer whose transaction executes the plan."""
    to = table.open()
    to._transaction = Transaction.resume(to.table.context, planned)
    return to


def test_a_compaction_that_was_rolled_back_to_its_plan_is_not_published(
    clock: VirtualTime,
) -> None:
    table, planned = compactable(clock)
    first = executed(table, planned)
    assert roll_back(table.open().table.context, inflight(first))
    assert table.pending() == [planned]
    with pytest.raises(WriteConflict, match="another writer rolled it back"):
        first._transaction.commit(CommitMetadata(compacted=True))  # type: ignore[union-attr]
    assert table.pending() == [planned]


def test_a_compaction_that_another_writer_completed_is_not_published_again(
    clock: VirtualTime,
) -> None:
    table, planned = compactable(clock)
    first = executed(table, planned)
    clock.sleep(A_HEARTBEAT_AND_MORE_S)
    assert table.open().compact_if_due(CompactionPolicy(9), LocalRunner(1))
    assert first._transaction is not None
    assert first._transaction._heartbeat is not None
    first._transaction._heartbeat._beaten_at_s = clock.time()  # as a clock that was set back
    with pytest.raises(WriteConflict, match="it has already completed"):
        first._transaction.commit(CommitMetadata(compacted=True))
    timeline = table.open().table.timeline
    assert [i.requested_at for i in timeline.completed(Action.COMMIT)] == [planned.requested_at]
    assert table.rows() == {"a": 2}


def test_of_two_attempts_at_a_plan_the_first_is_not_published_once_the_second_began(
    clock: VirtualTime,
) -> None:
    table, planned = compactable(clock)
    first = executed(table, planned)
    clock.sleep(A_HEARTBEAT_AND_MORE_S)
    second = executed(table, planned)
    assert first._transaction is not None
    assert first._transaction._heartbeat is not None
    first._transaction._heartbeat._beaten_at_s = clock.time()  # as a clock that was set back
    with pytest.raises(WriteConflict, match="another attempt at it has begun"):
        first._transaction.commit(CommitMetadata(compacted=True))
    assert [i.requested_at for i in table.pending()] == [inflight(second).requested_at]


def test_no_attempt_at_a_plan_begins_while_a_rollback_is_to_undo_one(clock: VirtualTime) -> None:
    table, planned = compactable(clock)
    executed(table, planned)
    clock.sleep(A_HEARTBEAT_AND_MORE_S)
    context = table.open().table.context
    content = encode_rollback_plan(plan_rollback(context, planned.requested_at))
    name = context.generate_time(context.timeline.load().newest_time)
    context.timeline.create(Instant(name, Action.ROLLBACK, State.REQUESTED), content)
    with pytest.raises(WriteConflict, match=r"of an attempt at .* has not completed"):
        Transaction.resume(context, planned)


def test_a_commit_that_appears_completed_is_not_published_again(clock: VirtualTime) -> None:
    table = Table(clock)
    ours = table.open()
    written = write_files(ours, [Row("b", 2, 2)])
    complete_as_apache(ours, written)
    with pytest.raises(Fenced, match="it has already completed"):
        ours.commit(written, {})
    assert table.rows() == {"a": 1, "b": 2}


@pytest.mark.parametrize("begins", ["before ours", "after ours"])
def test_what_another_writer_completes_meanwhile_conflicts_whenever_it_began(
    clock: VirtualTime, begins: str
) -> None:
    table = Table(clock, TableType.MERGE_ON_READ)
    ours, theirs = table.open(), table.open()
    first, second = (theirs, ours) if begins == "before ours" else (ours, theirs)
    rows = {id(ours): [Row("b", 2, 2)], id(theirs): [Row("b", 3, 3)]}
    written = {id(one): write_files(one, rows[id(one)]) for one in (first, second)}
    theirs.commit(written[id(theirs)], {})
    with pytest.raises(WriteConflict, match="both write"):
        ours.commit(written[id(ours)], {})
    assert table.rows() == {"a": 1, "b": 3}


# It completes


def test_files_that_the_commit_does_not_name_are_deleted_before_it_is_published(
    clock: VirtualTime,
) -> None:
    table, found = Table(clock), list[bool]()
    meeting = InterruptedStorage(
        table.storage, lambda: found.append(table.storage.head(stray) is not None)
    )
    ours = table.open(meeting)
    written = write_files(ours, [Row("b", 2, 2)])
    stray = f"south/00000001-failed-attempt-0_0-1-0_{ours.pending_instant}.parquet"
    create_marker(table.storage, ours.pending_instant, stray)
    table.storage.put(stray, b"rows")
    meeting.is_before = lambda _, method, path: method == "publish"
    ours.commit(written, {})
    assert found == [False]
    assert stray not in data_files(table.storage)
    assert table.rows() == {"a": 1, "b": 2}


@pytest.mark.parametrize("mode", Mode)
def test_a_completed_instant_leaves_no_prepared_content_no_markers_and_no_heartbeat(
    clock: VirtualTime, mode: Mode
) -> None:
    table = Table(clock)
    done = commit(table.open(mode=mode), [Row("b", 2, 2)])
    assert table.storage.list_folder(".hoodie/.aux/prepared")[1] == []
    assert marked_files(table.storage, done.requested_at) == []
    assert table.beats() == []


def test_a_commit_waits_for_an_earlier_one_that_has_yet_to_look(clock: VirtualTime) -> None:
    table = Table(clock)
    store = table.open().table.store
    name = next_time(table.open())
    theirs = Instant(name, Action.COMMIT, State.REQUESTED)
    store.create(theirs)
    clock.sleep(PART_OF_A_HEARTBEAT_S)
    ours = table.open()
    written = write_files(ours, [Row("b", 2, 2)])
    done = ours.commit(written, {})
    waited = UTC_CLOCK.parse(done.completed_at or "") - UTC_CLOCK.parse(name)
    assert waited.total_seconds() >= SHARING.heartbeats.expires_after_s


def test_a_writer_that_counts_as_dead_since_its_first_attempt_does_not_publish(
    clock: VirtualTime,
) -> None:
    table = Table(clock)
    silent = Failing(
        table.storage,
        lambda method, path: method == "publish",
        lambda: clock.sleep(A_HEARTBEAT_AND_MORE_S),
    )
    ours = open_writer(silent, clock, lease_s=10 * A_HEARTBEAT_AND_MORE_S)
    written = write_files(ours, [Row("b", 2, 2)])
    with pytest.raises(OutcomeUnknown):
        ours.commit(written, {})
    assert silent.has_failed
    assert table.rows() == {"a": 1}


def test_a_writer_that_beats_goes_on_however_long_it_takes(clock: VirtualTime) -> None:
    table = Table(clock)
    ours = table.open()
    written = write_files(ours, [Row("b", 2, 2)])
    table.wait_until_dead(ours)
    beat(ours)
    ours.commit(written, {})
    assert table.rows() == {"a": 1, "b": 2}
