"""How the writers of one table coordinate: its lock, and the settings of a shared table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakemark.storage import Storage
from lakemark.timeline.locks.open_lock import LockProviderName, open_lock

if TYPE_CHECKING:
    from lakemark.timeline.locks.table_lock import TableLock
    from lakemark.transaction.multi_writer import MultiWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class Coordination:
    """How the writers of one table coordinate. All writers must use the same settings.

    Attributes:
        lock_provider: where the table's lock is stored; see ``open_lock``.
        lock_expire_minutes: when a lock file of Apache Hudi expires; see ``open_lock``.
        lock_options: the options of the lock provider; see ``open_lock``. They are never printed.
        multi_writer: the settings of a shared table; None if this writer is the only one.
    """

    lock_provider: str = LockProviderName.STORAGE
    lock_expire_minutes: int = 0
    lock_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    multi_writer: MultiWriter | None = None

    def lock_of(self, storage: Storage) -> TableLock | None:
        """Return the table's lock; None for the default lock, which is opened when needed.

        Raises:
            InvalidConfig: the lock provider does not work on this storage, or has no such options.
        """
        if self.lock_provider == LockProviderName.STORAGE and not self.lock_options:
            return None
        return open_lock(
            storage,
            provider=self.lock_provider,
            expire_minutes=self.lock_expire_minutes,
            options=self.lock_options,
        )
