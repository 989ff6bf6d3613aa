"""The rules for several writers of one table (multi-writer in Apache Hudi).

Each writer has a heartbeat while it writes. No writer rolls back an instant whose writer is alive.
A writer that has generated an instant time waits until the clocks of all writers are past that
time.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from lakemark.model.instant import Instant
from lakemark.storage.storage import Storage
from lakemark.timeline.clock import TimelineClock
from lakemark.transaction.heartbeat import (
    Heartbeat,
    HeartbeatPolicy,
    WriterAlive,
    find_alive,
    is_fresh,
)

#: Largest setting of ``clock_skew_ms``. A commit holds the lock at least for the clock skew, while
#: other writers wait at most 90 s for the lock.
LONGEST_CLOCK_SKEW_MS = 30_000


@dataclass(frozen=True, slots=True)
class MultiWriter:
    """The settings of a table that several writers share.

    Attributes:
        heartbeats: decides when a writer is considered dead.
        clock_skew_ms: how far the clocks of the writers may differ. A writer that has generated a
            time holds the lock for at least this duration, as ``SkewAdjustingTimeGenerator`` does
            (200 ms). So the next holder generates a later time even without reading the timeline.
            Apache Hudi does not read the timeline to generate a time.
    """

    heartbeats: HeartbeatPolicy = field(default_factory=HeartbeatPolicy)
    clock_skew_ms: int = 200

    def heartbeat(self, storage: Storage, instant: str) -> Heartbeat:
        """Start the heartbeat of this writer's instant."""
        return Heartbeat(storage, instant, self.heartbeats)

    def let_clocks_pass(self) -> None:
        """Wait until the clocks of all writers are past a time that was just generated."""
        time.sleep(self.clock_skew_ms / 1000)


def has_heartbeat(storage: Storage, pending: Instant, multi_writer: MultiWriter | None) -> bool:
    """Return whether a pending instant has a live heartbeat, also if the table is not shared."""
    policy = multi_writer.heartbeats if multi_writer is not None else HeartbeatPolicy()
    return pending.requested_at in find_alive(storage, policy)


def find_dead(
    storage: Storage,
    pending: Iterable[Instant],
    multi_writer: MultiWriter | None,
    clock: TimelineClock,
) -> list[Instant]:
    """Return the pending instants whose writer is dead. Load the timeline before this call.

    Args:
        storage: the storage of the table's root.
        pending: the pending instants of any writer.
        multi_writer: the settings of a shared table, in which heartbeats decide whether a writer is
            dead (``HoodieFailedWritesCleaningPolicy.LAZY``). None if the caller is the table's only
            writer. Then all other writers without a live heartbeat are considered dead
            (``EAGER``).
        clock: the clock of the timeline.

    Raises:
        WriterAlive: the caller is configured as the only writer, but another writer is alive.
    """
    listed = list(pending)
    if not listed:
        return []
    policy = multi_writer.heartbeats if multi_writer is not None else HeartbeatPolicy()
    alive = find_alive(storage, policy) & {i.requested_at for i in listed}
    if multi_writer is None:
        if alive:
            raise WriterAlive(alive)
        return listed
    return [i for i in listed if i.requested_at not in alive and not is_fresh(i, policy, clock)]
