"""The archive of version 6 yields completed instants, and nothing else from its logs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.codec.avro_container import MAGIC
from lakemark.errors import CorruptData, SnapshotChanged, Unsupported
from lakemark.model.instant import Instant
from lakemark.storage.storage import Storage
from lakemark.timeline.archive_log import ArchiveLogs
from lakemark.timeline.layout import LayoutV1
from lakemark.timeline.timeline_store import TimelineStore
from tests.storages import CountingStorage
from tests.unit.log.blocks import mutations
from tests.unit.timeline.archives import (
    ARCHIVED,
    archive_log,
    instant,
    merge_plan,
    metadata_of,
    new_storage,
    time_of,
)

ITEMS = [instant(n) for n in range(6)]


def put_log(storage: Storage, number: int, items: list[Instant]) -> str:
    path = f"{ARCHIVED}/.commits_.archive.{number}_1-0-1"
    storage.put(path, archive_log(items))
    return path


def names(archive: ArchiveLogs) -> list[str]:
    return [i.requested_at for i in archive.load().instants()]


def test_instants_are_those_that_completed_when_they_did() -> None:
    storage = new_storage()
    put_log(storage, 1, ITEMS[:4])
    put_log(storage, 2, ITEMS[4:])
    archived = ArchiveLogs(storage, ARCHIVED).load()
    assert [(i.requested_at, i.completed_at) for i in archived.instants()] == [
        (i.requested_at, i.completed_at) for i in ITEMS
    ]
    assert [i.requested_at for i in archived.instants(time_of(1), time_of(3))] == [
        time_of(1),
        time_of(2),
    ]


def test_metadata_is_found_in_whichever_log_has_it_and_none_is_read_twice() -> None:
    storage = CountingStorage(new_storage())
    put_log(storage, 1, ITEMS[:4])
    put_log(storage, 12, ITEMS[4:])
    archive = ArchiveLogs(storage, ARCHIVED)
    assert names(archive) == names(archive)
    assert storage.count("open") == 2
    assert archive.load().read_commit(ITEMS[1]) == metadata_of(ITEMS[1])
    assert archive.load().read_commit(instant(9)) is None


def test_many_commits_are_read_at_once() -> None:
    storage = CountingStorage(new_storage())
    put_log(storage, 1, ITEMS[:4])
    put_log(storage, 12, ITEMS[4:])
    archived = ArchiveLogs(storage, ARCHIVED).load()
    archived.instants()
    before = storage.count("open")
    found = dict(archived.read_commits([*ITEMS, instant(9)]))
    assert found == {item: metadata_of(item) for item in ITEMS}
    assert storage.count("open") - before == 2


def test_a_store_of_layout_1_reads_what_was_archived_meanwhile() -> None:
    storage = new_storage()
    put_log(storage, 1, ITEMS)
    store = TimelineStore(storage, LayoutV1())
    assert store.read_commit(ITEMS[1]) == metadata_of(ITEMS[1])
    assert store.load().has_history
    with pytest.raises(SnapshotChanged):
        store.read_commit(instant(9))


def test_a_log_that_grew_is_read_again() -> None:
    storage = new_storage()
    archive = ArchiveLogs(storage, ARCHIVED)
    put_log(storage, 1, ITEMS[:1])
    assert len(names(archive)) == 1
    put_log(storage, 1, ITEMS[:2])
    assert len(names(archive)) == 2


def test_a_log_that_was_merged_meanwhile_asks_for_a_retry() -> None:
    storage = new_storage()
    path = put_log(storage, 1, ITEMS)
    archived = ArchiveLogs(storage, ARCHIVED).load()
    storage.delete([path])
    with pytest.raises(SnapshotChanged, match="merged"):
        archived.instants()


def test_an_unfinished_merge_adds_nothing_until_it_replaces_something() -> None:
    storage = new_storage()
    archive = ArchiveLogs(storage, ARCHIVED)
    small = [put_log(storage, 1, ITEMS[:2]), put_log(storage, 2, ITEMS[2:])]
    merged = f"{ARCHIVED}/.commits_.archive.3_1-0-1"
    storage.put(f"{ARCHIVED}/mergeArchivePlan", merge_plan(small, merged))
    storage.put(merged, archive_log(ITEMS)[:-9])
    assert len(names(archive)) == 6
    storage.put(merged, archive_log(ITEMS))
    storage.delete(small[:1])
    assert len(names(archive)) == 6


def test_a_truncated_log_and_a_damaged_plan_are_corrupt() -> None:
    storage = new_storage()
    path = put_log(storage, 1, ITEMS)
    storage.put(path, archive_log(ITEMS)[:-9])
    with pytest.raises(CorruptData, match="archive"):
        names(ArchiveLogs(storage, ARCHIVED))
    storage.put(f"{ARCHIVED}/mergeArchivePlan", MAGIC + b"\x01")
    with pytest.raises(CorruptData, match="mergeArchivePlan"):
        ArchiveLogs(storage, ARCHIVED).load()


@settings(deadline=None)
@given(st.data())
def test_damaged_logs_never_crash(data: st.DataObject) -> None:
    storage = new_storage()
    path = put_log(storage, 1, ITEMS[:2])
    whole = archive_log(ITEMS[:2])
    cut = st.integers(0, len(whole) - 1).map(lambda end: whole[:end])
    storage.put(path, data.draw(mutations(whole) | cut))
    archived = ArchiveLogs(storage, ARCHIVED).load()
    for ask in (archived.instants, lambda: archived.read_commit(ITEMS[1])):
        try:
            ask()
        except (CorruptData, Unsupported) as error:
            assert path in str(error)


def test_an_instant_completed_no_earlier_than_it_was_requested() -> None:
    """The completion time is never before the request, even if a disk stores only seconds."""
    storage = new_storage()
    put_log(storage, 1, [replace(ITEMS[1], completed_at=time_of(0))])
    (found,) = ArchiveLogs(storage, ARCHIVED).load().instants()
    assert (found.requested_at, found.completed_at) == (time_of(1), time_of(1))
