"""Chooses the partitions whose lifetime has ended; reads no files.

Source: ``KeepByTimeStrategy``, ``KeepByCreationTimeStrategy`` and ``HoodieTTLConfig`` of Apache
Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from lakemark.errors import InvalidConfig
from lakemark.model.action import COMMITS
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.timeline.clock import TimelineClock
from lakemark.view.file_system_view import FileSystemView

#: Partitions that one commit deletes at most
#: (``hoodie.partition.ttl.strategy.max.delete.partitions``).
MAX_EXPIRED = 1000


class ExpireBy(StrEnum):
    """The time at which the lifetime of a partition begins.

    Attributes:
        COMMIT: the last commit that wrote to the partition (``KEEP_BY_TIME``).
        CREATION: the commit that created the partition (``KEEP_BY_CREATION_TIME``).
    """

    COMMIT = "commit"
    CREATION = "creation"


@dataclass(frozen=True, slots=True)
class PartitionLifetime:
    """How long the rows of a partition are kept.

    Attributes:
        older_than: the lifetime.
        by: when the lifetime begins.

    Raises:
        InvalidConfig: the lifetime is not positive, or longer than a thousand years.
    """

    older_than: timedelta
    by: ExpireBy = ExpireBy.COMMIT

    def __post_init__(self) -> None:
        if not timedelta(0) < self.older_than <= timedelta(days=365_000):
            message = f"a partition has a lifetime of 1 s to 365000 days, not {self.older_than}"
            raise InvalidConfig(message)


def last_commits(view: FileSystemView) -> dict[str, str]:
    """Return the requested time of the last commit to each partition that has rows.

    The files of the newest slices show the times. In table version 6, the names of logs do not
    contain the times of their commits (see ``last_logged``). A compaction counts as a commit.
    """
    times: dict[str, str] = {}
    for one in view.latest_slices():
        path = one.group.partition_path
        logs = [] if view.version.logs_name_their_slice else [log.name.instant for log in one.logs]
        times[path] = max(times.get(path, ""), one.base_instant, *logs)
    return times


def last_logged(view: FileSystemView, commits: Mapping[str, CommitMetadata]) -> dict[str, str]:
    """Return the requested time of the last active commit that wrote rows to each partition.

    Args:
        view: the file groups.
        commits: the metadata of the active commits, by requested time.
    """
    times: dict[str, str] = {}
    for instant in view.timeline.completed(*COMMITS):
        metadata = commits[instant.requested_at]
        for stat in metadata.write_stats if metadata.may_change_schema else ():
            path = stat.partition_path or ""
            times[path] = max(times.get(path, ""), instant.requested_at)
    return times


def last_emptied(commits: Mapping[str, CommitMetadata]) -> dict[str, str]:
    """Return the requested time of the last active commit that deleted each partition.

    The metafile of a deleted partition stays, so that it shows an earlier creation than that of the
    rows that were written since.

    Args:
        commits: the metadata of the active commits, by requested time.
    """
    times: dict[str, str] = {}
    for requested_at, metadata in commits.items():
        written = {stat.partition_path or "" for stat in metadata.write_stats}
        for path in metadata.replaced_partitions - written:
            times[path] = max(times.get(path, ""), requested_at)
    return times


def expired_partitions(
    began: Mapping[str, str], lifetime: PartitionLifetime, now: datetime, clock: TimelineClock
) -> list[str]:
    """Return at most ``MAX_EXPIRED`` partitions whose lifetime has ended, the oldest first.

    Args:
        began: the time at which the lifetime of each partition began, as an instant time.
        lifetime: how long the rows are kept.
        now: the current time.
        clock: the timeline's clock.
    """
    try:
        end = clock.format(now - lifetime.older_than)
    except OverflowError:
        return []  # the lifetime is longer than the time since the year 1
    expired = sorted((time, path) for path, time in began.items() if time < end)
    return [path for _, path in expired[:MAX_EXPIRED]]
