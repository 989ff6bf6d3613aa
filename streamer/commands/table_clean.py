"""``lakemark table clean``: deletes files that no retained commit needs."""

from __future__ import annotations

import argparse

from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.model.action import Action
from lakemark.operations.clean import clean, plan_clean, request_clean
from lakemark.operations.metadata_table import compact_and_maintain_metadata_table
from lakemark.operations.open_table import OpenTable
from lakemark.services.cleaning_plan import CleaningPolicy
from lakemark.services.metadata_table_services import Maintained, MetadataPolicies
from lakemark.transaction.rollback_checks import check_no_restore
from streamer.commands.service_table import (
    cleaning_policy,
    open_for_service,
    rows_of_files,
    show_work,
)
from streamer.commands.table import Facts


def execute(arguments: argparse.Namespace) -> int:
    """Print, schedule or execute a clean; pending cleans are executed first.

    Raises:
        HudiError: the table cannot be read or written.
    """
    table, policy = open_for_service(arguments), cleaning_policy(arguments)
    check_no_restore(table.timeline)
    match arguments.step:
        case "plan":
            rows = _planned_rows(table, policy)
        case "schedule":
            requested = request_clean(table, policy)
            rows = rows_of_files(requested[0].requested_at, requested[1].files) if requested else []
        case _:
            done = clean(table, policy)
            rows = [
                row
                for one in done
                for row in rows_of_files(one.instant.requested_at, one.plan.files)
            ]
            rows += _metadata_rows(
                compact_and_maintain_metadata_table(table, MetadataPolicies.for_data_table(policy))
            )
    show_work(rows, arguments, "nothing to clean")
    return 0


def _planned_rows(table: OpenTable, policy: CleaningPolicy) -> list[Facts]:
    """Return the files that pending cleans delete, then the files that a new plan would delete."""
    rows: list[Facts] = []
    for pending in table.timeline.pending(Action.CLEAN):
        name = pending.requested_at
        plan = table.store.read_clean_plan(name)
        rows += rows_of_files(name, plan.files) if plan else []
    proposed = plan_clean(table, policy)
    return rows if proposed is None else rows + rows_of_files(None, proposed.files)


def _metadata_rows(maintained: Maintained | None) -> list[Facts]:
    """Return one row for each deleted file of the metadata table."""
    if maintained is None:
        return []
    parts = [path.rpartition("/") for path in maintained.deleted]
    return [
        {"instant": None, "partition": f"{METADATA_FOLDER}/{folder}", "file": name}
        for folder, _, name in parts
    ]
