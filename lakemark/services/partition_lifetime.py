"""Chooses the partitions whose lifetime has ended; reads no files.

Source: ``KeepByTimeStrategy``, ``KeepByCreationTimeStrategy`` and ``HoodieTTLConfig`` of Apache
Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
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

#: No instant time is earlier.
_FIRST_TIME = "1970"


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
        for path in _written(metadata) if metadata.may_change_schema else ():
            times[path] = max(times.get(path, ""), instant.requested_at)
    return times


def logs_of_archived_commits(view: FileSystemView, path: str, active: Collection[str]) -> set[str]:
    """Return the names of a partition's newest logs that no active commit wrote (version 6).

    Args:
        view: the file groups.
        path: the partition.
        active: the paths of the files that active commits wrote.
    """
    logs = (log for one in view.latest_slices(path) for log in one.logs)
    return {str(log.name) for log in logs if log.path not in active}


def last_emptied(commits: Mapping[str, CommitMetadata]) -> dict[str, str]:
    """Return the requested time of the last of some commits that deleted each partition.

    The metafile of a deleted partition stays until a clean deletes it. So it may show an earlier
    creation than that of the rows that were written since.

    Args:
        commits: the metadata of the commits, by requested time.
    """
    times: dict[str, str] = {}
    for requested_at, metadata in commits.items():
        for path in metadata.replaced_partitions - _written(metadata):
            times[path] = max(times.get(path, ""), requested_at)
    return times


def first_write(
    path: str, after: str, view: FileSystemView, commits: Mapping[str, CommitMetadata]
) -> str:
    """Return when rows were first written to a partition after an instant; the instant if never.

    The result is never too early, so that no partition expires too early.

    Args:
        path: the partition.
        after: the requested time of the commit that deleted the partition, or of an undone commit
            that created it.
        view: the file groups, whose slices show commits that are in no archive any more.
        commits: the metadata of the active commits, and of the archived ones that were requested
            since, by requested time.
    """
    recorded = (at for at, metadata in commits.items() if path in _written(metadata))
    slices = (one.base_instant for group in view.file_groups(path) for one in group.slices)
    return min((at for at in (*recorded, *slices) if at > after), default=after)


def end_of_lifetimes(lifetime: PartitionLifetime, now: datetime, clock: TimelineClock) -> str:
    """Return the instant time before which a lifetime must have begun to have ended now.

    Args:
        lifetime: how long the rows are kept.
        now: the current time.
        clock: the timeline's clock.
    """
    try:
        return clock.format(now - lifetime.older_than)
    except OverflowError:
        return ""  # the lifetime is longer than the time since the year 1


def expired_partitions(began: Mapping[str, str], end: str) -> list[str]:
    """Return at most ``MAX_EXPIRED`` partitions whose lifetime has ended, the oldest first.

    The instants with which Apache Hudi bootstraps a table, such as ``00000000000002``, are no
    times. So a partition of which no other commit is known does not expire.

    Args:
        began: the time at which the lifetime of each partition began, as an instant time.
        end: the result of ``end_of_lifetimes``.
    """
    expired = sorted((time, path) for path, time in began.items() if _FIRST_TIME <= time < end)
    return [path for _, path in expired[:MAX_EXPIRED]]


def _written(metadata: CommitMetadata) -> set[str]:
    return {stat.partition_path or "" for stat in metadata.write_stats}
