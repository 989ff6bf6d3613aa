"""Two writers that acquire the table's lock, in any order of their calls to storage.

The first writer acquires the lock, and may renew it just before its lease expires. The second
acquires it once or several times, and keeps it. Every schedule is tried in which the first makes
some calls, is paused while the second makes some, and makes a few more before the second continues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product, repeat
from threading import Semaphore
from typing import TypeVar
from uuid import uuid4

import pytest

from lakemark.errors import LockTimeout
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.timeline.locks.open_lock import open_lock
from lakemark.timeline.locks.table_lock import Lease, LeaseLost, TableLock
from tests.storages.wrapped_storage import WrappedStorage

T = TypeVar("T")

FIRST, SECOND = 0, 1
LEASE_S = 10.0
RENEWED_AFTER_MS = 9_000
PAUSE_MS = 1_600  # added to the above longer than a lease and the drift, alone shorter than a lease


class Schedule:
    """Lets one writer at a time make one call, in the order of a schedule."""

    def __init__(self, order: Iterator[int], pause_after: int) -> None:
        self.time_ms = 1_700_000_000_000
        self._order = order
        self._calls_to_pause = pause_after
        self._gates = (Semaphore(0), Semaphore(0))
        self._running = {FIRST, SECOND}

    def now_ms(self) -> int:
        return self.time_ms

    def sleep(self, seconds: float) -> None:
        self.time_ms += 1

    def give(self) -> None:
        """Let the next writer of the schedule make its call."""
        self._calls_to_pause -= 1
        if self._calls_to_pause == -1:
            self.time_ms += PAUSE_MS
        chosen = next(self._order)
        self._gates[chosen if chosen in self._running else 1 - chosen].release()

    def wait(self, writer: int) -> None:
        """Wait until the schedule selects this writer."""
        self._gates[writer].acquire()

    def leave(self, writer: int) -> None:
        """End a writer; all further calls are made by the other."""
        self._running.discard(writer)
        if self._running:
            self.give()


class ScheduledStorage(WrappedStorage):
    """Delays every call until the schedule selects its writer.

    It is in memory; without compare-and-swap it acts like a local disk.
    """

    def __init__(self, inner: Storage, schedule: Schedule, writer: int, conditional: bool) -> None:
        super().__init__(inner)
        self._schedule, self._writer = schedule, writer
        self.supports_compare_and_swap = conditional

    def _reading(self, method: str, path: str, call: Callable[[], T]) -> T:
        self._schedule.give()
        self._schedule.wait(self._writer)
        return call()

    _writing = _reading


Program = Callable[[TableLock, Schedule], Lease]


def take(lock: TableLock, schedule: Schedule) -> Lease:
    return lock.acquire(wait_s=0)


def take_and_renew(lock: TableLock, schedule: Schedule) -> Lease:
    lease = lock.acquire(wait_s=0)
    schedule.time_ms += RENEWED_AFTER_MS
    lease.renew()
    return lease


def take_again_and_again(lock: TableLock, schedule: Schedule) -> Lease:
    for _ in range(3):
        lock.acquire(wait_s=0).release()
    return lock.acquire(wait_s=0)


def run(
    pool: ThreadPoolExecutor,
    programs: tuple[Program, Program],
    schedule: Schedule,
    conditional: bool,
) -> list[Lease]:
    """Run both writers, and return the leases that are valid at the end."""
    location = StorageLocation(f"memory://{uuid4().hex}")
    before = WrappedStorage(open_storage(location))
    before.supports_compare_and_swap = conditional
    open_lock(before, lease_s=LEASE_S, clock=schedule).acquire(wait_s=0).release()

    def run_one(writer: int) -> Lease | None:
        storage = ScheduledStorage(open_storage(location), schedule, writer, conditional)
        lock = open_lock(storage, lease_s=LEASE_S, clock=schedule)
        schedule.wait(writer)
        try:
            return programs[writer](lock, schedule)
        except (LockTimeout, LeaseLost):
            return None
        finally:
            schedule.leave(writer)

    results = [pool.submit(run_one, writer) for writer in (FIRST, SECOND)]
    schedule.give()
    leases = [result.result() for result in results]
    return [lease for lease in leases if lease is not None and lease.remaining_s() > 0]


def order_of(first_calls: int, second_calls: int, more_calls: int) -> Iterator[int]:
    yield from repeat(FIRST, first_calls)
    yield from repeat(SECOND, second_calls)
    yield from repeat(FIRST, more_calls)
    yield from repeat(SECOND)


@pytest.mark.parametrize(
    ("programs", "longest"),
    [((take, take_again_and_again), 45), ((take_and_renew, take), 10)],
    ids=["overtaken", "renewed"],
)
@pytest.mark.parametrize("conditional", [True, False], ids=["swap", "generations"])
def test_two_leases_are_never_valid_at_once(
    conditional: bool, programs: tuple[Program, Program], longest: int
) -> None:
    taken = 0
    with ThreadPoolExecutor(2) as pool:
        for calls in product(range(1, 16), range(1, longest, 1 + longest // 20), [1, 2, 100]):
            schedule = Schedule(order_of(*calls), pause_after=calls[0])
            valid = run(pool, programs, schedule, conditional)
            assert len(valid) <= 1, calls
            taken += len(valid)
    assert taken > 0
