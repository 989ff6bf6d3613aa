"""Tables of version 6, whose log files are named after their slice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import pytest

from lakemark.config.table_properties import TableType
from lakemark.errors import CorruptData, Refused, Unsupported, WriteConflict
from lakemark.execution.runner import LocalRunner
from lakemark.model.action import COMMITS, Action, State
from lakemark.model.compaction_plan import CompactionPlan
from lakemark.model.file_slice import FileSlice
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.model.restore_plan import EMPTY_TABLE
from lakemark.operations.change_version import change_table_version
from lakemark.operations.clean import clean
from lakemark.operations.metadata_table import keep_metadata_table, metadata_differences
from lakemark.operations.open_table import OpenTable
from lakemark.services.cleaning_plan import CleaningPolicy, Retention
from lakemark.services.compaction import request_compaction
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.services.restore import restore
from lakemark.services.savepoint import create_savepoint
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.timeline.clock import UTC_CLOCK
from lakemark.timeline.content import encode_compaction_plan
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.instant_files import files_of, names_of
from lakemark.transaction.rollback import recover, roll_back_named
from lakemark.upgrade.change import change_version
from tests.storages import SimulatedCrash, WholeSeconds
from tests.storages.wrapped_storage import WrappedStorage
from tests.table_services import as_of, make_plain, new_storage
from tests.tables import Row, commit, contents, data_files, make, write_files, writer

T = TypeVar("T")


def table_with_logs() -> Storage:
    storage = new_storage()
    make_plain(storage, version=FormatVersion.V6)
    to = writer(storage)
    for v in (1, 2):
        commit(to, [Row("a", v, v), Row("b", v, v)])
    return storage


def planned_by_others(table: OpenTable, plan: CompactionPlan) -> Instant:
    """Plan a compaction while another writer is active, as another release may do."""
    at = table.store.clock.next_instant(table.store.load().newest_time)
    requested = Instant(at, Action.COMPACTION, State.REQUESTED)
    table.store.create(requested, encode_compaction_plan(plan))
    return requested


@pytest.mark.parametrize("names_the_log", [False, True])
def test_commit_conflicts_with_a_compaction_planned_since_its_begin(names_the_log: bool) -> None:
    storage = table_with_logs()
    to, other = writer(storage), writer(storage).table
    slices = other.view().slices_for_writing()
    written = write_files(to, [Row("a", 3, 3)])
    assert request_compaction(other.context, lambda _: slices) is None
    if names_the_log:  # Apache Hudi checks the timeline, but not its pending instants
        slices = writer(storage).table.view().slices_for_writing()
    compaction = planned_by_others(other, CompactionPlan.of(slices))
    with pytest.raises(WriteConflict, match="both write file group"):
        to.commit(written, {})
    to.abandon()
    assert contents(storage) == {"a": (2, 2), "b": (2, 2)}
    (undone,) = to.table.store.load().completed(Action.ROLLBACK)
    gone = names_of(to.table.store.read_rollback(undone).files)["north"]
    assert bool(gone) is not names_the_log, "a log that is kept is not reported as deleted"
    commit(to, [Row("a", 3, 3)])
    assert any(compaction.requested_at in path for path in data_files(storage))
    assert contents(storage) == {"a": (3, 3), "b": (2, 2)}
    to.compact_if_due(CompactionPolicy(9), LocalRunner(1))
    assert contents(storage) == {"a": (3, 3), "b": (2, 2)}
    assert not writer(storage).table.timeline.pending()


def test_log_of_a_dead_writer_is_found_by_its_blocks() -> None:
    storage = table_with_logs()
    before = data_files(storage)
    write_files(writer(storage), [Row("a", 3, 3)])
    for info in storage.list_tree(".hoodie/.temp"):
        storage.delete([info.path])
    assert data_files(storage) != before
    assert recover(writer(storage).table.context)
    assert data_files(storage) == before
    assert contents(storage) == {"a": (2, 2), "b": (2, 2)}


def test_savepoint_that_lists_logs_of_later_commits_can_be_restored_twice() -> None:
    storage = table_with_logs()
    kept, *_ = reversed(writer(storage).table.timeline.completed())
    commit(writer(storage), [Row("a", 3, 3)])
    table = writer(storage).table

    def slices_as_of(timeline: Timeline, instant: str) -> Iterable[FileSlice]:
        table.refresh(timeline)
        return table.view().as_of(instant).latest_slices()

    create_savepoint(table.context, kept.requested_at, slices_as_of, "ann", "")
    for v in (4, 5):
        restore(writer(storage).table.context, kept.requested_at, is_merge_on_read=True)
        assert contents(storage) == {"a": (2, 2), "b": (2, 2)}
        commit(writer(storage), [Row("a", v, v)])
    own = next(path for path in data_files(storage) if ".log." in path)
    storage.delete([own])
    with pytest.raises(Refused, match="which its savepoint keeps, is gone"):
        restore(writer(storage).table.context, kept.requested_at, is_merge_on_read=True)


class _ConcurrentCleaner(WrappedStorage):
    """Deletes log files right after they were listed, as another writer's clean may do."""

    def _reading(self, method: str, path: str, call: Callable[[], T]) -> T:
        if method == "open" and ".log." in path:
            self.inner.delete([path])
        return call()


def test_log_that_was_cleaned_meanwhile_belongs_to_no_instant() -> None:
    storage = table_with_logs()
    write_files(writer(storage), [Row("a", 3, 3)])
    dead = writer(storage).table
    context = replace(dead.context, storage=_ConcurrentCleaner(storage))
    assert not [path for path in files_of(context, "20200101000000000") if ".log." in path]


def test_damaged_log_belongs_to_no_instant_unless_a_marker_names_it() -> None:
    storage = table_with_logs()
    log = next(path for path in data_files(storage) if ".log." in path)
    damaged = log.replace(".log.1_", ".log.9_")
    storage.create(damaged, b"\0" * 100)
    write_files(writer(storage), [Row("a", 3, 3)])
    (undone,) = recover(writer(storage).table.context)
    assert damaged in data_files(storage)
    storage.create(f".hoodie/.temp/{undone}/{damaged}.marker.CREATE", b"")
    with pytest.raises(CorruptData, match="a log block's magic"):
        files_of(writer(storage).table.context, undone)


def test_metadata_table_is_expected_to_list_a_log_once_its_commit_completed() -> None:
    storage = table_with_logs()
    writer(storage).recover()  # builds the metadata table
    to = writer(storage)
    written = write_files(to, [Row("a", 3, 3)])
    assert metadata_differences(writer(storage).table) == []
    to.commit(written, {})
    assert metadata_differences(writer(storage).table) == []
    log = next(path for path in data_files(storage) if ".log." in path)
    copied = log.replace(".log.1_", ".log.9_")
    storage.create(copied, storage.read(log))
    (difference,) = metadata_differences(writer(storage).table)
    assert (difference.path, difference.stored) == (copied, "absent")


def test_metadata_table_built_in_the_same_second_as_a_commit_is_kept() -> None:
    is_of_that_second = False
    while not is_of_that_second:  # retry if a busy machine was too slow
        storage = WholeSeconds(new_storage())
        make_plain(storage, version=FormatVersion.V6)
        while datetime.now(UTC).microsecond > 500_000:
            time.sleep(0.05)
        first = commit(writer(storage), [Row("a", 1, 1)])
        writer(storage).recover()  # builds the metadata table
        completed = [
            info
            for info in storage.list_folder(".hoodie/metadata/.hoodie")[1]
            if info.name.endswith(".deltacommit")
        ]
        made = min(completed, key=lambda info: info.name)
        is_of_that_second = UTC_CLOCK.format(made.modified_at) < (first.completed_at or "")
    commit(writer(storage), [Row("a", 2, 2)])
    assert keep_metadata_table(writer(storage).table) is None
    assert contents(storage) == {"a": (2, 2)}


def test_time_travel_uses_requested_times_if_the_store_reports_whole_seconds() -> None:
    storage = WholeSeconds(new_storage())
    make_plain(storage, version=FormatVersion.V6)
    past = {}
    for v in range(1, 6):
        to = writer(storage)
        at = commit(to, [Row("ab"[v % 2], v, v)]).requested_at
        past[at] = contents(storage)
        to.compact_if_due(CompactionPolicy(2), LocalRunner(1))
    assert {at: as_of(writer(storage).table, at) for at in past} == past


class _StopsInMetadataCompaction(WrappedStorage):
    """Kills the process before a compaction of the metadata table completes."""

    def _writing(self, method: str, path: str, call: Callable[[], T]) -> T:
        if path.startswith(".hoodie/metadata/.hoodie/") and path.endswith("001.commit"):
            raise SimulatedCrash
        return call()


def test_clean_after_a_dead_metadata_compaction_is_not_lost() -> None:
    storage = new_storage()
    make_plain(storage, TableType.COPY_ON_WRITE, FormatVersion.V6)
    dying = writer(_StopsInMetadataCompaction(storage))
    keep_metadata_table(dying.table)
    with pytest.raises(SimulatedCrash):
        for v in range(12):
            commit(dying, [Row("a", v, v)])
    next_one = writer(storage)
    next_one.recover()
    assert clean(next_one.table, CleaningPolicy(Retention.FILE_VERSIONS, file_versions=1))
    assert metadata_differences(writer(storage).table) == []
    for v in range(12, 24):
        commit(next_one, [Row("a", v, v)])
        assert metadata_differences(writer(storage).table) == []


def test_rollback_of_a_commit_appended_to_a_log_is_refused() -> None:
    storage = table_with_logs()
    last = commit(writer(storage), [Row("a", 3, 3), Row("b", 3, 3)])
    first, second = sorted(p for p in data_files(storage) if ".log." in p and "00000000" in p)[:2]
    storage.put(second, storage.read(first) + storage.read(second))
    with pytest.raises(Unsupported, match="an older release appended to it; roll back with"):
        roll_back_named(writer(storage).table.context, last.requested_at)
    assert contents(storage) == {"a": (3, 3), "b": (3, 3)}


def test_logs_of_several_commits_stop_only_restores_to_a_commit_and_before_any_change() -> None:
    storage = table_with_logs()
    first = writer(storage).table.timeline.completed()[0].requested_at
    commit(writer(storage), [Row("a", 3, 3), Row("b", 3, 3)])
    logs = sorted(p for p in data_files(storage) if ".log." in p and "00000000" in p)
    storage.put(logs[1], storage.read(logs[0]) + storage.read(logs[1]))
    before = storage.list_tree(".hoodie")
    with pytest.raises(Unsupported, match="an older release appended to it"):
        restore(writer(storage).table.context, first, is_merge_on_read=True)
    assert not writer(storage).table.timeline.pending()
    assert [i.path for i in before if "/.locks/" not in i.path] == [
        i.path for i in storage.list_tree(".hoodie") if "/.locks/" not in i.path
    ]
    restore(writer(storage).table.context, EMPTY_TABLE, is_merge_on_read=True)
    assert contents(storage) == {}
    assert data_files(storage) == []


def test_downgrade_with_logs_is_refused_if_the_store_sets_no_modification_times() -> None:
    storage = new_storage()
    make(storage)
    to = writer(storage)
    for v in (1, 2):
        commit(to, [Row("a", v, v), Row("b", v, v)])
    with pytest.raises(Refused, match="first: lakemark table compact TABLE --run"):
        change_version(to.table.context, FormatVersion.V6)
    to.compact_if_due(CompactionPolicy(1), LocalRunner(1))
    clean(to.table, CleaningPolicy(Retention.FILE_VERSIONS, file_versions=1))
    change_version(to.table.context, FormatVersion.V6)
    assert contents(storage) == {"a": (2, 2), "b": (2, 2)}
    commit(writer(storage), [Row("a", 3, 3)])
    assert contents(storage) == {"a": (3, 3), "b": (2, 2)}


@pytest.mark.parametrize("version", [FormatVersion.V6, FormatVersion.V8])
def test_version_change_is_refused_if_a_commit_followed_the_compaction(
    version: FormatVersion, tmp_path: Path
) -> None:
    storage = open_storage(StorageLocation(str(tmp_path)))
    make(storage)
    to = writer(storage)
    rows = {str(at): (1, 1) for at in range(9)}
    commit(to, [Row(key, 1, 1) for key in rows])
    to.compact_if_due(CompactionPolicy(1), LocalRunner(1))
    commit(to, [Row("1", 3, 3)])
    with pytest.raises(Refused, match="is not merged yet; stop the table's writers"):
        change_version(to.table.context, version)
    assert contents(storage) == {**rows, "1": (3, 3)}
    assert writer(storage).table.version is FormatVersion.V9


@pytest.mark.parametrize(
    ("before", "after"),
    [(FormatVersion.V6, FormatVersion.V9), (FormatVersion.V9, FormatVersion.V6)],
)
def test_writer_of_the_old_version_is_refused_when_it_begins(
    before: FormatVersion, after: FormatVersion, tmp_path: Path
) -> None:
    storage = open_storage(StorageLocation(str(tmp_path)))
    make_plain(storage, version=before)
    to = writer(storage)
    commit(to, [Row("a", 1, 1)])
    change_version(writer(storage).table.context, after)
    files = data_files(storage)
    with pytest.raises(Refused, match=f"has version {after:d} now; start again"):
        commit(to, [Row("a", 2, 2)])
    assert data_files(storage) == files
    commit(writer(storage), [Row("a", 3, 3)])
    assert contents(storage) == {"a": (3, 3)}


def test_writer_of_the_old_version_is_refused_when_it_completes() -> None:
    storage = new_storage()
    make_plain(storage, version=FormatVersion.V8)
    late = writer(storage)
    late.table.refresh()
    change_version(writer(storage).table.context, FormatVersion.V9)
    with pytest.raises(Refused, match="had version 8 when it was opened, and has version 9"):
        commit(late, [Row("a", 2, 2)])
    with pytest.raises(Refused, match="start again"):
        late.abandon()
    assert not data_files(storage)
    assert not late.table.store.load().pending()


@pytest.mark.parametrize("is_restored", [True, False], ids=["restored", "rolled back"])
def test_rows_in_logs_of_version_6_are_undone_after_an_upgrade(is_restored: bool) -> None:
    """A rollback after an upgrade finds logs of version 6.

    The name of such a log contains its slice, not the commit that is undone.
    """
    storage = new_storage()
    make_plain(storage, version=FormatVersion.V6)
    for value in (1, 2, 3, 4):
        commit(writer(storage), [Row("a", value, value)])
    change_table_version(writer(storage).table, FormatVersion.V9, LocalRunner(1))
    to = writer(storage)
    assert to.table.version is FormatVersion.V9
    commits = [i.requested_at for i in to.table.timeline.completed(*COMMITS)]
    if is_restored:
        restore(to.table.context, commits[2], is_merge_on_read=True)
    else:  # the compaction that the upgrade needs, and the fourth commit
        for name in reversed(commits[3:]):
            roll_back_named(writer(storage).table.context, name)
    assert contents(storage) == {"a": (3, 3)}
    commit(writer(storage), [Row("b", 5, 5)])
    assert contents(storage) == {"a": (3, 3), "b": (5, 5)}
