"""Whether an instant that is not on the active timeline was rolled back or restored away.

The active timeline alone does not say. Its rollback may have been archived, so that nothing active
names the instant any more. Or a compaction was rolled back, executed again, completed and archived,
so that an active rollback names an instant whose files are read. The history knows both.
"""

from __future__ import annotations

from table.model.action import Action
from table.model.rollback import RollbackPlan
from table.timeline.archived_timeline import ArchivedTimeline, Part
from table.timeline.content import value_of
from table.timeline.timeline import Timeline
from table.timeline.timeline_store import TimelineStore


def completed_in(archived: ArchivedTimeline, instant: str) -> bool:
    """Whether the history holds a completed write of that requested time.

    Raises:
        SnapshotChanged: the archive was rewritten meanwhile.
        CorruptData: it is damaged.
    """
    found = archived.find(instant)
    return found is not None and found.action.is_write


def was_taken_back(
    store: TimelineStore, instant: str, timeline: Timeline, archived: ArchivedTimeline
) -> bool:
    """Whether a rollback or restore, active or archived, undid the instant for good.

    Args:
        store: reads the timeline's instants.
        instant: requested time of one that is not on the active timeline.
        timeline: the active one.
        archived: the history, loaded after it.

    Errors as for ``completed_in``.
    """
    if completed_in(archived, instant):
        return False
    return (
        bool(rollbacks_of(store, instant, timeline))
        or _was_restored(store, instant, timeline)
        or any(plan.instant == instant for plan in _archived_rollbacks(archived, instant))
    )


def rollbacks_of(store: TimelineStore, instant: str, timeline: Timeline) -> list[RollbackPlan]:
    """The completed rollbacks on the active timeline that undid the instant."""
    rollbacks = (i for i in timeline.completed(Action.ROLLBACK) if i.requested_at > instant)
    return [plan for plan in map(store.read_rollback, rollbacks) if plan.instant == instant]


def _archived_rollbacks(archived: ArchivedTimeline, since: str) -> list[RollbackPlan]:
    found = (i for i in archived.instants(since) if i.action is Action.ROLLBACK)
    records = ((i, archived.read(i, Part.METADATA)) for i in found)
    return [
        value_of(RollbackPlan.from_metadata, record, f"archived instant {instant}")
        for instant, record in records
        if record
    ]


def _was_restored(store: TimelineStore, instant: str, timeline: Timeline) -> bool:
    """Whether a restore undid the instant. Restores are not archived."""
    restores = (i.requested_at for i in timeline.completed(Action.RESTORE))
    plans = (store.read_restore_plan(name) for name in restores if name > instant)
    return any(instant == one.requested_at for plan in plans for one in plan.instants)
