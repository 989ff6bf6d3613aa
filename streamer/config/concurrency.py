"""``concurrency``: whether several writers share the table, and how they coordinate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from lakemark.storage import canonical_url
from lakemark.timeline.locks.open_lock import LockProviderName
from lakemark.transaction.heartbeat import HeartbeatPolicy
from lakemark.transaction.multi_writer import LONGEST_CLOCK_SKEW_MS, MultiWriter
from streamer.config.errors import Problem
from streamer.config.section import Section, is_location


class LockConfig(Section):
    """Where the lock of the table is kept. All writers of a table must use the same lock."""

    provider: Literal["storage", "file_system", "in_process"] = "storage"
    """``storage`` keeps the lock in the table's storage. If that is an object store, Apache Hudi
    can share the lock with its ``StorageBasedLockProvider``. ``file_system`` works on a local disk
    only; it also acquires the lock file of Apache Hudi's ``FileSystemBasedLockProvider``.
    ``in_process`` protects only against writers in the same process."""

    expire_minutes: Annotated[int, Field(ge=0)] = 0
    """With ``file_system``: if Apache Hudi does not remove its lock file, the lock expires after
    this number of minutes, as with Hudi's ``hoodie.write.lock.filesystem.expire``. 0: never."""


class ConcurrencyConfig(Section):
    """Whether other writers, such as other pipelines or Apache Hudi, write the same table."""

    mode: Literal["single_writer", "multi_writer"] = "single_writer"
    """With ``single_writer``, this pipeline is the only writer. When it starts, it rolls back every
    commit that is not complete; it fails instead if a heartbeat shows that the commit's writer is
    alive. With ``multi_writer``, several writers share the table, and all of
    them must use this mode. The writers emit heartbeats, and only the commits of writers without a
    heartbeat are rolled back. The counterpart in Apache Hudi is
    ``optimistic_concurrency_control`` with ``LAZY`` cleaning of failed writes."""

    heartbeat_interval_s: Annotated[float, Field(ge=1)] = 60.0
    """Seconds between two heartbeats. All writers must use the same value."""

    tolerable_misses: Annotated[int, Field(ge=1)] = 2
    """A writer counts as dead when it has emitted no heartbeat for this number of intervals."""

    clock_skew_ms: Annotated[int, Field(ge=0, le=LONGEST_CLOCK_SKEW_MS)] = 200
    """How far the clocks of the writers' machines may differ. The largest accepted value is 30,000.
    With ``multi_writer``, each commit waits for twice this time."""

    lock: LockConfig = LockConfig()

    def multi_writer(self) -> MultiWriter | None:
        """Return the multi-writer settings; None if this pipeline is the table's only writer."""
        if self.mode == "single_writer":
            return None
        policy = HeartbeatPolicy(self.heartbeat_interval_s, self.tolerable_misses)
        return MultiWriter(policy, self.clock_skew_ms)

    def provider(self) -> LockProviderName:
        """Return the lock provider."""
        return LockProviderName(self.lock.provider)


def concurrency_problems(path: str, concurrency: ConcurrencyConfig) -> Iterator[Problem]:
    """Yield a problem if the lock provider does not exclude writers or does not fit the storage.

    Args:
        path: the path of the table.
        concurrency: the settings.
    """
    provider = concurrency.lock.provider
    if provider == "in_process" and concurrency.mode == "multi_writer":
        text = "in_process does not exclude other processes; use storage, or mode single_writer"
        yield Problem("concurrency.lock.provider", text)
    if provider == "file_system" and is_location(path) and not _is_local(path):
        text = f"file_system works only on a local disk, but the table is at {path}; use storage"
        yield Problem("concurrency.lock.provider", text)


def _is_local(path: str) -> bool:
    return canonical_url(path).startswith("file://")
