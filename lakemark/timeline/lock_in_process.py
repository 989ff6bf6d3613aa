"""The lock of a table that only threads of this process write (``InProcessLockProvider``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from threading import Lock

from lakemark.timeline.lock_file import Claim, LockRecord

_guard = Lock()
_numbers = count()

#: Who holds which table, by its url.
_claims: dict[str, Claim] = {}


class InProcessLockFile:
    """See ``LockFile``; nothing is written down.

    Args:
        url: of the table.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    def try_take(self, ours: LockRecord, is_free: Callable[[LockRecord], bool]) -> Claim | None:
        """See ``LockFile.try_take``."""
        with _guard:
            seen = _claims.get(self._url)
            if seen is not None and not is_free(seen.record):
                return None
            claim = self._write(ours)
            return replace(claim, taken_over=seen is not None and not seen.record.expired)

    def rewrite(self, claim: Claim, record: LockRecord) -> Claim | None:
        """See ``LockFile.rewrite``."""
        with _guard:
            return self._write(record) if _claims.get(self._url) == claim else None

    def stands(self, claim: Claim) -> bool:
        """See ``LockFile.stands``."""
        return _claims.get(self._url) == claim

    def owner(self) -> str:
        """See ``LockFile.owner``."""
        seen = _claims.get(self._url)
        return seen.record.owner if seen else "nobody"

    def _write(self, record: LockRecord) -> Claim:
        claim = _claims[self._url] = Claim(record, str(next(_numbers)))
        return claim
