"""The partitions that a sync compares with a catalog: all, or those that recent commits changed.

A catalog records the time of the last commit that it knows. The commits that completed later name
the partitions that may be new, or empty. All partitions are compared instead if the catalog records
no time, if commits since then were archived, or if a commit was undone since then.

Source: ``HoodieSyncClient.getWrittenPartitionsSince`` and ``getDroppedPartitionsSince`` of Apache
Hudi, which choose commits in the same way. Apache Hudi does not look for undone commits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakemark.catalogs.table_definition import LAST_COMMIT, LAST_COMPLETION
from lakemark.model.action import COMMITS, Action
from lakemark.model.instant import Instant
from lakemark.operations.open_table import OpenTable
from lakemark.timeline.timeline import Timeline

_UNDOING = (Action.ROLLBACK, Action.RESTORE)


@dataclass(frozen=True, slots=True)
class ChangedPartitions:
    """Partitions of a table that may differ from those in a catalog.

    Attributes:
        stored: the paths of partitions that have rows.
        gone: the paths of partitions that have no rows any more.
        are_all: whether ``stored`` contains all partitions, so that any other partition in the
            catalog is gone, too.
    """

    stored: frozenset[str]
    gone: frozenset[str]
    are_all: bool


def find_changed(table: OpenTable, parameters: Mapping[str, str] | None) -> ChangedPartitions:
    """Return the partitions to compare.

    Args:
        table: the table; only its cached timeline is used.
        parameters: the parameters of the table in the catalog; None to compare all partitions.
    """
    since = None if parameters is None else _commits_since(table.timeline, parameters)
    if since is None:
        stored = {one.group.partition_path for one in table.view().latest_slices()}
        return ChangedPartitions(frozenset(stored), frozenset(), are_all=True)
    written, replaced = set[str](), set[str]()
    for instant in since:
        metadata = table.store.read_commit(instant)
        written |= {stat.partition_path or "" for stat in metadata.write_stats}
        replaced |= metadata.replaced_partitions
    if not replaced:
        return ChangedPartitions(frozenset(written), frozenset(), are_all=False)
    view = table.view()  # a partition may have been deleted and written again, in any order
    stored = {path for path in written | replaced if view.latest_slices(path)}
    return ChangedPartitions(
        frozenset(stored), frozenset((written | replaced) - stored), are_all=False
    )


def newest_commit(timeline: Timeline) -> dict[str, str]:
    """Return the parameters that record the newest commit; empty if there is no commit."""
    commits = timeline.completed(*COMMITS)
    if not commits:
        return {}
    newest = max(commits, key=lambda one: one.requested_at)
    return {LAST_COMMIT: newest.requested_at, LAST_COMPLETION: _completion(commits[-1])}


def _commits_since(timeline: Timeline, parameters: Mapping[str, str]) -> list[Instant] | None:
    """Return the commits that a catalog does not know; None if they are not certain."""
    recorded, last = parameters.get(LAST_COMPLETION), parameters.get(LAST_COMMIT)
    if not recorded or not last or timeline.start is None or last < timeline.start:
        return None
    if any(_completion(one) > recorded for one in timeline.completed(*_UNDOING)):
        return None
    if timeline.completed_at(last) is None:  # it was undone, and so was perhaps its rollback
        return None
    return [one for one in timeline.completed(*COMMITS) if _completion(one) > recorded]


def _completion(instant: Instant) -> str:
    return instant.completed_at or instant.requested_at
