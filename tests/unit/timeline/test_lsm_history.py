"""The history of versions 8 and 9 is read completely, and only as far as needed."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakemark.errors import CorruptData, SnapshotChanged
from lakemark.model.action import Action
from lakemark.timeline.lsm_history import LsmHistory
from lakemark.timeline.timeline_store import TimelineStore
from tests.storages import CountingStorage
from tests.unit.log.blocks import mutations
from tests.unit.timeline.archives import (
    HISTORY,
    history_file,
    instant,
    manifest,
    metadata_of,
    new_storage,
    put_history,
    time_of,
)

FILES = [[instant(n) for n in range(first, first + 10)] for first in range(0, 50, 10)]


@settings(deadline=None)
@given(st.integers(-5, 55), st.none() | st.integers(-5, 55))
def test_a_range_contains_the_instants_requested_in_it(since: int, until: int | None) -> None:
    storage = new_storage()
    put_history(storage, 1, FILES)
    end = None if until is None else time_of(until)
    found = LsmHistory(storage, HISTORY).load().instants(time_of(since), end)
    wanted = range(max(since, 0), 50 if until is None else min(until, 50))
    assert list(found) == [instant(number) for number in wanted]


def test_only_files_whose_names_cover_the_instant_are_opened_and_each_once() -> None:
    storage = CountingStorage(new_storage())
    paths = put_history(storage, 1, FILES)
    history = LsmHistory(storage, HISTORY)
    storage.forget()
    for number in (33, 31, 38):
        found = history.load().find(time_of(number))
        assert found is not None
        assert found.completed_at == time_of(number, 25)
    assert [p for p in paths if storage.count("open", under=p)] == [paths[3]]
    assert storage.count("open") == 1
    assert history.load().find(time_of(99)) is None
    assert storage.count("open") == 1


def test_metadata_of_an_archived_commit_is_read_on_demand() -> None:
    storage = new_storage()
    put_history(storage, 1, FILES)
    archived = LsmHistory(storage, HISTORY).load()
    assert archived.read_commit(instant(17)) == metadata_of(instant(17))
    assert archived.read_commit(instant(17, Action.COMMIT)) is None
    assert archived.read_commit(instant(60)) is None


def test_a_savepoint_does_not_hide_the_commit_that_it_keeps() -> None:
    storage = new_storage()
    put_history(storage, 1, [[instant(1, Action.SAVEPOINT), instant(1)]])
    assert LsmHistory(storage, HISTORY).load().find(time_of(1)) == instant(1)


def test_without_a_history_nothing_was_archived() -> None:
    assert LsmHistory(new_storage(), HISTORY).load().instants() == ()


@pytest.mark.parametrize("content", [None, b"", b"x"])
def test_without_a_version_the_largest_manifest_counts(content: bytes | None) -> None:
    storage = new_storage()
    for version in (9, 10):
        put_history(storage, version, FILES[: version - 8])
    if content is None:
        storage.delete([f"{HISTORY}/_version_"])
    else:
        storage.put(f"{HISTORY}/_version_", content)
    assert len(LsmHistory(storage, HISTORY).load().instants()) == 20


def test_a_file_that_a_newer_version_replaced_asks_for_a_retry_and_the_retry_helps() -> None:
    storage = new_storage()
    history = LsmHistory(storage, HISTORY)
    old_paths = put_history(storage, 1, FILES[:2])
    archived = history.load()
    put_history(storage, 2, [FILES[0] + FILES[1]])
    storage.delete(old_paths)
    with pytest.raises(SnapshotChanged, match="from version 1 to 2"):
        archived.instants()
    with pytest.raises(SnapshotChanged):
        archived.read_commit(instant(3))
    assert len(history.load().instants()) == 20


def test_a_missing_file_or_manifest_without_replacement_is_lost() -> None:
    storage = new_storage()
    history = LsmHistory(storage, HISTORY)
    paths = put_history(storage, 1, FILES)
    storage.delete([paths[0]])
    with pytest.raises(CorruptData, match=r"manifest_1.*no such file"):
        history.load().instants()
    assert history.load().instants(time_of(10)), "the rest can be read"
    storage.delete([f"{HISTORY}/manifest_1"])
    with pytest.raises(CorruptData, match="manifest_1"):
        history.load()


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"{}", b'{"files": [7]}', b'{"files": {}}', manifest(["x.parquet"])],
)
def test_a_damaged_manifest_is_corrupt(content: bytes) -> None:
    storage = new_storage()
    put_history(storage, 1, FILES)
    storage.put(f"{HISTORY}/manifest_1", content)
    with pytest.raises(CorruptData, match="manifest_1"):
        LsmHistory(storage, HISTORY).load()


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_damaged_files_never_crash(data: st.DataObject) -> None:
    storage = new_storage()
    (path,) = put_history(storage, 1, FILES[:1])
    _, whole = history_file(FILES[0])
    cut = st.integers(0, len(whole) - 1).map(lambda end: whole[:end])
    storage.put(path, data.draw(mutations(whole) | cut))
    archived = LsmHistory(storage, HISTORY).load()
    for ask in (archived.instants, lambda: archived.read_commit(instant(3))):
        try:
            ask()
        except CorruptData as error:
            assert path in str(error)


def test_a_truncated_file_is_corrupt() -> None:
    storage = new_storage()
    (path,) = put_history(storage, 1, FILES[:1])
    storage.put(path, history_file(FILES[0])[1][:-40])
    with pytest.raises(CorruptData, match=path):
        LsmHistory(storage, HISTORY).load().instants()


def test_a_timeline_asks_the_history_only_when_it_must() -> None:
    storage = CountingStorage(new_storage())
    put_history(storage, 1, FILES)
    active = instant(50)
    storage.put(f".hoodie/timeline/{active.requested_at}_{active.completed_at}.deltacommit", b"")
    storage.forget()
    timeline = TimelineStore(storage).load()
    assert timeline.is_committed(time_of(7))
    assert timeline.completed_at(time_of(50)) == active.completed_at
    assert storage.count(under=HISTORY) == 0
    assert timeline.completed_at(time_of(7)) == instant(7).completed_at
    assert timeline.completed_at(time_of(8)) == instant(8).completed_at
    assert storage.count("open", under=HISTORY) == 1
    assert storage.count("read", under=f"{HISTORY}/manifest") == 1


def test_a_commit_that_was_archived_meanwhile_is_read_from_the_history() -> None:
    storage = new_storage()
    store = TimelineStore(storage)
    put_history(storage, 1, FILES)
    assert store.read_commit(instant(7)) == metadata_of(instant(7))
    with pytest.raises(SnapshotChanged, match="rolled back"):
        store.read_commit(instant(77))
