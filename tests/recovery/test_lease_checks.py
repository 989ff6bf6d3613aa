"""The writer checks its lease right before each step that changes the table under its lock.

Other tests show what ``Lease.check`` does. Here a storage records its requests, and the check of
the lock must come right before (or after) the step. Without one of these checks a process that was
paused could change the table after another process has acquired the lock.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from lakemark.config.table_properties import TableType
from lakemark.execution.runner import LocalRunner
from lakemark.model.action import COMMITS, Action, State
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.operations.archive import archive
from lakemark.operations.clean import clean
from lakemark.operations.metadata_table import drop_metadata_table, keep_metadata_table
from lakemark.operations.table_writer import TableWriter
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.cleaning import claim
from lakemark.services.cleaning_plan import CleaningPolicy, Retention
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.services.restore import restore
from lakemark.services.savepoint import create_savepoint, delete_savepoint
from lakemark.storage import Storage
from lakemark.timeline.locks.lock_provider import LOCK_PATH
from lakemark.transaction.heartbeat import HEARTBEAT_FOLDER
from lakemark.transaction.rollback import roll_back_named
from lakemark.upgrade.change import change_version
from tests.storages import CountingStorage
from tests.table_services import copy_of, make_plain, new_storage
from tests.tables import Row, commit, write_files, writer
from tests.writers import shared_writer

Act = Callable[[TableWriter], object]

LEASE_CHECK = f"read_versioned {LOCK_PATH}"
ONE_COMMIT = CleaningPolicy(commits=1)
VERSIONS = (FormatVersion.V6, FormatVersion.V9)


def opened(storage: Storage) -> TableWriter:
    return shared_writer(storage, has_metadata=False)


@pytest.fixture(scope="module", params=[*TableType])
def written(request: pytest.FixtureRequest) -> Storage:
    """A table with five commits of the same row."""
    storage = new_storage()
    make_plain(storage, request.param)
    for number in range(5):
        commit(opened(storage), [Row("a", number, number)])
    return storage


def first(to: TableWriter) -> str:
    return to.table.timeline.completed(*COMMITS)[0].requested_at


def last(to: TableWriter) -> str:
    return to.table.timeline.completed(*COMMITS)[-1].requested_at


def write(to: TableWriter) -> None:
    commit(to, [Row("a", 9, 9)])


def undo_own(to: TableWriter) -> None:
    write_files(to, [Row("a", 9, 9)])
    to.abandon()


def delete_late_files(to: TableWriter) -> None:
    """Delete files that were written after another writer had undone the instant."""
    (late,) = write_files(to, [Row("a", 9, 9)])
    storage = to.table.storage
    storage.delete([info.path for info in storage.list_folder(HEARTBEAT_FOLDER)[1]])
    writer(storage).recover()
    storage.put(late.path or "", b"late")
    assert isinstance(storage, CountingStorage)
    storage.forget()  # the requests of the other writer
    to.abandon()


def drop_lost_plan(to: TableWriter) -> None:
    requested = Instant("20200101000000000", Action.CLEAN, State.REQUESTED)
    to.table.store.create(requested)
    assert claim(to.table.context, requested) is None


def roll_back_last(to: TableWriter) -> None:
    roll_back_named(to.table.context, last(to))


def restore_to_first(to: TableWriter) -> None:
    restore(to.table.context, first(to), to.table.properties.is_merge_on_read)


def savepoint_last(to: TableWriter) -> None:
    create_savepoint(to.table.context, last(to), lambda timeline, at: (), "ann", "")


def delete_last_savepoint(to: TableWriter) -> None:
    savepoint_last(to)
    delete_savepoint(to.table.context, last(to))


def compact_and_clean(to: TableWriter) -> None:
    for _ in range(3):
        commit(to, [Row("a", 9, 9)])
        to.compact_if_due(CompactionPolicy(1), LocalRunner(1))
    clean(to.table, ONE_COMMIT)


def archive_instants(to: TableWriter) -> None:
    assert archive(to.table, ArchivalPolicy(2, 4, delta_commits_to_compact=1), None)


def downgrade(to: TableWriter) -> None:
    """Change the timeline layout, after all logs are compacted and cleaned."""
    to.compact_if_due(CompactionPolicy(1), LocalRunner(1))
    clean(to.table, CleaningPolicy(Retention.FILE_VERSIONS, file_versions=1))
    change_version(to.table.context, FormatVersion.V6)


def make_metadata_table(to: TableWriter) -> None:
    assert keep_metadata_table(to.table) == "there is none"


def drop_new_metadata_table(to: TableWriter) -> None:
    make_metadata_table(to)
    storage = to.table.storage
    assert isinstance(storage, CountingStorage)
    storage.forget()
    drop_metadata_table(to.table)


#: An operation; its step, by method and a part of the path; whether the check comes after it.
STEPS: list[tuple[Act, str, str, bool]] = [
    (write, "create", ".inflight", True),
    (write, "publish", "", False),
    (undo_own, "create", ".rollback.requested", False),
    (undo_own, "create", ".rollback.inflight", False),
    (undo_own, "create", ".rollback.inflight", True),
    (undo_own, "delete", "north/", False),
    (undo_own, "publish", "", False),
    (delete_late_files, "delete", "north/", False),
    (roll_back_last, "create", ".rollback.requested", False),
    (roll_back_last, "delete", ".hoodie/timeline/", False),
    (roll_back_last, "delete", "north/", False),
    (roll_back_last, "publish", "", False),
    (restore_to_first, "create", ".restore.requested", False),
    (restore_to_first, "create", ".restore.requested", True),
    (restore_to_first, "delete", ".hoodie/timeline/", False),
    (restore_to_first, "publish", "", False),
    (savepoint_last, "create", ".savepoint.inflight", False),
    (savepoint_last, "publish", "", False),
    (delete_last_savepoint, "delete", ".hoodie/timeline/", False),
    (compact_and_clean, "create", ".clean.requested", False),
    (compact_and_clean, "create", ".clean.requested", True),
    (compact_and_clean, "publish", "clean", False),
    (drop_lost_plan, "delete", ".clean.", False),
    (archive_instants, "create", "manifest_", False),
    (archive_instants, "delete", ".hoodie/timeline/", False),
    (downgrade, "create", ".hoodie/20", False),
    (downgrade, "delete", ".hoodie/timeline/", False),
    (make_metadata_table, "create", ".hoodie/metadata/.hoodie/hoodie.properties", False),
    (make_metadata_table, "put", "index.json", False),
    (make_metadata_table, "replace", ".hoodie/hoodie.properties", False),
    (drop_new_metadata_table, "replace", ".hoodie/hoodie.properties", False),
    (drop_new_metadata_table, "delete", ".hoodie/metadata/.hoodie/hoodie.properties", False),
]


@pytest.mark.parametrize(("act", "method", "path", "is_after"), STEPS)
def test_writer_checks_its_lease_right_before_each_step(
    written: Storage, act: Act, method: str, path: str, is_after: bool
) -> None:
    _check_lease_check(copy_of(written), act, method, path, is_after)


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("state", ["requested", "inflight"])
def test_writer_checks_its_lease_before_and_after_each_step_of_a_compaction(
    state: str, is_after: bool
) -> None:
    storage = new_storage()
    make_plain(storage)
    commit(opened(storage), [Row("a", 1, 1)])
    _check_lease_check(storage, compact_and_clean, "create", f".compaction.{state}", is_after)


def _check_lease_check(storage: Storage, act: Act, method: str, path: str, is_after: bool) -> None:
    counting = CountingStorage(storage)
    act(opened(counting))
    requests = [f"{r.method} {r.path}" for r in counting.requests]
    pairs = [pair[::-1] if is_after else pair for pair in pairwise(requests)]
    found = [before for before, step in pairs if step.startswith(f"{method} ") and path in step]
    assert found, f"no {method} of {path} in {requests}"
    assert found[0] == LEASE_CHECK, requests
