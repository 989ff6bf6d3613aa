"""``concurrency``: whether others write the table, too, and how they are kept apart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from streamer.config.errors import Problem
from streamer.config.section import Section, is_place
from table.storage import place_of
from table.timeline.lock import LockProvider
from table.transaction.heartbeat import HeartbeatPolicy
from table.transaction.sharing import LONGEST_CLOCK_SKEW_MS, Sharing


class LockConfig(Section):
    """Where the table's lock is kept; the same in every writer of a table."""

    provider: Literal["storage", "file_system", "in_process"] = "storage"
    """``storage`` keeps it beside the table; on an object store Apache Hudi takes the same with its
    ``StorageBasedLockProvider``. ``file_system``, on a local disk, also takes the file of Apache
    Hudi's ``FileSystemBasedLockProvider``. ``in_process`` excludes nobody outside of this
    process."""

    expire_minutes: Annotated[int, Field(ge=0)] = 0
    """After so many minutes a lock that Apache Hudi left in ``file_system`` is taken over, as its
    ``hoodie.write.lock.filesystem.expire`` says; 0: never."""


class ConcurrencyConfig(Section):
    """Several writers on one table: pipelines, and Apache Hudi."""

    mode: Literal["single", "multiple"] = "single"
    """``single`` undoes at its start whatever it finds unfinished, as no other writer may be at
    work. With ``multiple``, which all writers then use, they show heartbeats, and only what a dead
    one left is undone. In Apache Hudi: ``optimistic_concurrency_control`` with ``LAZY`` cleaning of
    failed writes."""

    heartbeat_interval_s: Annotated[float, Field(ge=1)] = 60.0
    """Seconds from heartbeat to heartbeat, of all writers."""

    tolerable_misses: Annotated[int, Field(ge=1)] = 2
    """A writer is dead that was silent for so many intervals."""

    clock_skew_ms: Annotated[int, Field(ge=0, le=LONGEST_CLOCK_SKEW_MS)] = 200
    """How far the clocks of the writers' machines may differ, at most 30,000; each commit waits
    twice for so long."""

    lock: LockConfig = LockConfig()

    def sharing(self) -> Sharing | None:
        """The same for the table; None for its only writer."""
        if self.mode == "single":
            return None
        policy = HeartbeatPolicy(self.heartbeat_interval_s, self.tolerable_misses)
        return Sharing(policy, self.clock_skew_ms)

    def provider(self) -> LockProvider:
        """Where the lock is kept."""
        return LockProvider(self.lock.provider)


def concurrency_problems(path: str, concurrency: ConcurrencyConfig) -> Iterator[Problem]:
    """What excludes nobody, or cannot be kept where the table lies.

    Args:
        path: of the table.
        concurrency: the settings.
    """
    provider = concurrency.lock.provider
    if provider == "in_process" and concurrency.mode == "multiple":
        text = "in_process excludes no other process; use storage, or concurrency.mode single"
        yield Problem("concurrency.lock.provider", text)
    if provider == "file_system" and is_place(path) and not _is_local(path):
        text = f"file_system needs a local disk, and {path} is none; use storage"
        yield Problem("concurrency.lock.provider", text)


def _is_local(path: str) -> bool:
    return place_of(path).startswith("file://")
