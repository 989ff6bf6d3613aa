"""How an instant completes, in two steps under one lease.

1. ``prepare``  the completed content is laid aside, and the lease is still valid then: whoever
                takes the lock over later finds the content, and removes it before anything else
2. ``publish``  the store makes the completed instant out of the content, and fails without it

So a writer that stands still between two of its steps, or whose requests do not come through,
publishes nothing once another writer of this project has taken the lock over. Apache Hudi removes
nothing when it takes the lock over. Against it there is the look at the lease right before each
attempt, which leaves at least half a lease for the one request that follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lakemark.errors import Fenced, HudiError
from lakemark.model.instant import Instant
from lakemark.storage.storage import NotFound
from lakemark.timeline.locks.table_lock import Lease
from lakemark.timeline.timeline_store import TimelineStore


@dataclass(frozen=True, slots=True)
class Publication:
    """One instant that is about to complete.

    Attributes:
        store: of its timeline.
        lease: under which it completes.
        pending: the instant, inflight.
    """

    store: TimelineStore
    lease: Lease
    pending: Instant

    def prepare(self, content: bytes) -> None:
        """Lay the completed content aside.

        Raises:
            LeaseLost: the lock may have been taken over before the content was there.
        """
        self.store.prepare(self.pending, content)  # model: prepare
        self.lease.check_time()

    @contextmanager
    def telling(self) -> Iterator[None]:
        """A block that tells a participant, which may find the table as others left it since.

        Raises:
            LeaseLost: that is why it failed.
        """
        try:
            yield
        except HudiError:
            self.lease.check()
            raise

    def publish(self, completed_at: str) -> Instant:
        """Try once to make the completed instant, durable when this returns.

        Raises:
            LeaseLost: others may be at work on the table; this attempt published nothing.
            Fenced: the instant was rolled back.
        """
        try:
            return self.store.publish(self.pending, completed_at, self.lease.check)
        except NotFound:
            self.lease.check()
            reason = "its prepared content was removed by a rollback"
            raise Fenced(self.pending.requested_at, reason) from None
