"""Signs of life of several writers: who writes an instant touches a file while it is pending.

``.hoodie/.heartbeat/<requested time>``, without content; the time of its last change is the beat
(``HoodieHeartbeatClient`` of Apache Hudi). A writer beats before it requests its instant, and once
more before each interval is over. One that was silent for too long is dead to the others, and knows
it: it publishes nothing and does not begin to beat again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from lakemark.errors import Retriable, StorageUnavailable
from lakemark.model.instant import Instant
from lakemark.storage.storage import Storage
from lakemark.timeline.clock import TimelineClock

HEARTBEAT_FOLDER = ".hoodie/.heartbeat"

_log = logging.getLogger(__name__)


class HeartbeatExpired(Retriable):
    """This writer was silent for so long that others may undo what it was writing."""

    def __init__(self, instant: str, silent_s: float) -> None:
        super().__init__(
            f"instant {instant} showed no sign of life for {silent_s:.0f} s, so to other writers "
            "it is dead; the batch starts again (a store that did not answer, or a machine that "
            "slept: raise concurrency.heartbeat_interval_s if it happens often)"
        )
        self.instant, self.silent_s = instant, silent_s


class WriterAlive(Retriable):
    """Another writer is at work on the table, and this one is set to be the only one."""

    def __init__(self, instants: Iterable[str]) -> None:
        names = ", ".join(sorted(instants))
        super().__init__(
            f"another writer is at work on this table (heartbeats of {names}) and would be undone; "
            "stop it, or set concurrency.mode: multi_writer in every pipeline that writes the "
            "table; a writer that died is out of the way when its heartbeat has expired"
        )
        self.names = names


@dataclass(frozen=True, slots=True)
class HeartbeatPolicy:
    """When a writer counts as dead; the same for all writers of a table.

    Attributes:
        interval_s: from beat to beat (``hoodie.client.heartbeat.interval_in_ms``).
        tolerable_misses: (``hoodie.client.heartbeat.tolerable.misses``).
    """

    interval_s: float = 60.0
    tolerable_misses: int = 2

    @property
    def expires_after_s(self) -> float:
        """How long silence may last."""
        return self.interval_s * self.tolerable_misses


class Heartbeat:
    """Of one instant of ours: beats from now on, in a thread of its own, until ``stop``."""

    def __init__(self, storage: Storage, instant: str, policy: HeartbeatPolicy) -> None:
        self._storage, self._instant, self._policy = storage, instant, policy
        self._path = f"{HEARTBEAT_FOLDER}/{instant}"
        self._stopped = threading.Event()
        self._beating = threading.Lock()
        self._beaten_at_s = time.time()
        storage.put(self._path, b"")
        threading.Thread(target=self._run, name=f"heartbeat-{instant}", daemon=True).start()

    def check(self) -> None:
        """Make sure that no other writer may count us as dead.

        Raises:
            HeartbeatExpired: one may.
        """
        silent_s = self._silent_s()
        if silent_s > self._policy.expires_after_s:
            raise HeartbeatExpired(self._instant, silent_s)

    def stop(self) -> None:
        """Beat no more, and remove the file; harmless a second time.

        If the heartbeat has expired, another attempt at the instant may have begun to beat. The
        file is named after the instant and may be that attempt's, so it stays until it expires.
        """
        with self._beating:
            if self._stopped.is_set():
                return
            self._stopped.set()
            if self._silent_s() > self._policy.expires_after_s:
                return
            try:
                self._storage.delete([self._path])
            except StorageUnavailable as error:
                _log.warning("%s stays until it expires: %s", self._path, error)

    def abandon(self) -> None:
        """Beat no more, and keep the file: another writer has the instant and its heartbeat."""
        with self._beating:
            self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(self._policy.interval_s):
            try:
                self._beat()
            except StorageUnavailable as error:
                _log.warning("no heartbeat of instant %s: %s", self._instant, error)

    def _beat(self) -> None:
        with self._beating:
            if self._stopped.is_set() or self._silent_s() > self._policy.expires_after_s:
                return
            began_s = time.time()
            self._storage.put(self._path, b"")
            self._beaten_at_s = began_s

    def _silent_s(self) -> float:
        # Not the monotonic clock, which stands still while a machine sleeps.
        return time.time() - self._beaten_at_s


def beating(storage: Storage, policy: HeartbeatPolicy) -> frozenset[str]:
    """Requested times of the instants whose heartbeat has not expired.

    Asked after the timeline was loaded: an instant that is seen there has beaten before.
    """
    now = datetime.now(UTC)
    _, files = storage.list_folder(HEARTBEAT_FOLDER)
    return frozenset(f.name for f in files if _is_recent(f.modified_at, now, policy))


def clear_expired(storage: Storage, policy: HeartbeatPolicy, pending: Collection[str]) -> None:
    """Remove the files of writers that died before a request or after a completion.

    As ``HeartbeatUtils.cleanExpiredHeartbeats`` does.

    Args:
        storage: the table's root.
        policy: when one counts as dead.
        pending: requested times of the instants whose heartbeat still tells something.
    """
    now = datetime.now(UTC)
    _, files = storage.list_folder(HEARTBEAT_FOLDER)
    dead = [f.path for f in files if not _is_recent(f.modified_at, now, policy)]
    storage.delete([path for path in dead if path.rpartition("/")[2] not in pending])


def forget_heartbeat(storage: Storage, instant: str) -> None:
    """Remove the file of an instant that was undone."""
    storage.delete([f"{HEARTBEAT_FOLDER}/{instant}"])


def is_fresh(instant: Instant, policy: HeartbeatPolicy, clock: TimelineClock) -> bool:
    """Whether an instant was requested so recently that its writer may be at work without a beat.

    So are an operator's commands, and rollbacks by Apache Hudi. A time that occurs twice in the
    autumn counts as the second one, so that a living writer is never undone.
    """
    requested = clock.parse(instant.requested_at, latest=True)
    return _is_recent(requested, datetime.now(UTC), policy)


def _is_recent(moment: datetime, now: datetime, policy: HeartbeatPolicy) -> bool:
    return (now - moment).total_seconds() <= policy.expires_after_s
