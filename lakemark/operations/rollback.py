"""Rolls back one instant of an open table."""

from __future__ import annotations

from lakemark.model.rollback_plan import RollbackPlan
from lakemark.operations.open_table import OpenTable
from lakemark.transaction import rollback


def plan_rollback(table: OpenTable, requested_at: str) -> RollbackPlan:
    """Return the files that ``roll_back_instant`` would delete now. Raises the same errors."""
    return rollback.plan_rollback(table.context, requested_at)


def roll_back_instant(table: OpenTable, requested_at: str) -> RollbackPlan:
    """Roll back one completed or pending instant.

    If a rollback of the instant is already pending, that rollback is completed. The plan of a
    compaction that had not completed stays pending.

    Returns:
        The files that were deleted.

    Raises:
        InvalidConfig: there is no such instant on the active timeline.
        Refused: the instant cannot be rolled back; the message contains the remedy.
    """
    undone = rollback.roll_back_named(table.context, requested_at)
    table.refresh()
    return undone
