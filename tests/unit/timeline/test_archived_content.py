"""The content of an instant is read from the archive if another writer has archived it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from lakemark.config.table_properties import TableType
from lakemark.errors import CorruptData, SnapshotChanged
from lakemark.execution.runner import LocalRunner
from lakemark.model.action import Action, State
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.operations.archive import archive
from lakemark.operations.clean import clean
from lakemark.operations.table_writer import TableWriter
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.cleaning_plan import CleaningPolicy, Retention
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from tests.table_services import as_of, make_plain, new_storage
from tests.tables import Row, commit, write_files, writer

ONE_VERSION = CleaningPolicy(Retention.FILE_VERSIONS, file_versions=1)
ONE_COMMIT = ArchivalPolicy(1, 2, delta_commits_to_compact=1)

Reading = Callable[[TimelineStore, Instant], object]


def by_name(method: Callable[[TimelineStore, str], object]) -> Reading:
    return lambda store, instant: method(store, instant.requested_at)


READINGS: dict[str, tuple[Action, Reading]] = {
    "clean": (Action.CLEAN, TimelineStore.read_clean),
    "plan of a clean": (Action.CLEAN, by_name(TimelineStore.read_clean_plan)),
    "rollback": (Action.ROLLBACK, TimelineStore.read_rollback),
    "plan of a compaction": (Action.COMMIT, by_name(TimelineStore.read_compaction_plan)),
    "commit": (Action.COMMIT, TimelineStore.read_commit),
}


def serviced(version: FormatVersion) -> TableWriter:
    """Create a table with two compactions, a clean and a rollback, and return its writer."""
    storage = new_storage()
    make_plain(storage, version=version)
    to = writer(storage)
    for number in range(2):
        commit(to, [Row("a", number, number)])
    assert to.compact_if_due(CompactionPolicy(1), LocalRunner(1))
    assert clean(to.table, ONE_VERSION)
    write_files(to, [Row("a", 9, 9)])
    to.abandon()
    for number in range(3):
        commit(to, [Row("b", number, number)])
    assert to.compact_if_due(CompactionPolicy(1), LocalRunner(1))
    return to


def archived_by_another(to: TableWriter) -> Timeline:
    """Archive all that may be archived in another process, and load the timeline after that."""
    while archive(writer(to.table.storage).table, ONE_COMMIT, None):
        pass
    return to.table.store.load()


@pytest.mark.parametrize("version", [FormatVersion.V6, FormatVersion.V9])
@pytest.mark.parametrize("name", READINGS)
def test_content_is_the_same_from_the_archive(version: FormatVersion, name: str) -> None:
    to = serviced(version)
    action, read = READINGS[name]
    instant = to.table.timeline.completed(action)[0]
    expected = read(writer(to.table.storage).table.store, instant)
    assert archived_by_another(to).find(instant.requested_at) is None
    assert read(writer(to.table.storage).table.store, instant) == expected


@pytest.mark.parametrize("version", [FormatVersion.V6, FormatVersion.V9])
def test_clean_with_an_empty_file_is_read_from_its_plan_in_the_archive(
    version: FormatVersion,
) -> None:
    to = serviced(version)
    (instant,) = to.table.timeline.completed(Action.CLEAN)
    store = writer(to.table.storage).table.store
    expected = store.read_clean(instant)
    to.table.storage.put(store.path_of(instant), b"")
    archived_by_another(to)
    assert writer(to.table.storage).table.store.read_clean(instant) == expected


def test_readers_and_writers_go_on_when_a_clean_is_archived_between_two_reads() -> None:
    storage = new_storage()
    make_plain(storage, TableType.COPY_ON_WRITE)
    other = writer(storage)
    for number in range(3):
        commit(other, [Row("a", number, number)])
    assert clean(other.table, ONE_VERSION)
    for number in range(3):
        commit(other, [Row(f"r{number}", number, number, region=f"p{number}")])
    ours = writer(storage)
    last = commit(ours, [Row("x", 1, 1, region="y")])
    reader = writer(storage).table
    assert reader.timeline.completed(Action.CLEAN)
    assert archive(writer(storage).table, ONE_COMMIT, None)
    assert clean(ours.table, ONE_VERSION) == []
    assert len(as_of(reader, last.requested_at)) == 5
    commit(ours, [Row("x", 2, 2, region="y")])


def test_an_instant_that_is_nowhere_is_read_again_with_a_new_timeline() -> None:
    store = serviced(FormatVersion.V9).table.store
    gone = Instant("20250101000000000", Action.ROLLBACK, State.COMPLETED, "20250101000000001")
    with pytest.raises(SnapshotChanged, match="load the timeline again"):
        store.read_rollback(gone)
    with pytest.raises(SnapshotChanged, match="load the timeline again"):
        store.read_clean(replace(gone, action=Action.CLEAN))


def test_a_pending_plan_that_is_lost_is_damage() -> None:
    """A lost plan is an error and no reason for a retry, which would find the same timeline."""
    store = serviced(FormatVersion.V9).table.store
    planned = Instant("20990101000000000", Action.COMPACTION, State.REQUESTED)
    store.create(planned.inflight())
    with pytest.raises(CorruptData, match="no such file"):
        store.read_compaction_plan(planned.requested_at)
