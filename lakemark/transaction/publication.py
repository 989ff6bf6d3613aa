"""Publishes an instant in two steps under one lease.

1. ``prepare``  writes the content of the completed instant to another path. Then the lease is
                checked. If it is still valid, any later holder of the lock finds the content and
                deletes it
2. ``publish``  the store creates the completed instant from this content, and fails if the content
                was deleted

A writer may be suspended between the two steps, or its requests may be delayed. If another lakemark
writer has taken over the lock meanwhile, the first writer publishes nothing. But Apache Hudi
deletes nothing when it takes over a lock. Therefore the lease is also checked right before each
attempt to publish. Then at least half of the lease's duration remains for the single request that
publishes.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakemark.errors import Fenced
from lakemark.model.instant import Instant
from lakemark.storage.storage import NotFound
from lakemark.timeline.locks.table_lock import Lease
from lakemark.timeline.timeline_store import TimelineStore


@dataclass(frozen=True, slots=True)
class Publication:
    """One instant that is about to complete.

    Attributes:
        store: the table's timeline.
        lease: the lease of the table's lock.
        pending: the inflight instant.
    """

    store: TimelineStore
    lease: Lease
    pending: Instant

    def prepare(self, content: bytes) -> None:
        """Write the content of the completed instant to the path from which it is published.

        Raises:
            LeaseLost: another writer may have taken over the lock before the content was written.
        """
        self.store.prepare(self.pending, content)  # model: prepare
        self.lease.check_time()

    def publish(self, completed_at: str) -> Instant:
        """Try once to create the completed instant, which is durable when this method returns.

        Raises:
            LeaseLost: other writers may be changing the table; this call published nothing.
            Fenced: the instant was rolled back.
        """
        try:
            return self.store.publish(self.pending, completed_at, self.lease.check)
        except NotFound:
            self.lease.check()
            reason = "its prepared content was removed by a rollback"
            raise Fenced(self.pending.requested_at, reason) from None
