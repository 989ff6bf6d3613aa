"""Restores an open table to an earlier commit, or to the empty table: undoes every later write."""

from __future__ import annotations

from lakemark.model.instant import Instant
from lakemark.model.restore_plan import RestorePlan, UndoneInstant
from lakemark.model.rollback_plan import RollbackPlan
from lakemark.operations.metadata_table import rebuild_metadata_table
from lakemark.operations.open_table import OpenTable
from lakemark.services import restore
from lakemark.storage.properties_file import read_properties


def pending_restore(table: OpenTable) -> tuple[Instant, RestorePlan] | None:
    """Return the pending restore and its plan, if there is one."""
    return restore.pending_restore(table.timeline, table.store)


def plan_restore(table: OpenTable, restore_to: str | None) -> RestorePlan:
    """Return the plan of ``restore_table``. Raises what ``restore_table`` raises."""
    pending = pending_restore(table)
    if pending is not None:
        restore.check_same_target(*pending, restore_to)
        return pending[1]
    is_merge_on_read = table.properties.is_merge_on_read
    plan = restore.plan_restore(table.timeline, restore_to or "", is_merge_on_read)
    restore.check_restorable(plan, table.timeline, table.context)
    return plan


def archived_writes(table: OpenTable) -> list[UndoneInstant]:
    """Return the archived writes, the newest first, which a restore to the empty table undoes.

    Raises:
        SnapshotChanged: the archive was rewritten meanwhile; call this again.
        CorruptData: the archive is damaged.
    """
    archived = table.store.load_archived().instants()
    active = {instant.requested_at for instant in table.timeline.instants}
    return [
        UndoneInstant(instant.requested_at, instant.action)
        for instant in reversed(archived)
        if instant.action.is_write and instant.requested_at not in active
    ]


def restore_table(table: OpenTable, restore_to: str | None) -> list[RollbackPlan]:
    """Restore the table to a commit, and rebuild the metadata table.

    If a restore to this commit is pending, the pending restore is completed.

    Args:
        table: the open table.
        restore_to: the requested time of the commit. A savepoint has the same time as its commit.
            ``EMPTY_TABLE`` to undo all commits. None to complete a pending restore.

    Returns:
        The deleted files of each undone instant.

    Raises:
        InvalidConfig: there is no such commit, a restore to another commit is pending, or there is
            no pending restore to complete.
        Refused: the table cannot be restored to the commit; the message contains the reason.
    """
    had_metadata_table = bool(table.properties.metadata_partitions)
    is_merge_on_read = table.properties.is_merge_on_read
    _, undone = restore.restore(table.context, restore_to, is_merge_on_read)
    if had_metadata_table:
        rebuild_metadata_table(table)
    else:
        table.snapshot.forget_metadata_table(read_properties(table.storage))
    table.refresh()
    return undone
