"""Where the table's lock is written down, and how exactly one writer gets it.

Two ways, by what the store can do; both keep Apache Hudi's record, one line of JSON:

    {"validUntil":1767225600000,"owner":"2f1c…","expired":false}

- ``ConditionalLockFile``: ``.hoodie/.locks/table_lock.json``, created when absent and replaced by
  version, which is the protocol of ``StorageBasedLockProvider``: Apache Hudi and this project
  exclude each other there.
- ``GenerationLockFiles``, for a local disk, which cannot replace conditionally: a new file
  ``table_lock.json.<n>`` for each holder. The holder is whose file has the highest number, and a
  number is only taken after every record below was seen to be free, before and after.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

from lakemark.errors import CorruptData
from lakemark.storage.storage import AlreadyExists, NotFound, PreconditionFailed, Storage

LOCK_FOLDER = ".hoodie/.locks"
LOCK_PATH = f"{LOCK_FOLDER}/table_lock.json"


@dataclass(frozen=True, slots=True)
class LockRecord:
    """Who holds the lock, and until when (``StorageLockData`` of Apache Hudi).

    Attributes:
        owner: unique to one acquisition.
        valid_until_ms: epoch milliseconds; nobody renewing, the lock is free after.
        expired: released before its time.
    """

    owner: str
    valid_until_ms: int
    expired: bool = False

    def to_bytes(self) -> bytes:
        """The stored form."""
        fields = {
            "validUntil": self.valid_until_ms,
            "owner": self.owner,
            "expired": self.expired,
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def parse(cls, data: bytes, path: str) -> LockRecord:
        """The record that ``data`` holds; fields that are not known are passed over.

        Raises:
            CorruptData: it holds none.
        """
        try:
            fields = json.loads(data)
            owner, until, expired = fields["owner"], fields["validUntil"], fields["expired"]
        except (ValueError, KeyError, TypeError, RecursionError):
            owner = until = expired = None
        if type(owner) is str and type(until) is int and type(expired) is bool:
            return cls(owner, until, expired)
        expected = "a lock record (delete the file once no writer runs)"
        raise CorruptData(path, None, expected, repr(data[:100]))


@dataclass(frozen=True, slots=True)
class Claim:
    """A record that was written and that nobody contests: its owner holds the lock.

    Attributes:
        record: what was written.
        version: which write it was: the store's version, or the number of the generation.
        taken_over: whether the holder before may not have released the lock, and may yet go on.
    """

    record: LockRecord
    version: str
    taken_over: bool = field(default=False, compare=False)

    def given_back(self) -> LockRecord:
        """The record of a lock that nobody has worked under: free, as the holder before left it."""
        return replace(self.record, valid_until_ms=0, expired=not self.taken_over)


class LockFile(Protocol):
    """One lock's place on storage."""

    def try_take(self, ours: LockRecord, is_free: Callable[[LockRecord], bool]) -> Claim | None:
        """Claim the lock if it is free, or ours by an answer that was lost; None if it is not."""
        ...

    def rewrite(self, claim: Claim, record: LockRecord) -> Claim | None:
        """Write a new record over a claim; None when somebody took the lock since."""
        ...

    def stands(self, claim: Claim) -> bool:
        """Whether the claim is still what storage shows."""
        ...

    def owner(self) -> str:
        """Who holds the lock now, as far as known; for messages."""
        ...


class ConditionalLockFile:
    """A lock file on a store with compare-and-swap."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def try_take(self, ours: LockRecord, is_free: Callable[[LockRecord], bool]) -> Claim | None:
        """See ``LockFile.try_take``."""
        seen = self._read()
        if seen is None:
            with suppress(AlreadyExists):
                self._storage.create(LOCK_PATH, ours.to_bytes())
            seen = self._read()
        if seen is not None and is_free(seen.record):
            claim = self.rewrite(seen, ours)
            return claim and replace(claim, taken_over=not seen.record.expired)
        if seen is not None and seen.record.owner == ours.owner:
            return replace(seen, taken_over=True)  # by an answer that was lost
        return None

    def rewrite(self, claim: Claim, record: LockRecord) -> Claim | None:
        """See ``LockFile.rewrite``."""
        try:
            version = self._storage.replace(LOCK_PATH, record.to_bytes(), claim.version)
        except PreconditionFailed:
            return None
        return Claim(record, version)

    def stands(self, claim: Claim) -> bool:
        """See ``LockFile.stands``."""
        return self._read() == claim

    def owner(self) -> str:
        """See ``LockFile.owner``."""
        seen = self._read()
        return seen.record.owner if seen else "nobody"

    def _read(self) -> Claim | None:
        try:
            data, version = self._storage.read_versioned(LOCK_PATH)
        except NotFound:
            return None
        assert version is not None, self._storage
        return Claim(LockRecord.parse(data, LOCK_PATH), version)


class GenerationLockFiles:
    """Numbered lock files on a local disk."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def try_take(self, ours: LockRecord, is_free: Callable[[LockRecord], bool]) -> Claim | None:
        """See ``LockFile.try_take``.

        The second look finds what changed between the first and the new file: a higher number
        (this process was paused), or a record that its owner renewed.
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

    def rewrite(self, claim: Claim, record: LockRecord) -> Claim | None:
        """See ``LockFile.rewrite``."""
        path = _generation_path(claim.version)
        if not self.stands(claim):
            return None
        self._storage.put(path, record.to_bytes(), may_be_cut=True)
        if max(self._numbers(), default=0) == int(claim.version):
            return Claim(record, claim.version)
        self._storage.put(path, replace(record, valid_until_ms=0).to_bytes(), may_be_cut=True)
        return None

    def stands(self, claim: Claim) -> bool:
        """See ``LockFile.stands``."""
        if max(self._numbers(), default=0) != int(claim.version):
            return False
        path = _generation_path(claim.version)
        with suppress(NotFound):
            return LockRecord.parse(self._storage.read(path), path) == claim.record
        return False

    def owner(self) -> str:
        """See ``LockFile.owner``."""
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
        # The one before stays: a folder that is listed while it changes shows one of the last two.
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
    """A holder's record; a file appears whole, so a power failure cut it and ended the holder."""
    is_cut = not data.endswith(b"}")
    return LockRecord("", 0) if is_cut else LockRecord.parse(data, path)


def _generation_path(number: str) -> str:
    return f"{LOCK_PATH}.{number}"
