"""``lakemark table restore``: rolls back every write after a commit, or all writes."""

from __future__ import annotations

import argparse

from lakemark.errors import InvalidConfig
from lakemark.model.restore_plan import EMPTY_TABLE
from lakemark.operations.open_table import OpenTable
from lakemark.operations.restore import (
    archived_writes,
    pending_restore,
    plan_restore,
    restore_table,
)
from streamer.commands.service_table import (
    file_rows,
    open_ignoring_metadata_table,
    show_work,
)
from streamer.commands.table import Facts


def execute(arguments: argparse.Namespace) -> int:
    """Print the instants that a restore would roll back, or execute the restore.

    Raises:
        InvalidConfig: there is no such commit, or no commit was named and no restore is pending.
        Refused: the table cannot be restored to this commit; the message gives the reason.
    """
    table = open_ignoring_metadata_table(arguments)
    restore_to = EMPTY_TABLE if arguments.to_empty else arguments.to
    if restore_to is None and not pending_restore(table):
        message = (
            "no restore is pending; name the commit to restore, --to INSTANT, or --to-empty to "
            "undo all commits"
        )
        raise InvalidConfig(message)
    rows = _undo(table, restore_to) if arguments.step == "run" else _plan(table, restore_to)
    show_work(rows, arguments, "nothing to undo")
    return 0


def _plan(table: OpenTable, restore_to: str | None) -> list[Facts]:
    plan = plan_restore(table, restore_to)
    archived = archived_writes(table) if plan.empties_table else []
    undone = (*plan.instants, *archived)
    return [{"instant": one.requested_at, "action": one.action} for one in undone]


def _undo(table: OpenTable, restore_to: str | None) -> list[Facts]:
    return [row for one in restore_table(table, restore_to) for row in file_rows(one)]
