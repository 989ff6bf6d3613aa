"""A commit fails before it writes to a file group that an earlier commit is writing."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lakemark.config.table_properties import TableType
from lakemark.errors import WriteConflict
from lakemark.index.bucket import file_id
from lakemark.model.file_slice import FileGroupId
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.transaction.heartbeat import HEARTBEAT_FOLDER, HeartbeatPolicy
from lakemark.transaction.multi_writer import MultiWriter
from lakemark.write import early_conflicts
from lakemark.write.early_conflicts import EarlyConflict, Rival, check_rivals
from lakemark.write.markers import drop_markers, marked_names
from tests.recovery.early_writer import write_and_wait
from tests.storages import CountingStorage
from tests.storages.interrupted_storage import InterruptedStorage
from tests.table_services import make_plain, new_storage
from tests.tables import (
    Row,
    by_bucket,
    changes,
    commit,
    contents,
    keys_of_two_buckets,
    write_files,
)
from tests.writers import SHARING, shared_writer

KEY, OTHER_KEY = keys_of_two_buckets()
EARLY = replace(SHARING, detects_conflicts_early=True)

spawn = multiprocessing.get_context("spawn")


@contextmanager
def writing_process(location: StorageLocation, sharing: MultiWriter) -> Iterator[str]:
    """Run a process that has written a file of the bucket of ``KEY``; kill it at the end."""
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=write_and_wait, args=(location, sharing, [KEY], theirs))
    process.start()
    try:
        yield ours.recv()
    finally:
        process.kill()
        process.join()


@pytest.mark.parametrize("table_type", TableType)
def test_later_of_two_processes_fails_before_it_writes(
    table_type: TableType, tmp_path: Path
) -> None:
    location = StorageLocation(str(tmp_path / "table"))
    storage = open_storage(location)
    make_plain(storage, table_type)
    sharing = MultiWriter(HeartbeatPolicy(1.0, 600), clock_skew_ms=1, detects_conflicts_early=True)
    commit(shared_writer(storage, has_metadata=False), [Row(KEY, 0, 0)])
    later = shared_writer(storage, multi_writer=sharing, has_metadata=False)
    with writing_process(location, sharing) as instant:
        written = set(data_paths(storage))
        message = rf"file group .* commit {instant}, which began earlier"
        with pytest.raises(EarlyConflict, match=message) as conflict:
            write_files(later, [Row(KEY, 2, 2)])
        later.abandon()
        assert set(data_paths(storage)) == written
        commit(later, [Row(OTHER_KEY, 2, 2)])
    rival = conflict.value.rival
    assert rival.is_alive(storage)
    expired = datetime.now(UTC) - timedelta(seconds=601)
    assert storage.set_modified_at(rival.heartbeat_path, expired)
    assert not rival.is_alive(storage)
    commit(later, [Row(KEY, 3, 3)])
    assert contents(storage) == {KEY: (3, 3), OTHER_KEY: (2, 2)}


def data_paths(storage: Storage) -> list[str]:
    """List the files outside of the folder of the timeline."""
    return [o.path for o in storage.list_tree("") if not o.path.startswith(".hoodie/")]


def test_earlier_writer_continues_and_the_default_detects_nothing_early() -> None:
    storage = new_storage()
    make_plain(storage)
    earlier = shared_writer(storage, multi_writer=EARLY, has_metadata=False)
    begun = earlier.begin()
    assert begun.rivals == ()
    later = shared_writer(storage, has_metadata=False)
    written = write_files(later, [Row(KEY, 2, 2)])
    earlier.abandon()
    commit(earlier, [Row(OTHER_KEY, 1, 1)])
    later.commit(written, {})


# Markers of Apache Hudi


@pytest.mark.parametrize("kind", ["direct", "timeline server"])
@pytest.mark.parametrize(
    ("partition", "bucket_of", "is_alive", "conflicts"),
    [
        ("north", KEY, True, True),
        ("north", OTHER_KEY, True, False),
        ("south", KEY, True, False),
        ("north", KEY, False, False),
    ],
    ids=["same bucket", "other bucket", "other partition", "dead writer"],
)
def test_markers_of_apache_hudi_are_read(
    kind: str, partition: str, bucket_of: str, is_alive: bool, conflicts: bool
) -> None:
    storage = new_storage()
    make_plain(storage)
    theirs = shared_writer(storage, has_metadata=False)
    instant = theirs.begin().instant
    ours = shared_writer(storage, multi_writer=EARLY, has_metadata=False)
    context = ours.begin()
    assert [rival.instant for rival in context.rivals] == [instant]
    number = bucket_number(bucket_of)
    name = f"{file_id(number, partition, instant, 'other')}_0-1-2_{instant}.parquet.marker.CREATE"
    folder = f".hoodie/.temp/{instant}"
    if kind == "direct":
        storage.create(f"{folder}/{partition}/{name}", b"")
    else:
        storage.create(f"{folder}/MARKERS.type", b"TIMELINE_SERVER_BASED")
        storage.create(f"{folder}/MARKERS0", b"")
        storage.create(f"{folder}/MARKERS1", f"{partition}/{name}\n".encode())
    if not is_alive:
        storage.delete([f"{HEARTBEAT_FOLDER}/{instant}"])
    ours.abandon()
    if conflicts:
        with pytest.raises(WriteConflict, match=instant):
            write_files(ours, [Row(KEY, 1, 1, region="north")])
    else:
        commit(ours, [Row(KEY, 1, 1, region="north")])


def test_markers_that_a_finished_commit_deletes_meanwhile_are_no_error() -> None:
    storage = new_storage()
    instant = "20260101000000000"
    storage.create(f".hoodie/.temp/{instant}/MARKERS0", b"north/x_0-1-2_3.parquet.marker.CREATE\n")
    finishing = InterruptedStorage(storage, lambda: drop_markers(storage, instant))
    finishing.is_before = lambda number, method, path: "MARKERS0" in path
    assert marked_names(finishing, instant, "north") == []
    assert finishing.stopped_at is not None


def test_markers_are_listed_once_for_the_file_groups_of_a_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(early_conflicts, "_LISTING_LASTS_S", 600.0)  # longer than any pause
    storage = CountingStorage(new_storage())
    rival = Rival("20260101000000000", f"{HEARTBEAT_FOLDER}/20260101000000000", 60.0)
    for number in range(10):
        check_rivals(storage, [rival], FileGroupId("north", f"{number:08d}-0"))
    assert len(storage.requests) <= 2


def bucket_number(key: str) -> int:
    ((bucket, _),) = by_bucket(changes([Row(key)]))
    return bucket.number


def test_waiting_ends_when_the_writer_has_finished() -> None:
    storage = new_storage()
    rival = Rival("20260101000000000", f"{HEARTBEAT_FOLDER}/20260101000000000", 6_000.0)
    storage.put(rival.heartbeat_path, b"")
    threading.Timer(0.2, storage.delete, args=([rival.heartbeat_path],)).start()
    rival.wait(storage, 6_000)
    assert storage.head(rival.heartbeat_path) is None
    storage.put(rival.heartbeat_path, b"")
    rival.wait(storage, 0.1)
    assert rival.is_alive(storage)
