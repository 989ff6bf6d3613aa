"""The protocol of a lock provider, and the lock record that a provider stores.

The record has the format of Apache Hudi's ``StorageBasedLockProvider``, one line of JSON:

    {"validUntil":1767225600000,"owner":"2f1c…","expired":false}

A provider whose lock is not in the storage of the table adds the field ``table``.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from lakemark.errors import CorruptData

LOCK_FOLDER = ".hoodie/.locks"

#: The lock file of ``storage_lock``, and the lock's name in the messages of several providers.
LOCK_PATH = f"{LOCK_FOLDER}/table_lock.json"


@dataclass(frozen=True, slots=True)
class LockRecord:
    """The holder of the lock, and the end of its lease (``StorageLockData`` of Apache Hudi).

    Attributes:
        owner: a random name, different for each acquisition.
        valid_until_ms: the end of the lease in epoch milliseconds. Unless the holder renews the
            lease, the lock is free after this time.
        expired: whether the holder released the lock.
        table: the URL of the table; "" if the place of the lock shows it, or in the records of
            Apache Hudi. Two tables may by mistake have one lock.
    """

    owner: str
    valid_until_ms: int
    expired: bool = False
    table: str = ""

    def to_bytes(self) -> bytes:
        """Encode the record for storage."""
        fields = {
            "validUntil": self.valid_until_ms,
            "owner": self.owner,
            "expired": self.expired,
            **({"table": self.table} if self.table else {}),
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
            table = fields.get("table", "")
        except (ValueError, KeyError, TypeError, RecursionError):
            owner = until = expired = table = None
        if type(owner) is str and type(until) is int and type(expired) is bool:
            return cls(owner, until, expired, table if type(table) is str else "")
        expected = "a lock record (stop all writers and delete the file)"
        raise CorruptData(path, None, expected, repr(data[:100]))

    def shows_release(self, table: str) -> bool:
        """Return whether the last holder of a table's lock released it, according to this record.

        The record of a holder for another table does not show it: that holder may have taken the
        lock over from one that still runs.

        Args:
            table: the URL of the table.
        """
        return self.expired and self.table in ("", table)


@dataclass(frozen=True, slots=True)
class Claim:
    """A stored lock record whose owner holds the lock.

    Attributes:
        record: the stored record.
        version: the version of the lock file on an object store, or the number of the lock file on
            a local disk.
        taken_over: whether the previous holder may have failed to release the lock. Then that
            holder may still be running.
    """

    record: LockRecord
    version: str
    taken_over: bool = field(default=False, compare=False)

    def released_unused(self) -> LockRecord:
        """Return the record that frees the lock if the claim was not used.

        If the previous holder did not release the lock, the record is not marked as released
        either. So the next holder's claim has ``taken_over``, too.
        """
        return replace(self.record, valid_until_ms=0, expired=not self.taken_over)


class LockProvider(Protocol):
    """Stores the record of one table's lock, so that at most one writer holds the lock.

    If a request is not answered, a method raises ``StorageUnavailable`` within half a minute.
    """

    @property
    def name(self) -> str:
        """The name of the lock, for messages."""
        ...

    def try_acquire(self, ours: LockRecord, is_free: Callable[[LockRecord], bool]) -> Claim | None:
        """Store our record if the lock is free.

        Args:
            ours: the record to store. If an earlier call stored a record of this owner but the
                store's answer was lost, the lock counts as acquired.
            is_free: returns whether a stored record is released or expired.

        Returns:
            The claim; None if another writer holds the lock. The record of a claim may end before
            ``ours``, if the provider cannot exclude other writers for so long.
        """
        ...

    @property
    def longer_wait_s(self) -> float:
        """The seconds by which a writer waits longer than it was asked to; usually 0.

        If the stored record contains no end of the lease, a writer must observe the record for the
        duration of the lease before it knows that the holder is dead. This is the duration then.
        """
        ...

    def cancel(self, owner: str, after_s: float = 0.0) -> None:
        """Forget an owner, which neither waits for the lock nor uses its claim any more.

        A provider that stores nothing for an owner that waits, and whose leases end at a stored
        time, has nothing to do. The method raises no ``HudiError``.

        Args:
            owner: the owner of the record that was passed to ``try_acquire``.
            after_s: the seconds for which other writers must still be excluded.
        """
        ...

    def replace_record(self, claim: Claim, record: LockRecord) -> Claim | None:
        """Replace the record of a claim, to renew or release the lock.

        Returns:
            The new claim; None if another writer has acquired the lock since.
        """
        ...

    def is_current(self, claim: Claim) -> bool:
        """Return whether the stored lock record is still that of the claim."""
        ...

    def holder(self) -> str:
        """Return the current holder's name, for messages."""
        ...
