"""Undo one instant of an open table."""

from __future__ import annotations

from lakemark.model.rollback_plan import RollbackPlan
from lakemark.operations.open_table import OpenTable
from lakemark.transaction import rollback


def plan_rollback(table: OpenTable, requested_at: str) -> RollbackPlan:
    """Return the files that ``roll_back_instant`` would delete now; errors as there."""
    return rollback.plan_rollback(table.context, requested_at)


def roll_back_instant(table: OpenTable, requested_at: str) -> RollbackPlan:
    """Undo one instant, completed or pending.

    If a rollback of it is pending, that rollback is completed. The plan of a compaction that had
    not completed stays pending.

    Returns:
        The files that were deleted.

    Raises:
        InvalidConfig: there is no such instant on the active timeline.
        Refused: it cannot be undone; the message says what to do first.
    """
    undone = rollback.roll_back_named(table.context, requested_at)
    table.refresh()
    return undone
