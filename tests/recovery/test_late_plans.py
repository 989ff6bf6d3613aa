"""Plans that appear on the timeline after their writer lost the lock and the table has changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pytest

from lakemark.config.table_properties import TableType
from lakemark.errors import Fenced, Refused
from lakemark.execution.runner import LocalRunner
from lakemark.model.action import COMMITS, Action, State
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.operations.archive import archive
from lakemark.operations.clean import clean
from lakemark.operations.compact import request_compaction
from lakemark.operations.table_writer import TableWriter
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.cleaning_plan import CleaningPolicy, Retention
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.services.restore import restore
from lakemark.services.savepoint import create_savepoint
from lakemark.storage import Storage
from lakemark.timeline.locks.table_lock import LeaseLost
from lakemark.transaction.rollback import plan_rollback, roll_back_named
from lakemark.write.file_group_write import write_file_group
from tests.clocks import SharedClock, on_clock
from tests.storages import SimulatedCrash
from tests.storages.wrapped_storage import WrappedStorage
from tests.table_services import archived_names, make_plain, new_storage, since
from tests.tables import Row, by_bucket, changes, commit, contents, data_files, write_files, writer

T = TypeVar("T")

ONE_COMMIT = CleaningPolicy(commits=1)
ONE_VERSION = CleaningPolicy(Retention.FILE_VERSIONS, file_versions=1)
ARCHIVAL = ArchivalPolicy(1, 2, delta_commits_to_compact=1)
LONGER_THAN_A_LEASE_S = 61

CLOCK = SharedClock()

#: The act of another process while the plan's writer is paused.
Act = Callable[[Storage], object]


class LatePlan(WrappedStorage):
    """Pauses before it creates one kind of plan, until another writer has acted."""

    def __init__(self, inner: Storage, suffix: str, meanwhile: Act, dies: bool) -> None:
        super().__init__(inner)
        self._suffix, self._meanwhile, self._dies = suffix, meanwhile, dies
        self.has_paused = False

    def _writing(self, method: str, path: str, call: Callable[[], T]) -> T:
        if self.has_paused or method != "create" or not path.endswith(self._suffix):
            return call()
        self.has_paused = True
        CLOCK.sleep(LONGER_THAN_A_LEASE_S)
        self._meanwhile(self.inner)
        result = call()
        if self._dies:
            raise SimulatedCrash
        return result


def started(storage: Storage) -> TableWriter:
    to = on_clock(writer(storage), CLOCK)
    to.settings = replace(to.settings, metadata_table=False)
    return to


def five_versions() -> Storage:
    """Create a copy-on-write table with one row, which each of five commits wrote."""
    storage = new_storage()
    make_plain(storage, TableType.COPY_ON_WRITE)
    for number in range(5):
        commit(started(storage), [Row("a", number, number)])
    return storage


def commits(storage: Storage) -> list[str]:
    timeline = started(storage).table.timeline
    return [instant.requested_at for instant in timeline.completed(*COMMITS)]


def restore_to_the_second(storage: Storage) -> None:
    restore(started(storage).table.context, commits(storage)[1], False)


def roll_back_the_newest(storage: Storage) -> None:
    roll_back_named(started(storage).table.context, commits(storage)[-1])


def write_another_row(storage: Storage) -> None:
    commit(started(storage), [Row("b", 9, 9)])


def savepoint_the_first(storage: Storage) -> None:
    table = started(storage).table
    slices_as_of = lambda _, instant: table.view().as_of(instant).latest_slices()  # noqa: E731
    create_savepoint(table.context, commits(storage)[0], slices_as_of, "ann", "")


@pytest.mark.parametrize("dies", [False, True], ids=["resumes", "dies"])
@pytest.mark.parametrize(
    "meanwhile", [restore_to_the_second, roll_back_the_newest, savepoint_the_first]
)
def test_clean_planned_before_the_table_changed_deletes_no_needed_file(
    meanwhile: Act, dies: bool
) -> None:
    expected = five_versions()
    meanwhile(expected)
    storage = five_versions()
    late = LatePlan(storage, ".clean.requested", meanwhile, dies)
    with pytest.raises(SimulatedCrash if dies else LeaseLost):
        clean(started(late).table, ONE_COMMIT)
    clean(started(storage).table, ONE_COMMIT)
    clean(started(expected).table, ONE_COMMIT)
    assert late.has_paused
    assert contents(storage) == contents(expected)
    assert len(data_files(storage)) == len(data_files(expected))
    assert not started(storage).table.timeline.pending()
    write_another_row(storage)
    assert contents(storage) == {**contents(expected), "b": (9, 9)}


def request_late_restore(storage: Storage, meanwhile: Act, dies: bool) -> str:
    """Request a restore to the second commit, with an act of another process before it arrives.

    Returns the second commit.
    """
    second = commits(storage)[1]
    late = LatePlan(storage, ".restore.requested", meanwhile, dies)
    with pytest.raises(SimulatedCrash if dies else LeaseLost):
        restore(started(late).table.context, second, False)
    assert late.has_paused
    return second


@pytest.mark.parametrize("dies", [False, True], ids=["resumes", "dies"])
def test_restore_planned_before_another_commit_undoes_that_commit_too(dies: bool) -> None:
    storage = five_versions()
    second = request_late_restore(storage, write_another_row, dies)
    restore(started(storage).table.context, None, False)
    assert contents(storage) == {"a": (1, 1)}
    assert not started(storage).table.timeline.pending()
    assert commits(storage)[-1] == second


def clean_all_but_the_newest(storage: Storage) -> None:
    clean(started(storage).table, ONE_VERSION)


@pytest.mark.parametrize("dies", [False, True], ids=["resumes", "dies"])
def test_restore_planned_before_its_files_were_cleaned_is_removed(dies: bool) -> None:
    """A late restore is removed, because its execution would leave a table without rows."""
    storage = five_versions()
    request_late_restore(storage, clean_all_but_the_newest, dies)
    with pytest.raises(Refused, match=r"may be gone; .*requested was removed, and nothing was"):
        restore(started(storage).table.context, None, False)
    assert contents(storage) == {"a": (4, 4)}
    assert not started(storage).table.timeline.pending()
    write_another_row(storage)
    assert contents(storage) == {"a": (4, 4), "b": (9, 9)}


def compact_all(storage: Storage) -> None:
    assert started(storage).compact_if_due(CompactionPolicy(1), LocalRunner(1))


@pytest.mark.parametrize("dies", [False, True], ids=["resumes", "dies"])
@pytest.mark.parametrize("meanwhile", [write_another_row, compact_all])
def test_rollback_planned_before_others_wrote_onto_its_target_is_abandoned(
    meanwhile: Act, dies: bool
) -> None:
    storage = new_storage()
    make_plain(storage)
    for number in range(3):
        commit(started(storage), [Row("a", number, number)])
    late = LatePlan(storage, ".rollback.requested", meanwhile, dies)
    with pytest.raises(SimulatedCrash if dies else LeaseLost):
        roll_back_named(started(late).table.context, commits(storage)[-1])
    assert late.has_paused
    before = contents(storage)
    assert before["a"] == (2, 2)
    assert started(storage).recover() == []
    assert not started(storage).table.timeline.pending()
    assert contents(storage) == before
    commit(started(storage), [Row("a", 3, 3)])
    assert contents(storage) == {**before, "a": (3, 3)}


def compact_and_clean(storage: Storage) -> None:
    compact_all(storage)
    commit(started(storage), [Row("a", 2, 5)])
    compact_all(storage)
    clean(started(storage).table, ONE_VERSION)


def restore_the_first(storage: Storage) -> None:
    restore(started(storage).table.context, commits(storage)[0], True)


@pytest.mark.parametrize("dies", [False, True], ids=["resumes", "dies"])
@pytest.mark.parametrize("meanwhile", [compact_all, compact_and_clean, restore_the_first])
def test_compaction_planned_before_the_table_changed_is_removed(meanwhile: Act, dies: bool) -> None:
    storage = new_storage()
    make_plain(storage)
    for number in range(3):
        commit(started(storage), [Row("a", number, number)])
    late = LatePlan(storage, ".compaction.requested", meanwhile, dies)
    with pytest.raises(SimulatedCrash if dies else LeaseLost):
        compact_all(late)
    assert late.has_paused
    before = contents(storage)
    assert not started(storage).compact_if_due(CompactionPolicy(10**6), LocalRunner(1))
    assert not started(storage).table.timeline.pending()
    assert contents(storage) == before
    commit(started(storage), [Row("a", 3, 3)])
    compact_all(storage)
    assert contents(storage) == {**before, "a": (3, 3)}


@pytest.mark.parametrize("version", [FormatVersion.V9, FormatVersion.V6])
@pytest.mark.parametrize("dies", [False, True], ids=["resumes", "dies"])
def test_compaction_planned_before_another_commit_has_the_rows_of_that_commit(
    dies: bool, version: FormatVersion
) -> None:
    storage = new_storage()
    make_plain(storage, version=version)
    for number in (1, 2):
        commit(started(storage), [Row("a", number, number)])
    late = LatePlan(
        storage,
        ".compaction.requested",
        lambda other: commit(started(other), [Row("a", 3, 3)]),
        dies,
    )
    with pytest.raises(SimulatedCrash if dies else LeaseLost):
        request_compaction(started(late).table)
    assert late.has_paused
    assert contents(storage) == {"a": (3, 3)}
    assert started(storage).compact_if_due(CompactionPolicy(100), LocalRunner(1))
    assert contents(storage) == {"a": (3, 3)}


def three_commits(version: FormatVersion) -> Storage:
    storage = new_storage()
    make_plain(storage, version=version)
    for number in (1, 2, 3):
        commit(started(storage), [Row("a", number, number)])
    return storage


def compact_and_archive(storage: Storage) -> None:
    compact_all(storage)
    clean(started(storage).table, ONE_VERSION)
    write_and_archive(storage)


def write_and_archive(storage: Storage) -> None:
    """Commit and archive until all earlier instants are in the history."""
    for number in range(4, 10):
        commit(started(storage), [Row("b", number, number, region="south")])
        archive(started(storage).table, ARCHIVAL, None)


@pytest.mark.parametrize("version", [FormatVersion.V9, FormatVersion.V6])
@pytest.mark.parametrize("suffix", [".compaction.requested", ".deltacommit.requested"])
def test_rows_are_read_while_a_pending_instant_is_older_than_archived_ones(
    suffix: str, version: FormatVersion
) -> None:
    storage = three_commits(version)
    late = LatePlan(storage, suffix, compact_and_archive, dies=True)
    to = started(late)
    with pytest.raises(SimulatedCrash):
        commit(to, [Row("c", 1, 1)]) if "delta" in suffix else request_compaction(to.table)
    timeline = started(storage).table.timeline
    (pending,) = timeline.pending()
    newer = [name for name, _ in archived_names(storage) if name > pending.requested_at]
    assert newer, "an archived instant is newer than the pending one"
    assert contents(storage) == {"a": (3, 3), "b": (9, 9)}
    if (
        version is not FormatVersion.V6
    ):  # in version 6 an incremental query waits for the pending commit
        assert ("b", 9) in since(started(storage).table, pending.requested_at)
    commit(started(storage), [Row("a", 4, 4)])
    assert contents(storage) == {"a": (4, 4), "b": (9, 9)}
    started(storage).recover()
    assert not started(storage).compact_if_due(CompactionPolicy(10**6), LocalRunner(1))
    assert not started(storage).table.timeline.pending()
    assert contents(storage) == {"a": (4, 4), "b": (9, 9)}


def test_file_of_an_undone_instant_is_not_read_while_a_late_plan_is_pending() -> None:
    storage = three_commits(FormatVersion.V9)
    undone = []

    def begin_undo_and_archive(other: Storage) -> None:
        compact_all(other)
        slow = started(other)
        undone.append((slow, slow.begin(), slow.assigner.assign_file_groups()))
        assert started(other).recover() == [slow.pending_instant]
        write_and_archive(other)

    late = LatePlan(storage, ".compaction.requested", begin_undo_and_archive, dies=True)
    with pytest.raises(SimulatedCrash):
        request_compaction(started(late).table)
    (slow, context, assignment) = undone[0]
    for bucket, part in by_bucket(changes([Row("a", 8, 8)]), slow.settings.index):
        write_file_group(context, assignment.task(bucket), [part])
    assert [path for path in data_files(storage) if context.instant in path]
    assert contents(storage) == {"a": (3, 3), "b": (9, 9)}


def leave_commit_of_dead_writer(storage: Storage) -> None:
    write_files(started(storage), [Row("a", 8, 8)])


def recover_and_archive(storage: Storage) -> None:
    assert started(storage).recover()
    write_and_archive(storage)
    assert not [i for i in started(storage).table.timeline.instants if i.action is Action.ROLLBACK]


def commit_without_recovery(storage: Storage) -> None:
    commit(started(storage), [Row("c", 1, 1)])


def roll_back_a_dead_compaction(storage: Storage) -> None:
    to = started(storage)
    requested = request_compaction(to.table)
    assert requested is not None
    to.begin_compaction(requested)
    roll_back_named(to.table.context, requested[0].requested_at)


def compact_a_plan(storage: Storage) -> None:
    assert request_compaction(started(storage).table) is not None
    assert started(storage).compact_if_due(CompactionPolicy(10**6), LocalRunner(1))


def restore_the_newest_but_one(storage: Storage) -> None:
    restore(started(storage).table.context, commits(storage)[-2], True)


@pytest.mark.parametrize("version", [FormatVersion.V9, FormatVersion.V6])
@pytest.mark.parametrize("dies", [False, True], ids=["resumes", "dies"])
@pytest.mark.parametrize(
    "then",
    [
        commit_without_recovery,
        roll_back_the_newest,
        roll_back_a_dead_compaction,
        compact_a_plan,
        restore_the_newest_but_one,
        leave_commit_of_dead_writer,
    ],
)
def test_rollback_that_begins_after_it_was_archived_blocks_no_writer(
    then: Act, dies: bool, version: FormatVersion
) -> None:
    storage = three_commits(version)
    leave_commit_of_dead_writer(storage)
    late = LatePlan(storage, ".rollback.inflight", recover_and_archive, dies)
    with pytest.raises(SimulatedCrash if dies else LeaseLost):
        started(late).recover()
    assert late.has_paused
    left = started(storage).table.timeline.pending(Action.ROLLBACK)
    assert bool(left) == dies
    then(storage)
    started(storage).recover()
    started(storage).compact_if_due(CompactionPolicy(10**6), LocalRunner(1))
    assert not started(storage).table.timeline.pending()
    assert contents(storage)["a"] == (3, 3)
    commit(started(storage), [Row("a", 9, 9)])
    assert contents(storage)["a"] == (9, 9)


@pytest.mark.parametrize("version", [FormatVersion.V9, FormatVersion.V8, FormatVersion.V6])
@pytest.mark.parametrize("suffixes", [[".requested"], [".requested", ".inflight"]], ids=str)
@pytest.mark.parametrize("act", ["compact", "roll back", "recover"])
def test_plan_of_an_archived_compaction_that_is_created_again_is_not_executed(
    version: FormatVersion, suffixes: list[str], act: str
) -> None:
    """Rows that only the base file of the compaction contains stay in the table."""
    storage = three_commits(version)
    commit(started(storage), [Row(key, 7, 7) for key in "bcdefgh"])
    planned = request_compaction(started(storage).table)
    assert planned is not None
    name = planned[0].requested_at
    plan = next(i for i in storage.list_tree(".hoodie") if i.name.startswith(f"{name}.compaction"))
    content = storage.read(plan.path)
    assert started(storage).compact_if_due(CompactionPolicy(10**6), LocalRunner(1))
    for number in range(5):
        commit(started(storage), [Row("a", 10 + number, number)])
    assert clean(started(storage).table, ONE_COMMIT)
    assert archive(started(storage).table, ARCHIVAL, ONE_COMMIT)
    assert name in {archived for archived, _ in archived_names(storage)}
    expected = contents(storage)
    for suffix in suffixes:
        storage.create(f"{plan.path.removesuffix('.requested')}{suffix}", content)
    assert contents(storage) == expected
    if act == "roll back" and len(suffixes) > 1:
        assert not plan_rollback(started(storage).table.context, name).files
        assert not roll_back_named(started(storage).table.context, name).files
    elif act == "recover":
        started(storage).recover()
    assert contents(storage) == expected
    assert not started(storage).compact_if_due(CompactionPolicy(10**6), LocalRunner(1))
    assert not started(storage).table.timeline.pending()
    assert contents(storage) == expected
    commit(started(storage), [Row("a", 20, 9)])
    assert started(storage).compact_if_due(CompactionPolicy(1), LocalRunner(1))
    assert contents(storage) == {**expected, "a": (20, 9)}


@pytest.mark.parametrize("version", [FormatVersion.V9, FormatVersion.V6])
@pytest.mark.parametrize("table_type", list(TableType))
@pytest.mark.parametrize("act", ["restore", "roll back", "recover"])
def test_files_of_an_archived_commit_that_is_pending_again_are_kept(
    version: FormatVersion, table_type: TableType, act: str
) -> None:
    """A store may create an inflight file again; the files of its archived commit are kept."""
    storage = new_storage()
    make_plain(storage, table_type, version)
    archived = commit(started(storage), [Row(key, 1, 1) for key in "abcdefgh"])
    for number in range(2, 8):
        commit(started(storage), [Row("a", number, number)])
    assert archive(started(storage).table, ARCHIVAL, CleaningPolicy(commits=1))
    name = archived.requested_at
    assert name in {one for one, _ in archived_names(storage)}
    expected = contents(storage)
    to = started(storage).table
    to.store.create(Instant(name, archived.action, State.INFLIGHT))
    assert contents(storage) == expected
    if act == "restore":
        newest = commits(storage)[-1]
        restore(started(storage).table.context, newest, table_type is TableType.MERGE_ON_READ)
    elif act == "roll back":
        assert not roll_back_named(started(storage).table.context, name).files
    started(storage).recover()
    assert contents(storage) == expected
    assert not started(storage).table.timeline.pending()
    commit(started(storage), [Row("h", 9, 9)])
    assert contents(storage) == {**expected, "h": (9, 9)}


def clean_and_archive(storage: Storage) -> None:
    clean(started(storage).table, ONE_COMMIT)
    write_and_archive(storage)
    assert not [i for i in started(storage).table.timeline.instants if i.action is Action.CLEAN]


@pytest.mark.parametrize("dies", [False, True], ids=["resumes", "dies"])
def test_clean_that_begins_after_it_was_archived_is_not_completed_again(dies: bool) -> None:
    storage = five_versions()
    late = LatePlan(storage, ".clean.inflight", clean_and_archive, dies)
    with pytest.raises(SimulatedCrash if dies else Fenced):
        clean(started(late).table, ONE_COMMIT)
    assert late.has_paused
    before = contents(storage)
    clean(started(storage).table, CleaningPolicy(commits=100))
    timeline = started(storage).table.timeline
    assert not timeline.pending()
    archived = {name for name, action in archived_names(storage) if action == Action.CLEAN}
    assert archived
    assert archived.isdisjoint(i.requested_at for i in timeline.completed(Action.CLEAN))
    assert contents(storage) == before
