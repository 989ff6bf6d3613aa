"""``lakemark table restore``: rolls back every write after a commit."""

from __future__ import annotations

import argparse

from lakemark.errors import InvalidConfig
from lakemark.services.restore import check_restorable, pending_restore, plan_restore, restore
from lakemark.table import Table
from streamer.commands.service_table import (
    file_rows,
    open_ignoring_metadata_table,
    show_work,
    use_chosen_runner,
)
from streamer.commands.table import Facts


def execute(arguments: argparse.Namespace) -> int:
    """Print the instants that would be undone, or undo them.

    Raises:
        InvalidConfig: there is no such commit, or no pending restore.
        Refused: the state cannot be restored; the message gives the reason.
    """
    table = open_ignoring_metadata_table(arguments)
    if arguments.to is None and not pending_restore(table.timeline, table.store):
        message = "no restore is pending; name the commit to restore: --to INSTANT"
        raise InvalidConfig(message)
    if arguments.step == "run":
        use_chosen_runner(table, arguments)
        rows = _undo(table, arguments.to)
    else:
        rows = _plan(table, arguments.to)
    show_work(rows, arguments, "nothing to undo")
    return 0


def _plan(table: Table, restore_to: str | None) -> list[Facts]:
    pending = pending_restore(table.timeline, table.store)
    if pending is not None:
        plan = pending[1]
    else:
        plan = plan_restore(table.timeline, restore_to or "", table.properties.is_merge_on_read)
        check_restorable(plan, table.timeline, table.access)
    return [{"instant": one.requested_at, "action": one.action} for one in plan.instants]


def _undo(table: Table, restore_to: str | None) -> list[Facts]:
    had_metadata_table = bool(table.properties.metadata_partitions)
    _, undone = restore(table.access, restore_to, table.properties.is_merge_on_read)
    if had_metadata_table:
        table.rebuild_metadata_table()
    return [row for one in undone for row in file_rows(one)]
