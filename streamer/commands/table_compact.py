"""``lakemark table compact``: merges log files into base files."""

from __future__ import annotations

import argparse
import sys

from lakemark.errors import Unsupported, WriteConflict
from lakemark.execution.runner import Runner
from lakemark.model.compaction_plan import CompactionPlan
from lakemark.operations.compact import (
    Compaction,
    Planned,
    pending_compactions,
    plan_compaction,
    request_compaction,
)
from lakemark.operations.open_table import OpenTable
from lakemark.transaction.rollback_checks import check_no_restore
from streamer.commands.service_table import chosen_runner, open_for_service, show_work
from streamer.commands.table import Facts


def execute(arguments: argparse.Namespace) -> int:
    """Print, schedule or execute a compaction; pending compactions are executed first.

    Raises:
        Unsupported: the table is not merge-on-read, or lakemark does not write this kind of table.
        HudiError: the compaction failed.
    """
    table = open_for_service(arguments, arguments.merger)
    if not table.properties.is_merge_on_read:
        message = f"table {table.location.url} is copy-on-write, so it has no log files to compact"
        raise Unsupported(message)
    check_no_restore(table.timeline)
    match arguments.step:
        case "plan":
            rows = _planned_rows(table)
        case "schedule":
            requested = request_compaction(table)
            rows = _operations(requested[0].requested_at, requested[1]) if requested else []
        case _:
            rows = _run(table, arguments)
    show_work(rows, arguments, "nothing to compact")
    return 0


def _planned_rows(table: OpenTable) -> list[Facts]:
    """Return the operations of pending compactions, then those of a new plan."""
    pending = [
        row
        for instant, plan in pending_compactions(table)
        for row in _operations(instant.requested_at, plan)
    ]
    return pending + _operations(None, plan_compaction(table))


def _operations(instant: str | None, plan: CompactionPlan) -> list[Facts]:
    return [
        {
            "instant": instant,
            "partition": one.group.partition_path,
            "file id": one.group.file_id,
            "base file": one.data_file,
            "logs": len(one.log_files),
            "log bytes": one.log_bytes,
        }
        for one in plan.operations
    ]


def _run(table: OpenTable, arguments: argparse.Namespace) -> list[Facts]:
    planned = pending_compactions(table)
    if not planned:
        requested = request_compaction(table)
        planned = [requested] if requested else []
    if not planned:
        return []
    runner, merger = chosen_runner(arguments), (arguments.merger or [None])[0]
    executed = (_compact(table, one, runner, merger) for one in planned)
    return [row for row in executed if row is not None]


def _compact(
    table: OpenTable, planned: Planned, runner: Runner, merger: str | None
) -> Facts | None:
    """Execute one compaction; return None if another writer executes or has completed it."""
    try:
        compaction = Compaction.begin(table, planned, merger)
    except WriteConflict as conflict:
        print(conflict, file=sys.stderr)
        return None
    instant, metadata = compaction.run(runner)
    return {
        "instant": instant.requested_at,
        "slices": len(metadata.write_stats),
        "rows": sum(stat.num_writes for stat in metadata.write_stats),
        "bytes": sum(stat.file_size_in_bytes for stat in metadata.write_stats),
    }
