"""``lakemark table savepoint``: protects the files of a commit from cleaning."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from rich.console import Console

from lakemark.model.savepoint_metadata import SavepointMetadata
from lakemark.operations.open_table import OpenTable
from lakemark.operations.savepoint import (
    create_savepoint,
    delete_savepoint,
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
    """Print the files of a planned savepoint; or create or delete one, and list all savepoints.

    Raises:
        InvalidConfig: there is no such commit, or no such savepoint.
        Refused: files of the commit are missing, or an operation that changes them is pending.
    """
    table = open_ignoring_metadata_table(arguments)
    named = arguments.create or arguments.delete
    if named and arguments.step == "plan":
        rows = rows_of_files(named, _planned(table, arguments).files)
        show_work(rows, arguments, "no files")
    else:
        _change(table, arguments)
        show_rows(_rows(table), Console(), arguments.json, "no savepoints")
    return 0


def _planned(table: OpenTable, arguments: argparse.Namespace) -> SavepointMetadata:
    if arguments.create is None:
        return plan_savepoint_deletion(table, arguments.delete)
    return plan_savepoint(table, arguments.create, arguments.user, arguments.comment)


def _change(table: OpenTable, arguments: argparse.Namespace) -> None:
    if arguments.create is not None:
        create_savepoint(table, arguments.create, arguments.user, arguments.comment)
    elif arguments.delete is not None:
        delete_savepoint(table, arguments.delete)


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
