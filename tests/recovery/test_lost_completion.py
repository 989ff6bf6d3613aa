"""A commit whose completed file was lost is not mistaken for the commit of a dead writer."""

from __future__ import annotations

from contextlib import suppress

import pytest

from lakemark.config.table_properties import TableType
from lakemark.errors import Refused
from lakemark.model.action import State
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.operations.compact import request_compaction
from lakemark.operations.metadata_table import keep_metadata_table, metadata_differences
from lakemark.services.savepoint import create_savepoint
from lakemark.storage import Storage
from lakemark.transaction.rollback import roll_back_named
from tests.recovery.scenarios import slices_as_of
from tests.storages import SimulatedCrash, WatchedStorage
from tests.table_services import make_plain, new_storage
from tests.tables import Row, commit, contents, data_files, make, write_files, writer

ROWS = [Row("a", 1, 1), Row("b", 1, 1, region="south")]
either_version = pytest.mark.parametrize("version", [FormatVersion.V9, FormatVersion.V6])


def table(*times: int, version: FormatVersion = FormatVersion.V9) -> tuple[Storage, list[Instant]]:
    storage = new_storage()
    make_plain(storage, version=version)
    to = writer(storage)
    keep_metadata_table(to.table)
    return storage, [_commit(storage, ts) for ts in times]


def _commit(storage: Storage, ts: int) -> Instant:
    return commit(writer(storage), [Row(row.id, ts, ts, row.region) for row in ROWS])


def lose(storage: Storage, instant: Instant) -> tuple[str, bytes]:
    """Delete the completed file of a commit, and return its path and content."""
    path = writer(storage).table.store.path_of(instant)
    content = storage.read(path)
    storage.delete([path])
    return path, content


def as_of_another(storage: Storage, instant: Instant) -> None:
    """Make a commit look like one of Apache Hudi, whose inflight file names no writer."""
    storage.put(writer(storage).table.store.path_of(_inflight(instant)), b"")


def keep(storage: Storage, instant: Instant) -> None:
    to = writer(storage)
    create_savepoint(to.table.context, instant.requested_at, slices_as_of(to), "ann", "")


def _inflight(instant: Instant) -> Instant:
    return Instant(instant.requested_at, instant.action, State.INFLIGHT)


def assert_kept(storage: Storage, instant: Instant, proof: str) -> None:
    before = data_files(storage)
    with pytest.raises(Refused, match=proof) as refusal:
        writer(storage).recover()
    assert instant.requested_at in str(refusal.value)
    assert data_files(storage) == before


@either_version
def test_rows_are_visible_again_once_the_lost_file_is_restored(version: FormatVersion) -> None:
    storage, (_, newest) = table(1, 2, version=version)
    path, content = lose(storage, newest)
    assert_kept(storage, newest, "markers")
    storage.put(path, content)
    writer(storage).recover()
    assert contents(storage) == {"a": (2, 2), "b": (2, 2)}


@either_version
def test_rollback_gives_up_the_rows_of_a_lost_commit(version: FormatVersion) -> None:
    storage, (_, newest) = table(1, 2, version=version)
    lose(storage, newest)
    roll_back_named(writer(storage).table.context, newest.requested_at)
    restarted = writer(storage)
    restarted.recover()
    assert contents(storage) == {"a": (1, 1), "b": (1, 1)}
    assert metadata_differences(restarted.table) == []


def test_lost_commit_with_later_commits_is_kept_too() -> None:
    storage, (_, middle, _) = table(1, 2, 3)
    lose(storage, middle)
    assert_kept(storage, middle, "markers")


@pytest.mark.parametrize("instants_path", [".hoodie/timeline/", ".hoodie/metadata/"])
def test_commit_of_a_writer_that_died_before_it_completed_is_undone(instants_path: str) -> None:
    storage, _ = table(1)

    def die(method: str, path: str) -> None:
        if method == "publish" and path.startswith(instants_path):
            raise SimulatedCrash

    with suppress(SimulatedCrash):
        _commit(WatchedStorage(storage, die), 2)
    assert writer(storage).recover()
    assert contents(storage) == {"a": (1, 1), "b": (1, 1)}


def test_commit_of_a_dead_writer_whose_markers_were_deleted_is_undone() -> None:
    storage, _ = table(1)
    write_files(writer(storage), ROWS)
    storage.delete([info.path for info in storage.list_tree(".hoodie/.temp")])
    assert writer(storage).recover()
    assert contents(storage) == {"a": (1, 1), "b": (1, 1)}


def test_pending_commit_without_files_is_undone() -> None:
    storage, _ = table(1)
    lose(storage, commit(writer(storage), []))
    assert writer(storage).recover()
    assert contents(storage) == {"a": (1, 1), "b": (1, 1)}


def test_commit_with_a_savepoint_counts_as_completed() -> None:
    storage, (_, newest) = table(1, 2)
    keep(storage, newest)
    as_of_another(storage, newest)
    lose(storage, newest)
    assert_kept(storage, newest, "savepoint")


def test_commit_whose_logs_are_in_a_compaction_plan_counts_as_completed() -> None:
    storage, (_, newest) = table(1, 2)
    requested = request_compaction(writer(storage).table)
    assert requested is not None
    as_of_another(storage, newest)
    lose(storage, newest)
    assert_kept(storage, newest, "contains some of its logs")


def test_commit_whose_base_files_were_replaced_counts_as_completed() -> None:
    storage = new_storage()
    make(storage, TableType.COPY_ON_WRITE)
    _, middle, _ = (_commit(storage, ts) for ts in (1, 2, 3))
    as_of_another(storage, middle)
    lose(storage, middle)
    assert_kept(storage, middle, "replaced one of its base files")
