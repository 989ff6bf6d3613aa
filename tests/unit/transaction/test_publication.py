"""Both steps of a publication under a lease that runs out in between."""

from __future__ import annotations

import pytest

from table.errors import Fenced, Refused
from table.model.action import Action, State
from table.model.instant import Instant
from table.storage import Storage
from table.timeline.lock import LeaseLost, open_lock
from table.timeline.timeline_store import TimelineStore
from table.transaction.publication import Publication
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
