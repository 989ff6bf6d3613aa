"""The lock provider ``in_process``: the lock is in the memory of this process.

Use this provider if only threads of this process write the table (``InProcessLockProvider``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from threading import Lock

from lakemark.timeline.locks.lock_provider import LOCK_PATH, Claim, LockRecord

_guard = Lock()
_numbers = count()

#: The holder of each table, by the table's URL.
_claims: dict[str, Claim] = {}


class InProcessLock:
    """A ``LockProvider`` that stores nothing outside the process.

    Args:
        url: the table's URL.
    """

    name = LOCK_PATH
    longer_wait_s = 0.0

    def __init__(self, url: str) -> None:
        self._url = url

    def try_acquire(self, ours: LockRecord, is_free: Callable[[LockRecord], bool]) -> Claim | None:
        """See ``LockProvider.try_acquire``."""
        with _guard:
            seen = _claims.get(self._url)
            if seen is not None and not is_free(seen.record):
                return None
            claim = self._write(ours)
            return replace(claim, taken_over=seen is not None and not seen.record.expired)

    def cancel(self, owner: str, after_s: float = 0.0) -> None:
        """See ``LockProvider.cancel``; waiting writers store nothing."""

    def replace_record(self, claim: Claim, record: LockRecord) -> Claim | None:
        """See ``LockProvider.replace_record``."""
        with _guard:
            return self._write(record) if _claims.get(self._url) == claim else None

    def is_current(self, claim: Claim) -> bool:
        """See ``LockProvider.is_current``."""
        return _claims.get(self._url) == claim

    def holder(self) -> str:
        """See ``LockProvider.holder``."""
        seen = _claims.get(self._url)
        return seen.record.owner if seen else "nobody"

    def _write(self, record: LockRecord) -> Claim:
        claim = _claims[self._url] = Claim(record, str(next(_numbers)))
        return claim
