"""The lock provider ``storage``: the lock is on the table's storage.

There are two classes, because a local disk has no conditional replace:

- ``ConditionalStorageLock`` is for a store with compare-and-swap. The file
  ``.hoodie/.locks/table_lock.json`` is created if it is absent, and replaced only if its version is
  unchanged. This is the protocol of Apache Hudi's ``StorageBasedLockProvider``, so Apache Hudi and
  lakemark exclude each other.
- ``GenerationStorageLock`` is for a local disk. Each holder creates a new file
  ``table_lock.json.<n>``, and the owner of the file with the highest number holds the lock. A
  writer creates the next number only if the records of all lower numbers are released or expired,
  and checks these records again afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from lakemark.errors import DiskFull
from lakemark.storage.storage import AlreadyExists, NotFound, PreconditionFailed, Storage
from lakemark.timeline.locks.lock_provider import LOCK_FOLDER, LOCK_PATH, Claim, LockRecord


class ConditionalStorageLock:
    """A ``LockProvider`` on a store with compare-and-swap."""

    name = LOCK_PATH
    longer_wait_s = 0.0

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def try_acquire(self, ours: LockRecord, is_free: Callable[[LockRecord], bool]) -> Claim | None:
        """See ``LockProvider.try_acquire``."""
        seen = self._read()
        if seen is None:
            with suppress(AlreadyExists):
                self._storage.create(LOCK_PATH, ours.to_bytes())
            seen = self._read()
        if seen is not None and is_free(seen.record):
            claim = self.replace_record(seen, ours)
            return claim and replace(claim, taken_over=not seen.record.expired)
        if seen is not None and seen.record.owner == ours.owner:
            # An earlier call stored the record, but the store's answer to that call was lost.
            return replace(seen, taken_over=True)
        return None

    def cancel(self, owner: str, after_s: float = 0.0) -> None:
        """See ``LockProvider.cancel``; waiting writers store nothing."""

    def replace_record(self, claim: Claim, record: LockRecord) -> Claim | None:
        """See ``LockProvider.replace_record``."""
        try:
            version = self._storage.replace(LOCK_PATH, record.to_bytes(), claim.version)
        except PreconditionFailed:
            return None
        return Claim(record, version)

    def is_current(self, claim: Claim) -> bool:
        """See ``LockProvider.is_current``."""
        return self._read() == claim

    def holder(self) -> str:
        """See ``LockProvider.holder``."""
        seen = self._read()
        return seen.record.owner if seen else "nobody"

    def _read(self) -> Claim | None:
        try:
            data, version = self._storage.read_versioned(LOCK_PATH)
        except NotFound:
            return None
        assert version is not None, self._storage
        return Claim(LockRecord.parse(data, LOCK_PATH), version)


class GenerationStorageLock:
    """A ``LockProvider`` of numbered files on a local disk."""

    name = LOCK_PATH
    longer_wait_s = 0.0

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def try_acquire(self, ours: LockRecord, is_free: Callable[[LockRecord], bool]) -> Claim | None:
        """See ``LockProvider.try_acquire``.

        The records are read before and after the new file is created, because this process may have
        been paused in between. The second read detects a file with a higher number, and a record
        that its owner renewed in between.
        """
        seen = self._records()
        highest = max(seen, default=0)
        claim = Claim(ours, str(highest + 1), bool(highest) and not seen[highest].expired)
        if highest and seen[highest].owner == ours.owner and not is_free(seen[highest]):
            claim = Claim(seen.pop(highest), str(highest), taken_over=True)
        if not all(map(is_free, seen.values())):
            return None
        try:
            path = _generation_path(claim.version)
            self._storage.create(path, claim.record.to_bytes(), may_be_cut=True)
        except AlreadyExists:
            return None
        return self._uncontested(claim, is_free)

    def cancel(self, owner: str, after_s: float = 0.0) -> None:
        """See ``LockProvider.cancel``; waiting writers store nothing."""

    def replace_record(self, claim: Claim, record: LockRecord) -> Claim | None:
        """See ``LockProvider.replace_record``.

        On a full disk, a record that frees the lock deletes the file instead of replacing it.
        Otherwise the lock would be held until the lease expires. The file with the next lower
        number is released or expired.
        """
        path = _generation_path(claim.version)
        if not self.is_current(claim):
            return None
        try:
            self._storage.put(path, record.to_bytes(), may_be_cut=True)
        except DiskFull:
            if record.valid_until_ms and not record.expired:
                raise
            self._storage.delete([path])
            return Claim(record, claim.version)
        if max(self._numbers(), default=0) == int(claim.version):
            return Claim(record, claim.version)
        self._storage.put(path, replace(record, valid_until_ms=0).to_bytes(), may_be_cut=True)
        return None

    def is_current(self, claim: Claim) -> bool:
        """See ``LockProvider.is_current``."""
        if max(self._numbers(), default=0) != int(claim.version):
            return False
        path = _generation_path(claim.version)
        with suppress(NotFound):
            return LockRecord.parse(self._storage.read(path), path) == claim.record
        return False

    def holder(self) -> str:
        """See ``LockProvider.holder``."""
        records = self._records()
        return records[max(records)].owner if records else "nobody"

    def _uncontested(self, claim: Claim, is_free: Callable[[LockRecord], bool]) -> Claim | None:
        number = int(claim.version)
        others = self._records()
        ours = others.pop(number, None)
        overtaken = ours != claim.record or max(others, default=0) > number
        if overtaken or not all(map(is_free, others.values())):
            self._storage.delete([_generation_path(claim.version)])
            return None
        # The previous file is kept. A listing that overlaps changes of the folder may miss files,
        # but shows at least one of the last two files.
        old = [_generation_path(str(other)) for other in others if other < number - 1]
        self._storage.delete(old)
        return claim

    def _numbers(self) -> list[int]:
        _, objects = self._storage.list_folder(LOCK_FOLDER)
        suffixes = (o.path.removeprefix(f"{LOCK_PATH}.") for o in objects)
        return [int(suffix) for suffix in suffixes if suffix.isdecimal()]

    def _records(self) -> dict[int, LockRecord]:
        records = {}
        for number in self._numbers():
            path = _generation_path(str(number))
            with suppress(NotFound):
                records[number] = _record_of(self._storage.read(path), path)
        return records


def _record_of(data: bytes, path: str) -> LockRecord:
    """Parse a lock record. If the file is truncated, return an expired record.

    Files are created atomically, so only a power failure can truncate a file. The power failure
    also ended the holder's process.
    """
    is_cut = not data.endswith(b"}")
    return LockRecord("", 0) if is_cut else LockRecord.parse(data, path)


def _generation_path(number: str) -> str:
    return f"{LOCK_PATH}.{number}"
