"""A cleaner or an archiver that dies at any single write loses nothing and hides nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TypeVar

import pytest

from sinks.hudi.table_writer import TableWriter
from sinks.hudi.upkeep import archivable, archive, clean
from table.execution.runner import LocalRunner
from table.metadata.opening import METADATA_FOLDER
from table.model.action import Action
from table.services.archival_plan import ArchivalPolicy
from table.services.cleaning_plan import CleaningPolicy
from table.services.compaction import CompactionPolicy
from table.services.metadata_upkeep import Tended, tend
from table.storage import Storage
from table.storage.folder_storage import FolderStorage
from table.timeline.timeline import Timeline
from table.timeline.timeline_store import TimelineStore
from table.transaction.rollback import recover
from tests.clocks import SharedClock, on_clock
from tests.storages import FaultyStorage, SimulatedCrash
from tests.storages.faulty_storage import When
from tests.tables import Row, commit, contents, data_files, make, write_files, writer
from tests.upkeep import HISTORY, active_names, archived_names, copy_of, make_plain, new_storage

CLEANING = CleaningPolicy(commits=1)
ARCHIVAL = ArchivalPolicy(2, 3, delta_commits_to_compact=2)
CLOCK = SharedClock()

Step = Callable[[TableWriter], object]
T = TypeVar("T")


def clean_it(to: TableWriter) -> object:
    return clean(to.table, CLEANING)


def archive_it(to: TableWriter) -> object:
    return archive(to.table, ARCHIVAL, CLEANING)


@cache
def to_be_cleaned() -> Storage:
    """Two commits, each compacted, so that the first slice is over."""
    storage = new_storage()
    make_plain(storage)
    to = writer(storage)
    for number in range(1, 4):
        commit(to, [Row("a", number, number), Row("b", number, number, region="south")])
        to.compact_if_due(CompactionPolicy(1), LocalRunner(1))
    return storage


@cache
def to_be_archived() -> Storage:
    """As many commits as make an archival due, and a history that the next file makes too long.

    A rollback is among what goes.
    """
    storage = new_storage()
    make_plain(storage)
    to = on_clock(writer(storage), CLOCK)
    archivals = 0
    for number in range(100):
        commit(to, [Row("a", number, number)])
        if archivals == 9 and not to.table.timeline.completed(Action.ROLLBACK):
            write_files(to, [Row("a", 99, 99)])
            to.abandon()
        to.compact_if_due(CompactionPolicy(2), LocalRunner(1))
        clean(to.table, CLEANING)
        due = archivable(to.table, ARCHIVAL, CLEANING)
        if any(instant.action is Action.ROLLBACK for instant in due):
            return storage
        archivals += archivals < 9 and archive_it(to) is not None
    raise AssertionError


def crash_points(step: Step, storage: Storage) -> int:
    counting = FaultyStorage(copy_of(storage))
    step(writer(counting))
    return counting.writes


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_clean_that_dies_is_finished_by_the_next(when: When) -> None:
    origin = to_be_cleaned()
    rows, counted = contents(origin), crash_points(clean_it, origin)
    done = copy_of(origin)
    clean_it(writer(done))
    assert len(data_files(done)) < len(data_files(origin))
    for nth in range(counted):
        storage = copy_of(origin)
        with pytest.raises(SimulatedCrash):
            clean_it(on_clock(writer(FaultyStorage(storage, nth, when)), CLOCK))
        assert contents(storage) == rows, nth
        restarted = on_clock(writer(storage), CLOCK)
        restarted.recover()
        clean_it(restarted)
        assert contents(storage) == rows, nth
        assert not writer(storage).table.timeline.pending()
        assert data_files(storage) == data_files(done)


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_archival_that_dies_is_finished_by_the_next(when: When) -> None:
    origin = to_be_archived()
    rows, counted = contents(origin), crash_points(archive_it, origin)
    every_name = {*active_names(origin), *archived_names(origin)}
    for nth in range(counted):
        storage = copy_of(origin)
        with pytest.raises(SimulatedCrash):
            archive_it(on_clock(writer(FaultyStorage(storage, nth, when)), CLOCK))
        assert contents(storage) == rows, nth
        table = writer(storage).table
        assert not table.timeline.pending(), "a completed instant seems pending again"
        assert {*active_names(storage), *archived_names(storage)} == every_name, nth

        recover(on_clock(writer(storage), CLOCK).table.access)
        archive_it(on_clock(writer(storage), CLOCK))
        for number in (1, 2):
            commit(on_clock(writer(storage), CLOCK), [Row("z", number, number)])
        archive_it(on_clock(writer(storage), CLOCK))
        archived = archived_names(storage)
        assert len(archived) == len(set(archived)), "an instant is in the history twice"
        assert not set(archived) & set(active_names(storage)), nth
        assert every_name <= {*active_names(storage), *archived}
        assert contents(storage) == {**rows, "z": (2, 2)}
        assert any(info.name.endswith("_1.parquet") for info in storage.list_tree(HISTORY))


def test_a_late_writers_file_does_not_come_back_once_its_rollback_is_past() -> None:
    storage = new_storage()
    make_plain(storage)
    late = on_clock(writer(storage), CLOCK)
    commit(late, [Row("a", 1, 1)])
    write_files(late, [Row("a", 99, 99), Row("q", 99, 99, region="west")])
    stray = [path for path in data_files(storage) if late.pending_instant in path]
    kept = {path: storage.read(path) for path in stray}
    to = on_clock(writer(storage), CLOCK)
    assert to.recover() == [late.pending_instant]
    for path, data in kept.items():  # an attempt that had been stopped goes on
        storage.create(path, data)
    for number in range(2, 9):
        commit(to, [Row("a", number, number)])
        to.compact_if_due(CompactionPolicy(2), LocalRunner(1))
        archive_it(to)
        assert contents(storage) == {"a": (number, number)}
    assert archived_names(storage)
    assert not [path for path in data_files(storage) if path in kept]


def tend_it(to: TableWriter) -> Tended | None:
    return tend(to.table.access, own_timeline(to.table.storage), to.table.timeline)


def own_timeline(storage: Storage) -> Timeline:
    return TimelineStore(FolderStorage(storage, METADATA_FOLDER)).load()


class RecordingStorage(FaultyStorage):
    """Knows which writes there were; those that delete files of one folder are a run."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self._kinds: list[tuple[str, str]] = []

    def _writing(self, method: str, path: str, call: Callable[[], T]) -> T:
        self._kinds.append((method, path.rpartition("/")[0] if method == "delete" else path))
        return super()._writing(method, path, call)

    def ends_of_runs(self) -> list[int]:
        """The first write and the last of each run: what dies in between has left the same."""
        kinds = [None, *self._kinds, None]
        return [
            n - 1 for n in range(1, len(kinds) - 1) if not kinds[n - 1] == kinds[n] == kinds[n + 1]
        ]


@cache
def to_be_tended() -> Storage:
    """A metadata table that is to be cleaned, and whose timeline is too long."""
    storage = new_storage()
    make(storage)
    to = writer(storage)
    for number in range(100):
        commit(to, [Row("a", number, number)])
        to.compact_if_due(CompactionPolicy(2), LocalRunner(1))
        if to.table.metadata_compacted_at:
            archive_it(to)
        done = tend_it(writer(copy_of(storage))) if number > 30 else None
        if done is not None and done.deleted and done.archived:
            return storage
    raise AssertionError


@pytest.mark.parametrize("when", ["before", "after"])
def test_upkeep_of_the_metadata_table_that_dies_is_finished_by_the_next(when: When) -> None:
    origin = to_be_tended()
    rows, recording = contents(origin), RecordingStorage(copy_of(origin))
    tend_it(writer(recording))
    for nth in recording.ends_of_runs():
        storage = copy_of(origin)
        with pytest.raises(SimulatedCrash):
            tend_it(on_clock(writer(FaultyStorage(storage, nth, when)), CLOCK))
        assert contents(storage) == rows, nth
        restarted = on_clock(writer(storage), CLOCK)
        assert restarted.table.keep_metadata_table() is None, nth
        tend_it(restarted)
        assert not own_timeline(storage).pending(), nth
        assert tend_it(restarted) is None, nth
        commit(restarted, [Row("z", 1, 1)])
        assert contents(storage) == {**rows, "z": (1, 1)}
    assert restarted.table.metadata_differences() == []
