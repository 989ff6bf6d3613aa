"""``concurrency``: whether several writers share the table, and how they coordinate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from lakemark.storage import canonical_url
from lakemark.timeline.locks.installed_provider import installed_names
from lakemark.timeline.locks.open_lock import LockProviderName
from lakemark.timeline.locks.options import given_name, without_name
from lakemark.transaction.heartbeat import HeartbeatPolicy
from lakemark.transaction.multi_writer import LONGEST_CLOCK_SKEW_MS, MultiWriter
from streamer.config import settings
from streamer.config.errors import ConfigError, Problem
from streamer.config.section import Section, is_location
from streamer.config.settings import Settings


class LockConfig(Section):
    """Where the lock of the table is kept. All writers of a table must use the same lock."""

    provider: Annotated[str, Field(min_length=1)] = "storage"
    """``storage`` keeps the lock in the table's storage. If that is an object store, Apache Hudi
    can share the lock with its ``StorageBasedLockProvider``. ``file_system`` works on a local disk
    only; it also acquires the lock file of Apache Hudi's ``FileSystemBasedLockProvider``.
    ``in_process`` protects only against writers in the same process. ``zookeeper`` and ``dynamodb``
    keep the lock where Apache Hudi's ``ZookeeperBasedLockProvider`` and
    ``DynamoDBBasedLockProvider`` keep it. They need the [extra](../README.md#install)
    ``zookeeper`` or ``dynamodb``. The name of a provider that another package declares is accepted,
    too."""

    expire_minutes: Annotated[int, Field(ge=0)] = 0
    """With ``file_system``: if Apache Hudi does not remove its lock file, the lock expires after
    this number of minutes, as with Hudi's ``hoodie.write.lock.filesystem.expire``. 0: never."""

    options: Settings = Field(default_factory=dict)
    """The options of the provider. [Several writers on one table](concurrency.md#zookeeper) lists
    those of ``zookeeper`` and ``dynamodb``. The other providers of lakemark have none."""

    def resolved(self, *, names_lock: bool) -> dict[str, str]:
        """Return the values of the options.

        Args:
            names_lock: whether the options may name the lock. If not, the lock is named after the
                path of the table, because the options name the lock of another table.

        Raises:
            ConfigError: a value cannot be found.
        """
        options = settings.resolve(self.options, "concurrency.lock.options")
        return options if names_lock else without_name(options)

    def given_name(self) -> tuple[str, ...] | None:
        """Return what names the lock; None if it is unknown, or is the path of the table."""
        try:
            return given_name(self.provider, self.resolved(names_lock=True))
        except ConfigError:  # the run reports the missing value
            return None


class ConcurrencyConfig(Section):
    """Whether other writers, such as other pipelines or Apache Hudi, write the same table."""

    mode: Literal["single_writer", "multi_writer", "non_blocking"] = "single_writer"
    """With ``single_writer``, this pipeline is the only writer. When it starts, it rolls back every
    commit that is not complete; it fails instead if a heartbeat shows that the commit's writer is
    alive. With ``multi_writer`` or ``non_blocking``, several writers share the table, and all of
    them must use one of these modes. The writers emit heartbeats, and only the commits of writers
    without a heartbeat are rolled back. With ``multi_writer``, a batch is written again if another
    commit has written the same bucket meanwhile. The counterpart in Apache Hudi is
    ``optimistic_concurrency_control`` with ``LAZY`` cleaning of failed writes. With
    ``non_blocking``, several writers write the same buckets at the same time. For this, the table
    needs buckets and ordering columns. See [Non-blocking
    writers](concurrency.md#non-blocking-writers)."""

    heartbeat_interval_s: Annotated[float, Field(ge=1)] = 60.0
    """Seconds between two heartbeats. All writers must use the same value."""

    tolerable_misses: Annotated[int, Field(ge=1)] = 2
    """A writer counts as dead when it has emitted no heartbeat for this number of intervals."""

    clock_skew_ms: Annotated[int, Field(ge=0, le=LONGEST_CLOCK_SKEW_MS)] = 200
    """How far the clocks of the writers' machines may differ. The largest accepted value is 30,000.
    With ``multi_writer`` and ``non_blocking``, each commit waits for twice this time."""

    early_conflict_detection: bool = False
    """With ``multi_writer``: whether a batch fails before it writes to a file group that an earlier
    commit of another writer is writing, as with Hudi's
    ``hoodie.write.concurrency.early.conflict.detection.enable``. The batch is then written again
    when the other commit has ended. Otherwise the conflict is detected when the batch is
    committed."""

    lock: LockConfig = LockConfig()

    def multi_writer(self) -> MultiWriter | None:
        """Return the multi-writer settings; None if this pipeline is the table's only writer."""
        if self.mode == "single_writer":
            return None
        policy = HeartbeatPolicy(self.heartbeat_interval_s, self.tolerable_misses)
        return MultiWriter(
            policy,
            self.clock_skew_ms,
            self.early_conflict_detection,
            non_blocking=self.mode == "non_blocking",
        )

    def of_dead_letters(self) -> ConcurrencyConfig:
        """Return the settings for the dead-letter table, which has no ordering columns."""
        if self.mode != "non_blocking":
            return self
        return self.model_copy(update={"mode": "multi_writer"})


def concurrency_problems(path: str, concurrency: ConcurrencyConfig) -> Iterator[Problem]:
    """Yield a problem if the lock provider does not exclude writers or does not fit the storage.

    Args:
        path: the path of the table.
        concurrency: the settings.
    """
    provider = concurrency.lock.provider
    # the entry points are read only if they matter, because this takes as long as all other checks
    if provider not in [*LockProviderName] and provider not in installed_names():
        known = (*LockProviderName, *installed_names())
        text = f"{str(provider)!r}: expected one of {', '.join(known)}"
        yield Problem("concurrency.lock.provider", text)
    if concurrency.early_conflict_detection and concurrency.mode == "non_blocking":
        text = "non-blocking commits to the same file group do not conflict; remove it"
        yield Problem("concurrency.early_conflict_detection", text)
    elif concurrency.early_conflict_detection and concurrency.mode == "single_writer":
        text = "commits conflict only with concurrency.mode: multi_writer; set it"
        yield Problem("concurrency.early_conflict_detection", text)
    if provider == "in_process" and concurrency.mode != "single_writer":
        text = "in_process does not exclude other processes; use storage, or mode single_writer"
        yield Problem("concurrency.lock.provider", text)
    if provider == "file_system" and is_location(path) and not _is_local(path):
        text = f"file_system works only on a local disk, but the table is at {path}; use storage"
        yield Problem("concurrency.lock.provider", text)


def _is_local(path: str) -> bool:
    return canonical_url(path).startswith("file://")
