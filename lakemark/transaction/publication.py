"""Publishes an instant in two steps under one lease.

1. ``prepare``  writes the completed content to another path. The lease is still valid after that,
                so a writer that takes the lock over finds the content, and deletes it first
2. ``publish``  the store creates the completed instant from this content, and fails without it

So if another writer of this project has taken the lock over, a writer that was suspended between
two steps, or whose requests were delayed, publishes nothing. Apache Hudi deletes nothing when it
takes a lock over. Because of it, the lease is checked right before each attempt: at least half of
its time is then left for the one request that follows.
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
        store: stores its timeline.
        lease: lease of the table's lock.
        pending: the inflight instant.
    """

    store: TimelineStore
    lease: Lease
    pending: Instant

    def prepare(self, content: bytes) -> None:
        """Write the completed content to the path from which it is published.

        Raises:
            LeaseLost: another writer may have taken the lock over before the content existed.
        """
        self.store.prepare(self.pending, content)  # model: prepare
        self.lease.check_time()

    def publish(self, completed_at: str) -> Instant:
        """Try once to create the completed instant; it is durable when this returns.

        Raises:
            LeaseLost: other writers may be changing the table; this attempt published nothing.
            Fenced: the instant was rolled back.
        """
        try:
            return self.store.publish(self.pending, completed_at, self.lease.check)
        except NotFound:
            self.lease.check()
            reason = "its prepared content was removed by a rollback"
            raise Fenced(self.pending.requested_at, reason) from None
