"""``lakemark table rollback``: rolls back one instant."""

from __future__ import annotations

import argparse

from lakemark.operations.rollback import plan_rollback, roll_back_instant
from streamer.commands.service_table import (
    file_rows,
    open_for_service,
    show_work,
)


def execute(arguments: argparse.Namespace) -> int:
    """Print the files that the rollback would delete, or roll back the instant.

    Raises:
        InvalidConfig: the active timeline has no such instant.
        Refused: the instant cannot be rolled back; the message names the remedy.
    """
    table = open_for_service(arguments)
    if arguments.step == "run":
        undone = roll_back_instant(table, arguments.instant)
    else:
        undone = plan_rollback(table, arguments.instant)
    show_work(file_rows(undone), arguments, "no files to delete")
    return 0
