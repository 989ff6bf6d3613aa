"""``lakemark table clean``: files that no query of the retained past needs are deleted."""

from __future__ import annotations

import argparse

from rich.console import Console

from sinks.hudi.upkeep import clean, tend_metadata_table_now
from streamer.commands.service_table import (
    cleaning_policy,
    open_for_service,
    view_at,
)
from streamer.commands.table import Facts, show_rows
from table.hudi_table import HudiTable
from table.metadata.opening import METADATA_FOLDER
from table.model.action import Action
from table.model.clean import CleanPlan
from table.services.cleaning import propose, request
from table.services.cleaning_plan import CleaningPolicy
from table.services.metadata_upkeep import Tended
from table.transaction.undoable import check_no_restore


def execute(arguments: argparse.Namespace) -> int:
    """Print the plan, write it down, or do it; pending cleans are taken up first.

    Raises:
        HudiError: the table cannot be read, or not be written.
    """
    table, policy = open_for_service(arguments), cleaning_policy(arguments)
    check_no_restore(table.timeline)
    match arguments.step:
        case "plan":
            rows = _planned_rows(table, policy)
        case "schedule":
            requested = request(table.access, lambda timeline: view_at(table, timeline), policy)
            rows = _file_rows(requested[0].requested_at, requested[1]) if requested else []
        case _:
            done = clean(table, policy)
            rows = [row for one in done for row in _file_rows(one.instant.requested_at, one.plan)]
            rows += _metadata_rows(tend_metadata_table_now(table))
    show_rows(rows, Console(), arguments.json)
    return 0


def _planned_rows(table: HudiTable, policy: CleaningPolicy) -> list[Facts]:
    """What is pending, then what could be planned beside it."""
    rows: list[Facts] = []
    for pending in table.timeline.pending(Action.CLEAN):
        name = pending.requested_at
        rows += _file_rows(name, table.store.read_clean_plan(name))
    proposed = propose(table.store, table.timeline, table.view, policy)
    return rows if proposed is None else rows + _file_rows(None, proposed)


def _file_rows(instant: str | None, plan: CleanPlan) -> list[Facts]:
    return [
        {"instant": instant, "partition": partition, "file": name}
        for partition, names in plan.files.items()
        for name in names
    ]


def _metadata_rows(tended: Tended | None) -> list[Facts]:
    """What was deleted of the metadata table itself, in the folders that it has there."""
    if tended is None:
        return []
    parts = [path.rpartition("/") for path in tended.deleted]
    return [
        {"instant": None, "partition": f"{METADATA_FOLDER}/{folder}", "file": name}
        for folder, _, name in parts
    ]
