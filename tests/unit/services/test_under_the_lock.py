"""Services check the table again under the lock, and change nothing once they have lost it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from lakemark.config.table_properties import PROPERTIES_PATH, TableProperties, TableType
from lakemark.errors import Refused
from lakemark.execution.runner import LocalRunner
from lakemark.model.action import Action, State
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.operations.archive import archive
from lakemark.operations.clean import clean
from lakemark.operations.compact import request_compaction
from lakemark.operations.metadata_table import (
    compact_metadata_table,
    drop_metadata_table,
    keep_metadata_table,
    rebuild_metadata_table,
)
from lakemark.operations.open_table import OpenTable
from lakemark.operations.table_writer import TableWriter
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import Storage
from lakemark.timeline.locks.table_lock import LeaseLost
from lakemark.transaction.rollback import roll_back_named
from lakemark.upgrade.change import change_version
from tests.protocol.actors import A_HEARTBEAT_AND_MORE_S, A_LEASE_AND_MORE_S, ARCHIVAL, CLEANING
from tests.protocol.virtual_time import VirtualTime, on_virtual_time
from tests.storages import SimulatedCrash
from tests.storages.interrupted_storage import InterruptedStorage
from tests.table_services import HISTORY
from tests.tables import Row, commit, data_files, write_files
from tests.unit.transaction.shared_table import Table, next_time

V6, V8, V9 = FormatVersion.V6, FormatVersion.V8, FormatVersion.V9

Service = Callable[[TableWriter], object]
IsBefore = Callable[[int, str, str], bool]


@pytest.fixture
def clock() -> Iterator[VirtualTime]:
    with on_virtual_time() as virtual:
        yield virtual


def put_away(to: TableWriter) -> object:
    return archive(to.table, ARCHIVAL, None)


def clean_up(to: TableWriter) -> object:
    return clean(to.table, CLEANING)


def compact(to: TableWriter) -> object:
    return to.compact_if_due(CompactionPolicy(1), LocalRunner(1))


def to_version_6(to: TableWriter) -> object:
    return change_version(to.table.context, V6)


def to_version_8(to: TableWriter) -> object:
    return change_version(to.table.context, V8)


def with_commits(
    clock: VirtualTime,
    count: int = 4,
    table_type: TableType = TableType.COPY_ON_WRITE,
    version: FormatVersion = V9,
) -> Table:
    table = Table(clock, table_type, version)
    for value in range(2, 2 + count):
        commit(table.open(), [Row("a", value, value)])
    return table


def is_lock(number: int, method: str, path: str) -> bool:
    return ".locks/" in path


def at(method: str, part: str) -> IsBefore:
    """Select the first request of this method whose path contains the part."""
    return lambda _, asked, path: asked == method and part in path


def meeting(table: Table, meanwhile: Callable[[], object], is_before: IsBefore) -> TableWriter:
    """Open a writer that has read the table and is interrupted before a request."""
    storage = InterruptedStorage(table.storage, meanwhile)
    to = table.open(storage)
    to.table.refresh()
    storage.is_before = is_before
    return to


def losing_the_lock(table: Table, is_before: IsBefore) -> TableWriter:
    """Open a writer that pauses before a request for longer than its lease."""
    return meeting(table, lambda: table.clock.sleep(A_LEASE_AND_MORE_S), is_before)


def version_of(table: Table) -> int:
    return TableProperties.parse(table.storage.read(PROPERTIES_PATH)).version


def names_in(storage: Storage, folder: str) -> list[str]:
    return [info.name for info in storage.list_folder(folder)[1]]


# What has changed before the lock was acquired


@pytest.mark.parametrize("service", [put_away, clean_up, to_version_6, to_version_8])
def test_nothing_is_done_if_a_restore_began_before_the_lock_was_acquired(
    clock: VirtualTime, service: Service
) -> None:
    table = with_commits(clock)

    def restore() -> None:
        to = table.open()
        to.table.store.create(Instant(next_time(to), Action.RESTORE, State.REQUESTED))

    before = names_in(table.storage, ".hoodie/timeline")
    with pytest.raises(Refused, match="complete it first"):
        service(meeting(table, restore, is_lock))
    added = set(names_in(table.storage, ".hoodie/timeline")) - set(before)
    assert [name.endswith(".restore.requested") for name in added] == [True]
    assert version_of(table) == V9


@pytest.mark.parametrize("service", [to_version_6, to_version_8])
def test_a_table_on_which_a_writer_began_before_the_lock_was_acquired_keeps_its_version(
    clock: VirtualTime, service: Service
) -> None:
    table = with_commits(clock)
    ours = table.open()
    written = []
    to = meeting(table, lambda: written.extend(write_files(ours, [Row("b", 9, 9)])), is_lock)
    with pytest.raises(Refused, match="is pending"):
        service(to)
    ours.commit(written, {})
    assert table.rows() == {"a": 5, "b": 9}


@pytest.mark.parametrize("version", [V6, V9])
def test_a_compaction_holds_what_was_committed_before_the_lock_was_acquired(
    clock: VirtualTime, version: FormatVersion
) -> None:
    table = with_commits(clock, 1, TableType.MERGE_ON_READ, version)
    to = meeting(table, lambda: commit(table.open(), [Row("a", 9, 9)]), is_lock)
    requested = request_compaction(to.table)
    assert requested is not None
    (operation,) = requested[1].operations
    assert len(operation.log_files) == 2
    assert compact(table.open())
    assert table.rows() == {"a": 9}


# What is not done without the lock


def test_an_archiver_that_loses_the_lock_takes_nothing_off_the_timeline(
    clock: VirtualTime,
) -> None:
    table = with_commits(clock)
    before = names_in(table.storage, ".hoodie/timeline")
    with pytest.raises(LeaseLost):
        put_away(losing_the_lock(table, at("create", "_version_")))
    assert names_in(table.storage, ".hoodie/timeline") == before


def test_an_archiver_that_loses_the_lock_deletes_nothing_of_the_history(
    clock: VirtualTime,
) -> None:
    table = with_commits(clock)
    for value in range(1, 4):
        put_away(table.open())
        for more in range(3):
            commit(table.open(), [Row("a", 10 * value + more, 10 * value + more)])
    before = set(names_in(table.storage, HISTORY))
    assert "manifest_1" in before
    with pytest.raises(LeaseLost):
        put_away(losing_the_lock(table, at("delete", ".hoodie/timeline/2")))
    assert before <= set(names_in(table.storage, HISTORY))
    put_away(table.open())
    commit(table.open(), [Row("a", 99, 99)])
    assert table.rows() == {"a": 99}


def test_an_archiver_that_loses_the_lock_does_not_complete_what_another_began(
    clock: VirtualTime,
) -> None:
    table = with_commits(clock)
    put_away(table.open())
    for value in range(3):
        commit(table.open(), [Row("a", 10 + value, 10 + value)])
    put_away(table.open())
    for value in range(3):
        commit(table.open(), [Row("a", 20 + value, 20 + value)])
    assert "manifest_2" in names_in(table.storage, HISTORY)
    table.storage.put(f"{HISTORY}/_version_", b"1")  # as an archiver that died before it
    with pytest.raises(LeaseLost):
        put_away(losing_the_lock(table, at("list_folder", HISTORY)))
    assert table.storage.read(f"{HISTORY}/_version_") == b"1"
    assert put_away(table.open())


def test_an_archiver_that_loses_the_lock_deletes_no_late_file(clock: VirtualTime) -> None:
    """The file is kept, because by now it may belong to a compaction that was executed again."""
    table = with_commits(clock, 1)
    undone = commit(table.open(), [Row("a", 3, 3)]).requested_at
    (late,) = (path for path in data_files(table.storage) if undone in path)
    content = table.storage.read(late)
    roll_back_named(table.open().table.context, undone)
    for value in range(4, 9):
        commit(table.open(), [Row("a", value, value)])
    table.storage.put(late, content)
    with pytest.raises(LeaseLost):
        put_away(losing_the_lock(table, at("list_tree", "north")))
    assert late in data_files(table.storage)
    assert put_away(table.open())
    assert late not in data_files(table.storage)


def test_an_upgrade_that_loses_the_lock_keeps_the_metadata_table(clock: VirtualTime) -> None:
    table = with_commits(clock)
    assert keep_metadata_table(table.open().table)
    to = losing_the_lock(table, at("read", PROPERTIES_PATH))
    with pytest.raises(LeaseLost):
        to_version_8(to)
    properties = TableProperties.parse(table.storage.read(PROPERTIES_PATH))
    assert properties.metadata_partitions


def test_an_upgrade_that_loses_the_lock_keeps_the_version(clock: VirtualTime) -> None:
    table = with_commits(clock)
    assert keep_metadata_table(table.open().table)
    with pytest.raises(LeaseLost):
        to_version_8(losing_the_lock(table, at("delete", ".hoodie/metadata/")))
    assert version_of(table) == V9
    assert table.rows() == {"a": 5}


def test_an_upgrade_that_loses_the_lock_writes_no_more_of_the_new_timeline(
    clock: VirtualTime,
) -> None:
    table = with_commits(clock)
    with pytest.raises(LeaseLost):
        to_version_6(losing_the_lock(table, at("create", ".hoodie/2")))
    assert len([n for n in names_in(table.storage, ".hoodie") if n.startswith("2")]) == 1
    assert table.rows() == {"a": 5}


def test_an_upgrade_looks_at_the_lock_after_it_has_read_what_it_writes(
    clock: VirtualTime,
) -> None:
    table = with_commits(clock)
    with pytest.raises(LeaseLost):
        to_version_6(losing_the_lock(table, at("read", ".hoodie/timeline/2")))
    assert not [n for n in names_in(table.storage, ".hoodie") if n.startswith("2")]


@pytest.mark.parametrize("makes", [keep_metadata_table, rebuild_metadata_table])
def test_a_metadata_table_that_is_made_without_the_lock_is_not_trusted(
    clock: VirtualTime, makes: Callable[[OpenTable], object]
) -> None:
    table = with_commits(clock)

    def others_go_on() -> None:
        clock.sleep(A_LEASE_AND_MORE_S)
        commit(table.open(), [Row("b", 9, 9, region="west")])

    to = meeting(table, others_go_on, at("create", ".hoodie/metadata/.hoodie/hoodie.properties"))
    with pytest.raises(LeaseLost):
        makes(to.table)
    properties = TableProperties.parse(table.storage.read(PROPERTIES_PATH))
    assert not properties.metadata_partitions
    assert table.rows() == {"a": 5, "b": 9}


def test_a_metadata_table_is_not_deleted_without_the_lock(clock: VirtualTime) -> None:
    """The metadata table is kept, because another process may have just built it."""
    table = with_commits(clock)
    assert keep_metadata_table(table.open().table)
    before = table.storage.list_tree(".hoodie/metadata")
    with pytest.raises(LeaseLost):
        drop_metadata_table(losing_the_lock(table, at("list_tree", ".hoodie/metadata")).table)
    assert table.storage.list_tree(".hoodie/metadata") == before
    assert table.rows() == {"a": 5}


def test_a_compaction_of_the_metadata_table_is_not_published_without_the_lock(
    clock: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = with_commits(clock)
    assert keep_metadata_table(table.open().table)
    for value in range(6, 9):
        commit(table.open(), [Row("a", value, value)])
    monkeypatch.setattr("lakemark.metadata.metadata_compaction.EVERY_DELTA_COMMITS", 2)
    to = losing_the_lock(table, at("put", ".hoodie/metadata/.hoodie/.aux/prepared"))
    with pytest.raises(LeaseLost):
        compact_metadata_table(to.table)
    completed = names_in(table.storage, ".hoodie/metadata/.hoodie/timeline")
    assert not [name for name in completed if name.endswith(".commit")]


# What a process that died leaves


def test_what_an_upgrade_that_died_left_is_not_on_the_timeline_of_the_next(
    clock: VirtualTime,
) -> None:
    table = with_commits(clock)
    newest = commit(table.open(), [Row("b", 9, 9)]).requested_at

    def die() -> None:
        raise SimulatedCrash

    with pytest.raises(SimulatedCrash):
        to_version_6(meeting(table, die, at("replace", PROPERTIES_PATH)))
    assert [n for n in names_in(table.storage, ".hoodie") if n.startswith(newest)]
    clock.sleep(A_HEARTBEAT_AND_MORE_S)
    roll_back_named(table.open().table.context, newest)
    to_version_6(table.open())
    assert table.rows() == {"a": 5}
    assert not table.pending()
    assert table.open().table.timeline.find(newest) is None
