"""The table's lock: one writer at a time publishes, rolls back or changes the table's properties.

Invariants:
- at most one lease is valid at any time, among threads, processes and machines whose clocks agree
  to ``CLOCK_DRIFT_MS`` (Apache Hudi's own bound);
- a lease ends by release or by time, whatever becomes of its holder; while a process is in a
  ``hold`` block and alive it does not run out;
- holding a lease proves nothing after a pause: ``Lease.check`` comes before the step it guards;
- who takes the lock over from a holder that has not released it first removes everything that is
  prepared for publication: that holder may go on any time, and publishes nothing any more.
- a lock is released after a failure only when nothing prepared is left: a publication without an
  answer may be carried out at any time.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from enum import StrEnum
from functools import partial
from typing import Protocol
from uuid import uuid4

from lakemark.errors import (
    Fenced,
    HudiError,
    InvalidConfig,
    LockTimeout,
    OutcomeUnknown,
    Refused,
    Retriable,
    StorageUnavailable,
)
from lakemark.storage.storage import Storage
from lakemark.timeline.lock_file import (
    LOCK_PATH,
    Claim,
    ConditionalLockFile,
    GenerationLockFiles,
    LockFile,
    LockRecord,
)
from lakemark.timeline.lock_file_system import FileSystemLockFile
from lakemark.timeline.lock_in_process import InProcessLockFile
from lakemark.timeline.prepared import ANNOUNCED_PROPERTIES, all_prepared, withdraw_properties

#: How far the clocks of two writers may differ (``StorageBasedLockProvider``).
CLOCK_DRIFT_MS = 500

DEFAULT_LEASE_S = 60.0

#: How often a lease that is held is renewed before it runs out: two of these may fail.
_RENEWALS = 3

_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 1.0

#: Errors that are true, or say what to do, whoever holds the lock.
_SAYS_WHY = (Retriable, OutcomeUnknown, Fenced, Refused, InvalidConfig)

_TAKEN, _RELEASED, _RAN_OUT = "was taken by another writer", "was released", "ran out"

_log = logging.getLogger(__name__)


class LockProvider(StrEnum):
    """Where a table's lock is kept; writers of one table all use the same.

    Attributes:
        STORAGE: on the table's storage. On a store with compare-and-swap it is the one that Apache
            Hudi takes with its ``StorageBasedLockProvider``; on a local disk this project's own.
        FILE_SYSTEM: on a local disk, together with Apache's ``FileSystemBasedLockProvider``.
        IN_PROCESS: in the memory of this process.
    """

    STORAGE = "storage"
    FILE_SYSTEM = "file_system"
    IN_PROCESS = "in_process"


class LeaseLost(Retriable):
    """The lock's time ran out, or another writer holds it; nothing may be done in its name."""

    def __init__(self, path: str, owner: str, reason: str) -> None:
        super().__init__(f"lease {owner} of lock {path} {reason}; take the lock and start again")
        self.path, self.owner, self.reason = path, owner, reason


class Clock(Protocol):
    """Time as the lock sees it."""

    def now_ms(self) -> int:
        """Epoch milliseconds."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """This machine's clock."""

    def now_ms(self) -> int:
        """Epoch milliseconds."""
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


class Lease:
    """The right to change the table until a time; made by ``TableLock.acquire``.

    Any thread may ask it, and renew it.
    """

    def __init__(self, file: LockFile, claim: Claim, lease_s: float, clock: Clock) -> None:
        self._file = file
        self._claim: Claim | None = claim
        self._owner = claim.record.owner
        self._lease_s = lease_s
        self._clock = clock
        self._turn = threading.RLock()

    def remaining_s(self) -> float:
        """How long it is still valid by this machine's clock; 0 when it is not."""
        if self._claim is None:
            return 0.0
        return max(0.0, (self._claim.record.valid_until_ms - self._clock.now_ms()) / 1000)

    def check(self) -> None:
        """Make sure that it is still valid, by the clock and by what storage shows.

        It is renewed when less than half of its time is left, so the step that follows has the
        other half: more than a store takes to answer one request or to give up.

        Raises:
            LeaseLost: it is not.
        """
        with self._turn:
            claim = self._valid_claim()
            if self.remaining_s() < self._lease_s / 2:
                self.renew()
            elif not self._file.stands(claim):  # model: check lease
                raise self._lost(_TAKEN)
            self._valid_claim()  # reading may have taken long

    def check_time(self) -> None:
        """Make sure that it has not run out, by the clock alone: nobody took the lock over so far.

        Raises:
            LeaseLost: it has.
        """
        with self._turn:
            self._valid_claim()  # model: check time of lease

    def renew(self) -> None:
        """Start its time anew.

        Raises:
            LeaseLost: it was not valid any more.
        """
        with self._turn:
            claim = self._valid_claim()
            record = replace(claim.record, valid_until_ms=_end_ms(self._clock, self._lease_s))
            self._claim = self._file.rewrite(claim, record)  # model: renew
            if self._claim is None:
                raise self._lost(_TAKEN)

    def release(self) -> None:
        """Free the lock at once. Harmless when the lease is no longer valid, or a second time."""
        with self._turn:
            claim, self._claim = self._claim, None
            if claim is None:
                return
            try:
                self._file.rewrite(claim, replace(claim.record, expired=True))
            except StorageUnavailable as error:
                _log.warning("lock %s frees itself when its time is over: %s", LOCK_PATH, error)

    def _valid_claim(self) -> Claim:
        if self._claim is None:
            raise self._lost(_RELEASED)
        if self.remaining_s() == 0:
            raise self._lost(_RAN_OUT)
        return self._claim

    def _lost(self, reason: str) -> LeaseLost:
        return LeaseLost(LOCK_PATH, self._owner, reason)


class TableLock:
    """One table's lock; may be shared by threads. Not re-entrant."""

    def __init__(
        self,
        file: LockFile,
        lease_s: float,
        clock: Clock,
        withdraw_prepared: Callable[[Lease], None],
    ) -> None:
        self._file = file
        self._lease_s = lease_s
        self._clock = clock
        self._withdraw_prepared = withdraw_prepared

    def acquire(self, wait_s: float) -> Lease:
        """A lease, as soon as the lock is free.

        Raises:
            LockTimeout: another owner kept it for ``wait_s``.
            StorageUnavailable: the store did not answer for so long.
            CorruptData: the lock file holds no lock record.
        """
        owner = str(uuid4())
        started_ms = self._clock.now_ms()
        pause_s = _FIRST_PAUSE_S
        while (lease := self._try_acquire(owner, started_ms, wait_s)) is None:
            self._clock.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        return lease

    @contextmanager
    def hold(self, wait_s: float) -> Iterator[Lease]:
        """A lease for the length of a ``with`` block; see ``acquire``.

        It is renewed as long as the block lasts: the metadata table's compaction of 10,000 files
        took a minute under it on a busy machine, and without that would never have come to its end.
        ``StorageBasedLockProvider`` of Apache Hudi does the same.

        If the block fails, a publication that got no answer may still be carried out. So what is
        prepared is removed before the lock is released. If that fails, too, the lock is not
        released: the lease runs out, and the next holder removes it.

        Raises:
            LeaseLost: the block failed over a file that is not there, or holds something else, and
                the lease has run out: others may be at work on the table.
        """
        lease, ended = self.acquire(wait_s), threading.Event()
        every_s = self._lease_s / _RENEWALS
        try:
            threading.Thread(target=_keep, args=(lease, every_s, ended), daemon=True).start()
            yield lease
        except BaseException as error:
            ended.set()
            loss = _loss(lease, error)
            with suppress(HudiError):
                self._withdraw_prepared(lease)  # model: withdraw on failure
                lease.release()  # model: release on failure
            if loss is not None:
                raise loss from error
            raise
        ended.set()
        # model: release
        lease.release()  # nobody renews it from here on

    def _try_acquire(self, owner: str, started_ms: int, wait_s: float) -> Lease | None:
        """One attempt; raises when it fails and the time is over."""
        record = LockRecord(owner, _end_ms(self._clock, self._lease_s))
        failure: StorageUnavailable | None = None
        try:
            claim = self._file.try_take(record, self._is_free)  # model: acquire
            if claim is not None:
                return self._lease_of(claim)
        except LeaseLost as error:
            _log.warning("lock %s was not taken over: %s", LOCK_PATH, error)
        except StorageUnavailable as error:
            failure = error
        waited_s = (self._clock.now_ms() - started_ms) / 1000
        if waited_s < wait_s:
            return None
        raise failure or LockTimeout(LOCK_PATH, self._file.owner(), waited_s)

    def _lease_of(self, claim: Claim) -> Lease:
        """A lease under which nobody else's content is left to be published."""
        lease = Lease(self._file, claim, self._lease_s, self._clock)
        if claim.taken_over:
            try:
                self._withdraw_prepared(lease)
            except BaseException:
                with suppress(HudiError):
                    self._file.rewrite(claim, claim.given_back())
                raise
        return lease

    def _is_free(self, record: LockRecord) -> bool:
        return record.expired or self._clock.now_ms() > record.valid_until_ms + CLOCK_DRIFT_MS


def _loss(lease: Lease, error: BaseException) -> LeaseLost | None:
    """The loss of the lease, if an error of a block may come from it."""
    if isinstance(error, HudiError) and not isinstance(error, _SAYS_WHY):
        try:
            lease.check_time()
        except LeaseLost as loss:
            return loss
    return None


def open_lock(
    storage: Storage,
    *,
    lease_s: float = DEFAULT_LEASE_S,
    clock: Clock | None = None,
    provider: LockProvider = LockProvider.STORAGE,
    expire_minutes: int = 0,
) -> TableLock:
    """The lock of the table at a storage's root.

    Args:
        storage: the table's root.
        lease_s: for how long a lease is valid unless it is renewed.
        clock: this machine's, unless a test says otherwise.
        provider: where it is kept.
        expire_minutes: see ``FileSystemLockFile``.

    Raises:
        InvalidConfig: the file system's lock on an object store.
    """
    clock = clock or SystemClock()
    file = _lock_file(storage, provider, expire_minutes, clock)
    return TableLock(file, lease_s, clock, partial(_withdraw_prepared, storage))


def _withdraw_prepared(storage: Storage, lease: Lease) -> None:
    """Remove what others have prepared; not once the next writer may have prepared something."""
    paths = all_prepared(storage)  # model: take over
    lease.check_time()
    if ANNOUNCED_PROPERTIES in paths:
        withdraw_properties(storage)
    storage.delete(paths)  # model: withdraw all prepared
    lease.check_time()


def _lock_file(
    storage: Storage, provider: LockProvider, expire_minutes: int, clock: Clock
) -> LockFile:
    conditional = storage.supports_compare_and_swap
    if provider is LockProvider.IN_PROCESS:
        return InProcessLockFile(storage.location.url)
    if provider is LockProvider.STORAGE:
        return ConditionalLockFile(storage) if conditional else GenerationLockFiles(storage)
    if conditional:
        message = (
            f"lock provider {provider} needs a local disk, and {storage.location.url} is none; "
            f"use {LockProvider.STORAGE}, and StorageBasedLockProvider with Apache Hudi"
        )
        raise InvalidConfig(message)
    return FileSystemLockFile(storage, expire_minutes, clock.now_ms)


def _keep(lease: Lease, every_s: float, ended: threading.Event) -> None:
    """Renew a lease until its block has ended. That it is lost is told by the next ``check``."""
    while not ended.wait(every_s):
        try:
            lease.renew()
        except LeaseLost:
            return
        except (HudiError, OSError) as error:
            _log.warning("lock %s was not renewed: %s", LOCK_PATH, error)


def _end_ms(clock: Clock, lease_s: float) -> int:
    return clock.now_ms() + int(1000 * lease_s)
