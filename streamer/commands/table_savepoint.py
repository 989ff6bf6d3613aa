"""``lakemark table savepoint``: the files of a commit's state are kept from cleaning."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from rich.console import Console

from lakemark.model.savepoint import SavepointMetadata
from lakemark.operations.open_table import OpenTable
from lakemark.operations.savepoint import (
    create_savepoint,
    delete_savepoint,
    list_savepoints,
    plan_savepoint,
    plan_savepoint_deletion,
)
from streamer.commands.service_table import (
    open_whatever_indexes,
    rows_of_files,
    show_work,
)
from streamer.commands.table import Facts, show_rows


def execute(arguments: argparse.Namespace) -> int:
    """Print the files that would be kept, or let go; or do it, and list the savepoints.

    Raises:
        InvalidConfig: no such commit, or no such savepoint.
        Refused: the state is not whole, or something that changes it is under way.
    """
    table = open_whatever_indexes(arguments)
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
