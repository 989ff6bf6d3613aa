"""What a transaction needs of a table."""

from __future__ import annotations

from dataclasses import dataclass, field

from table.storage.storage import Storage
from table.timeline.lock import TableLock
from table.timeline.timeline_store import TimelineStore
from table.transaction.participant import NoParticipant, Participant
from table.transaction.sharing import Sharing

#: How long a writer waits for another's lock before it gives up, in seconds.
LOCK_WAIT_S = 90.0


@dataclass(frozen=True, slots=True)
class TableAccess:
    """A table's storage, its timeline there, and the lock that guards publishing and rollback.

    Attributes:
        participant: is told of each change before it is published.
        sharing: what is owed to other writers; None when there is to be no other.
    """

    storage: Storage
    timeline: TimelineStore
    lock: TableLock
    participant: Participant = field(default_factory=NoParticipant)
    sharing: Sharing | None = None
