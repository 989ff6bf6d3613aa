"""Pending commits that a writer leaves in the metadata table after its instant was rolled back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TypeVar

import pytest

from lakemark.config.table_properties import PROPERTIES_PATH
from lakemark.errors import Fenced, Refused, SnapshotChanged
from lakemark.execution.runner import LocalRunner
from lakemark.log.log_block import rollback_block
from lakemark.log.log_writers import read_instants
from lakemark.metadata.bootstrap import drop_metadata_table
from lakemark.metadata.metadata_compaction import EVERY_DELTA_COMMITS
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.model.action import Action, State
from lakemark.model.file_names import LogFileName
from lakemark.model.file_slice import LogFile
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.model.rollback_plan import RollbackPlan
from lakemark.operations.archive import archive
from lakemark.operations.change_version import change_table_version
from lakemark.operations.clean import clean
from lakemark.operations.compact import request_compaction
from lakemark.operations.metadata_table import (
    compact_and_maintain_metadata_table,
    compact_metadata_table,
    keep_metadata_table,
    maintain_metadata_table,
    metadata_differences,
    rebuild_metadata_table,
)
from lakemark.operations.table_writer import TableWriter
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.cleaning_plan import CleaningPolicy
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.services.metadata_table_services import MetadataPolicies
from lakemark.storage import Storage
from lakemark.storage.folder_storage import FolderStorage
from lakemark.storage.properties_file import read_properties
from lakemark.timeline.content import encode_rollback_plan
from lakemark.timeline.locks.table_lock import LeaseLost
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.view.file_lister import PARTITION_METAFILE, data_file
from tests.clocks import SharedClock, on_clock
from tests.protocol.actors import A_HEARTBEAT_AND_MORE_S
from tests.storages import SimulatedCrash
from tests.storages.interrupted_storage import InterruptedStorage
from tests.storages.wrapped_storage import WrappedStorage
from tests.table_services import copy_of, new_storage
from tests.tables import Row, commit, contents, spec, write_files, writer

T = TypeVar("T")

CLOCK = SharedClock()
CLEANING, ARCHIVAL = CleaningPolicy(commits=2), ArchivalPolicy(4, 6, 2)
POLICIES = MetadataPolicies.for_data_table(CLEANING, ARCHIVAL)

VERSIONS = [FormatVersion.V6, FormatVersion.V9]


class Replaced(WrappedStorage):
    """Pauses before it creates one file of the metadata table, until another writer took over."""

    def __init__(self, inner: Storage, suffix: str) -> None:
        super().__init__(inner)
        self._suffix = suffix
        self.is_dead = self.has_stopped = False

    def _reading(self, method: str, path: str, call: Callable[[], T]) -> T:
        if self.is_dead:
            raise SimulatedCrash
        return call()

    def _writing(self, method: str, path: str, call: Callable[[], T]) -> T:
        if self.is_dead:
            raise SimulatedCrash
        is_metadata = path.startswith(f"{METADATA_FOLDER}/") and self._suffix in path
        if self.has_stopped or method != "create" or not is_metadata:
            return call()
        self.has_stopped = True
        newer = started(self.inner)
        newer.recover()
        commit(newer, [Row("new", 9, 9)])
        self.is_dead = True
        return call()


def started(storage: Storage) -> TableWriter:
    return on_clock(writer(storage), CLOCK)


def new_table(version: FormatVersion) -> Storage:
    storage = new_storage()
    storage.create(PROPERTIES_PATH, spec(version=version).to_properties().to_bytes())
    keep_metadata_table(started(storage).table)
    commit(started(storage), [Row("z", 1, 1)])
    return storage


def is_shared(path: str) -> bool:
    """Whether all metadata tables of a data table have a file of this name."""
    return path.endswith((PROPERTIES_PATH, PARTITION_METAFILE))


def data_logs(storage: Storage) -> set[str]:
    """Return the paths of the logs of the data table."""
    return {
        info.path
        for info in storage.list_tree("")
        if ".log." in info.name and not info.path.startswith(".hoodie")
    }


def log_at(storage: Storage, path: str) -> LogFile:
    folder, _, name = path.rpartition("/")
    found = data_file(folder, name, storage.head(path).size_bytes)  # type: ignore[union-attr]
    assert isinstance(found, LogFile)
    return found


def give_same_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the first instants of all metadata tables the same names."""
    monkeypatch.setattr("lakemark.metadata.bootstrap.draw_first_number", lambda count: 10)


def give_different_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the first instants of no two metadata tables the same names, as is likely."""
    numbers = count(10, 10)
    monkeypatch.setattr("lakemark.metadata.bootstrap.draw_first_number", lambda _: next(numbers))


def metadata_store(storage: Storage) -> TimelineStore:
    own = FolderStorage(storage, METADATA_FOLDER)
    return TimelineStore.of_table(own, read_properties(own))


def metadata_timeline(storage: Storage) -> Timeline:
    return metadata_store(storage).load()


def leave_commit(storage: Storage, suffix: str) -> Instant:
    """Leave a commit in the metadata table, as a writer does that resumed late and died."""
    late = Replaced(storage, suffix)
    with pytest.raises(SimulatedCrash):
        commit(started(late), [Row("old", 9, 9)])
    assert late.has_stopped
    (pending,) = metadata_timeline(storage).pending()
    return pending


def commit_and_maintain(storage: Storage, commits: int) -> None:
    to = started(storage)
    to.recover()
    for number in range(commits):
        commit(to, [Row("z", number, number)])
        to.compact_if_due(CompactionPolicy(3), LocalRunner(1))
        clean(to.table, CLEANING)
        archive(to.table, ARCHIVAL, CLEANING)
        compact_and_maintain_metadata_table(to.table, POLICIES)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("suffix", ["deltacommit.requested", "deltacommit.inflight"])
def test_metadata_commit_that_appears_after_its_rollback_is_undone(
    version: FormatVersion, suffix: str
) -> None:
    storage = new_table(version)
    pending = leave_commit(storage, suffix)
    maintained = compact_and_maintain_metadata_table(started(storage).table, POLICIES)
    assert maintained is not None
    assert [i.requested_at for i in maintained.undone] == [pending.requested_at]
    assert not maintained.timeline.pending()
    assert maintained.timeline == metadata_timeline(storage)
    paths = [info.path for info in storage.list_tree(METADATA_FOLDER)]
    assert not [path for path in paths if pending.requested_at in path]
    assert contents(storage) == {"z": (1, 1), "new": (9, 9)}
    assert not metadata_differences(started(storage).table)


def test_metadata_table_is_cleaned_and_archived_after_a_late_commit() -> None:
    storage = new_table(FormatVersion.V9)
    pending = leave_commit(storage, "deltacommit.requested")
    commit_and_maintain(storage, 45)
    own = metadata_timeline(storage)
    assert own.find(pending.requested_at) is None
    assert own.completed(Action.CLEAN)
    assert own.start is not None
    assert own.start > pending.requested_at
    assert len(own.instants) < 40


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "request_", [("list_folder", f"{METADATA_FOLDER}/files"), ("read", PROPERTIES_PATH)]
)
def test_commit_whose_metadata_table_is_dropped_meanwhile_is_refused(
    version: FormatVersion, request_: tuple[str, str]
) -> None:
    """If a restore drops the metadata table during a commit, the commit fails or is complete."""
    errors = (Fenced, LeaseLost, SnapshotChanged)
    made = new_table(version)
    for storage in interrupted_commits(made, request_, drop_metadata_table_of, errors):
        started(storage).recover()
        assert contents(storage) in ({"z": (1, 1)}, {"z": (1, 1), "new": (9, 9)})
        commit(started(storage), [Row("z", 3, 3)])
        assert not metadata_differences(started(storage).table)


def interrupted_commits(
    made: Storage,
    request: tuple[str, str],
    meanwhile: Callable[[Storage], None],
    errors: tuple[type[Exception], ...],
) -> Iterator[Storage]:
    """Yield copies of a table; in each, a commit was interrupted before a different request.

    Args:
        made: the table.
        request: method and path; the commit is interrupted before the first, the second, … such
            request.
        meanwhile: the act of another process during the interruption.
        errors: what the commit may raise then.
    """
    for nth in count():
        storage, numbers = copy_of(made), count()
        stopped = InterruptedStorage(storage, partial(meanwhile, storage))
        stopped.is_before = partial(_is_nth, request, nth, numbers)
        with suppress(*errors):
            commit(started(stopped), [Row("new", 9, 9)])
        if stopped.stopped_at is None:
            assert nth > 1
            return
        yield storage


def _is_nth(
    request: tuple[str, str], nth: int, numbers: Iterator[int], _: int, method: str, path: str
) -> bool:
    return (method, path) == request and next(numbers) == nth


def drop_metadata_table_of(storage: Storage) -> None:
    CLOCK.sleep(61)
    context = started(storage).table.context
    with context.lock.hold(1.0) as lease:
        drop_metadata_table(storage, read_properties(storage), lease.check)


def test_pending_rollback_of_apache_hudi_is_not_executed_by_lakemark() -> None:
    storage = new_table(FormatVersion.V9)
    pending = leave_commit(storage, "deltacommit.requested")
    store = metadata_store(storage)
    at = store.clock.next_instant(store.load().newest_time)
    plan = RollbackPlan(pending.requested_at, Action.DELTA_COMMIT, {})
    store.create(Instant(at, Action.ROLLBACK, State.REQUESTED), encode_rollback_plan(plan))
    compact_and_maintain_metadata_table(started(storage).table, POLICIES)
    assert metadata_timeline(storage).find(pending.requested_at) == pending


def test_metadata_commit_whose_data_instant_is_pending_is_kept() -> None:
    storage = new_table(FormatVersion.V9)

    class Dies(WrappedStorage):
        def _writing(self, method: str, path: str, call: Callable[[], T]) -> T:
            if method == "create" and path.startswith(f"{METADATA_FOLDER}/files/"):
                raise SimulatedCrash
            return call()

    with pytest.raises(SimulatedCrash):
        commit(started(Dies(storage)), [Row("old", 9, 9)])
    (pending,) = metadata_timeline(storage).pending()
    assert compact_and_maintain_metadata_table(started(storage).table, POLICIES) is None
    assert metadata_timeline(storage).pending() == (pending,)
    started(storage).recover()
    assert not metadata_timeline(storage).pending()


def test_nothing_is_undone_under_a_lock_that_was_lost() -> None:
    storage = new_table(FormatVersion.V9)
    pending = leave_commit(storage, "deltacommit.requested")

    class Stalls(WrappedStorage):
        """Pauses under the lock for longer than a lease, while another process acquires it."""

        def _reading(self, method: str, path: str, call: Callable[[], T]) -> T:
            result = call()
            if method == "list_folder" and path == ".hoodie/timeline" and armed:
                armed.clear()
                CLOCK.sleep(61)
                with started(storage).table.context.lock.hold(1):
                    pass
            return result

    armed: list[bool] = []
    table = started(Stalls(storage)).table
    assert table.timeline.completed(), "the timeline is loaded before the lock is acquired"
    compact_metadata_table(table)
    armed.append(True)
    with pytest.raises(LeaseLost):
        maintain_metadata_table(table, POLICIES)
    assert metadata_timeline(storage).pending() == (pending,)


@pytest.mark.parametrize("name", ["00000000000000010.deltacommit", "00000000000000011.deltacommit"])
def test_late_archival_may_delete_instants_of_a_rebuilt_metadata_table(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The instants of both metadata tables have the same names, which is rare.

    Queries list storage until the next start builds the metadata table again.
    """
    give_same_names(monkeypatch)
    monkeypatch.setattr("lakemark.metadata.metadata_compaction.EVERY_DELTA_COMMITS", 2)
    storage = new_table(FormatVersion.V6)
    for number in range(2, 9):
        commit(started(storage), [Row("z", number, number)])
    expected = {"z": (8, 8)}

    def build_another() -> None:
        CLOCK.sleep(61)
        rebuild_metadata_table(started(storage).table)

    stopped = InterruptedStorage(storage, build_another)
    stopped.is_before = lambda _, method, path: method == "delete" and path.endswith(f"/{name}")
    policies = MetadataPolicies(CLEANING, ArchivalPolicy(2, 3, 1))
    compact_and_maintain_metadata_table(started(stopped).table, policies)
    assert stopped.stopped_at
    assert contents(storage) == expected, "queries list storage"
    to = started(storage)
    to.recover()
    assert not metadata_differences(to.table)
    commit(to, [Row("new", 9, 9)])
    assert contents(storage) == {**expected, "new": (9, 9)}
    assert not metadata_differences(to.table)


@pytest.mark.parametrize("version", VERSIONS)
def test_deletion_of_a_dropped_metadata_table_is_repeated_after_it_was_built_again(
    version: FormatVersion,
) -> None:
    storage = new_table(version)
    commit(started(storage), [Row("y", 2, 2)])
    deleted = [info.path for info in storage.list_tree(METADATA_FOLDER) if not is_shared(info.path)]
    rebuild_metadata_table(started(storage).table)
    storage.delete(deleted)
    for number in range(3, 3 + EVERY_DELTA_COMMITS):
        commit(started(storage), [Row("z", number, number)])
    assert metadata_differences(started(storage).table) == []
    assert contents(storage) == {"y": (2, 2), "z": (number, number)}


def test_log_that_appears_after_its_rollback_is_not_listed_by_a_rebuilt_metadata_table() -> None:
    """A rebuilt metadata table does not list a log whose commit was rolled back.

    In version 6 the name of a log does not show its writer, who then deletes the log.
    """
    storage = new_table(FormatVersion.V6)
    before = data_logs(storage)
    write_files(started(storage), [Row("z", 2, 2)])
    (log,) = data_logs(storage) - before
    content = storage.read(log)
    CLOCK.sleep(A_HEARTBEAT_AND_MORE_S)
    assert started(storage).recover()
    storage.create(log, content)
    rebuild_metadata_table(started(storage).table)
    storage.delete([log])
    assert contents(storage) == {"z": (1, 1)}
    assert metadata_differences(started(storage).table) == []


def test_only_logs_that_a_rollback_block_of_their_slice_undid_are_listed_without_a_commit() -> None:
    """Of the logs of a rolled back writer, only those with a rollback block are listed.

    The writer may still delete a late log in another file group.
    """
    storage = new_table(FormatVersion.V6)
    many = [Row(key, 2, 2) for key in "abcdz"]
    commit(started(storage), many)
    before = set(data_logs(storage))
    write_files(started(storage), [replace(row, ts=3) for row in many])
    undone, late, *_ = sorted(data_logs(storage) - before)
    kept = {path: storage.read(path) for path in (undone, late)}
    (writer_of_both,) = read_instants(storage, log_at(storage, undone)).writers
    CLOCK.sleep(A_HEARTBEAT_AND_MORE_S)
    assert started(storage).recover()
    for path, content in kept.items():
        storage.create(path, content)
    name = LogFileName.parse(undone.rpartition("/")[2])
    assert name is not None
    command = undone.replace(str(name), str(replace(name, version=name.version + 1)))
    committed = started(storage).table.timeline.completed()[-1].requested_at
    storage.create(command, rollback_block(committed, writer_of_both))
    rebuild_metadata_table(started(storage).table)
    listed = {f.path for g in started(storage).table.view().file_groups() for f in g.files.values()}
    assert {undone, command} <= listed
    assert late not in listed
    storage.delete([late])
    assert metadata_differences(started(storage).table) == []
    assert contents(storage).keys() == set("abcdz")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("suffix", [".requested", ".inflight"])
def test_instant_that_is_created_after_another_process_built_the_metadata_table_is_undone(
    version: FormatVersion, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_different_names(monkeypatch)
    storage = new_table(version)

    def build_another() -> None:
        CLOCK.sleep(61)
        rebuild_metadata_table(started(storage).table)

    stopped = InterruptedStorage(storage, build_another)
    stopped.is_before = lambda _, method, path: method == "create" and path.endswith(suffix)
    with pytest.raises(LeaseLost):
        rebuild_metadata_table(started(stopped).table)
    assert metadata_timeline(storage).pending()
    compact_and_maintain_metadata_table(started(storage).table, POLICIES)
    assert not metadata_timeline(storage).pending()
    assert metadata_differences(started(storage).table) == []
    assert contents(storage) == {"z": (1, 1)}


def test_query_is_planned_again_if_the_metadata_table_was_rebuilt_under_the_same_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    give_same_names(monkeypatch)
    storage = new_table(FormatVersion.V6)
    long = "a partition with a longer path than that of the other one"
    commit(started(storage), [Row("y", 1, 1, region=long), Row("z", 2, 2)])

    def rebuild_and_commit() -> None:
        rebuild_metadata_table(started(storage).table)
        for value in (3, 4):
            commit(started(storage), [Row("z", value, value)])

    stopped = InterruptedStorage(storage, rebuild_and_commit)
    stopped.is_before = lambda _, method, path: (
        method == "open" and path.startswith(f"{METADATA_FOLDER}/files/.files")
    )
    assert contents(stopped) == {"y": (1, 1), "z": (4, 4)}
    assert stopped.stopped_at


def test_writer_reports_the_lost_lock_if_the_table_version_changed_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A writer reports the lost lock, although the metadata table's timeline was moved."""
    monkeypatch.setattr("lakemark.metadata.metadata_compaction.EVERY_DELTA_COMMITS", 2)
    made = new_table(FormatVersion.V6)
    commit(started(made), [Row("z", 2, 2)])
    errors, listing = (LeaseLost, Refused, Fenced), ("list_folder", f"{METADATA_FOLDER}/.hoodie")
    for storage in interrupted_commits(made, listing, change_version, errors):
        assert contents(storage) in ({"z": (2, 2)}, {"z": (2, 2), "new": (9, 9)})


def test_compaction_that_died_at_its_publication_is_not_compacted_into_the_metadata_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The metadata table does not keep files of an attempt that died at its publication.

    In version 6 the attempt's commit of the metadata table has an earlier time than the last
    compaction of that table. The next attempt at the data table's compaction writes other files.
    """
    monkeypatch.setattr("lakemark.metadata.metadata_compaction.EVERY_DELTA_COMMITS", 2)
    storage = new_table(FormatVersion.V6)
    commit(started(storage), [Row("z", 2, 2)])
    planned = request_compaction(started(storage).table)
    assert planned is not None
    published = f".hoodie/{planned[0].requested_at}.commit"
    for number in (3, 4):
        commit(started(storage), [Row("z", number, number)])

    def die() -> None:
        raise SimulatedCrash

    dying = InterruptedStorage(storage, die)
    dying.is_before = lambda _, method, path: (method, path) == ("publish", published)
    with pytest.raises(SimulatedCrash):
        started(dying).compact_if_due(CompactionPolicy(100), LocalRunner(1))
    for number in (5, 6, 7):
        commit(started(storage), [Row("z", number, number)])
    assert started(storage).compact_if_due(CompactionPolicy(100), LocalRunner(1))
    assert metadata_differences(started(storage).table) == []
    assert contents(storage) == {"z": (7, 7)}


def test_commit_is_not_written_to_a_slice_of_a_metadata_table_that_was_dropped() -> None:
    """A commit ignores a log of a dropped metadata table that the store creates again."""
    storage = new_table(FormatVersion.V6)
    rebuild_metadata_table(started(storage).table)
    (log,) = (
        info
        for info in storage.list_folder(f"{METADATA_FOLDER}/files")[1]
        if ".log.1_" in info.name
    )
    first = LogFileName.parse(log.name)
    assert first is not None
    of_older_table = log.path.replace(first.instant, "20260101000000175001")
    storage.create(of_older_table, storage.read(log.path))
    commit(started(storage), [Row("y", 2, 2)])
    commit(started(storage), [Row("z", 3, 3)])
    assert metadata_differences(started(storage).table) == []
    assert contents(storage) == {"y": (2, 2), "z": (3, 3)}


def change_version(storage: Storage) -> None:
    CLOCK.sleep(61)
    to = started(storage)
    change_table_version(to.table, FormatVersion.V9, LocalRunner(1))
