"""Orphans are found and removed; files that an instant names, or may name, are kept."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lakemark.config.table_properties import TableType
from lakemark.errors import InvalidConfig, Refused
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.model.action import Action
from lakemark.model.format_version import FormatVersion
from lakemark.model.restore_plan import EMPTY_TABLE
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.orphan_removal import find_orphans, remove_orphans
from lakemark.operations.savepoint import create_savepoint
from lakemark.services.archival import archive
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.orphans import Orphan, Reason
from lakemark.services.restore import restore
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.transaction.heartbeat import HEARTBEAT_FOLDER
from lakemark.write.markers import MARKERS_FOLDER
from tests.storages import SimulatedCrash, WatchedStorage
from tests.table_services import make_plain, new_storage
from tests.tables import Row, commit, contents, data_files, make, write_files, writer

#: A time at which everything that a test writes is old enough to be removed.
LATER = datetime.now(UTC) + timedelta(days=9)

ROWS = ([Row("a", 1, 1), Row("c", 1, 1, region="south")], [Row("a", 2, 2)], [Row("b", 3, 3)])
EACH_VERSION = pytest.mark.parametrize(
    "version", [FormatVersion.V6, FormatVersion.V8, FormatVersion.V9], ids=str
)
EACH_TYPE = pytest.mark.parametrize("table_type", TableType)


def leave_late_files(storage: Storage, rows: Iterable[Row]) -> set[str]:
    """Write the files of a batch, have it rolled back, and write its files and markers again."""
    to = writer(storage)
    paths = {stat.path for stat in write_files(to, rows) if stat.path}
    late = {path: storage.read(path) for path in paths}
    markers = storage.list_tree(f"{MARKERS_FOLDER}/{to.pending_instant}")
    late |= {info.path: b"" for info in markers}
    to.abandon()
    for path, content in late.items():
        storage.put(path, content)
    return set(late)


def archive_all_but_one(storage: Storage) -> None:
    policy = ArchivalPolicy(1, 2, delta_commits_to_compact=None)
    assert archive(writer(storage).table.context, policy, None, lambda _: ())


def found_in(storage: Storage) -> list[Orphan]:
    return find_orphans(writer(storage).table, now=LATER)


def removed_from(storage: Storage) -> set[str]:
    """Remove the orphans, check that the rows are the same, and return the removed paths."""
    before, rows = {info.path for info in storage.list_tree("")}, contents(storage)
    removed = {orphan.path for orphan in remove_orphans(writer(storage).table, now=LATER)}
    left = {info.path for info in storage.list_tree("") if "/.locks/" not in info.path}
    assert {path for path in before if "/.locks/" not in path} - left == removed
    assert contents(storage) == rows
    return removed


@EACH_TYPE
@EACH_VERSION
def test_files_of_an_undone_instant_are_removed(
    version: FormatVersion, table_type: TableType
) -> None:
    storage = new_storage()
    make_plain(storage, table_type, version)
    for rows in ROWS:
        commit(writer(storage), rows)
    assert found_in(storage) == []
    late = leave_late_files(storage, [Row("a", 8, 8), Row("d", 8, 8, region="west")])
    assert removed_from(storage) == late
    assert found_in(storage) == []


@EACH_VERSION
def test_files_of_an_instant_whose_rollback_is_archived_are_removed(
    version: FormatVersion, tmp_path: Path
) -> None:
    storage = open_storage(StorageLocation(str(tmp_path)))  # it can set modification times
    make_plain(storage, TableType.COPY_ON_WRITE, version)
    commit(writer(storage), ROWS[0])
    late = leave_late_files(storage, [Row("d", 8, 8, region="west")])
    lost = {path: storage.read(path) for path in late}
    storage.delete(late)
    for rows in (*ROWS[1:], *ROWS[1:]):
        commit(writer(storage), rows)
    archive_all_but_one(storage)
    assert not writer(storage).table.timeline.completed(Action.ROLLBACK)
    for path, content in lost.items():
        storage.put(path, content)
        assert storage.set_modified_at(path, datetime.now(UTC) + timedelta(hours=1))
    assert removed_from(storage) == late


def test_files_of_pending_young_and_completed_instants_are_kept() -> None:
    storage = new_storage()
    make_plain(storage)
    for rows in ROWS:
        commit(writer(storage), rows)
    archive_all_but_one(storage)
    write_files(writer(storage), [Row("a", 8, 8), Row("d", 8, 8, region="west")])
    assert removed_from(storage) == set()
    late = leave_late_files(storage, [Row("e", 9, 9)])
    assert find_orphans(writer(storage).table) == [], "they were just written"
    assert removed_from(storage) == late


@pytest.mark.parametrize("is_archived", [False, True])
def test_file_that_its_commit_does_not_name_is_removed(is_archived: bool) -> None:
    storage = new_storage()
    make_plain(storage, TableType.COPY_ON_WRITE)
    for rows in ROWS:
        commit(writer(storage), rows)
    if is_archived:
        archive_all_but_one(storage)
    first = min(data_files(storage), key=lambda path: path.rpartition("_")[2])
    group, token, time = first.rsplit("_", 2)
    failed = f"{group}_{int(token.partition('-')[0])}-0-77_{time}"
    storage.put(failed, storage.read(first))
    (orphan,) = found_in(storage)
    assert (orphan.path, orphan.reason) == (failed, Reason.UNNAMED)
    assert removed_from(storage) == {failed}


def test_file_of_an_instant_that_no_archive_or_rollback_names_is_unclear() -> None:
    """Readers treat its instant as archived, and the archive may have been shortened."""
    storage = new_storage()
    make_plain(storage, TableType.COPY_ON_WRITE)
    for rows in ROWS:
        commit(writer(storage), rows)
    archive_all_but_one(storage)
    known = data_files(storage)[0]
    unknown = f"{known.rpartition('_')[0]}_20200101000000000.parquet"
    storage.put(unknown, storage.read(known))
    (orphan,) = found_in(storage)
    assert (orphan.path, orphan.reason, orphan.reason.is_clear) == (unknown, Reason.UNKNOWN, False)
    assert removed_from(storage) == set()


def test_files_of_users_are_kept() -> None:
    storage = new_storage()
    make_plain(storage)
    commit(writer(storage), ROWS[0])
    for name in ("report_final_2024.csv", "part_1_99991231235959999.csv", "notes.parquet"):
        storage.put(f"north/{name}", b"")
        storage.put(f"other/{name}", b"")
    assert removed_from(storage) == set()


def test_files_that_a_savepoint_names_are_kept() -> None:
    storage = new_storage()
    make_plain(storage, TableType.COPY_ON_WRITE)
    first = commit(writer(storage), ROWS[0])
    late = leave_late_files(storage, [Row("d", 8, 8)])
    files = {path for path in late if not path.startswith(".hoodie/")}
    table = writer(storage).table
    create_savepoint(table, first.requested_at)
    (savepoint,) = table.timeline.completed(Action.SAVEPOINT)
    kept = table.store.read_savepoint(savepoint)
    names = [path.rpartition("/")[2] for path in files]
    table.store._savepoints[savepoint] = replace(kept, files={"north": tuple(names)})
    assert {one.path for one in find_orphans(table, now=LATER)} == late - files


def test_orphans_of_the_metadata_table_are_removed() -> None:
    storage = new_storage()
    make(storage)
    for rows in ROWS[:2]:
        commit(writer(storage), rows)

    def die(method: str, path: str) -> None:
        if method == "publish" and path.startswith(".hoodie/timeline/"):
            raise SimulatedCrash

    with pytest.raises(SimulatedCrash):
        commit(writer(WatchedStorage(storage, die)), [Row("x", 8, 8)])
    dead = {
        info.path: storage.read(info.path)
        for info in storage.list_tree(METADATA_FOLDER)
        if info.name.startswith(".files-")
    }
    writer(storage).recover()
    late = {path for path in dead if storage.head(path) is None}
    assert late
    for path in late:
        storage.put(path, dead[path])
    assert removed_from(storage) == late
    assert metadata_differences(writer(storage).table) == []


def test_scratch_files_are_removed_unless_their_instant_is_pending() -> None:
    storage = new_storage()
    make_plain(storage)
    done = commit(writer(storage), ROWS[0]).requested_at
    write_files(writer(storage), [Row("a", 8, 8)])
    (pending,) = (i.requested_at for i in writer(storage).table.timeline.pending())
    prepared = ".hoodie/.aux/prepared"
    storage.put(f"{prepared}/hoodie.properties", b"")
    for name in (done, pending):
        storage.put(f"{HEARTBEAT_FOLDER}/{name}", b"")
        storage.put(f"{prepared}/{name}", b"")
        storage.put(f"{MARKERS_FOLDER}/{name}/MARKERS0", b"")
    assert removed_from(storage) == {
        f"{HEARTBEAT_FOLDER}/{done}",
        f"{prepared}/{done}",
        f"{MARKERS_FOLDER}/{done}/MARKERS0",
    }


def test_no_file_is_older_than_the_calendar() -> None:
    storage = new_storage()
    make_plain(storage)
    commit(writer(storage), ROWS[0])
    leave_late_files(storage, [Row("a", 8, 8)])
    assert found_in(storage)
    assert find_orphans(writer(storage).table, timedelta(days=999_999_999)) == []


def test_limit_below_a_day_and_a_pending_restore_are_refused() -> None:
    storage = new_storage()
    make_plain(storage)
    first = commit(writer(storage), ROWS[0]).requested_at
    commit(writer(storage), ROWS[1])
    with pytest.raises(InvalidConfig, match="must be older than 24 hours, not only 23 hours:"):
        remove_orphans(writer(storage).table, timedelta(hours=23))

    def die(method: str, path: str) -> None:
        if method == "publish":
            raise SimulatedCrash

    with pytest.raises(SimulatedCrash):
        restore(writer(WatchedStorage(storage, die)).table.context, first, True)
    with pytest.raises(Refused, match="restore TABLE --run"):
        found_in(storage)


def test_instant_that_reappears_while_the_orphans_are_listed_keeps_its_files() -> None:
    """The orphans are judged again under the lock, by the timeline as of then."""
    storage = new_storage()
    make_plain(storage)
    commit(writer(storage), ROWS[0])
    late = leave_late_files(storage, [Row("a", 8, 8)])
    table = writer(storage).table
    (undone,) = table.timeline.completed(Action.ROLLBACK)
    name = table.store.read_rollback(undone).instant
    is_begun = False

    def request_again(method: str, path: str) -> None:
        nonlocal is_begun
        if "/.locks/" in path and not is_begun:
            is_begun = True
            storage.put(f".hoodie/timeline/{name}.deltacommit.requested", b"")

    removed = remove_orphans(writer(WatchedStorage(storage, request_again)).table, now=LATER)
    assert is_begun
    assert removed == []
    assert all(storage.head(path) for path in late)


def test_files_of_another_table_in_a_folder_are_kept() -> None:
    storage, other = new_storage(), new_storage()
    make_plain(other, TableType.COPY_ON_WRITE)
    make_plain(storage, TableType.COPY_ON_WRITE)
    commit(writer(storage), ROWS[0])
    commit(writer(other), ROWS[0])
    for info in other.list_tree(""):
        storage.put(f"copies/inner/{info.path}", other.read(info.path))
    inner = {info.path for info in storage.list_tree("copies")}
    assert found_in(storage) == []
    restore(writer(storage).table.context, EMPTY_TABLE, is_merge_on_read=False)
    assert {info.path for info in storage.list_tree("copies")} == inner


def test_copy_of_a_partition_and_files_outside_partitions_are_kept() -> None:
    storage = new_storage()
    make_plain(storage, TableType.COPY_ON_WRITE)
    commit(writer(storage), ROWS[0])
    late = leave_late_files(storage, [Row("a", 8, 8)])
    for info in storage.list_tree("north"):
        storage.put(f"backup/{info.path}", storage.read(info.path))
        if info.path.endswith(".parquet"):
            storage.put(f"exported/{info.name}", storage.read(info.path))
    found = {one.path for one in found_in(storage)}
    copied = {f"backup/{path}" for path in late if path.startswith("north/")}
    assert copied
    assert found == late | copied, "copies of files of a completed commit are kept"


def test_file_of_an_instant_that_no_rollback_names_is_unclear_although_it_is_new() -> None:
    storage = new_storage()
    make_plain(storage, TableType.COPY_ON_WRITE)
    commit(writer(storage), ROWS[0])
    known = data_files(storage)[0]
    foreign = f"{known.rpartition('_')[0]}_20990101000000000.parquet"
    storage.put(foreign, storage.read(known))
    (orphan,) = found_in(storage)
    assert (orphan.path, orphan.reason) == (foreign, Reason.UNKNOWN)


def test_file_is_unclear_if_no_file_exists_that_its_commit_names() -> None:
    storage = new_storage()
    make_plain(storage, TableType.COPY_ON_WRITE)
    for rows in ROWS[1:]:
        commit(writer(storage), rows)
    first = min(data_files(storage), key=lambda path: path.rpartition("_")[2])
    group, _, time = first.rsplit("_", 2)
    storage.put(f"{group}_77-88-99_{time}", storage.read(first))
    storage.delete([first])
    assert [one.reason for one in found_in(storage)] == [Reason.NOTHING_NAMED]


def test_late_file_of_a_writer_is_not_read_after_a_restore_to_the_empty_table(
    tmp_path: Path,
) -> None:
    """Its time does not show that it is late: the writer was at work during the restore."""
    storage = open_storage(StorageLocation(str(tmp_path / "t")))
    make_plain(storage, TableType.COPY_ON_WRITE)
    commit(writer(storage), ROWS[0])
    dead = writer(storage)
    late = {s.path: storage.read(s.path) for s in write_files(dead, [Row("z", 8, 8)]) if s.path}
    restore(writer(storage).table.context, EMPTY_TABLE, is_merge_on_read=False)
    for path, content in late.items():
        storage.put(path, content)
    for rows in (*ROWS[1:], *ROWS[1:]):
        commit(writer(storage), rows)
    expected = contents(storage)
    archive_all_but_one(storage)
    assert late.keys().isdisjoint(data_files(storage)), "the first archival deletes them"
    # The restore is archived, too. Now the time of a late file shows that it is late.
    for path, content in late.items():
        storage.put(path, content)
        assert storage.set_modified_at(path, datetime.now(UTC) + timedelta(minutes=1))
    assert contents(storage) == expected
    assert "z" not in expected
