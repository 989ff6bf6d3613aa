"""``lakemark table clean``: deletes files that no retained commit needs."""

from __future__ import annotations

import argparse

from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.model.action import Action
from lakemark.services.cleaning import propose, request
from lakemark.services.cleaning_plan import CleaningPolicy
from lakemark.services.metadata_table_services import Maintained, MetadataPolicies
from lakemark.table import Table
from lakemark.transaction.rollback_checks import check_no_restore
from sinks.hudi.table_services import clean, maintain_metadata_table_now
from streamer.commands.service_table import (
    cleaning_policy,
    open_for_service,
    rows_of_files,
    show_work,
    use_chosen_runner,
    view_at,
)
from streamer.commands.table import Facts


def execute(arguments: argparse.Namespace) -> int:
    """Print, schedule or execute the plan; pending cleans are executed first.

    Raises:
        HudiError: the table cannot be read or written.
    """
    table, policy = open_for_service(arguments), cleaning_policy(arguments)
    check_no_restore(table.timeline)
    match arguments.step:
        case "plan":
            rows = _planned_rows(table, policy)
        case "schedule":
            requested = request(table.access, lambda timeline: view_at(table, timeline), policy)
            rows = rows_of_files(requested[0].requested_at, requested[1].files) if requested else []
        case _:
            use_chosen_runner(table, arguments)
            done = clean(table, policy)
            rows = [
                row
                for one in done
                for row in rows_of_files(one.instant.requested_at, one.plan.files)
            ]
            rows += _metadata_rows(
                maintain_metadata_table_now(table, MetadataPolicies.beside(policy))
            )
    show_work(rows, arguments, "nothing to clean")
    return 0


def _planned_rows(table: Table, policy: CleaningPolicy) -> list[Facts]:
    """The files of pending cleans, then those of a new plan."""
    rows: list[Facts] = []
    for pending in table.timeline.pending(Action.CLEAN):
        name = pending.requested_at
        plan = table.store.read_clean_plan(name)
        rows += rows_of_files(name, plan.files) if plan else []
    proposed = propose(table.store, table.timeline, table.view, policy)
    return rows if proposed is None else rows + rows_of_files(None, proposed.files)


def _metadata_rows(maintained: Maintained | None) -> list[Facts]:
    """One row for each deleted file of the metadata table."""
    if maintained is None:
        return []
    parts = [path.rpartition("/") for path in maintained.deleted]
    return [
        {"instant": None, "partition": f"{METADATA_FOLDER}/{folder}", "file": name}
        for folder, _, name in parts
    ]
