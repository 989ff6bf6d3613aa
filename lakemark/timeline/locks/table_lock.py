"""The table's lock: one writer at a time publishes, rolls back or changes the table's properties.

Invariants:
- At most one lease is valid at any time among all threads, processes and machines. This requires
  that the machines' clocks differ by at most ``CLOCK_DRIFT_MS`` (Apache Hudi's bound).
- A lease ends when it is released or when it expires, even if its holder has died. While a live
  process is in a ``hold`` block, the lease is renewed.
- After a pause of the process, its lease may have expired. So ``Lease.check`` is called before each
  step that the lease protects.
- If a holder did not release the lock, the next holder first deletes all prepared content (see
  ``prepared``). So a holder that resumes after it lost the lock can publish nothing.
- After a failure, all prepared content is deleted before the lock is released. Otherwise the store
  could still execute a publication whose answer was lost.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Protocol
from uuid import uuid4

from lakemark.errors import (
    DiskFull,
    Fenced,
    HudiError,
    InvalidConfig,
    LockTimeout,
    OutcomeUnknown,
    Refused,
    Retriable,
    StorageUnavailable,
)
from lakemark.timeline.locks.lock_provider import Claim, LockProvider, LockRecord

#: The largest allowed difference between two writers' clocks (``StorageBasedLockProvider``).
CLOCK_DRIFT_MS = 500

DEFAULT_LEASE_S = 60.0

#: How often a held lease is renewed within its duration. Two consecutive renewals may fail.
_RENEWALS = 3

_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 1.0

#: A wait that is longer is logged, so that a command does not seem to hang.
_LONG_WAIT_S = 5.0

#: Errors that are raised unchanged even if the lease was lost; see ``Lease.reporting_loss``.
_VALID_WITHOUT_LEASE = (Retriable, OutcomeUnknown, Fenced, Refused, InvalidConfig)

_TAKEN, _RELEASED, _EXPIRED = "was taken by another writer", "was released", "has expired"

_log = logging.getLogger(__name__)


class LeaseLost(Retriable):
    """The lease is no longer valid, so its holder must not change the table.

    The lease has expired, was released, or another writer has acquired the lock.
    """

    def __init__(self, path: str, owner: str, reason: str) -> None:
        super().__init__(f"lease {owner} of lock {path} {reason}; acquire the lock and start again")
        self.path, self.owner, self.reason = path, owner, reason


class Clock(Protocol):
    """The clock that a lock uses."""

    def now_ms(self) -> int:
        """Return the current time in epoch milliseconds."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait for a number of seconds."""
        ...


class SystemClock:
    """This machine's clock."""

    def now_ms(self) -> int:
        """Return the current time in epoch milliseconds."""
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        """Wait for a number of seconds."""
        time.sleep(seconds)


class Lease:
    """The right to change the table until a point in time.

    ``TableLock.acquire`` returns a lease. Threads may share a lease.
    """

    def __init__(self, provider: LockProvider, claim: Claim, lease_s: float, clock: Clock) -> None:
        self._provider = provider
        self._claim: Claim | None = claim
        self._end = _RELEASED  # how the lease ended, if there is no claim
        self._owner = claim.record.owner
        self._lease_s = lease_s
        self._clock = clock
        self._mutex = threading.RLock()

    @property
    def lock_name(self) -> str:
        """The name of the lock, for messages."""
        return self._provider.name

    def remaining_s(self) -> float:
        """Return the seconds until the lease expires by this machine's clock; 0 if not valid."""
        if self._claim is None:
            return 0.0
        return max(0.0, (self._claim.record.valid_until_ms - self._clock.now_ms()) / 1000)

    def check(self) -> None:
        """Check by the clock and by the stored record that the lease is still valid.

        If less than half of the lease's duration remains, the lease is renewed. So at least half of
        the duration remains for the next step. A request to the store is answered or given up in
        less time.

        Raises:
            LeaseLost: the lease is not valid.
            StorageUnavailable: the answers took so long that less than half of the duration
                remains.
        """
        with self._mutex:
            claim = self._valid_claim()
            if self._is_long() and not self._provider.is_current(claim):  # model: check lease
                raise self._taken()
            if not self._is_long():  # perhaps because the answer took long
                self.renew()
            if not self._is_long():
                left = f"only {self.remaining_s():.0f} s of the lease remain after its renewal"
                message = f"lock {self.lock_name}: {left}, because its store answers slowly"
                raise StorageUnavailable(message)

    def check_time(self) -> None:
        """Check by the clock alone that the lease has not expired.

        This is enough to exclude other writers, because no writer takes over an unexpired lease.

        Raises:
            LeaseLost: the lease has expired, or was released.
        """
        with self._mutex:
            self._valid_claim()  # model: check time of lease

    @contextmanager
    def reporting_loss(self, valid: tuple[type[HudiError], ...] = ()) -> Iterator[None]:
        """Run a block, and replace its errors with ``LeaseLost`` if the lease was lost meanwhile.

        Args:
            valid: errors that are raised unchanged even if the lease was lost.

        Raises:
            LeaseLost: the block failed with an error that is not in ``valid``, and the lease is no
                longer valid.
        """
        try:
            yield
        except HudiError as error:
            if not isinstance(error, valid):
                try:
                    self.check()
                except LeaseLost as loss:
                    raise loss from error
                except StorageUnavailable:
                    _log.warning(
                        "the lease of lock %s cannot be checked after an error", self.lock_name
                    )
            raise

    def renew(self) -> None:
        """Extend the lease: its full duration starts again now.

        Raises:
            LeaseLost: the lease was no longer valid.
        """
        with self._mutex:
            claim = self._valid_claim()
            record = replace(claim.record, valid_until_ms=_end_ms(self._clock, self._lease_s))
            self._claim = self._provider.replace_record(claim, record)  # model: renew
            if self._claim is None:
                raise self._taken()

    def release(self) -> None:
        """Release the lock, unless another writer has acquired it or it was already released."""
        with self._mutex:
            claim, self._claim = self._claim, None
            if claim is None:
                return
            try:
                self._provider.replace_record(claim, replace(claim.record, expired=True))
            except HudiError as error:  # the work is done, and must not count as failed
                name = self.lock_name
                _log.warning("lock %s was not released and expires with its lease: %s", name, error)
                self._provider.cancel(self._owner)

    def expire(self) -> None:
        """Use the lease no more, but exclude others until its end; the next holder takes over."""
        with self._mutex:
            remaining_s, self._claim = self.remaining_s(), None
            self._provider.cancel(self._owner, remaining_s)

    def _is_long(self) -> bool:
        return self.remaining_s() >= self._lease_s / 2

    def _valid_claim(self) -> Claim:
        if self._claim is None:
            raise self._lost(self._end)
        if self.remaining_s() == 0:
            raise self._lost(_EXPIRED)
        return self._claim

    def _taken(self) -> LeaseLost:
        """End the lease, because the lock belongs to another writer, whatever the clocks say."""
        self._claim, self._end = None, _TAKEN
        return self._lost(_TAKEN)

    def _lost(self, reason: str) -> LeaseLost:
        return LeaseLost(self.lock_name, self._owner, reason)


class TableLock:
    """The lock of one table. Threads may share the object. The lock is not re-entrant."""

    def __init__(
        self,
        provider: LockProvider,
        lease_s: float,
        clock: Clock,
        withdraw_prepared: Callable[[Lease], None],
    ) -> None:
        self._provider = provider
        self._lease_s = lease_s
        self._clock = clock
        self._withdraw_prepared = withdraw_prepared

    def acquire(self, wait_s: float) -> Lease:
        """Wait until the lock is free, and acquire it.

        Raises:
            LockTimeout: another owner held the lock for ``wait_s``, or longer if the provider must
                wait longer to see whether that owner is alive.
            StorageUnavailable: the store did not answer for ``wait_s``.
            DiskFull: there is no space for the lock file. This is raised at once.
            CorruptData: the lock file is not a lock record.
        """
        owner = str(uuid4())
        started_ms = self._clock.now_ms()
        pause_s, is_logged = _FIRST_PAUSE_S, False
        try:
            while (lease := self._try_acquire(owner, started_ms, wait_s)) is None:
                if not is_logged and self._waited_s(started_ms) > _LONG_WAIT_S:
                    self._log_wait(wait_s)
                    is_logged = True
                self._clock.sleep(pause_s * random.uniform(0.5, 1.0))
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        except BaseException:
            self._provider.cancel(owner)
            raise
        return lease

    @contextmanager
    def hold(self, wait_s: float) -> Iterator[Lease]:
        """Hold the lock for a ``with`` block; see ``acquire``.

        The lease is renewed while the block runs, as in Apache Hudi's
        ``StorageBasedLockProvider``. Without renewal, long steps could never complete. For example,
        the metadata table's compaction of 10,000 files took a minute on a busy machine.

        If the block fails, the store may still execute a publication whose answer was lost. So the
        prepared content is deleted before the lock is released. If this deletion also fails, the
        lock is not released. Then the lease expires, and the next holder deletes the content.

        Raises:
            LeaseLost: the block failed, for example because a file was missing, and the lease is no
                longer valid. Another writer may have changed the table.
        """
        lease, ended = self.acquire(wait_s), threading.Event()
        every_s = self._lease_s / _RENEWALS
        try:
            threading.Thread(target=_keep, args=(lease, every_s, ended), daemon=True).start()
            with lease.reporting_loss(_VALID_WITHOUT_LEASE):
                yield lease
        except BaseException:
            ended.set()
            self._end_after_failure(lease)
            raise
        ended.set()
        # model: release
        lease.release()  # the lease is not renewed any more

    def _end_after_failure(self, lease: Lease) -> None:
        """Delete the prepared content and release the lock; without the former, only wait."""
        try:
            self._withdraw_prepared(lease)  # model: withdraw on failure
        except HudiError as error:
            _log.warning("lock %s is not released: %s", lease.lock_name, error)
            lease.expire()
        else:
            lease.release()  # model: release on failure

    def _try_acquire(self, owner: str, started_ms: int, wait_s: float) -> Lease | None:
        """Try once to acquire the lock; return None if the lock is held.

        Raises:
            LockTimeout, StorageUnavailable: the attempt failed, and ``wait_s`` has passed.
            DiskFull: there is no space for the lock file.
        """
        record = LockRecord(owner, _end_ms(self._clock, self._lease_s))
        failure: StorageUnavailable | None = None
        try:
            claim = self._provider.try_acquire(record, self._is_free)  # model: acquire
            if claim is not None:
                return self._lease_of(claim)
        except LeaseLost as error:
            _log.warning("lock %s was not taken over: %s", self._provider.name, error)
        except DiskFull:
            raise
        except StorageUnavailable as error:
            failure = error
            name = self._provider.name
            _log.warning("lock %s was not acquired, and is tried again: %s", name, error)
        waited_s = self._waited_s(started_ms)
        if waited_s < wait_s + self._provider.longer_wait_s:
            return None
        raise failure or LockTimeout(self._provider.name, self._provider.holder(), waited_s)

    def _waited_s(self, started_ms: int) -> float:
        return (self._clock.now_ms() - started_ms) / 1000

    def _log_wait(self, wait_s: float) -> None:
        holder = "another owner"
        with suppress(StorageUnavailable):
            holder = self._provider.holder()
        _log.warning(
            "waiting for lock %s, which %s holds, for at most %.0f s; if that process has died, "
            "the lock becomes free when its lease expires",
            self._provider.name,
            holder,
            wait_s + self._provider.longer_wait_s,
        )

    def _lease_of(self, claim: Claim) -> Lease:
        """Return the lease of a claim. After a takeover, first delete all prepared content."""
        lease = Lease(self._provider, claim, self._lease_s, self._clock)
        if claim.taken_over:
            try:
                self._withdraw_prepared(lease)
            except BaseException:
                with suppress(HudiError):
                    self._provider.replace_record(claim, claim.released_unused())
                raise
        return lease

    def _is_free(self, record: LockRecord) -> bool:
        return record.expired or self._clock.now_ms() > record.valid_until_ms + CLOCK_DRIFT_MS


def _keep(lease: Lease, every_s: float, ended: threading.Event) -> None:
    """Renew a lease until ``ended`` is set. If the lease is lost, the next ``check`` raises."""
    while not ended.wait(every_s):
        try:
            lease.renew()
        except LeaseLost:
            return
        except (HudiError, OSError) as error:
            _log.warning("lock %s was not renewed: %s", lease.lock_name, error)


def _end_ms(clock: Clock, lease_s: float) -> int:
    return clock.now_ms() + int(1000 * lease_s)
