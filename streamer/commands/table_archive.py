"""``lakemark table archive``: old instants leave the active timeline."""

from __future__ import annotations

import argparse

from rich.console import Console

from sinks.hudi.upkeep import archivable, archive
from streamer.commands.service_table import cleaning_policy, open_for_service
from streamer.commands.table import show_rows
from table.services.archival_plan import ArchivalPolicy
from table.transaction.undoable import check_no_restore


def execute(arguments: argparse.Namespace) -> int:
    """Print the instants that would be archived, or archive them.

    Raises:
        InvalidConfig: no more commits at most than at least.
        HudiError: the table cannot be read, or not be written.
    """
    table, cleaning = open_for_service(arguments), cleaning_policy(arguments)
    policy = ArchivalPolicy(arguments.min_commits, arguments.max_commits)
    check_no_restore(table.timeline)
    if arguments.step == "run":
        done = archive(table, policy, cleaning)
        instants = done.instants if done else ()
    else:
        instants = archivable(table, policy, cleaning)
    rows = [
        {
            "instant": instant.requested_at,
            "action": instant.action.value,
            "completed": instant.completed_at,
        }
        for instant in instants
    ]
    show_rows(rows, Console(), arguments.json)
    return 0
