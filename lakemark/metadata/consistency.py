"""Checks that a metadata table contains every commit and clean of its data table, and no others.

If the metadata table lacks a commit, readers do not see the commit's rows. If the metadata table
lacks a clean, or has a commit that the data table does not have, it lists files that do not exist.
Such a metadata table must not be used, and later commits do not repair it. Rollbacks and restores
are not compared, because Apache Hudi 1.2.0 writes them to the metadata table with different
requested times. Also, the commits that they undo no longer exist.
"""

from __future__ import annotations

from dataclasses import replace

from lakemark.metadata.valid_instants import (
    INITIAL,
    MILLIS_DIGITS,
    first_initial,
    latest_completion,
)
from lakemark.model.action import COMMITS, Action
from lakemark.model.instant import Instant
from lakemark.timeline.timeline import Timeline

#: Actions whose instants have the same requested time in the data table and the metadata table.
SHARED_ACTIONS = (*COMMITS, Action.CLEAN)


def find_inconsistency(data: Timeline, metadata: Timeline) -> str | None:
    """Compare the timelines of a table and its metadata table, for a writer under the lock.

    Args:
        data: the data table's timeline, loaded while no other writer can publish.
        metadata: the metadata table's timeline.

    Returns:
        A description of the first inconsistency; None if the timelines match.
    """
    missing = next((i for i in _expected(data, metadata) if not _has(metadata, i)), None)
    if missing is not None:
        return f"it lacks {missing.action} {missing.requested_at}"
    unknown = next(iter(_unknown_commits(data, metadata)), None)
    if unknown is not None:
        return f"it has commit {unknown}, which the table does not have"
    return None


def find_inconsistency_for_readers(data: Timeline, metadata: Timeline) -> str | None:
    """Compare the timelines while other writers may publish; see ``find_inconsistency``.

    Args:
        data: the data table's timeline, loaded before ``metadata``. A commit reaches the metadata
            table first, so ``metadata`` must have all commits of ``data``. Commits of the metadata
            table that were requested after ``data`` was loaded are ignored.
        metadata: the metadata table's timeline.
    """
    newest = data.newest_time or ""
    seen = [i for i in metadata.instants if i.requested_at <= newest]
    return find_inconsistency(data, replace(metadata, instants=tuple(seen)))


def _expected(data: Timeline, metadata: Timeline) -> list[Instant]:
    """Return the data table's instants that the metadata table's active timeline must have.

    These are the instants that completed after the metadata table was built. If the instant that
    built it is archived, these are the instants that were requested after the start of the metadata
    table's active timeline, and completed after the first completion there. A compaction that was
    planned long before it was executed may have the oldest requested time. Instants that were
    requested after it may have completed before the metadata table was built.
    """
    shared, first = data.completed(*SHARED_ACTIONS), first_initial(metadata)
    start = "" if first else metadata.start or ""
    known = [first] if first else metadata.completed()
    since = min(map(latest_completion, known), default="")
    return [i for i in shared if i.requested_at > start and (i.completed_at or "") > since]


def _has(metadata: Timeline, instant: Instant) -> bool:
    found = metadata.find(instant.requested_at)
    return found is not None and found.is_completed


def _unknown_commits(data: Timeline, metadata: Timeline) -> list[str]:
    """Return the metadata table's commits that match no instant of the data table.

    Commits that were requested during a restore are omitted.
    """
    start, restores = data.start, data.completed(Action.RESTORE)
    return [
        i.requested_at
        for i in metadata.completed(Action.DELTA_COMMIT)
        if not i.requested_at.startswith(INITIAL)
        and data.find(i.requested_at[:MILLIS_DIGITS]) is None
        and (start is None or i.requested_at > start)
        and not any(r.requested_at < i.requested_at < (r.completed_at or "") for r in restores)
        # In version 6, cleans and the commits after a savepoint are archived before older commits.
        # So an instant that is newer than the start may be archived.
        and data.archived_time(i.requested_at[:MILLIS_DIGITS]) is None
    ]
