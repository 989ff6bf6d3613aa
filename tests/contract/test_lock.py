"""The contract of the table's lock (``lakemark.timeline.locks``), on each kind of store."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark.errors import CorruptData, InvalidConfig, LockTimeout, Refused
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.storage.storage import NotFound
from lakemark.timeline.locks.file_system_lock import APACHE_LOCK_PATH
from lakemark.timeline.locks.lock_provider import LOCK_FOLDER, LOCK_PATH, LockRecord
from lakemark.timeline.locks.open_lock import LockProviderName, open_lock
from lakemark.timeline.locks.table_lock import CLOCK_DRIFT_MS, LeaseLost, TableLock
from tests.clocks import ManualClock
from tests.contract.lock_servers import aws_credentials, lock_options, patient_clients
from tests.contract.lock_workers import count_up, count_up_there, hold_and_report
from tests.storages import FaultyStorage, SimulatedCrash
from tests.storages.interrupted_storage import InterruptedStorage

LEASE_S = 60.0
DRIFT_S = CLOCK_DRIFT_MS / 1000

spawn = multiprocessing.get_context("spawn")


class RenewalClock(ManualClock):
    """A manual clock on which the renewing thread waits, too. It stops at each due renewal.

    Attributes:
        due_ms: when the thread renews the lease next; None before it waits for the first time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.due_ms: int | None = None

    def sleep(self, seconds: float) -> None:
        end_ms = self.time_ms + max(1, round(1000 * seconds))
        while self.time_ms < end_ms:
            self.time_ms = min(end_ms, self._due_later_ms())
            self._due_later_ms()

    def event(self) -> threading.Event:
        """Create an event whose ``wait`` uses this clock."""
        clock = self

        class OnClock(threading.Event):
            def wait(self, timeout: float | None = None) -> bool:
                assert timeout is not None
                clock.due_ms = clock.time_ms + round(1000 * timeout)
                while clock.time_ms < clock.due_ms:
                    if super().wait(0.001):
                        return True
                return self.is_set()

        return OnClock()

    def _due_later_ms(self) -> int:
        deadline = time.monotonic() + 120
        while self.due_ms is None or self.due_ms <= self.time_ms:
            assert time.monotonic() < deadline, "no thread renews the lease"
            time.sleep(0.001)
        return self.due_ms


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


#: Each kind of store with its lock, and the other lock provider of a local disk that uses files.
LOCK_KINDS = (
    ("memory", LockProviderName.STORAGE),
    ("s3", LockProviderName.STORAGE),
    ("gcs", LockProviderName.STORAGE),
    ("azure", LockProviderName.STORAGE),
    ("local", LockProviderName.STORAGE),
    ("local", LockProviderName.FILE_SYSTEM),
)

#: The locks that are on a server.
SERVER_KINDS = (("local", LockProviderName.ZOOKEEPER), ("local", LockProviderName.DYNAMODB))

each_lock = pytest.mark.parametrize(
    ("storage_kind", "provider"),
    (*LOCK_KINDS, *SERVER_KINDS, ("local", LockProviderName.IN_PROCESS)),
)
each_shared_lock = pytest.mark.parametrize(
    ("storage_kind", "provider"), (*LOCK_KINDS, *SERVER_KINDS)
)
each_stored_lock = pytest.mark.parametrize(("storage_kind", "provider"), LOCK_KINDS)


@pytest.fixture
def provider() -> LockProviderName:
    return LockProviderName.STORAGE


@pytest.fixture(scope="module", autouse=True)
def credentials() -> Iterator[None]:
    with aws_credentials(), patient_clients():
        yield


@pytest.fixture
def options(provider: LockProviderName, request: pytest.FixtureRequest) -> dict[str, str]:
    """The options of the lock provider, which name a new lock of its server."""
    return lock_options(provider, request)


@pytest.fixture
def lock(
    storage: Storage, clock: ManualClock, provider: LockProviderName, options: dict[str, str]
) -> TableLock:
    return open_lock(storage, lease_s=LEASE_S, clock=clock, provider=provider, options=options)


@pytest.fixture
def other(
    storage_location: StorageLocation,
    clock: ManualClock,
    provider: LockProviderName,
    options: dict[str, str],
) -> TableLock:
    """The lock of the same table, opened by another writer."""
    storage = open_storage(storage_location)
    return open_lock(storage, lease_s=LEASE_S, clock=clock, provider=provider, options=options)


@each_lock
def test_error_of_a_held_lock_names_its_owner(
    lock: TableLock, other: TableLock, caplog: pytest.LogCaptureFixture
) -> None:
    with lock.hold(0) as lease:
        with pytest.raises(LockTimeout) as refused:
            other.acquire(wait_s=7)
        assert refused.value.waited_s >= 7
        told = [one for one in caplog.messages if one.startswith("waiting for lock")]
        assert len(told) == 1
        assert refused.value.owner in told[0]
        with pytest.raises(LeaseLost, match=refused.value.owner):
            lease.release()
            lease.check()


@each_lock
def test_released_lock_can_be_acquired_at_once(lock: TableLock, other: TableLock) -> None:
    for _ in range(3):
        lock.acquire(wait_s=0).release()
        with other.hold(wait_s=0) as lease:
            lease.check()


@each_lock
def test_error_in_the_block_releases_the_lock(lock: TableLock, other: TableLock) -> None:
    with pytest.raises(ZeroDivisionError), lock.hold(wait_s=0):
        raise ZeroDivisionError
    other.acquire(wait_s=0).check()


@each_lock
def test_missing_file_is_reported_as_a_lost_lease_if_the_lease_has_expired(
    lock: TableLock, clock: ManualClock
) -> None:
    with pytest.raises(NotFound), lock.hold(wait_s=0):
        raise NotFound
    with pytest.raises(LeaseLost, match="has expired"), lock.hold(wait_s=0):
        clock.sleep(LEASE_S + 1)
        raise NotFound
    clock.sleep(LEASE_S)
    with pytest.raises(Refused), lock.hold(wait_s=0):
        clock.sleep(LEASE_S + 1)
        raise Refused


@each_lock
def test_lock_of_a_dead_holder_can_be_acquired_after_its_lease(
    lock: TableLock, other: TableLock, clock: ManualClock
) -> None:
    lock.acquire(wait_s=0)
    clock.sleep(LEASE_S + DRIFT_S)
    with pytest.raises(LockTimeout):
        other.acquire(wait_s=0)
    clock.sleep(0.001)
    lease = other.acquire(wait_s=0)
    assert lease.remaining_s() == LEASE_S


@each_lock
def test_paused_holder_notices_that_it_lost_the_lock(
    lock: TableLock, other: TableLock, clock: ManualClock
) -> None:
    paused = lock.acquire(wait_s=0)
    paused.check()
    clock.sleep(LEASE_S + 1)
    assert paused.remaining_s() == 0
    with pytest.raises(LeaseLost, match="has expired"):
        paused.check()
    with pytest.raises(LeaseLost):
        paused.renew()
    lease = other.acquire(wait_s=0)
    clock.time_ms -= 2000 + round(1000 * LEASE_S)  # the clock is set back, which hides the pause
    assert paused.remaining_s() > 0
    with pytest.raises(LeaseLost, match="another writer"):
        paused.check()
    with pytest.raises(LeaseLost, match="another writer"):
        paused.renew()
    paused.release()
    lease.check()
    with pytest.raises(LockTimeout):
        lock.acquire(wait_s=0)


@each_lock
def test_renewed_lease_begins_at_the_renewal(
    lock: TableLock, other: TableLock, clock: ManualClock
) -> None:
    lease = lock.acquire(wait_s=0)
    for _ in range(3):
        clock.sleep(LEASE_S - 1)
        assert lease.remaining_s() == 1
        lease.renew()
        assert lease.remaining_s() == LEASE_S
        lease.check()
        with pytest.raises(LockTimeout):
            other.acquire(wait_s=0)
    lease.release()
    other.acquire(wait_s=0)


def test_lease_is_renewed_during_a_step_longer_than_a_lease(
    storage_location: StorageLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = RenewalClock()
    ours = SimpleNamespace(Event=clock.event, Thread=threading.Thread, RLock=threading.RLock)
    monkeypatch.setattr("lakemark.timeline.locks.table_lock.threading", ours)
    lock, other = (
        open_lock(open_storage(storage_location), lease_s=LEASE_S, clock=clock) for _ in range(2)
    )
    with lock.hold(0) as lease:
        with pytest.raises(LockTimeout):
            other.acquire(3 * LEASE_S)
        lease.check()
    other.acquire(0).release()


@each_lock
def test_check_renews_a_lease_of_which_less_than_half_remains(
    lock: TableLock, other: TableLock, clock: ManualClock
) -> None:
    lease = lock.acquire(wait_s=0)
    clock.sleep(LEASE_S / 2)
    lease.check()
    assert lease.remaining_s() == LEASE_S / 2
    clock.sleep(LEASE_S / 4)
    lease.check()
    clock.sleep(LEASE_S / 2)
    with pytest.raises(LockTimeout):
        other.acquire(wait_s=0)


def test_check_fails_if_its_read_took_longer_than_the_lease(
    storage: Storage, clock: ManualClock
) -> None:
    slow = InterruptedStorage(storage, lambda: clock.sleep(LEASE_S))
    lease = open_lock(slow, lease_s=LEASE_S, clock=clock).acquire(wait_s=0)
    lease.check()
    slow.is_before = lambda number, method, path: ".locks/" in path
    with pytest.raises(LeaseLost, match="has expired"):
        lease.check()
    assert slow.stopped_at is not None


def test_lock_folder_stays_small(lock: TableLock, storage: Storage) -> None:
    for _ in range(20):
        lock.acquire(wait_s=0).release()
    assert len(storage.list_tree(LOCK_FOLDER)) <= 2


def test_error_of_a_damaged_lock_file_names_the_file(storage: Storage, lock: TableLock) -> None:
    lock.acquire(wait_s=0).release()
    for info in storage.list_tree(LOCK_FOLDER):
        storage.put(info.path, b"{}")
    with pytest.raises(CorruptData, match="table_lock"):
        lock.acquire(wait_s=0)


@pytest.mark.parametrize("left", [b"", b'{"validUntil":1767', bytes(20)])
def test_lock_file_that_a_power_failure_truncated_is_taken_over(
    tmp_path: Path, clock: ManualClock, left: bytes
) -> None:
    storage = open_storage(StorageLocation(str(tmp_path)))
    lock = open_lock(storage, clock=clock)
    lock.acquire(wait_s=0)
    for info in storage.list_tree(LOCK_FOLDER):
        storage.put(info.path, left)
    storage.put(
        ".hoodie/.aux/prepared/20260101000000000", b"of the writer before the power failure"
    )
    open_lock(storage, clock=clock).acquire(wait_s=0).release()
    assert storage.list_tree(".hoodie/.aux") == []


# Failing writes


@each_stored_lock
def test_writer_killed_at_any_write_delays_the_next_by_one_lease(
    storage: Storage, other: TableLock, clock: ManualClock, provider: LockProviderName
) -> None:
    other.acquire(wait_s=0).release()
    for when in ("before", "after"):
        for nth in range(3):
            faulty = FaultyStorage(storage, nth, when)
            with pytest.raises(SimulatedCrash):
                locked = open_lock(faulty, lease_s=LEASE_S, clock=clock, provider=provider)
                with locked.hold(wait_s=0) as lease:
                    lease.renew()
            other.acquire(wait_s=LEASE_S + 2).release()


@each_stored_lock
def test_lost_answer_does_not_lose_the_lock(
    storage: Storage, other: TableLock, clock: ManualClock, provider: LockProviderName
) -> None:
    for nth in range(4):
        faulty = FaultyStorage(storage, nth, "doubtful")
        locked = open_lock(faulty, lease_s=LEASE_S, clock=clock, provider=provider)
        lease = locked.acquire(wait_s=10)
        lease.check()
        with pytest.raises(LockTimeout):
            other.acquire(wait_s=0)
        lease.release()
        other.acquire(wait_s=LEASE_S + 2).release()


# Many writers


@each_lock
def test_threads_exclude_each_other(
    storage_location: StorageLocation, provider: LockProviderName, options: dict[str, str]
) -> None:
    storages = [open_storage(storage_location) for _ in range(4)]
    storages[0].put("counter", b"0")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count_up, storages, [5] * 4, [provider] * 4, [options] * 4))
    assert storages[0].read("counter") == b"20"


@pytest.fixture(scope="module")
def workers(credentials: None) -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(3, mp_context=spawn) as pool:
        yield pool


@each_shared_lock
def test_processes_exclude_each_other(
    workers: ProcessPoolExecutor,
    storage_kind: str,
    storage_location: StorageLocation,
    provider: LockProviderName,
    options: dict[str, str],
) -> None:
    if storage_kind == "memory":
        pytest.skip("memory belongs to one process")
    storage = open_storage(storage_location)
    storage.put("counter", b"0")
    arguments = ([storage_location] * 3, [5] * 3, [provider] * 3, [options] * 3)
    list(workers.map(count_up_there, *arguments))
    assert storage.read("counter") == b"15"


def test_suspended_process_loses_the_lock(tmp_path: Path) -> None:
    location = StorageLocation(str(tmp_path))
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=hold_and_report, args=(location, theirs))
    process.start()
    assert process.pid is not None
    try:
        assert ours.recv() == "held"
        os.kill(process.pid, signal.SIGSTOP)
        with open_lock(open_storage(location)).hold(wait_s=30) as lease:
            os.kill(process.pid, signal.SIGCONT)
            ours.send("continue")
            assert ours.recv() == "lost"
            lease.check()
    finally:
        process.kill()
        process.join()


# The record, as Apache Hudi's StorageLockData writes and reads it


def test_lock_record_is_compatible_with_apache_hudi() -> None:
    theirs = b'{"expired":false,"validUntil":1767225600000,"owner":"5f0c","added later":{}}'
    record = LockRecord.parse(theirs, LOCK_PATH)
    assert record == LockRecord("5f0c", 1767225600000, expired=False)
    assert json.loads(record.to_bytes()) == {
        "expired": False,
        "validUntil": 1767225600000,
        "owner": "5f0c",
    }


def test_lock_held_by_apache_hudi_is_not_acquired(
    storage: Storage, lock: TableLock, clock: ManualClock
) -> None:
    if not storage.supports_compare_and_swap:
        pytest.skip("Apache Hudi has no such lock on a local disk")
    theirs = {"expired": False, "validUntil": clock.now_ms() + 300_000, "owner": "apache"}
    storage.create(LOCK_PATH, json.dumps(theirs).encode())
    with pytest.raises(LockTimeout, match="apache"):
        lock.acquire(wait_s=10)
    lease = lock.acquire(wait_s=301)
    ours = json.loads(storage.read(LOCK_PATH))
    assert (ours["expired"], ours["owner"] != "apache") == (False, True)
    lease.release()
    assert json.loads(storage.read(LOCK_PATH))["expired"] is True


# Apache Hudi's lock file on a local disk


@pytest.fixture
def local(tmp_path: Path) -> Storage:
    return open_storage(StorageLocation(str(tmp_path / "table")))


def file_lock(storage: Storage, clock: ManualClock, expire_minutes: int = 0) -> TableLock:
    provider = LockProviderName.FILE_SYSTEM
    return open_lock(
        storage, lease_s=LEASE_S, clock=clock, provider=provider, expire_minutes=expire_minutes
    )


def test_lock_file_of_apache_blocks_writers_until_it_is_deleted(
    local: Storage, clock: ManualClock
) -> None:
    local.create(APACHE_LOCK_PATH, b"")  # as Apache Hudi 1.2 writes it
    with pytest.raises(LockTimeout, match=r"Apache Hudi \(\.hoodie/lock"):
        file_lock(local, clock).acquire(wait_s=120)
    assert not local.list_tree(LOCK_FOLDER), "waiting creates no lock file"
    local.delete([APACHE_LOCK_PATH])
    lease = file_lock(local, clock).acquire(wait_s=0)
    lease.check()
    assert local.head(APACHE_LOCK_PATH) is not None, "Apache Hudi sees that the lock is held"
    lease.release()
    assert local.head(APACHE_LOCK_PATH) is None


def test_lock_file_of_apache_is_taken_over_after_its_expiry(local: Storage) -> None:
    clock = ManualClock()
    local.create(APACHE_LOCK_PATH, b"")
    info = local.head(APACHE_LOCK_PATH)
    assert info is not None
    clock.time_ms = int(info.modified_at.timestamp() * 1000) + 59_000
    with pytest.raises(LockTimeout):
        file_lock(local, clock, expire_minutes=1).acquire(wait_s=0)
    clock.sleep(2)
    file_lock(local, clock, expire_minutes=1).acquire(wait_s=0).check()


def test_lock_file_that_hadoop_overwrote_is_lost(local: Storage, clock: ManualClock) -> None:
    lease = file_lock(local, clock).acquire(wait_s=0)
    local.put(APACHE_LOCK_PATH, b"")
    with pytest.raises(LeaseLost, match="another writer"):
        lease.check()
    lease.release()
    assert local.head(APACHE_LOCK_PATH) is not None, "the file belongs to Apache Hudi now"


def test_both_kinds_of_locks_on_a_local_disk_exclude_each_other(
    local: Storage, clock: ManualClock
) -> None:
    plain = open_lock(local, lease_s=LEASE_S, clock=clock)
    with file_lock(local, clock).hold(wait_s=0), pytest.raises(LockTimeout):
        plain.acquire(wait_s=0)
    with plain.hold(wait_s=0), pytest.raises(LockTimeout):
        file_lock(local, clock).acquire(wait_s=0)


def test_file_system_lock_is_refused_on_an_object_store() -> None:
    memory = open_storage(StorageLocation("memory://none/lake"))
    with pytest.raises(InvalidConfig, match="StorageBasedLockProvider"):
        open_lock(memory, provider=LockProviderName.FILE_SYSTEM)


@given(
    st.binary(max_size=80)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(st.sampled_from(["owner", "validUntil", "expired", "x"]), inner)
        ),
    ).map(lambda value: json.dumps(value).encode())
)
def test_any_bytes_parse_as_a_record_or_raise_corrupt_data(data: bytes) -> None:
    try:
        record = LockRecord.parse(data, LOCK_PATH)
    except CorruptData as error:
        assert error.path == LOCK_PATH
    else:
        assert LockRecord.parse(record.to_bytes(), LOCK_PATH) == record
