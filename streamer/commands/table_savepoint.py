"""``lakemark table savepoint``: keeps the files of a commit from cleaning."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from datetime import UTC, datetime

from rich.console import Console

from lakemark.model.file_slice import FileSlice
from lakemark.model.savepoint_metadata import SavepointMetadata
from lakemark.services.savepoint import (
    SlicesAsOf,
    create_savepoint,
    delete_savepoint,
    plan_deletion,
    plan_savepoint,
    savepoints,
)
from lakemark.table import Table
from lakemark.timeline.timeline import Timeline
from streamer.commands.service_table import (
    open_ignoring_metadata_table,
    rows_of_files,
    show_work,
    view_at,
)
from streamer.commands.table import Facts, show_rows


def execute(arguments: argparse.Namespace) -> int:
    """Print the files of the savepoint; or create or delete it, and list all savepoints.

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


def _planned(table: Table, arguments: argparse.Namespace) -> SavepointMetadata:
    if arguments.create is None:
        return plan_deletion(table.access, arguments.delete)
    user, comment = arguments.user, arguments.comment
    return plan_savepoint(table.access, arguments.create, _slices_of(table), user, comment)


def _change(table: Table, arguments: argparse.Namespace) -> None:
    if arguments.create is not None:
        user, comment = arguments.user, arguments.comment
        create_savepoint(table.access, arguments.create, _slices_of(table), user, comment)
    elif arguments.delete is not None:
        delete_savepoint(table.access, arguments.delete)
    table.refresh()


def _slices_of(table: Table) -> SlicesAsOf:
    def slices_as_of(timeline: Timeline, instant: str) -> Iterable[FileSlice]:
        return view_at(table, timeline).as_of(instant).latest_slices()

    return slices_as_of


def _rows(table: Table) -> list[Facts]:
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
        for instant, kept in savepoints(table.timeline, table.store).items()
    ]
