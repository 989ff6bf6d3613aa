"""Protocol of a lock provider, and the record of the holder that it stores.

The record is the one of Apache Hudi's ``StorageBasedLockProvider``, one line of JSON:

    {"validUntil":1767225600000,"owner":"2f1c…","expired":false}
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from lakemark.errors import CorruptData

LOCK_FOLDER = ".hoodie/.locks"

#: The lock file of ``storage_lock``. Messages name the lock by it, whichever provider stores it.
LOCK_PATH = f"{LOCK_FOLDER}/table_lock.json"


@dataclass(frozen=True, slots=True)
class LockRecord:
    """The holder of the lock, and the end of its lease (``StorageLockData`` of Apache Hudi).

    Attributes:
        owner: unique to one acquisition.
        valid_until_ms: epoch milliseconds. Unless the holder renews the lease, the lock is free
            after this time.
        expired: whether the holder released the lock.
    """

    owner: str
    valid_until_ms: int
    expired: bool = False

    def to_bytes(self) -> bytes:
        """Encode the record as it is stored."""
        fields = {
            "validUntil": self.valid_until_ms,
            "owner": self.owner,
            "expired": self.expired,
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def parse(cls, data: bytes, path: str) -> LockRecord:
        """Parse a stored record; unknown fields are ignored.

        Raises:
            CorruptData: ``data`` is not a lock record.
        """
        try:
            fields = json.loads(data)
            owner, until, expired = fields["owner"], fields["validUntil"], fields["expired"]
        except (ValueError, KeyError, TypeError, RecursionError):
            owner = until = expired = None
        if type(owner) is str and type(until) is int and type(expired) is bool:
            return cls(owner, until, expired)
        expected = "a lock record (stop all writers and delete the file)"
        raise CorruptData(path, None, expected, repr(data[:100]))


@dataclass(frozen=True, slots=True)
class Claim:
    """A stored record that no other writer contests: its owner holds the lock.

    Attributes:
        record: what was stored.
        version: identifies the write: the store's version, or the number of the generation.
        taken_over: whether the previous holder may not have released the lock. It may resume.
    """

    record: LockRecord
    version: str
    taken_over: bool = field(default=False, compare=False)

    def released_unused(self) -> LockRecord:
        """Return the record that frees the lock after nothing was done under it.

        If the previous holder had not released the lock, this record does not either. So the next
        holder knows that it takes over.
        """
        return replace(self.record, valid_until_ms=0, expired=not self.taken_over)


class LockProvider(Protocol):
    """Stores the record of one table's lock, so that exactly one writer acquires it."""

    def try_acquire(self, ours: LockRecord, is_free: Callable[[LockRecord], bool]) -> Claim | None:
        """Store our record if the lock is free.

        Args:
            ours: has an owner of its own. If an earlier call stored it and its answer was lost, the
                lock counts as acquired.
            is_free: whether a stored record leaves the lock free.

        Returns:
            None if another writer holds the lock.
        """
        ...

    def replace_record(self, claim: Claim, record: LockRecord) -> Claim | None:
        """Replace the record of a claim: renew or release it.

        Returns:
            None if another writer has acquired the lock since.
        """
        ...

    def is_current(self, claim: Claim) -> bool:
        """Return whether the claim is still the one that is stored."""
        ...

    def holder(self) -> str:
        """Name the current holder, for messages."""
        ...
