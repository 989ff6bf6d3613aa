"""The lock file of Apache Hudi's ``FileSystemBasedLockProvider``, on a local disk.

That is ``.hoodie/lock``, which is there while somebody holds the lock. Apache leaves it empty and
takes it over by its age alone (``hoodie.write.lock.filesystem.expire``, in minutes; 0: never).

Writers of this project take their own numbered files first (``GenerationLockFiles``), so among them
nothing depends on this file, and those that do not know of it are kept out all the same. What is
found in it by one who holds the number is Apache's, or left by a dead writer of ours.

Hadoop looks whether the file is there and makes it in two steps, so it may overwrite one that was
made in between. Hence the second look after a pause, and ``stands`` before each step that counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

from lakemark.errors import CorruptData
from lakemark.storage.storage import AlreadyExists, NotFound, Storage
from lakemark.timeline.lock_file import Claim, GenerationLockFiles, LockRecord

APACHE_LOCK_PATH = ".hoodie/lock"

#: For how long a Hadoop that found no file may still be about to make its own.
_SETTLING_S = 0.01


class FileSystemLockFile:
    """See ``LockFile``.

    Args:
        storage: a local disk, at the table's root.
        expire_minutes: after which Apache's lock counts as left by a dead writer; 0: never. The
            same as Apache's own setting.
        now_ms: the writers' clock, epoch milliseconds.
    """

    def __init__(self, storage: Storage, expire_minutes: int, now_ms: Callable[[], int]) -> None:
        self._storage = storage
        self._expire_ms = expire_minutes * 60_000
        self._now_ms = now_ms
        self._ours = GenerationLockFiles(storage)

    def try_take(self, ours: LockRecord, is_free: Callable[[LockRecord], bool]) -> Claim | None:
        """See ``LockFile.try_take``; writes nothing while Apache holds the lock."""
        if self._is_apaches(self._read()) and not self._is_expired():
            return None
        claim = self._ours.try_take(ours, is_free)
        if claim is None or self._take_apaches(claim.record):
            return claim
        self._ours.rewrite(claim, claim.given_back())
        return None

    def rewrite(self, claim: Claim, record: LockRecord) -> Claim | None:
        """See ``LockFile.rewrite``; a record that nobody holds frees Apache's file first."""
        stands = self.stands(claim)
        if record.expired or not record.valid_until_ms:
            if stands:
                self._storage.delete([APACHE_LOCK_PATH])
            return self._ours.rewrite(claim, record)
        rewritten = self._ours.rewrite(claim, record) if stands else None
        if rewritten is not None:
            self._storage.put(APACHE_LOCK_PATH, record.to_bytes())
        return rewritten

    def stands(self, claim: Claim) -> bool:
        """See ``LockFile.stands``."""
        return self._ours.stands(claim) and self._read() == claim.record.to_bytes()

    def owner(self) -> str:
        """See ``LockFile.owner``."""
        if self._is_apaches(self._read()):
            return f"Apache Hudi (its {APACHE_LOCK_PATH}; delete that once no writer runs)"
        return self._ours.owner()

    def _take_apaches(self, ours: LockRecord) -> bool:
        """Whether the file is ours now, and stays so for a moment."""
        seen = self._read()
        if seen is not None and (not self._is_apaches(seen) or self._is_expired()):
            self._storage.delete([APACHE_LOCK_PATH])
        with suppress(AlreadyExists):
            self._storage.create(APACHE_LOCK_PATH, ours.to_bytes())
            time.sleep(_SETTLING_S)
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
