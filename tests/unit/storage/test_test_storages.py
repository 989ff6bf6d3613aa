"""The wrapping storages that other tests use behave as documented."""

from __future__ import annotations

from uuid import uuid4

import pytest

from lakemark.errors import StorageUnavailable
from lakemark.storage import Storage, StorageLocation, open_storage
from tests.storages import CountingStorage, FaultyStorage, SimulatedCrash, WatchedStorage


@pytest.fixture
def inner() -> Storage:
    return open_storage(StorageLocation(f"memory://{uuid4().hex}"))


def write_five(storage: Storage) -> None:
    storage.create("0", b"")
    storage.put("1", b"")
    storage.publish("1", "2")
    file = storage.create_streaming("3")
    file.write(b"x")
    file.close()
    storage.delete(["0", "1"])


def test_a_dry_run_counts_the_writes(inner: Storage) -> None:
    storage = FaultyStorage(inner)
    write_five(storage)
    assert storage.writes == 6


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", range(6))
def test_a_crash_is_before_or_after_one_write(inner: Storage, nth: int, when: str) -> None:
    storage = FaultyStorage(inner, nth, "before" if when == "before" else "after")
    with pytest.raises(SimulatedCrash):
        write_five(storage)
    for call in (lambda: storage.read("0"), lambda: storage.put("0", b"")):
        with pytest.raises(SimulatedCrash):
            call()
    done = nth + (when == "after")
    there = [info.path for info in inner.list_tree("")]
    assert (
        there
        == [
            [],
            ["0"],
            ["0", "1"],
            ["0", "1", "2"],
            ["0", "1", "2", "3"],
            ["1", "2", "3"],
            ["2", "3"],
        ][done]
    )


def test_a_doubtful_write_is_done_and_the_process_lives(inner: Storage) -> None:
    storage = FaultyStorage(inner, 1, "doubtful")
    storage.create("a", b"1")
    with pytest.raises(StorageUnavailable):
        storage.put("b", b"1")
    assert storage.read("b") == b"1"
    storage.put("b", b"2")


def test_a_write_that_is_lost_is_not_done_and_the_process_lives(inner: Storage) -> None:
    storage = FaultyStorage(inner, 1, "lost")
    storage.create("a", b"1")
    with pytest.raises(StorageUnavailable):
        storage.put("b", b"1")
    assert storage.has_failed
    assert inner.head("b") is None
    storage.put("b", b"2")


def test_storages_of_one_process_die_together(inner: Storage) -> None:
    first = FaultyStorage(inner, 1)
    second = first.for_storage(inner)
    first.put("a", b"1")
    with pytest.raises(SimulatedCrash):
        second.put("b", b"1")
    with pytest.raises(SimulatedCrash):
        first.read("a")
    assert [info.path for info in inner.list_tree("")] == ["a"]


def test_each_write_is_announced_before_it_is_done(inner: Storage) -> None:
    announced: list[tuple[str, int]] = []
    storage = WatchedStorage(
        inner, lambda _, path: announced.append((path, len(inner.list_tree(""))))
    )
    write_five(storage)
    assert announced == [("0", 0), ("1", 1), ("2", 2), ("3", 3), ("0", 4), ("1", 3)]


def test_every_call_is_counted(inner: Storage) -> None:
    storage = CountingStorage(inner)
    write_five(storage)
    storage.list_folder("")
    assert [r.method for r in storage.requests] == [
        "create",
        "put",
        "publish",
        "create_streaming",
        "close",
        "delete",
        "delete",
        "list_folder",
    ]
    assert storage.count("delete") == 2
    assert storage.count(under="3") == 2
    storage.forget()
    assert storage.count() == 0
