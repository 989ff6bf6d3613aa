"""Restore an open table: undo every write after a commit."""

from __future__ import annotations

from lakemark.model.instant import Instant
from lakemark.model.restore_plan import RestorePlan
from lakemark.model.rollback_plan import RollbackPlan
from lakemark.operations.metadata_table import rebuild_metadata_table
from lakemark.operations.open_table import OpenTable
from lakemark.services import restore


def pending_restore(table: OpenTable) -> tuple[Instant, RestorePlan] | None:
    """Return the restore that has begun and not completed, if there is one."""
    return restore.pending_restore(table.timeline, table.store)


def plan_restore(table: OpenTable, restore_to: str | None) -> RestorePlan:
    """Return the instants that ``restore_table`` would undo now; errors as there."""
    pending = pending_restore(table)
    if pending is not None:
        return pending[1]
    is_merge_on_read = table.properties.is_merge_on_read
    plan = restore.plan_restore(table.timeline, restore_to or "", is_merge_on_read)
    restore.check_restorable(plan, table.timeline, table.context)
    return plan


def restore_table(table: OpenTable, restore_to: str | None) -> list[RollbackPlan]:
    """Bring back the state as of a commit, and build the metadata table again.

    If a restore is pending, it is completed instead.

    Args:
        table: the open table.
        restore_to: requested time of the commit, or of its savepoint; None only completes.

    Returns:
        The files that were deleted, of each instant.

    Raises:
        InvalidConfig: there is no such commit, another restore is pending, or none is to complete.
        Refused: the state cannot be brought back; the message says why.
    """
    had_metadata_table = bool(table.properties.metadata_partitions)
    is_merge_on_read = table.properties.is_merge_on_read
    _, undone = restore.restore(table.context, restore_to, is_merge_on_read)
    if had_metadata_table:
        rebuild_metadata_table(table)
    table.refresh()
    return undone
