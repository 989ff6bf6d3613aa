"""Finds out whether a rollback or a restore has undone an instant that is not active.

The active timeline alone does not show this. A rollback may have been archived, so that no active
rollback names the undone instant. Or a compaction was rolled back, executed again, completed and
archived. Then an active rollback names the compaction, although its files must be read. The history
shows in both situations whether the instant was undone. But the history may have been shortened. So
a rollback of a table service, which may be executed again under the same requested time, counts
only if the history reaches back to before that time, or if the instant was never archived.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from lakemark.model.action import Action
from lakemark.model.instant import Instant
from lakemark.model.restore_plan import RestorePlan, records_deleted_archived
from lakemark.model.rollback_plan import RollbackPlan
from lakemark.timeline.archived_timeline import ArchivedTimeline, Part, just_after
from lakemark.timeline.content import build_value
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore

#: Actions that are not executed again after their rollback. Clusterings of table version 6 are
#: ``replacecommit``. A rollback of another program may lack the action.
_ONCE = frozenset({Action.COMMIT, Action.DELTA_COMMIT})


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

    An instant that was undone, but completed later, is not returned. A restore to the empty table
    has also undone archived instants, which its plan does not name, if its content records that it
    deleted their files. Apache Hudi keeps these files. Raises what ``find_completed`` raises.

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
    rollbacks = [
        *_archived_rollbacks(archived, since),
        *rollbacks_since(store, since, timeline),
    ]
    rolled_back = {plan.instant for plan in rollbacks}
    repeatable = {plan.instant for plan in rollbacks if plan.action not in _ONCE}
    uncertain = {one for one in unknown & repeatable if _may_be_lost(one, timeline, archived)}
    restores = tuple(i for i in archived.instants(since) if i.action is Action.RESTORE)
    restored = _restored_since(store, since, timeline) | _restored_before(archived, restores)
    emptied_at = max(find_emptied_at(store, timeline), _emptied_before(archived, restores))
    return {
        instant
        for instant in unknown
        if instant in restored
        or instant < emptied_at
        or (instant in rolled_back and instant not in uncertain)
    }


def find_emptied_at(store: TimelineStore, timeline: Timeline) -> str:
    """Return the requested time of the last restore that deleted all files; "" if there is none."""
    restores = timeline.completed(Action.RESTORE)
    emptying = (i for i in restores if store.read_restore_plan(i.requested_at).empties_table)
    return max((i.requested_at for i in emptying if store.has_deleted_archived(i)), default="")


def _may_be_lost(instant: str, timeline: Timeline, archived: ArchivedTimeline) -> bool:
    """Return whether an instant may have completed, and is missing in a shortened archive."""
    return timeline.is_archived(instant) and not archived.reaches_before(instant)


def rollbacks_since(store: TimelineStore, since: str, timeline: Timeline) -> list[RollbackPlan]:
    """Return the completed rollbacks on the active timeline that were requested after ``since``."""
    rollbacks = (i for i in timeline.completed(Action.ROLLBACK) if i.requested_at > since)
    return [store.read_rollback(rollback) for rollback in rollbacks]


def _archived_rollbacks(archived: ArchivedTimeline, since: str) -> list[RollbackPlan]:
    found = (i for i in archived.instants(since) if i.action is Action.ROLLBACK)
    return [
        build_value(RollbackPlan.from_metadata, record, f"archived instant {instant}")
        for instant, record in archived.read_all(found, Part.METADATA)
        if record
    ]


def _restored_before(archived: ArchivedTimeline, restores: Iterable[Instant]) -> set[str]:
    """Return the instants that archived restores name."""
    records = archived.read_all(restores, Part.PLAN)
    plans = (build_value(RestorePlan.from_record, record, f"{i}") for i, record in records)
    return {one.requested_at for plan in plans for one in plan.instants}


def _emptied_before(archived: ArchivedTimeline, restores: Iterable[Instant]) -> str:
    """Return the requested time of the last archived restore that deleted all files; "" if none."""
    records = archived.read_all(restores, Part.METADATA)
    return max((i.requested_at for i, one in records if records_deleted_archived(one)), default="")


def _restored_since(store: TimelineStore, since: str, timeline: Timeline) -> set[str]:
    """Return the instants that completed restores of the active timeline name."""
    restores = (i.requested_at for i in timeline.completed(Action.RESTORE))
    plans = (store.read_restore_plan(name) for name in restores if name > since)
    return {one.requested_at for plan in plans for one in plan.instants}
