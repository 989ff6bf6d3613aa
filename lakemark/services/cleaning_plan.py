"""Chooses the files to clean from a view of the table; reads no files.

A file slice may be deleted if no query within the retention reads it. A policy that counts commits
or hours has an earliest commit to retain. Queries as of this commit, or as of a later one, must
find all rows. So each file group keeps the slices that began at or after this commit, and the
newest slice before it. A policy that counts file versions keeps the newest slices of each file
group. Every policy keeps the newest slice, slices that a pending service reads, and slices with a
file that a savepoint keeps. Source: ``CleanPlanner``, ``CleanerUtils`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from lakemark.model.action import COMMITS
from lakemark.model.clean_plan import CleanPlan
from lakemark.model.file_slice import BaseFile, FileSlice, LogFile
from lakemark.model.instant import Instant
from lakemark.timeline.clock import TimelineClock
from lakemark.timeline.timeline import Timeline
from lakemark.view.file_group import FileGroup
from lakemark.view.file_system_view import FileSystemView

#: A hundred years. No table is older, and more hours could lead to a date before the year 1.
_ALL_HOURS = 100 * 365 * 24


class Retention(StrEnum):
    """What a policy counts; the values are the names in Apache Hudi (``HoodieCleaningPolicy``)."""

    COMMITS = "KEEP_LATEST_COMMITS"
    HOURS = "KEEP_LATEST_BY_HOURS"
    FILE_VERSIONS = "KEEP_LATEST_FILE_VERSIONS"


@dataclass(frozen=True, slots=True)
class CleaningPolicy:
    """How far back queries can go; the defaults are those of Apache Hudi.

    Attributes:
        retention: which of ``commits``, ``hours`` and ``file_versions`` applies.
        commits: keep this many commits (``hoodie.clean.commits.retained``).
        hours: keep this many hours (``hoodie.clean.hours.retained``).
        file_versions: keep this many slices of each group (``hoodie.clean.fileversions.retained``).
        every_commits: plan a clean after this many commits since the last clean
            (``hoodie.clean.trigger.max.commits``).
        empty_clean_after_h: if there was no clean for this many hours and there is nothing to
            delete, record an empty clean. Then the next plan need not read all partitions. None
            means never (``hoodie.write.empty.clean.interval.hours``).
        ends_time_travel: with ``FILE_VERSIONS``, whether the clean records that queries can no
            longer travel to earlier commits. Otherwise such queries miss the deleted rows, also in
            Apache Hudi, because this policy has no earliest commit to retain.
    """

    retention: Retention = Retention.COMMITS
    commits: int = 10
    hours: int = 24
    file_versions: int = 3
    every_commits: int = 1
    empty_clean_after_h: float | None = None
    ends_time_travel: bool = False


@dataclass(frozen=True, slots=True)
class Savepointed:
    """The commits and files that the savepoints of a table keep.

    Attributes:
        instants: requested times of the commits with a savepoint.
        files: names of the files that the savepoints keep.
    """

    instants: tuple[str, ...] = ()
    files: frozenset[str] = frozenset()


def commits_by_request(timeline: Timeline) -> list[Instant]:
    """Return the completed commits, sorted by requested time as in Apache Hudi."""
    return sorted(timeline.completed(*COMMITS), key=lambda instant: instant.requested_at)


def earliest_retained(
    timeline: Timeline, policy: CleaningPolicy, now: datetime, clock: TimelineClock
) -> Instant | None:
    """Return the oldest commit that queries may travel to; None if there is no such limit.

    There is no limit if all commits are retained, or if the policy counts file versions. The result
    is never later than the newest commit before a pending write. The next clean searches only the
    commits from this result on, so it finds the files that the pending write replaces.

    Args:
        timeline: the table's timeline.
        policy: how far back queries can go.
        now: the current time, for a policy that counts hours.
        clock: the timeline's clock.
    """
    commits = commits_by_request(timeline)
    return _before_pending(timeline, commits, _first_retained(commits, policy, now, clock))


def _before_pending(
    timeline: Timeline, commits: Sequence[Instant], chosen: Instant | None
) -> Instant | None:
    """Return the chosen commit, or the newest commit before a pending write that is older."""
    pending = next((i for i in timeline.pending() if i.action.is_write), None)
    if chosen is None or pending is None or chosen.requested_at <= pending.requested_at:
        return chosen
    older = [i for i in commits if i.requested_at < pending.requested_at]
    return older[-1] if older else None


def plan(
    timeline: Timeline,
    view: FileSystemView,
    policy: CleaningPolicy,
    earliest: Instant | None,
    partitions: Collection[str] | None = None,
    savepointed: Savepointed | None = None,
) -> CleanPlan:
    """Return a plan with the files to delete, which may be empty.

    Args:
        timeline: the table's timeline.
        view: the latest state of the table as of ``timeline``.
        policy: which files are retained.
        earliest: the result of ``earliest_retained``.
        partitions: the partitions to search; None for all.
        savepointed: the commits and files that savepoints keep.
    """
    kept = savepointed or Savepointed()
    by_versions = policy.retention is Retention.FILE_VERSIONS
    files: dict[str, tuple[str, ...]] = {}
    if by_versions or earliest is not None:
        for group, slices in _expired(view, policy, earliest, partitions):
            names = tuple(_names(group, slices, view, kept.files))
            partition = group.id.partition_path
            if names:
                files[partition] = (*files.get(partition, ()), *names)
    commits = commits_by_request(timeline)
    newest = commits[-1] if by_versions and policy.ends_time_travel and commits else None
    if newest is not None:
        earliest = _before_pending(timeline, commits, newest)
    return CleanPlan(
        policy=policy.retention.value,
        files=files,
        earliest_retained=earliest.requested_at if earliest else "",
        earliest_action=earliest.action.value if earliest else "",
        earliest_readable=newest.requested_at if newest and newest != earliest else "",
        last_completed=commits[-1].requested_at if commits else "",
        savepoints=kept.instants,
    )


def _first_retained(
    commits: Sequence[Instant], policy: CleaningPolicy, now: datetime, clock: TimelineClock
) -> Instant | None:
    if policy.retention is Retention.COMMITS:
        return commits[-policy.commits] if len(commits) > policy.commits else None
    if policy.retention is Retention.HOURS:
        since = clock.format(now - timedelta(hours=min(policy.hours, _ALL_HOURS)))
        return next((i for i in commits if i.requested_at >= since), None)
    return None


def _expired(
    view: FileSystemView,
    policy: CleaningPolicy,
    earliest: Instant | None,
    partitions: Collection[str] | None,
) -> Iterator[tuple[FileGroup, Sequence[FileSlice]]]:
    """Yield each file group and its expired slices; savepoints are not considered."""
    for group in _groups(view, partitions):
        if group.id not in view.clusterings:
            yield group, _expired_slices(group, policy, earliest)
    for group in view.replaced_groups():
        is_over = earliest is None or view.replaced[group.id] < earliest.requested_at
        if is_over and (partitions is None or group.id.partition_path in partitions):
            yield group, group.slices


def _groups(view: FileSystemView, partitions: Collection[str] | None) -> Iterable[FileGroup]:
    if partitions is None:
        return view.file_groups()
    return (group for partition in sorted(partitions) for group in view.file_groups(partition))


def _expired_slices(
    group: FileGroup, policy: CleaningPolicy, earliest: Instant | None
) -> Sequence[FileSlice]:
    """Return the expired slices of a visible group; savepoints are not considered."""
    free = _before_planned(group)
    if earliest is None:
        # What a pending compaction reads and writes counts as one version.
        versions = policy.file_versions - (len(free) < len(group.slices))
        return free[: max(0, len(free) - versions)]
    # A query as of the earliest commit reads the newest slice that began before it.
    old = [s for s in group.slices if s.base_instant < earliest.requested_at][:-1]
    return old[: len(free)]


def _before_planned(group: FileGroup) -> Sequence[FileSlice]:
    """Return the slices that are older than the slice that a pending compaction rewrites.

    All slices are returned if no compaction is pending.
    """
    if group.compaction is None:
        return group.slices
    return [s for s in group.slices if s.base_instant < group.compaction][:-1]


def _names(
    group: FileGroup, slices: Iterable[FileSlice], view: FileSystemView, kept: frozenset[str]
) -> Iterator[str]:
    """Yield the names of the slices' files, including files of change data capture.

    A slice is skipped if one of its files is in ``kept``.
    """
    chosen = {s.base_instant: s for s in slices if not kept.intersection(_own_names(s))}
    if not chosen:
        return
    for file_slice in chosen.values():
        yield from (str(log.name) for log in file_slice.logs)
    starts = [s.base_instant for s in group.slices]
    for name, file in group.files.items():
        # The base file of another attempt is included, although the slice does not have it.
        is_base = isinstance(file, BaseFile) and file.name.instant in chosen
        if is_base or (isinstance(file, LogFile) and _cdc_start(file, starts, view) in chosen):
            yield name


def _own_names(file_slice: FileSlice) -> set[str]:
    bases = [] if file_slice.base is None else [str(file_slice.base.name)]
    return {*bases, *(str(log.name) for log in file_slice.logs)}


def _cdc_start(log: LogFile, starts: Sequence[str], view: FileSystemView) -> str | None:
    """Return the start of the slice that a CDC file belongs to; None for any other log."""
    if not log.name.is_cdc:
        return None
    written_at = log.name.instant
    if not view.version.logs_name_their_slice:
        written_at = view.timeline.completed_at(written_at) or written_at
    position = bisect_right(starts, written_at)
    return starts[position - 1] if position else None
