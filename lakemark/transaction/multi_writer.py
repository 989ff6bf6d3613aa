"""The rules for several writers of one table (multi-writer in Apache Hudi).

Each writer has a heartbeat while it writes. No writer rolls back an instant whose writer is alive.
A writer that has generated an instant time waits until the clocks of all writers are past that
time.

A writer may be non-blocking (``NON_BLOCKING_CONCURRENCY_CONTROL`` of Apache Hudi). Several such
writers write the same file groups at the same time, without a conflict.
``lakemark.operations.non_blocking`` describes the tables that support this.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from lakemark.errors import InvalidConfig
from lakemark.model.action import Action
from lakemark.model.instant import Instant
from lakemark.storage.storage import Storage
from lakemark.timeline.clock import TimelineClock
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.heartbeat import (
    HEARTBEAT_FOLDER,
    Heartbeat,
    HeartbeatPolicy,
    WriterAlive,
    find_alive,
    is_fresh,
)
from lakemark.write.early_conflicts import Rival

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
        detects_conflicts_early: whether a commit fails before it writes to a file group that an
            earlier commit of a living writer is writing
            (``hoodie.write.concurrency.early.conflict.detection.enable``).
        non_blocking: whether this writer writes to a file group although another commit may write
            to the same file group meanwhile.

    Raises:
        InvalidConfig: ``detects_conflicts_early`` is combined with ``non_blocking``.
    """

    heartbeats: HeartbeatPolicy = field(default_factory=HeartbeatPolicy)
    clock_skew_ms: int = 200
    detects_conflicts_early: bool = False
    non_blocking: bool = False

    def __post_init__(self) -> None:
        if self.non_blocking and self.detects_conflicts_early:
            message = (
                "commits of a non-blocking writer do not conflict if they write the same file "
                "group; pass either non_blocking or detects_conflicts_early"
            )
            raise InvalidConfig(message)

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


def find_rivals(base: Timeline, multi_writer: MultiWriter | None) -> tuple[Rival, ...]:
    """Return the pending commits with which a commit is to detect conflicts early.

    Pending table services are omitted, as by Apache Hudi.

    Args:
        base: the timeline on which the commit is based.
        multi_writer: the settings of a shared table; None if the table has only one writer.
    """
    if multi_writer is None or not multi_writer.detects_conflicts_early:
        return ()
    expires_after_s = multi_writer.heartbeats.expires_after_s
    pending = [i.requested_at for i in base.pending(Action.COMMIT, Action.DELTA_COMMIT)]
    return tuple(Rival(i, f"{HEARTBEAT_FOLDER}/{i}", expires_after_s) for i in pending)


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
