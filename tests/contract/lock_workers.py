"""Functions that run in other processes and use a lock.

Each process imports only this small module.
"""

from __future__ import annotations

from collections.abc import Mapping
from multiprocessing.connection import Connection

from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.timeline.locks.open_lock import open_lock
from lakemark.timeline.locks.table_lock import LeaseLost


def count_up(storage: Storage, times: int, provider: str, options: Mapping[str, str]) -> None:
    """Increment a counter by a read and a write, which only the lock makes one atomic step."""
    lock = open_lock(storage, provider=provider, options=options)
    for _ in range(times):
        with lock.hold(wait_s=60) as lease:
            count = int(storage.read("counter"))
            lease.check()
            storage.put("counter", b"%d" % (count + 1))


def count_up_there(
    location: StorageLocation, times: int, provider: str, options: Mapping[str, str]
) -> None:
    count_up(open_storage(location), times, provider, options)


def hold_and_report(location: StorageLocation, pipe: Connection) -> None:
    """Send ``held``, wait for a message, and send whether the lock is still held."""
    lease = open_lock(open_storage(location), lease_s=1.0).acquire(wait_s=0)
    pipe.send("held")
    pipe.recv()
    try:
        lease.check()
    except LeaseLost:
        pipe.send("lost")
    else:
        pipe.send("still held")
