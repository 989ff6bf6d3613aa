"""What writers of one table owe each other, once there are several (Apache Hudi's multi-writer).

They beat while they write, leave each other's living instants alone, and let every clock pass a
time before somebody may mint the next.
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
    beating,
    is_fresh,
)

#: The lock is kept for so long at every commit, and the others give up after 90 s without it.
LONGEST_CLOCK_SKEW_MS = 30_000


@dataclass(frozen=True, slots=True)
class MultiWriter:
    """How writers share a table.

    Attributes:
        heartbeats: when one counts as dead.
        clock_skew_ms: how far their clocks may differ. Who mints a time keeps the lock for so long,
            as ``SkewAdjustingTimeGenerator`` does (200 ms): the next to hold it mints a later one,
            even if he does not look at the timeline, as Apache Hudi does not.
    """

    heartbeats: HeartbeatPolicy = field(default_factory=HeartbeatPolicy)
    clock_skew_ms: int = 200

    def heartbeat(self, storage: Storage, instant: str) -> Heartbeat:
        """Begin to beat for an instant of ours."""
        return Heartbeat(storage, instant, self.heartbeats)

    def let_clocks_pass(self) -> None:
        """Wait until no writer's clock is before a time that was just minted."""
        time.sleep(self.clock_skew_ms / 1000)


def has_heartbeat(storage: Storage, pending: Instant, multi_writer: MultiWriter | None) -> bool:
    """Whether the writer of an instant shows that it is alive, also where no other should be."""
    policy = multi_writer.heartbeats if multi_writer is not None else HeartbeatPolicy()
    return pending.requested_at in beating(storage, policy)


def dead(
    storage: Storage,
    pending: Iterable[Instant],
    multi_writer: MultiWriter | None,
    clock: TimelineClock,
) -> list[Instant]:
    """Of pending instants those whose writer is dead; asked after the timeline was loaded.

    Args:
        storage: the table's root.
        pending: instants of any writer.
        multi_writer: None for the only writer of a table, to which all others are dead
            (``HoodieFailedWritesCleaningPolicy.EAGER``); else as its ``LAZY``.
        clock: the timeline's.

    Raises:
        WriterAlive: there is to be no other, and one is alive.
    """
    listed = list(pending)
    if not listed:
        return []
    policy = multi_writer.heartbeats if multi_writer is not None else HeartbeatPolicy()
    alive = beating(storage, policy) & {i.requested_at for i in listed}
    if multi_writer is None:
        if alive:
            raise WriterAlive(alive)
        return listed
    return [i for i in listed if i.requested_at not in alive and not is_fresh(i, policy, clock)]
