"""Rollback of a completed commit, savepoint, restore: whoever dies at any write loses nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from uuid import uuid4

import pytest

from sinks.hudi.compactions import request_compaction
from sinks.hudi.table_writer import TableWriter
from table.config.table_properties import TableType
from table.errors import Fenced, InvalidConfig, Refused
from table.execution.runner import LocalRunner
from table.model.action import Action, State
from table.model.file_slice import FileSlice
from table.model.instant import Instant
from table.services.compaction import CompactionPolicy
from table.services.restore import plan_restore, restore
from table.services.savepoint import create_savepoint, delete_savepoint, savepoints
from table.storage import Storage, StorageLocation, open_storage
from table.timeline.timeline import Timeline
from table.transaction.rollback import plan_rollback, roll_back_named
from tests.clocks import SharedClock, on_clock
from tests.storages import FaultyStorage, SimulatedCrash
from tests.storages.faulty_storage import When
from tests.tables import Row, commit, contents, data_files, make, write_files, writer
from tests.upkeep import make_plain

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

Undo = Callable[[TableWriter], object]


#: Where tables lie that have no metadata table, and get none.
PLAIN = "plain"


def started(storage: Storage) -> TableWriter:
    to = on_clock(writer(storage), CLOCK)
    is_plain = storage.location.url.endswith(PLAIN)
    return replace(to, settings=replace(to.settings, metadata_table=not is_plain))


def compact(storage: Storage) -> Instant:
    policy = CompactionPolicy(every_delta_commits=1)
    ((instant, _),) = started(storage).compact_if_due(policy, LocalRunner(1))
    return instant


def table_of(
    table_type: TableType, compacts_before: int | None = None, has_metadata: bool = False
) -> Storage:
    """A table of three commits; the rows are those of ``STATES``."""
    written = _written(table_type, compacts_before, has_metadata)
    name = "undoing" if has_metadata else PLAIN
    storage = open_storage(StorageLocation(f"memory://{uuid4().hex}/{name}"))
    for info in written.list_tree(""):
        storage.put(info.path, written.read(info.path))
    return storage


@cache
def _written(table_type: TableType, compacts_before: int | None, has_metadata: bool) -> Storage:
    storage = open_storage(StorageLocation(f"memory://{uuid4().hex}/written"))
    (make if has_metadata else make_plain)(storage, table_type)
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
    create_savepoint(of.table.access, instant, slices_as_of(of), "ann", "before the change")


def restore_to(of: TableWriter, instant: str | None) -> None:
    restore(of.table.access, instant, of.table.properties.is_merge_on_read)


def writes_of(step: Undo, storage: Storage) -> int:
    counting = FaultyStorage(storage)
    step(started(counting))
    return counting.writes


def dies_at(step: Undo, storage: Storage, nth: int, when: When) -> None:
    with pytest.raises(SimulatedCrash):
        step(started(FaultyStorage(storage, nth, when)))


def assert_nothing_left(storage: Storage) -> None:
    """Nothing is pending, and every data file is of a completed instant."""
    timeline = started(storage).table.timeline
    assert not timeline.pending()
    completed = {i.requested_at for i in timeline.completed() if i.action.is_write}
    strays = [p for p in data_files(storage) if not any(name in p for name in completed)]
    assert not strays


@pytest.mark.parametrize("table_type", TableType)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_rollback_of_the_newest_commit_that_dies_is_ended_by_the_next_writer(
    when: When, table_type: TableType
) -> None:
    def step(to: TableWriter) -> object:
        return roll_back_named(to.table.access, newest)

    has_metadata = table_type is TableType.MERGE_ON_READ and when == "after"
    storage = table_of(table_type, None, has_metadata)
    newest = commits(storage)[-1].requested_at
    seen = []
    for nth in range(writes_of(step, storage)):
        storage = table_of(table_type, None, has_metadata)
        newest = commits(storage)[-1].requested_at
        dies_at(step, storage, nth, when)
        left = contents(storage)
        assert left in (STATES[1], STATES[2]), nth
        is_planned = any(
            instant.action is Action.ROLLBACK
            for instant in started(storage).table.timeline.instants
        )
        started(storage).recover()
        expected = STATES[1] if is_planned else STATES[2]
        assert contents(storage) == expected, nth
        assert_nothing_left(storage)
        commit(started(storage), COMMITS[2])
        assert contents(storage) == STATES[2], nth
        seen.append((left == STATES[1], is_planned))
    assert {(False, False), (False, True), (True, True)} == set(seen)


def test_a_compaction_that_was_undone_is_not_done_again() -> None:
    def step(to: TableWriter) -> object:
        return roll_back_named(to.table.access, compaction)

    storage = table_of(TableType.MERGE_ON_READ)
    compaction = compact(storage).requested_at
    for nth in range(writes_of(step, storage)):
        storage = table_of(TableType.MERGE_ON_READ)
        compaction = compact(storage).requested_at
        dies_at(step, storage, nth, "after")
        assert contents(storage) == STATES[2], nth
        started(storage).recover()
        assert contents(storage) == STATES[2], nth
        assert_nothing_left(storage)
        compact_again = started(storage).table.timeline.find(compaction) is None
        assert compact_again or nth < 4, "only a rollback that was never planned leaves it"
        if compact_again:
            compact(storage)
            assert contents(storage) == STATES[2], nth


def test_the_rollback_of_a_compaction_under_way_keeps_its_plan() -> None:
    storage = table_of(TableType.MERGE_ON_READ)
    policy = CompactionPolicy(every_delta_commits=1)
    counting = FaultyStorage(table_of(TableType.MERGE_ON_READ))
    started(counting).compact_if_due(policy, LocalRunner(1))
    with pytest.raises(SimulatedCrash):
        dying = FaultyStorage(storage, counting.writes - 6, "before")
        started(dying).compact_if_due(policy, LocalRunner(1))
    (pending,) = started(storage).table.timeline.pending(Action.COMPACTION)
    assert pending.state is State.INFLIGHT
    undone = roll_back_named(started(storage).table.access, pending.requested_at)
    assert undone.files
    assert not [path for path in data_files(storage) if pending.requested_at in path]
    (planned,) = started(storage).table.timeline.pending()
    assert (planned.requested_at, planned.state) == (pending.requested_at, State.REQUESTED)
    with pytest.raises(Refused, match="nothing was written"):
        roll_back_named(started(storage).table.access, pending.requested_at)
    assert compact(storage).requested_at == pending.requested_at
    assert contents(storage) == STATES[2]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_savepoint_that_dies_is_there_or_can_be_made(when: When) -> None:
    def step(to: TableWriter) -> None:
        keep(to, kept)

    storage = table_of(TableType.MERGE_ON_READ)
    kept = commits(storage)[1].requested_at
    for nth in range(writes_of(step, storage)):
        storage = table_of(TableType.MERGE_ON_READ)
        kept = commits(storage)[1].requested_at
        dies_at(step, storage, nth, when)
        assert contents(storage) == STATES[2]
        started(storage).recover()
        table = started(storage).table
        if not table.timeline.completed(Action.SAVEPOINT):
            keep(started(storage), kept)
        table.refresh()
        (found,) = savepoints(table.timeline, table.store).items()
        assert found[0] == kept
        names = {name for names in found[1].files.values() for name in names}
        seen = table.view().as_of(kept).latest_slices()
        bases = {str(one.base.name) for one in seen if one.base}
        assert names == bases | {str(log.name) for one in seen for log in one.logs}
        commit(started(storage), COMMITS[0])


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_deletion_of_a_savepoint_that_dies_can_be_repeated(when: When) -> None:
    def step(to: TableWriter) -> None:
        delete_savepoint(to.table.access, kept)

    storage = table_of(TableType.MERGE_ON_READ)
    kept = commits(storage)[1].requested_at
    keep(started(storage), kept)
    for nth in range(writes_of(step, storage)):
        keep_again = not started(storage).table.timeline.completed(Action.SAVEPOINT)
        if keep_again:
            keep(started(storage), kept)
        dies_at(step, storage, nth, when)
        if any(i.action is Action.SAVEPOINT for i in started(storage).table.timeline.instants):
            delete_savepoint(started(storage).table.access, kept)
        timeline = started(storage).table.timeline
        assert not [i for i in timeline.instants if i.action is Action.SAVEPOINT]
        assert contents(storage) == STATES[2]


@pytest.mark.parametrize(
    ("when", "table_type", "compacts_before", "has_metadata"),
    [
        ("after", TableType.COPY_ON_WRITE, None, False),
        ("before", TableType.MERGE_ON_READ, 2, False),
        ("after", TableType.MERGE_ON_READ, 2, True),
    ],
)
def test_a_restore_that_dies_is_ended_by_the_next(
    when: When, table_type: TableType, compacts_before: int | None, has_metadata: bool
) -> None:
    def step(to: TableWriter) -> None:
        restore_to(to, first)

    storage = table_of(table_type, compacts_before, has_metadata)
    first = commits(storage)[0].requested_at
    seen = set()
    # A metadata table takes many deletes that are alike; without one, every write is tried.
    for nth in range(0, writes_of(step, storage), 4 if has_metadata else 1):
        storage = table_of(table_type, compacts_before, has_metadata)
        first = commits(storage)[0].requested_at
        # Somebody is writing: what has not completed goes with the rest.
        late = started(storage)
        written = write_files(late, [Row("z", 9, 9)]) if nth % 3 == 0 else None
        dies_at(step, storage, nth, when)
        left = contents(storage)
        assert left in STATES, nth
        seen.add(STATES.index(left))

        pending = started(storage).table.timeline.pending(Action.RESTORE)
        if pending:
            with pytest.raises(Refused, match="has not ended"):
                started(storage).recover()
            restore_to(started(storage), None)
        elif not started(storage).table.timeline.completed(Action.RESTORE):
            restore_to(started(storage), first)
        assert contents(storage) == STATES[0], nth
        assert_nothing_left(storage)
        if written is not None:
            with pytest.raises(Fenced):
                late.commit(written, {})
        started(storage).recover()
        for number in (1, 2):
            commit(started(storage), COMMITS[number])
            assert contents(storage) == STATES[number], nth
    assert seen == {0, 1, 2}, "deaths before, between and after"


def test_a_restore_undoes_a_compaction_and_keeps_the_logs_that_are_older() -> None:
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


def test_a_writer_whose_ground_was_undone_publishes_nothing() -> None:
    storage = table_of(TableType.MERGE_ON_READ)
    newest = commits(storage)[-1].requested_at
    late = started(storage)
    late.table.timeline  # noqa: B018 (it has seen the commit that is undone)
    roll_back_named(started(storage).table.access, newest)
    write = late.table.refresh
    late.table.refresh = lambda *_: None  # type: ignore[method-assign]
    written = write_files(late, [Row("z", 9, 9)])
    late.table.refresh = write  # type: ignore[method-assign]
    with pytest.raises(Fenced, match="was rolled back"):
        late.commit(written, {})
    started(storage).recover()
    assert contents(storage) == STATES[1]


def test_what_would_lose_rows_is_refused_and_changes_nothing() -> None:
    storage = table_of(TableType.MERGE_ON_READ)
    first, second, third = (i.requested_at for i in commits(storage))
    access = started(storage).table.access
    for name, kind, message in (
        (second, Refused, "came after it"),
        ("20200101000000000", InvalidConfig, "not on the active timeline"),
    ):
        for undo in (plan_rollback, roll_back_named):
            with pytest.raises(kind, match=message):
                undo(access, name)
    keep(started(storage), third)
    with pytest.raises(Refused, match=r"savepoint \d+ keeps it"):
        roll_back_named(access, third)
    with pytest.raises(Refused, match="is later; delete it first"):
        restore_to(started(storage), first)
    with pytest.raises(Refused, match="exists"):
        keep(started(storage), third)
    delete_savepoint(access, third)
    with pytest.raises(InvalidConfig, match="no savepoint"):
        delete_savepoint(access, third)
    with pytest.raises(InvalidConfig, match="no completed commit"):
        restore_to(started(storage), "20200101000000000")
    dead = started(storage)
    write_files(dead, [Row("z", 9, 9)])
    with pytest.raises(Refused, match="is being written"):
        roll_back_named(access, third)
    assert contents(storage) == STATES[2]


def test_a_commit_under_a_planned_compaction_stays() -> None:
    storage = table_of(TableType.MERGE_ON_READ)
    third = commits(storage)[-1].requested_at
    to = started(storage)
    assert request_compaction(to.table) is not None
    with pytest.raises(Refused, match="was planned over it"):
        roll_back_named(to.table.access, third)
    compaction = compact(storage)
    roll_back_named(started(storage).table.access, compaction.requested_at)
    roll_back_named(started(storage).table.access, third)
    assert contents(storage) == STATES[1]
