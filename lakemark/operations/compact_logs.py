"""Compacts the logs of an open table: finds pending plans, creates plans, and executes plans."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from lakemark.config.merge_settings import MergeSettings, Payload, merge_settings
from lakemark.config.table_properties import MergeMode
from lakemark.errors import Unsupported, WriteConflict
from lakemark.execution.runner import Runner
from lakemark.model.action import Action
from lakemark.model.commit_metadata import CommitMetadata, Operation, WriteStat
from lakemark.model.compaction_plan import CompactionOperation, CompactionPlan
from lakemark.model.file_slice import FileGroupId, FileSlice
from lakemark.model.instant import Instant
from lakemark.operations.compact import Planned
from lakemark.operations.group_replacement import recover_table
from lakemark.operations.open_table import OpenTable
from lakemark.operations.service_commit import publish_service
from lakemark.operations.service_context import service_context
from lakemark.read.log_changes import read_block_instants
from lakemark.services.log_compaction import (
    MIN_LOGS,
    LogRewriter,
    current_operations,
    is_log_compaction_due,
    request_log_compaction,
)
from lakemark.services.plan_execution import PlanExecution
from lakemark.services.plan_removal import remove_plan
from lakemark.services.planned_files import recorded_log_sizes
from lakemark.services.slice_choice import ALL_SLICES, SliceChoice, log_io_bytes
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.plan_owner import may_be_executed_by_others
from lakemark.transaction.rollback import roll_back
from lakemark.transaction.table_context import LOCK_WAIT_S
from lakemark.write.write_status import ContentMismatch

_log = logging.getLogger(__name__)


def check_logs_compactable(table: OpenTable) -> None:
    """Check that the logs of a table may be compacted.

    Raises:
        Unsupported: the table has no logs; or CDC queries read them one by one; or a merger of the
            user, or a payload, needs columns of deleted rows, which the new log does not contain.
    """
    url = table.location.url
    if not table.properties.is_merge_on_read:
        message = f"table {url} is copy-on-write, so it has no log files to compact"
        raise Unsupported(message)
    remedy = "merge its logs into base files instead (lakemark table compact TABLE)"
    if table.properties.cdc_enabled:
        message = (
            f"table {url} supports CDC queries, which compare the logs of each commit; {remedy}"
        )
        raise Unsupported(message)
    merger = _merger_of_deletes(merge_settings(table.properties))
    if merger:
        message = (
            f"table {url} is merged by {merger}, which may need the columns of deleted rows, and a "
            f"merged log does not contain them; {remedy}"
        )
        raise Unsupported(message)


def _merger_of_deletes(settings: MergeSettings) -> str:
    """Return the merger if deletes must keep their columns; "" if a merge mode decides.

    Also, most payloads merge a data row that is flagged as deleted in another way than a record of
    a delete block, and the new log has only the latter.
    """
    if settings.mode is MergeMode.CUSTOM:
        return f"a custom merger (strategy {settings.strategy_id})"
    latest = (None, Payload.AWS_DMS)  # the latest change wins, whatever it is
    return "" if settings.payload in latest else f"the payload {settings.payload}"


class CommitCounts:
    """Finds file slices whose logs have blocks of many commits.

    The blocks of a slice are read only if its files have changed since the last call. A pipeline
    asks after each batch, and a log that was merged into another one stays in the slice.
    """

    def __init__(self) -> None:
        self._known: dict[FileSlice, int] = {}

    def choose(
        self, table: OpenTable, slices: Iterable[FileSlice], min_logs: int
    ) -> list[FileSlice]:
        """Return the slices whose logs have blocks of at least ``min_logs`` commits.

        Blocks that a log compaction has replaced are not counted.
        """
        known, self._known = self._known, {}
        for one in slices:
            if len(one.logs) >= min_logs:
                count = known.get(one)
                self._known[one] = _commits_of(table, one) if count is None else count
        return [one for one, count in self._known.items() if count >= min_logs]


def _commits_of(table: OpenTable, file_slice: FileSlice) -> int:
    """Return the number of commits that have effective blocks in the logs of a slice."""
    return len(read_block_instants(table.storage, file_slice.logs, table.visible_instants))


def pending_log_compactions(table: OpenTable) -> list[Planned]:
    """Return the pending log compactions of all writers, with their plans."""
    pending = table.timeline.pending(Action.LOG_COMPACTION)
    return [(i, table.store.read_pending_compaction(i)) for i in pending]


def log_compacted_groups(table: OpenTable) -> set[FileGroupId]:
    """Return the file groups in pending log compactions."""
    return {one.group for _, plan in pending_log_compactions(table) for one in plan.operations}


def plan_log_compaction(
    table: OpenTable,
    min_logs: int = MIN_LOGS,
    choice: SliceChoice = ALL_SLICES,
    counts: CommitCounts | None = None,
) -> CompactionPlan:
    """Return the plan that a log compaction would have as of the table's last refresh.

    Args:
        table: the open table.
        min_logs: only slices are planned whose logs have blocks of at least this number of commits
            that no log compaction has replaced.
        choice: which of them are planned.
        counts: the counts of an earlier call, if there was one.

    Raises:
        Unsupported: see ``check_logs_compactable``.
    """
    check_logs_compactable(table)
    eligible = (counts or CommitCounts()).choose(table, _free_slices(table), min_logs)
    return CompactionPlan.of(choice.choose(eligible, log_io_bytes), is_of_logs=True)


def schedule_log_compaction(
    table: OpenTable,
    min_logs: int = MIN_LOGS,
    choice: SliceChoice = ALL_SLICES,
    counts: CommitCounts | None = None,
) -> Planned | None:
    """Write a plan to the timeline; None if there is nothing to compact.

    Dead writers are rolled back first. The arguments are those of ``plan_log_compaction``.

    Raises:
        Unsupported: see ``check_logs_compactable``.
        WriterAlive: another writer is writing, but this process is configured as the only one.
        Refused: a restore is pending.
        WriteConflict: another writer is writing to the table; call this function again.
    """
    check_logs_compactable(table)
    recover_table(table)
    # The blocks are read before the lock is acquired. The plan then contains the newest logs.
    wanted = {one.group for one in plan_log_compaction(table, min_logs, choice, counts).operations}
    if not wanted:
        return None

    def slices_at(timeline: Timeline) -> list[FileSlice]:
        table.refresh(timeline)
        free = (one for one in _free_slices(table) if one.group in wanted)
        return choice.choose(free, log_io_bytes)

    requested = request_log_compaction(table.context, slices_at)
    table.refresh()
    if requested is None and table.store.pending_writes(table.timeline):
        message = (
            f"the logs of {table.location.url} were not compacted, because another writer is "
            "writing to the table; try again between its commits"
        )
        raise WriteConflict(message)
    return requested


def compact_logs(
    table: OpenTable,
    runner: Runner,
    min_logs: int = MIN_LOGS,
    choice: SliceChoice = ALL_SLICES,
) -> list[tuple[Instant, CommitMetadata]]:
    """Execute pending log compactions of any writer; if there are none, plan and execute one.

    A log compaction that another writer executes is skipped, and so is one with which another
    change of the table conflicts. A pending log compaction whose slices were rewritten meanwhile is
    removed. File groups that a pending clustering will replace are left out.

    Args:
        table: the open table.
        runner: merges the logs.
        min_logs: see ``plan_log_compaction``.
        choice: see ``plan_log_compaction``.

    Raises:
        Unsupported, Refused, WriteConflict: see ``schedule_log_compaction``.
    """
    check_logs_compactable(table)
    done = execute_pending_log_compactions(table, runner)
    if done:
        return done
    requested = schedule_log_compaction(table, min_logs, choice)
    return [] if requested is None else list(_execute(table, requested, runner))


def execute_pending_log_compactions(
    table: OpenTable, runner: Runner
) -> list[tuple[Instant, CommitMetadata]]:
    """Execute pending log compactions of any writer; see ``compact_logs`` for those not executed.

    Args:
        table: the open table.
        runner: merges the logs.

    Raises:
        Unsupported: there are some, but ``check_logs_compactable`` does not allow it.
        Refused: a restore is pending.
    """
    pending = pending_log_compactions(table)
    if pending:
        check_logs_compactable(table)
    return [one for planned in pending for one in _execute(table, planned, runner)]


def execute_log_compaction(
    table: OpenTable, planned: Planned, runner: Runner
) -> list[tuple[Instant, CommitMetadata]]:
    """Execute a pending log compaction, unless another writer may be executing it.

    Args:
        table: the open table.
        planned: the log compaction.
        runner: merges the logs.

    Raises:
        Unsupported: ``check_logs_compactable`` does not allow it.
        Refused: a restore is pending.
    """
    if may_be_executed_by_others(table.context, planned[0]):
        return []
    check_logs_compactable(table)
    return list(_execute(table, planned, runner))


def compact_logs_if_due(
    table: OpenTable,
    runner: Runner,
    min_logs: int,
    choice: SliceChoice = ALL_SLICES,
    counts: CommitCounts | None = None,
) -> list[tuple[Instant, CommitMetadata]]:
    """Plan and execute a log compaction that is due, between two commits.

    The table's cached timeline decides whether it is due. If another writer is writing to the
    table, no plan is made.

    Args:
        table: the open table.
        runner: merges the logs.
        min_logs: a log compaction is due after this number of delta commits since the last
            compaction of either kind. It merges the logs of slices that ``plan_log_compaction``
            describes.
        choice: see ``plan_log_compaction``.
        counts: see ``plan_log_compaction``.

    Raises:
        Unsupported, Refused: see ``schedule_log_compaction``.
    """
    if not is_log_compaction_due(table.timeline, table.store.read_commit, min_logs):
        return []
    try:
        requested = schedule_log_compaction(table, min_logs, choice, counts)
    except WriteConflict:
        return []
    return [] if requested is None else list(_execute(table, requested, runner))


@dataclass(frozen=True, slots=True)
class LogCompaction:
    """A log compaction of an open table that this process executes.

    Attributes:
        table: the open table.
        execution: the execution of the plan.
    """

    table: OpenTable
    execution: PlanExecution[CompactionPlan]
    _rewriter: LogRewriter

    @classmethod
    def begin(
        cls,
        table: OpenTable,
        planned: Planned,
        lock_wait_s: float = LOCK_WAIT_S,
    ) -> LogCompaction:
        """Begin to execute a plan.

        Args:
            table: the open table.
            planned: the pending log compaction and its plan.
            lock_wait_s: the time in seconds to wait for the table's lock, now and at publication.

        Raises:
            LockTimeout: another writer held the lock for too long.
            WriteConflict: another writer is executing, has completed or has removed the log
                compaction; or the slices of the plan were rewritten, so that it was removed; or a
                pending clustering will replace all of its file groups.
            Refused: no commit contains the table's columns.
        """
        pending, plan = planned
        table.refresh()
        current = table.timeline.find(pending.requested_at)
        if current is None or current.is_completed:
            message = f"{pending} was completed or removed by another writer"
            raise WriteConflict(message)
        operations = current_operations(plan, _newest_slices(table))
        if not operations:
            reason = "the logs of its file slices were compacted or deleted since"
            remove_plan(table.context, current, reason, lock_wait_s)
        clustered = table.view().clusterings
        operations = tuple(one for one in operations if one.group not in clustered)
        if not operations:
            message = f"{pending} is not executed while a clustering of its file groups is pending"
            raise WriteConflict(message)
        context = service_context(table, pending.requested_at, merger_class=None)
        remaining = replace(plan, operations=operations)
        execution = PlanExecution.begin(table.context, current, remaining, lock_wait_s)
        table.refresh()
        table.snapshot.forget_files()  # the view may contain logs of an attempt that died
        context = replace(context, attempt=execution.instant.attempt).use_storage(table.storage)
        log_sizes = recorded_log_sizes(remaining.log_paths, table.timeline, table.store)
        return cls(table, execution, LogRewriter(context, log_sizes))

    def run(self, runner: Runner) -> tuple[Instant, CommitMetadata]:
        """Write the new logs and publish them.

        Raises:
            AttemptLost: another writer rolled the attempt back; nothing was published.
            WriteConflict: a file group was compacted or replaced meanwhile.
        """
        try:
            stats = self.execution.rewrite(self._rewriter, self._operations, runner)
            return publish_service(self.table, self.execution, _metadata(stats), None)
        except ContentMismatch:
            roll_back(self.table.context, self.execution.instant)
            self.table.refresh()
            raise
        finally:
            self.execution.stop_heartbeat()

    @property
    def _operations(self) -> Sequence[CompactionOperation]:
        return self.execution.plan.operations


def _metadata(stats: Iterable[Sequence[WriteStat]]) -> CommitMetadata:
    written = tuple(stat for of_slice in stats for stat in of_slice)
    return CommitMetadata(write_stats=written, operation=Operation.LOG_COMPACT, compacted=True)


def _execute(
    table: OpenTable, planned: Planned, runner: Runner
) -> Iterator[tuple[Instant, CommitMetadata]]:
    try:
        yield LogCompaction.begin(table, planned).run(runner)
    except WriteConflict as conflict:
        _log.warning("%s was not executed: %s", planned[0], conflict)
        table.refresh()


def _newest_slices(table: OpenTable) -> dict[FileGroupId, FileSlice]:
    return {one.group: one for one in table.view().slices_for_writing()}


def _free_slices(table: OpenTable) -> list[FileSlice]:
    """Return the newest slices of file groups that no pending service will rewrite."""
    view = table.view()
    taken = view.compactions.keys() | view.clusterings.keys() | log_compacted_groups(table)
    return [s for s in view.slices_for_writing() if s.group not in taken]
