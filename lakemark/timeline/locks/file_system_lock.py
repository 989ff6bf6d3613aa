"""The lock provider ``file_system``, for a table on a local disk that Apache Hudi also writes.

The lock file of Apache Hudi's ``FileSystemBasedLockProvider`` is ``.hoodie/lock``. The file exists
while a writer holds the lock. Apache Hudi writes nothing into the file. Apache Hudi takes over the
lock of another writer when the file is older than ``hoodie.write.lock.filesystem.expire`` (in
minutes; 0: never).

lakemark's writers first acquire a numbered lock file (``GenerationStorageLock``). The numbered file
excludes lakemark's other writers, including writers with the provider ``storage``. If
``.hoodie/lock`` exists when a lakemark writer holds the numbered file, ``.hoodie/lock`` belongs to
Apache Hudi or was left by a dead lakemark writer.

Hadoop first checks that ``.hoodie/lock`` does not exist and then creates the file, so Hadoop may
overwrite a file that was created in between. Therefore this provider reads the file again after a
pause, and checks the claim (``is_current``) before each step that the lock protects.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

from lakemark.errors import CorruptData, DiskFull
from lakemark.storage.storage import AlreadyExists, NotFound, Storage
from lakemark.timeline.locks.lock_provider import LOCK_PATH, Claim, LockRecord
from lakemark.timeline.locks.storage_lock import GenerationStorageLock

APACHE_LOCK_PATH = ".hoodie/lock"

#: Longest time between Hadoop's check that the file is absent and Hadoop's creation of the file.
_HADOOP_CREATE_S = 0.01


class FileSystemLock:
    """A ``LockProvider`` on a local disk that also respects Apache Hudi's lock file.

    Args:
        storage: the storage of the table's root; it must be a local disk.
        expire_minutes: the age in minutes at which Apache Hudi's lock file is treated as left by a
            dead writer; 0: never. Must equal ``hoodie.write.lock.filesystem.expire``.
        now_ms: returns this machine's time in epoch milliseconds.
    """

    name = LOCK_PATH
    longer_wait_s = 0.0

    def __init__(self, storage: Storage, expire_minutes: int, now_ms: Callable[[], int]) -> None:
        self._storage = storage
        self._expire_ms = expire_minutes * 60_000
        self._now_ms = now_ms
        self._ours = GenerationStorageLock(storage)

    def try_acquire(self, ours: LockRecord, is_free: Callable[[LockRecord], bool]) -> Claim | None:
        """See ``LockProvider.try_acquire``; writes nothing while Apache Hudi holds the lock."""
        if self._is_apaches(self._read()) and not self._is_expired():
            return None
        claim = self._ours.try_acquire(ours, is_free)
        if claim is None:
            return None
        try:
            is_ours = self._create_lock_file(claim.record)
        except DiskFull:
            self._ours.replace_record(claim, claim.released_unused())
            raise
        if not is_ours:
            self._ours.replace_record(claim, claim.released_unused())
        return claim if is_ours else None

    def cancel(self, owner: str, after_s: float = 0.0) -> None:
        """See ``LockProvider.cancel``; waiting writers store nothing."""

    def replace_record(self, claim: Claim, record: LockRecord) -> Claim | None:
        """See ``LockProvider.replace_record``; a release first deletes ``.hoodie/lock``."""
        is_current = self.is_current(claim)
        if record.expired or not record.valid_until_ms:
            if is_current:
                self._storage.delete([APACHE_LOCK_PATH])
            return self._ours.replace_record(claim, record)
        rewritten = self._ours.replace_record(claim, record) if is_current else None
        if rewritten is not None:
            self._storage.put(APACHE_LOCK_PATH, record.to_bytes())
        return rewritten

    def is_current(self, claim: Claim) -> bool:
        """See ``LockProvider.is_current``."""
        return self._ours.is_current(claim) and self._read() == claim.record.to_bytes()

    def holder(self) -> str:
        """See ``LockProvider.holder``."""
        if self._is_apaches(self._read()):
            return f"Apache Hudi ({APACHE_LOCK_PATH}; if no writer runs, delete it)"
        return self._ours.holder()

    def _create_lock_file(self, ours: LockRecord) -> bool:
        """Create ``.hoodie/lock``; return false if Apache Hudi created or overwrote the file."""
        seen = self._read()
        if seen is not None and (not self._is_apaches(seen) or self._is_expired()):
            self._storage.delete([APACHE_LOCK_PATH])
        with suppress(AlreadyExists):
            self._storage.create(APACHE_LOCK_PATH, ours.to_bytes())
            time.sleep(_HADOOP_CREATE_S)
            return self._read() == ours.to_bytes()
        return False

    def _read(self) -> bytes | None:
        with suppress(NotFound):
            return self._storage.read(APACHE_LOCK_PATH)
        return None

    def _is_apaches(self, seen: bytes | None) -> bool:
        if seen is None:
            return False
        try:
            LockRecord.parse(seen, APACHE_LOCK_PATH)
        except CorruptData:
            return True
        return False

    def _is_expired(self) -> bool:
        info = self._storage.head(APACHE_LOCK_PATH)
        if info is None or not self._expire_ms:
            return False
        now = datetime.fromtimestamp(self._now_ms() / 1000, UTC)
        return (now - info.modified_at).total_seconds() * 1000 > self._expire_ms
