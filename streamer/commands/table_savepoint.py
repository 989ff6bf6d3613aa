"""``lakemark table savepoint``: protects the files of a commit from cleaning, or ends that."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from rich.console import Console

from lakemark.model.savepoint_metadata import SavepointMetadata
from lakemark.operations.open_table import OpenTable
from lakemark.operations.savepoint import (
    create_savepoint,
    delete_savepoint,
    expire_savepoints,
    find_expired_savepoints,
    list_savepoints,
    plan_savepoint,
    plan_savepoint_deletion,
)
from streamer.commands.service_table import (
    open_ignoring_metadata_table,
    rows_of_files,
    show_work,
)
from streamer.commands.table import Facts, show_rows


def execute(arguments: argparse.Namespace) -> int:
    """Print the files of a planned savepoint; or create or delete some, and list all savepoints.

    Raises:
        InvalidConfig: there is no such commit, or no such savepoint; or the age is not positive.
        Refused: files of the commit are missing, or an operation that changes them is pending.
    """
    table = open_ignoring_metadata_table(arguments)
    is_change = arguments.create or arguments.delete or arguments.delete_older_than is not None
    if is_change and arguments.step == "plan":
        planned = _planned(table, arguments).items()
        rows = [row for name, kept in planned for row in _rows_of_plan(name, kept)]
        show_work(rows, arguments, "no savepoints")
    else:
        _change(table, arguments)
        if_empty = "no savepoints are left" if is_change else "no savepoints"
        show_rows(_rows(table), Console(), arguments.json, if_empty)
    return 0


def _planned(table: OpenTable, arguments: argparse.Namespace) -> dict[str, SavepointMetadata]:
    """Return the savepoints that would be created or deleted, by the time of their commit."""
    if arguments.create is not None:
        planned = plan_savepoint(table, arguments.create, arguments.user, arguments.comment)
        return {arguments.create: planned}
    if arguments.delete is not None:
        return {arguments.delete: plan_savepoint_deletion(table, arguments.delete)}
    return find_expired_savepoints(table, arguments.delete_older_than)


def _rows_of_plan(name: str, kept: SavepointMetadata) -> list[Facts]:
    """Return one row for each file; one row if there are none, as in an empty table."""
    return rows_of_files(name, kept.files) or [{"instant": name, "partition": None, "file": None}]


def _change(table: OpenTable, arguments: argparse.Namespace) -> None:
    if arguments.create is not None:
        create_savepoint(table, arguments.create, arguments.user, arguments.comment)
    elif arguments.delete is not None:
        delete_savepoint(table, arguments.delete)
    elif arguments.delete_older_than is not None:
        expire_savepoints(table, arguments.delete_older_than)


def _rows(table: OpenTable) -> list[Facts]:
    return [
        {
            "instant": instant,
            "created at": table.store.clock.format(
                datetime.fromtimestamp(kept.created_at_ms / 1000, UTC)
            ),
            "user": kept.user,
            "comment": kept.comment,
            "partitions": len(kept.files),
            "files": sum(map(len, kept.files.values())),
        }
        for instant, kept in list_savepoints(table).items()
    ]
