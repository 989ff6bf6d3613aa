"""Finds out whether a rollback or a restore has undone an instant that is not active.

The active timeline alone does not show this. A rollback may have been archived, so that no active
rollback names the undone instant. Or a compaction was rolled back, executed again, completed and
archived. Then an active rollback names the compaction, although its files must be read. The history
shows in both situations whether the instant was undone.
"""

from __future__ import annotations

from collections.abc import Collection

from lakemark.model.action import Action
from lakemark.model.rollback_plan import RollbackPlan
from lakemark.timeline.archived_timeline import ArchivedTimeline, Part, just_after
from lakemark.timeline.content import build_value
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore


def find_completed(archived: ArchivedTimeline, instants: Collection[str]) -> set[str]:
    """Return which of the instants, given by requested time, are completed writes in the history.

    Only archive files whose range may contain such an instant are opened.

    Raises:
        SnapshotChanged: the archive was rewritten in the meantime.
        CorruptData: the archive is damaged.
    """
    found: set[str] = set()
    for file in archived.files:
        wanted = {name for name in instants if file.may_hold(name, just_after(name))}
        if wanted - found:
            found |= wanted & {i.requested_at for i in file.instants() if i.action.is_write}
    return found


def find_undone(
    store: TimelineStore, instants: Collection[str], timeline: Timeline, archived: ArchivedTimeline
) -> set[str]:
    """Return which of the instants an active or archived rollback or restore has undone for good.

    An instant that was undone, but completed later, is not returned. Raises what
    ``find_completed`` raises.

    Args:
        store: the reader of the table's instants.
        instants: requested times of instants that are not on the active timeline.
        timeline: the active timeline.
        archived: the history, loaded after the active timeline.
    """
    unknown = set(instants) - find_completed(archived, instants)
    if not unknown:
        return set()
    since = min(unknown)
    rolled_back = {plan.instant for plan in _archived_rollbacks(archived, since)}
    rolled_back |= {plan.instant for plan in rollbacks_since(store, since, timeline)}
    return unknown & (rolled_back | _undone_by_restores(store, since, timeline))


def rollbacks_since(store: TimelineStore, since: str, timeline: Timeline) -> list[RollbackPlan]:
    """Return the completed rollbacks on the active timeline that were requested after ``since``."""
    rollbacks = (i for i in timeline.completed(Action.ROLLBACK) if i.requested_at > since)
    return [store.read_rollback(rollback) for rollback in rollbacks]


def _archived_rollbacks(archived: ArchivedTimeline, since: str) -> list[RollbackPlan]:
    found = (i for i in archived.instants(since) if i.action is Action.ROLLBACK)
    records = ((i, archived.read(i, Part.METADATA)) for i in found)
    return [
        build_value(RollbackPlan.from_metadata, record, f"archived instant {instant}")
        for instant, record in records
        if record
    ]


def _undone_by_restores(store: TimelineStore, since: str, timeline: Timeline) -> set[str]:
    """Return the instants that restores have undone. Restores are not archived."""
    restores = (i.requested_at for i in timeline.completed(Action.RESTORE))
    plans = (store.read_restore_plan(name) for name in restores if name > since)
    return {one.requested_at for plan in plans for one in plan.instants}
