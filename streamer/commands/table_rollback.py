"""``lakemark table rollback``: one instant is undone."""

from __future__ import annotations

import argparse

from rich.console import Console

from streamer.commands.service_table import file_rows, open_for_service
from streamer.commands.table import show_rows
from table.transaction.rollback import plan_rollback, roll_back_named


def execute(arguments: argparse.Namespace) -> int:
    """Print the files that would go, or delete them and the instant.

    Raises:
        InvalidConfig: no such commit is on the active timeline.
        Refused: it may not be undone; the message says what to do first.
    """
    access = open_for_service(arguments).access
    undo = roll_back_named if arguments.step == "run" else plan_rollback
    show_rows(file_rows(undo(access, arguments.instant)), Console(), arguments.json)
    return 0
