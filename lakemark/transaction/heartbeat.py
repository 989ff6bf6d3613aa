"""Heartbeats: each writer of a shared table updates a file while its instant is pending.

The file is ``.hoodie/.heartbeat/<requested time>``, and it is empty. Its modification time is the
time of the last heartbeat (``HoodieHeartbeatClient`` of Apache Hudi). A writer starts the heartbeat
before it requests its instant, and repeats it after each interval. If the last heartbeat is too
old, the heartbeat has expired, and other writers consider the writer dead. Each writer also checks
its own heartbeat. If its own heartbeat has expired, a writer publishes nothing and does not restart
the heartbeat.
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
    """The heartbeat stopped for so long that other writers may roll this instant back."""

    def __init__(self, instant: str, silent_s: float) -> None:
        super().__init__(
            f"instant {instant} had no heartbeat for {silent_s:.0f} s, so other writers consider "
            "its writer dead; the batch starts again (the store did not answer, or the machine was "
            "suspended: raise concurrency.heartbeat_interval_s if it happens often)"
        )
        self.instant, self.silent_s = instant, silent_s


class WriterAlive(Retriable):
    """Another writer is writing to the table, but this writer is configured as the only one."""

    def __init__(self, instants: Iterable[str]) -> None:
        names = ", ".join(sorted(instants))
        super().__init__(
            f"another writer is writing to this table (heartbeats of {names}), and its instants "
            "would be rolled back; stop it, or set concurrency.mode: multi_writer in each pipeline "
            "that writes the table; after a writer died, wait until its heartbeat has expired"
        )
        self.names = names


@dataclass(frozen=True, slots=True)
class HeartbeatPolicy:
    """Decides when a writer is considered dead. All writers of a table need the same values.

    Attributes:
        interval_s: the seconds between two heartbeats (``hoodie.client.heartbeat.interval_in_ms``).
        tolerable_misses: the number of heartbeats that may be missing
            (``hoodie.client.heartbeat.tolerable.misses``).
    """

    interval_s: float = 60.0
    tolerable_misses: int = 2

    @property
    def expires_after_s(self) -> float:
        """The age in seconds at which the last heartbeat expires."""
        return self.interval_s * self.tolerable_misses


class Heartbeat:
    """The heartbeat of this writer's instant. A thread updates the file until ``stop``."""

    def __init__(self, storage: Storage, instant: str, policy: HeartbeatPolicy) -> None:
        self._storage, self._instant, self._policy = storage, instant, policy
        self._path = f"{HEARTBEAT_FOLDER}/{instant}"
        self._stopped = threading.Event()
        self._beating = threading.Lock()
        self._beaten_at_s = time.time()
        storage.put(self._path, b"")
        threading.Thread(target=self._run, name=f"heartbeat-{instant}", daemon=True).start()

    def check(self) -> None:
        """Check that the heartbeat has not expired.

        Raises:
            HeartbeatExpired: the heartbeat has expired, so other writers may consider this writer
                dead.
        """
        silent_s = self._silent_s()
        if silent_s > self._policy.expires_after_s:
            raise HeartbeatExpired(self._instant, silent_s)

    def stop(self) -> None:
        """Stop the heartbeat and delete its file. A second call has no effect.

        If the heartbeat has expired, another attempt at the same instant may use the same file,
        because the file is named after the instant. So an expired file is kept.
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
                _log.warning("%s remains until it expires: %s", self._path, error)

    def abandon(self) -> None:
        """Stop the heartbeat, but keep the file, which belongs to the instant's new writer."""
        with self._beating:
            self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(self._policy.interval_s):
            try:
                self._beat()
            except StorageUnavailable as error:
                _log.warning("the heartbeat of %s was not updated: %s", self._instant, error)

    def _beat(self) -> None:
        with self._beating:
            if self._stopped.is_set() or self._silent_s() > self._policy.expires_after_s:
                return
            began_s = time.time()
            self._storage.put(self._path, b"")
            self._beaten_at_s = began_s

    def _silent_s(self) -> float:
        # The monotonic clock is not used, because it stops while a machine is suspended.
        return time.time() - self._beaten_at_s


def find_alive(storage: Storage, policy: HeartbeatPolicy) -> frozenset[str]:
    """Return the requested times of the instants whose heartbeat has not expired.

    Load the timeline before this call. Then every live instant on the timeline is found, because
    its heartbeat started before its request.
    """
    now = datetime.now(UTC)
    _, files = storage.list_folder(HEARTBEAT_FOLDER)
    return frozenset(f.name for f in files if _is_recent(f.modified_at, now, policy))


def emits_heartbeats(storage: Storage, pending: Instant) -> bool:
    """Return whether the writer of a pending instant emits heartbeats, or did so before it died.

    The heartbeat starts before the instant is requested, and its file is deleted only after the
    instant was completed or removed. So a pending instant without a file, not even an expired one,
    belongs to a writer that emits no heartbeats.
    """
    _, files = storage.list_folder(HEARTBEAT_FOLDER)
    return any(file.name == pending.requested_at for file in files)


def clear_expired(storage: Storage, policy: HeartbeatPolicy, pending: Collection[str]) -> None:
    """Delete the expired heartbeat files of instants that are not pending.

    Their writers died before they requested the instant or after the instant completed.
    ``HeartbeatUtils.cleanExpiredHeartbeats`` of Apache Hudi does the same.

    Args:
        storage: the storage of the table's root.
        policy: decides when a heartbeat expires.
        pending: the requested times of the pending instants, whose heartbeats are kept.
    """
    now = datetime.now(UTC)
    _, files = storage.list_folder(HEARTBEAT_FOLDER)
    dead = [f.path for f in files if not _is_recent(f.modified_at, now, policy)]
    storage.delete([path for path in dead if path.rpartition("/")[2] not in pending])


def forget_heartbeat(storage: Storage, instant: str) -> None:
    """Delete the heartbeat of an instant that was rolled back."""
    storage.delete([f"{HEARTBEAT_FOLDER}/{instant}"])


def is_fresh(instant: Instant, policy: HeartbeatPolicy, clock: TimelineClock) -> bool:
    """Return whether an instant is so recent that its writer may be alive without a heartbeat.

    Operators' commands and Apache Hudi's rollbacks have no heartbeat. If a local time occurs twice
    in autumn, the later moment is assumed, so that a live writer is never rolled back.
    """
    requested = clock.parse(instant.requested_at, latest=True)
    return _is_recent(requested, datetime.now(UTC), policy)


def _is_recent(moment: datetime, now: datetime, policy: HeartbeatPolicy) -> bool:
    return (now - moment).total_seconds() <= policy.expires_after_s
