"""``lakemark table savepoint``: the files of a commit's state are kept from cleaning."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from datetime import UTC, datetime

from rich.console import Console

from streamer.commands.service_table import open_whatever_indexes, view_at
from streamer.commands.table import Facts, show_rows
from table.hudi_table import HudiTable
from table.model.file_slice import FileSlice
from table.services.savepoint import create_savepoint, delete_savepoint, savepoints
from table.timeline.clock import format_instant
from table.timeline.timeline import Timeline


def execute(arguments: argparse.Namespace) -> int:
    """Make one, delete one, and list those that there are then.

    Raises:
        InvalidConfig: no such commit, or no such savepoint.
        Refused: the state is not whole, or something that changes it is under way.
    """
    table = open_whatever_indexes(arguments)
    if arguments.create is not None:

        def slices_as_of(timeline: Timeline, instant: str) -> Iterable[FileSlice]:
            return view_at(table, timeline).as_of(instant).latest_slices()

        user, comment = arguments.user, arguments.comment
        create_savepoint(table.access, arguments.create, slices_as_of, user, comment)
    elif arguments.delete is not None:
        delete_savepoint(table.access, arguments.delete)
    table.refresh()
    show_rows(_rows(table), Console(), arguments.json)
    return 0


def _rows(table: HudiTable) -> list[Facts]:
    return [
        {
            "instant": instant,
            "created at": format_instant(datetime.fromtimestamp(kept.created_at_ms / 1000, UTC)),
            "user": kept.user,
            "comment": kept.comment,
            "partitions": len(kept.files),
            "files": sum(map(len, kept.files.values())),
        }
        for instant, kept in savepoints(table.timeline, table.store).items()
    ]
