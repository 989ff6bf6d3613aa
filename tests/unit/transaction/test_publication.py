"""Both steps of a publication under a lease that runs out in between."""

from __future__ import annotations

import pytest

from lakemark.errors import Fenced, LockTimeout, Refused
from lakemark.model.action import Action, State
from lakemark.model.instant import Instant
from lakemark.storage import Storage
from lakemark.timeline.locks.open_lock import open_lock
from lakemark.timeline.locks.table_lock import LeaseLost
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.transaction.publication import Publication
from tests.clocks import SharedClock
from tests.storages.interrupted_storage import InterruptedStorage
from tests.upkeep import new_storage

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


def test_what_a_participant_finds_without_the_lock_is_no_failure_of_its_own() -> None:
    storage, clock = new_storage(), SharedClock()
    publication, reason = begun(storage, storage, clock), "behind"
    with pytest.raises(Refused, match=reason), publication.telling():
        raise Refused(reason)
    with pytest.raises(LeaseLost), publication.telling():
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


# Who takes the lock over


PREPARED = ".hoodie/.aux/prepared"
IN_METADATA = f".hoodie/metadata/{PREPARED}"


def held(storage: Storage, clock: SharedClock) -> None:
    """By a holder that does not release it before its lease has run out."""
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
