"""A process that dies at any single write loses nothing and shows nothing half-done."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from uuid import uuid4

import pytest

from sinks.hudi.table_writer import TableWriter
from table.config.table_properties import TableType
from table.execution.runner import LocalRunner
from table.services.compaction import CompactionPolicy
from table.storage import Storage, StorageLocation, open_storage
from tests.clocks import SharedClock, on_clock
from tests.storages import FaultyStorage, SimulatedCrash
from tests.storages.faulty_storage import When
from tests.tables import Row, commit, contents, data_files, make, writer

FIRST = [Row("a", 1, 1), Row("b", 1, 1), Row("c", 1, 1, region="south")]
SECOND = [Row("a", 2, 2), Row("d", 2, 2), Row("e", 2, 2, region="west")]
AFTER_FIRST = {"a": (1, 1), "b": (1, 1), "c": (1, 1)}
AFTER_SECOND = {"a": (2, 2), "b": (1, 1), "c": (1, 1), "d": (2, 2), "e": (2, 2)}

Step = Callable[[TableWriter], object]


def write_second(to: TableWriter) -> object:
    to.recover()
    return commit(to, SECOND)


def compact(to: TableWriter) -> object:
    to.recover()
    return to.compact_if_due(CompactionPolicy(every_delta_commits=1), LocalRunner(1))


CLOCK = SharedClock()


def impatient(to: TableWriter) -> TableWriter:
    return on_clock(to, CLOCK)


def fresh_table(table_type: TableType = TableType.MERGE_ON_READ) -> Storage:
    return _holding(_first_commit(table_type))


def with_logs() -> Storage:
    return _holding(_both_commits())


@cache
def _first_commit(table_type: TableType) -> dict[str, bytes]:
    storage = _empty()
    make(storage, table_type)
    commit(writer(storage), FIRST)
    return _objects(storage)


@cache
def _both_commits() -> dict[str, bytes]:
    storage = fresh_table()
    commit(writer(storage), SECOND)
    return _objects(storage)


def _empty() -> Storage:
    return open_storage(StorageLocation(f"memory://{uuid4().hex}/crashes"))


def _objects(storage: Storage) -> dict[str, bytes]:
    return {info.path: storage.read(info.path) for info in storage.list_tree("")}


def _holding(objects: dict[str, bytes]) -> Storage:
    storage = _empty()
    for path, content in objects.items():
        storage.create(path, content)
    return storage


def crash_points(step: Step, storage: Storage) -> int:
    """How many writes the step makes, counted by doing it once."""
    counting = FaultyStorage(storage)
    step(writer(counting))
    return counting.writes


@pytest.mark.parametrize("table_type", TableType)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_commit_that_dies_is_whole_or_absent(when: When, table_type: TableType) -> None:
    counted = crash_points(write_second, fresh_table(table_type))
    seen, shapes = set(), set[tuple[str, ...]]()
    for nth in range(counted):
        storage = fresh_table(table_type)
        with pytest.raises(SimulatedCrash):
            write_second(impatient(writer(FaultyStorage(storage, nth, when))))
        left = contents(storage)
        assert left in (AFTER_FIRST, AFTER_SECOND), (nth, left)
        seen.add(left == AFTER_SECOND)

        restarted = impatient(writer(storage))
        restarted.recover()
        assert contents(storage) == left, "recovery changes nothing that was seen"
        _assert_no_leftovers(storage)
        commit(restarted, SECOND)
        assert contents(storage) == AFTER_SECOND
        _assert_metadata_agrees(restarted, shapes)
    assert seen == {False, True}, "deaths on both sides of the publishing line"


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_compaction_that_dies_is_finished_by_the_next(when: When) -> None:
    shapes = set[tuple[str, ...]]()
    for nth in range(crash_points(compact, with_logs())):
        storage = with_logs()
        with pytest.raises(SimulatedCrash):
            compact(impatient(writer(FaultyStorage(storage, nth, when))))
        assert contents(storage) == AFTER_SECOND, nth

        restarted = impatient(writer(storage))
        compact(restarted)
        assert contents(storage) == AFTER_SECOND, nth
        assert not restarted.table.timeline.pending(), "a planned compaction was left undone"
        assert not any(s.logs for s in restarted.table.view().latest_slices())
        _assert_metadata_agrees(restarted, shapes)
        optimized = restarted.table.read_optimized(["id"]).read_all()
        assert sorted(optimized["id"].to_pylist()) == sorted(AFTER_SECOND)


def test_a_publish_without_an_answer_is_settled_by_looking() -> None:
    for nth in range(crash_points(write_second, fresh_table())):
        storage = fresh_table()
        doubtful = FaultyStorage(storage, nth, "doubtful")
        try:
            write_second(impatient(writer(doubtful)))
        except Exception:
            restarted = impatient(writer(storage))
            restarted.recover()
            assert contents(storage) in (AFTER_FIRST, AFTER_SECOND), nth
            commit(restarted, SECOND)
        assert contents(storage) == AFTER_SECOND, nth


def _assert_metadata_agrees(to: TableWriter, shapes: set[tuple[str, ...]]) -> None:
    """The metadata table tells what is there; held against the files once for each set of names."""
    assert to.table.keep_metadata_table() is None
    listed = (info.path for info in to.table.storage.list_tree(""))
    shape = tuple(sorted(re.sub("[0-9a-f-]{17,}", "*", path) for path in listed))
    if shape not in shapes:
        assert to.table.metadata_differences() == []
    shapes.add(shape)


def _assert_no_leftovers(storage: Storage) -> None:
    """Every data file belongs to a completed instant, nothing is pending."""
    timeline = writer(storage).table.timeline
    assert not timeline.pending()
    names = [path.rsplit("/", 1)[-1] for path in data_files(storage)]
    completed = [i.requested_at for i in timeline.completed()]
    strays = [name for name in names if not any(instant in name for instant in completed)]
    assert not strays
