"""``lakemark table upgrade`` and ``downgrade``: change the format version of a table."""

from __future__ import annotations

import argparse

from lakemark.errors import InvalidConfig
from lakemark.model.compaction_plan import CompactionOperation
from lakemark.model.file_slice import join
from lakemark.model.format_version import FormatVersion
from lakemark.operations.change_version import (
    PlannedChange,
    change_table_version,
    plan_version_change,
)
from lakemark.operations.open_table import OpenTable
from lakemark.upgrade.new_properties import changed_properties
from streamer.commands.service_table import chosen_runner, open_for_version_change, show_work
from streamer.commands.table import Facts
from streamer.wording import counted


def execute(arguments: argparse.Namespace) -> int:
    """Print the steps of the version change, or execute them.

    Raises:
        InvalidConfig: an upgrade would lower the version, or a downgrade would raise it.
        Refused: the change is not possible now; the message names the remedy.
        HudiError: the table cannot be read or written.
    """
    table = open_for_version_change(arguments, arguments.merger)
    version = FormatVersion(int(arguments.to))
    _check_direction(table, version, arguments.view)
    if arguments.step == "run":
        merger = (arguments.merger or [None])[0]
        change = change_table_version(table, version, chosen_runner(arguments), merger)
    else:
        change = plan_version_change(table, version)
    show_work(_rows(change), arguments, f"nothing to change: the table has version {version}")
    return 0


def _check_direction(table: OpenTable, version: FormatVersion, command: str) -> None:
    is_wrong = table.version > version if command == "upgrade" else table.version < version
    if is_wrong:
        other = "downgrade" if command == "upgrade" else "upgrade"
        message = (
            f"table {table.location.url} has version {table.version:d}; "
            f"to change it to {version:d}: lakemark table {other} TABLE --to {version:d}"
        )
        raise InvalidConfig(message)


def _rows(planned: PlannedChange) -> list[Facts]:
    change = planned.change
    rows = [_row("roll back", instant) for instant in planned.rolled_back]
    rows += [
        _row("compact", join(one.group.partition_path, one.group.file_id), _logs(one))
        for one in planned.compacted
    ]
    if not change.is_none:
        rows += [_row("drop", f"metadata partition {name}") for name in change.metadata_partitions]
    rows += [_row("rewrite", move.source, move.target) for move in change.moves]
    rows += [
        _row("archive", f"{one.requested_at}.{one.action}", f"in version {change.after.version}")
        for one in change.archived
    ]
    return rows + [
        _row("set", f"{name}={old}" if old is not None else name, new or "")
        for name, old, new in changed_properties(change.before, change.after)
    ]


def _logs(operation: CompactionOperation) -> str:
    return f"{counted(len(operation.log_files), 'log')} merged"


def _row(step: str, what: str, becomes: str = "") -> Facts:
    return {"step": step, "what": what, "becomes": becomes}
