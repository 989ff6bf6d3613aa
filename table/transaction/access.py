"""What a transaction needs of a table."""

from __future__ import annotations

from dataclasses import dataclass

from table.storage.storage import Storage
from table.timeline.lock import TableLock
from table.timeline.timeline_store import TimelineStore

#: How long a writer waits for another's lock before it gives up, in seconds.
LOCK_WAIT_S = 90.0


@dataclass(frozen=True, slots=True)
class TableAccess:
    """A table's storage, its timeline there, and the lock that guards publishing and rollback."""

    storage: Storage
    timeline: TimelineStore
    lock: TableLock
