"""A publication fails safely if its lease expires between its two steps."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import pytest

from lakemark.errors import Fenced, LockTimeout, Refused
from lakemark.model.action import Action, State
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.operations.metadata_table import keep_metadata_table
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.timeline.locks.open_lock import open_lock
from lakemark.timeline.locks.table_lock import Lease, LeaseLost
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.transaction.publication import Publication
from tests.clocks import SharedClock
from tests.storages.interrupted_storage import InterruptedStorage
from tests.table_services import make_plain, new_storage
from tests.tables import Row, make, write_files, writer

PENDING = Instant("20260101000000000", Action.COMMIT, State.INFLIGHT)
COMPLETED_AT = "20260101000001000"
A_LEASE_AND_MORE_S = 61.0


def begun(storage: Storage, through: Storage, clock: SharedClock) -> Publication:
    lease = open_lock(storage, clock=clock).acquire(wait_s=0)
    return Publication(TimelineStore(through), lease, PENDING)


def test_content_that_is_there_after_the_lease_ran_out_is_not_gone_on_with() -> None:
    storage, clock = new_storage(), SharedClock()
    stopped = InterruptedStorage(storage, lambda: clock.sleep(A_LEASE_AND_MORE_S))
    stopped.is_before = lambda _, method, path: method == "put"
    publication = begun(storage, stopped, clock)
    with pytest.raises(LeaseLost):
        publication.prepare(b"content")


def test_error_of_the_metadata_table_after_the_lease_expired_is_reported_as_its_loss() -> None:
    storage, clock = new_storage(), SharedClock()
    lease, reason = begun(storage, storage, clock).lease, "behind"
    with pytest.raises(Refused, match=reason), lease.reporting_loss():
        raise Refused(reason)
    with pytest.raises(LeaseLost), lease.reporting_loss():
        clock.sleep(A_LEASE_AND_MORE_S)
        raise Refused(reason)


def test_a_lock_that_is_taken_over_and_a_rollback_are_told_apart() -> None:
    storage, clock = new_storage(), SharedClock()

    def take_over() -> None:
        clock.sleep(A_LEASE_AND_MORE_S)
        open_lock(storage, clock=clock).acquire(wait_s=0).release()

    stopped = InterruptedStorage(storage, take_over)
    stopped.is_before = lambda _, method, path: method == "publish"
    publication = begun(storage, stopped, clock)
    publication.prepare(b"content")
    with pytest.raises(LeaseLost):
        publication.publish(COMPLETED_AT)
    rolled_back = begun(storage, storage, clock)
    rolled_back.prepare(b"content")
    rolled_back.store.withdraw(PENDING)
    with pytest.raises(Fenced, match="rollback"):
        rolled_back.publish(COMPLETED_AT)
    assert not TimelineStore(storage).load().instants


@pytest.mark.parametrize("version", [FormatVersion.V6, FormatVersion.V9])
def test_nothing_is_forced_to_the_disk_between_the_check_of_the_lease_and_the_publication(
    version: FormatVersion, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A publication forces no file of another thread, such as an asynchronous compaction."""
    storage = open_storage(StorageLocation(str(tmp_path / "table")))
    make_plain(storage, version=version)
    keep_metadata_table(writer(storage).table)
    steps: list[str] = []
    check, link, fsync = Lease.check, os.link, os.fsync

    def noted_check(lease: Lease) -> None:
        check(lease)
        storage.create(f"north/{uuid4()}.parquet", b"rows", may_be_cut=True)
        steps.append("check")

    def noted_link(source: str, target: str) -> None:
        if source.startswith(f"{storage.location.url}/{PREPARED}/"):
            steps.append("publish")
        link(source, target)

    def noted_fsync(descriptor: int) -> None:
        steps.append("force")
        fsync(descriptor)

    to = writer(storage)
    written = write_files(to, [Row("a", 1, 1)])
    monkeypatch.setattr(Lease, "check", noted_check)
    monkeypatch.setattr("os.link", noted_link)
    monkeypatch.setattr("os.fsync", noted_fsync)
    to.commit(written, {})
    before = [earlier for earlier, step in pairwise(steps) if step == "publish"]
    assert before == ["check"]


def test_the_files_of_a_metadata_commit_are_on_the_disk_before_it_completes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are forced first, so that a power failure leaves no completed instant without them."""
    storage = open_storage(StorageLocation(str(tmp_path / "table")))
    make(storage)
    to = writer(storage)
    written = write_files(to, [Row("a", 1, 1)])
    known = {info.path for info in storage.list_tree(".hoodie/metadata/files")}
    steps: list[str] = []
    link, fsync = os.link, os.fsync

    def noted_link(source: str, target: str) -> None:
        steps.append(os.path.relpath(source, storage.location.url))
        link(source, target)

    def noted_fsync(descriptor: int) -> None:
        target = os.readlink(f"/proc/self/fd/{descriptor}")
        steps.append(os.path.relpath(target, storage.location.url))
        fsync(descriptor)

    monkeypatch.setattr("os.link", noted_link)
    monkeypatch.setattr("os.fsync", noted_fsync)
    to.commit(written, {})
    (log,) = {info.path for info in storage.list_tree(".hoodie/metadata/files")} - known
    published = f"{IN_METADATA}/{to.table.timeline.completed()[-1].requested_at}"
    assert log in steps[: len(steps) - 1 - steps[::-1].index(published)]


# Who takes the lock over


PREPARED = ".hoodie/.aux/prepared"
IN_METADATA = f".hoodie/metadata/{PREPARED}"


def held(storage: Storage, clock: SharedClock) -> None:
    """Leave a lock to a holder whose lease expires, and prepared content in both tables."""
    open_lock(storage, clock=clock).acquire(wait_s=0)
    for folder in (PREPARED, IN_METADATA):
        storage.put(f"{folder}/{PENDING.requested_at}", b"content")
    clock.sleep(A_LEASE_AND_MORE_S)


def test_a_take_over_removes_what_is_prepared_in_the_table_and_in_its_metadata_table() -> None:
    storage, clock = new_storage(), SharedClock()
    held(storage, clock)
    open_lock(storage, clock=clock).acquire(wait_s=0).check()
    assert storage.list_tree(PREPARED) == storage.list_tree(IN_METADATA) == []


def test_a_take_over_that_is_overtaken_removes_nothing_of_the_next_holder() -> None:
    storage, clock = new_storage(), SharedClock()
    held(storage, clock)
    next_path = f"{PREPARED}/20260101000002000"

    def overtake() -> None:
        clock.sleep(A_LEASE_AND_MORE_S)
        open_lock(storage, clock=clock).acquire(wait_s=0)
        storage.put(next_path, b"of the next holder")

    stopped = InterruptedStorage(storage, overtake)
    stopped.is_before = lambda _, method, path: (method, path) == ("list_folder", PREPARED)
    with pytest.raises(LockTimeout):
        open_lock(stopped, clock=clock).acquire(wait_s=0)
    assert [info.path for info in storage.list_tree(PREPARED)] == [next_path]


def test_a_take_over_that_lasts_longer_than_the_lease_begins_again() -> None:
    storage, clock = new_storage(), SharedClock()
    held(storage, clock)
    stopped = InterruptedStorage(storage, lambda: clock.sleep(A_LEASE_AND_MORE_S))
    stopped.is_before = lambda _, method, path: method == "delete"
    open_lock(stopped, clock=clock).acquire(wait_s=2 * A_LEASE_AND_MORE_S).check()
    assert storage.list_tree(PREPARED) == []
