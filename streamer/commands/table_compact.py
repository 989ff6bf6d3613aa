"""``lakemark table compact``: merges log files into base files."""

from __future__ import annotations

import argparse
import sys

from lakemark.errors import InvalidConfig, Unsupported, WriteConflict
from lakemark.execution.runner import Runner
from lakemark.model.action import Action
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.compaction_plan import CompactionPlan
from lakemark.model.instant import Instant
from lakemark.model.partition_pattern import PartitionPattern
from lakemark.operations.compact import (
    Compaction,
    Planned,
    pending_compactions,
    plan_compaction,
    request_if_due,
)
from lakemark.operations.compact_logs import (
    compact_logs,
    execute_pending_log_compactions,
    pending_log_compactions,
    plan_log_compaction,
    schedule_log_compaction,
)
from lakemark.operations.open_table import OpenTable
from lakemark.operations.partition_deletion import match_partitions
from lakemark.services.compaction_plan import CompactionPolicy, DueWhen
from lakemark.services.log_compaction import MIN_LOGS
from lakemark.services.slice_choice import SliceChoice, SliceOrder
from lakemark.transaction.rollback_checks import check_no_restore
from streamer.commands.service_table import chosen_runner, open_for_service, show_work
from streamer.commands.table import Facts


def execute(arguments: argparse.Namespace) -> int:
    """Print, schedule or execute a compaction; pending compactions are executed first.

    Raises:
        InvalidConfig: a pattern is wrong, or the table has no such partition.
        Unsupported: the table is not merge-on-read, or lakemark does not write this kind of table.
        HudiError: the compaction failed.
    """
    table = open_for_service(arguments, arguments.merger)
    if not table.properties.is_merge_on_read:
        message = f"table {table.location.url} is copy-on-write, so it has no log files to compact"
        raise Unsupported(message)
    check_no_restore(table.timeline)
    if arguments.patterns:
        match_partitions(table, arguments.patterns)(table.view())  # checks that they exist
    policy, choice = _policy(arguments), _choice(arguments)
    if arguments.logs:
        _check_unlimited(arguments)
        show_work(_compact_logs(table, arguments, choice), arguments, "no logs to compact")
        return 0
    if arguments.min_logs is not None:
        message = "--min-logs is only for log compactions; add --logs, or leave it out"
        raise InvalidConfig(message)
    match arguments.step:
        case "plan":
            rows = _planned_rows(table, policy, choice)
        case "schedule":
            requested = request_if_due(table, policy, choice)
            rows = _operations(requested[0].requested_at, requested[1]) if requested else []
        case _:
            rows = _run(table, arguments, policy, choice)
    show_work(rows, arguments, "nothing to compact")
    return 0


def _policy(arguments: argparse.Namespace) -> CompactionPolicy:
    return CompactionPolicy(
        arguments.after_commits,
        arguments.after,
        arguments.after_log_bytes,
        DueWhen(arguments.when),
    )


def _choice(arguments: argparse.Namespace) -> SliceChoice:
    return SliceChoice(
        order=SliceOrder(arguments.order),
        partitions=tuple(map(PartitionPattern, arguments.patterns)),
        max_partitions=arguments.max_partitions,
        max_io_bytes=arguments.max_io_bytes,
    )


def _check_unlimited(arguments: argparse.Namespace) -> None:
    """Check that no limit is given that decides when a compaction into base files is due."""
    limits = {"--after-commits": arguments.after_commits, "--after": arguments.after}
    limits["--after-log-bytes"] = arguments.after_log_bytes
    given = [name for name, limit in limits.items() if limit is not None]
    if given:
        message = f"{given[0]} cannot be combined with --logs; use --min-logs instead"
        raise InvalidConfig(message)


def _compact_logs(
    table: OpenTable, arguments: argparse.Namespace, choice: SliceChoice
) -> list[Facts]:
    min_logs = arguments.min_logs or MIN_LOGS
    if arguments.step == "plan":
        pending = _pending_log_rows(table)
        return pending or _operations(None, plan_log_compaction(table, min_logs, choice))
    if arguments.step == "schedule":
        requested = schedule_log_compaction(table, min_logs, choice)
        return _operations(requested[0].requested_at, requested[1]) if requested else []
    done = compact_logs(table, chosen_runner(arguments), min_logs, choice)
    return [_executed(instant, metadata) for instant, metadata in done]


def _planned_rows(table: OpenTable, policy: CompactionPolicy, choice: SliceChoice) -> list[Facts]:
    """Return the operations of pending compactions, or else of a new plan; then those of logs."""
    planned = [
        row
        for instant, plan in pending_compactions(table)
        for row in _operations(instant.requested_at, plan)
    ]
    planned = planned or _operations(None, plan_compaction(table, policy, choice))
    return planned + _pending_log_rows(table)


def _pending_log_rows(table: OpenTable) -> list[Facts]:
    return [
        row
        for instant, plan in pending_log_compactions(table)
        for row in _operations(instant.requested_at, plan)
    ]


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


def _run(
    table: OpenTable,
    arguments: argparse.Namespace,
    policy: CompactionPolicy,
    choice: SliceChoice,
) -> list[Facts]:
    planned = pending_compactions(table)
    if not planned:
        requested = request_if_due(table, policy, choice)
        planned = [requested] if requested else []
    log_plans = table.timeline.pending(Action.LOG_COMPACTION)
    if not planned and not log_plans:
        return []
    runner, merger = chosen_runner(arguments), (arguments.merger or [None])[0]
    executed = [_compact(table, one, runner, merger) for one in planned]
    # Only now, because a compaction makes a log compaction of its file groups unnecessary.
    executed += _execute_log_compactions(table, runner) if log_plans else []
    return [row for row in executed if row is not None]


def _execute_log_compactions(table: OpenTable, runner: Runner) -> list[Facts]:
    try:
        return [_executed(*done) for done in execute_pending_log_compactions(table, runner)]
    except Unsupported as reason:
        print(reason, file=sys.stderr)
        return []


def _compact(
    table: OpenTable, planned: Planned, runner: Runner, merger: str | None
) -> Facts | None:
    """Execute one compaction; return None if another writer executes or has completed it."""
    try:
        compaction = Compaction.begin(table, planned, merger)
    except WriteConflict as conflict:
        print(conflict, file=sys.stderr)
        return None
    return _executed(*compaction.run(runner))


def _executed(instant: Instant, metadata: CommitMetadata) -> Facts:
    return {
        "instant": instant.requested_at,
        "slices": len(metadata.write_stats),
        "rows": sum(stat.num_writes for stat in metadata.write_stats),
        "bytes": sum(stat.file_size_in_bytes for stat in metadata.write_stats),
    }
