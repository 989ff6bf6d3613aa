"""Compacts an open table: finds pending plans, creates plans, and executes plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from lakemark.errors import WriteConflict
from lakemark.execution.runner import Runner
from lakemark.model.action import Action
from lakemark.model.commit_metadata import CommitMetadata, Operation, WriteStat
from lakemark.model.compaction_plan import CompactionPlan
from lakemark.model.file_slice import FileSlice
from lakemark.model.instant import Instant
from lakemark.operations.open_table import OpenTable
from lakemark.operations.service_commit import TableFacts, publish_service
from lakemark.operations.service_context import service_context
from lakemark.services import compaction
from lakemark.services.compaction import SliceRewriter, begin_compaction
from lakemark.services.compaction_plan import ALWAYS, CompactionPolicy, TableBacklog, is_due
from lakemark.services.plan_completion import complete_plan
from lakemark.services.plan_execution import PlanExecution
from lakemark.services.planned_files import recorded_log_sizes
from lakemark.services.slice_choice import ALL_SLICES, SliceChoice
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.rollback import roll_back
from lakemark.transaction.table_context import LOCK_WAIT_S
from lakemark.write.write_status import ContentMismatch

#: The instant of a requested compaction, and its plan.
Planned = tuple[Instant, CompactionPlan]


def pending_compactions(table: OpenTable) -> list[Planned]:
    """Return the pending compactions of all writers, with their plans."""
    pending = table.timeline.pending(Action.COMPACTION)  # model: find plan
    return [(i, table.store.read_pending_compaction(i)) for i in pending]


def is_compaction_due(
    table: OpenTable, policy: CompactionPolicy, choice: SliceChoice = ALL_SLICES
) -> bool:
    """Return whether a compaction should be planned, as of the table's last refresh."""
    backlog = TableBacklog(
        timeline=table.timeline,
        free_slices=lambda: _free_slices(table),
        logs_name_their_slice=table.version.logs_name_their_slice,
        clock=table.store.clock,
        now=datetime.now(UTC),
    )
    return is_due(policy, choice, backlog)


def plan_compaction(
    table: OpenTable, policy: CompactionPolicy = ALWAYS, choice: SliceChoice = ALL_SLICES
) -> CompactionPlan:
    """Return the plan that a compaction would have as of the table's last refresh.

    The plan is empty if no compaction is due.
    """
    if not is_compaction_due(table, policy, choice):
        return CompactionPlan(())
    return CompactionPlan.of(choice.choose(_free_slices(table)))


def request_if_due(
    table: OpenTable, policy: CompactionPolicy, choice: SliceChoice = ALL_SLICES
) -> Planned | None:
    """Request a compaction if it is due as of the table's last refresh.

    Return None if it is not due, or if no chosen slice has logs.
    """
    return request_compaction(table, choice) if is_compaction_due(table, policy, choice) else None


def request_compaction(table: OpenTable, choice: SliceChoice = ALL_SLICES) -> Planned | None:
    """Request a compaction of chosen slices that have logs and are not in a pending plan.

    Return None if there are no such slices.
    """

    def slices_at(timeline: Timeline) -> list[FileSlice]:
        table.refresh(timeline)
        return _free_slices(table)

    requested = compaction.request_compaction(table.context, slices_at, choice)
    if requested is not None:
        table.snapshot.carry_compaction_request(*requested)
    return requested


@dataclass(frozen=True, slots=True)
class Compaction:
    """A compaction of an open table that this process executes.

    ``begin`` and ``publish`` update the cached state of the open table. ``rewrite`` does not, so
    another thread may commit to the open table while ``rewrite`` runs.

    Attributes:
        table: the open table.
        execution: the execution of the plan.
    """

    table: OpenTable
    execution: PlanExecution[CompactionPlan]
    _rewriter: SliceRewriter

    @classmethod
    def begin(
        cls,
        table: OpenTable,
        planned: Planned,
        merger_class: str | None = None,
        lock_wait_s: float = LOCK_WAIT_S,
    ) -> Compaction:
        """Begin to execute a plan.

        Files of the planned slices that are missing from the plan are merged, too; see
        ``complete_plan``.

        Args:
            table: the open table.
            planned: the pending compaction and its plan.
            merger_class: the class of the user's merger, for a table in merge mode ``CUSTOM``.
            lock_wait_s: the time in seconds for which this call, and later ``publish``, wait for
                the table's lock.

        Raises:
            LockTimeout: another writer held the lock for too long.
            WriteConflict: another writer is executing, has completed or has removed the compaction.
            Refused: no commit contains the table's columns.
        """
        pending, plan = planned
        name = pending.requested_at
        context = service_context(table, name, merger_class)
        plan = complete_plan(plan, name, table.view(), table.storage)
        execution = begin_compaction(table.context, pending, plan, lock_wait_s)
        table.snapshot.carry_start(execution.instant)
        context = replace(context, attempt=execution.instant.attempt).use_storage(table.storage)
        log_sizes = recorded_log_sizes(plan.log_paths, table.timeline, table.store)
        return cls(table, execution, SliceRewriter(context, log_sizes))

    def rewrite(self, runner: Runner) -> list[WriteStat]:
        """Write the new base files, which no reader sees before ``publish``.

        Raises:
            ContentMismatch: an earlier attempt wrote different content; call ``undo``, and begin
                again.
        """
        return self.execution.rewrite(self._rewriter, self.execution.plan.operations, runner)

    def publish(
        self, stats: Sequence[WriteStat], table_facts: TableFacts | None = None
    ) -> tuple[Instant, CommitMetadata]:
        """Make the new base files visible, and copy the streamers' checkpoints to the commit.

        Args:
            stats: the write stats that ``rewrite`` returned.
            table_facts: see ``publish_service``.

        Raises:
            LockTimeout: another writer held the lock for too long; ``publish`` may be called again.
        """
        metadata = CommitMetadata(
            write_stats=tuple(stats), operation=Operation.COMPACT, compacted=True
        )
        return publish_service(self.table, self.execution, metadata, table_facts)

    def undo(self) -> None:
        """Delete the files of this attempt. The plan stays pending."""
        roll_back(self.table.context, self.execution.instant)
        self.table.refresh()

    def stop_heartbeat(self) -> None:
        """Stop the heartbeat. If the compaction is unpublished, other writers may execute it."""
        self.execution.stop_heartbeat()

    def run(self, runner: Runner) -> tuple[Instant, CommitMetadata]:
        """Rewrite and publish, with the schema and bucket settings of the newest commit."""
        try:
            stats = self.rewrite(runner)
            return self.publish(stats)
        except ContentMismatch:
            self.undo()
            raise
        finally:
            self.stop_heartbeat()


def compact_table(
    table: OpenTable,
    runner: Runner,
    merger_class: str | None,
    policy: CompactionPolicy = ALWAYS,
    choice: SliceChoice = ALL_SLICES,
) -> list[tuple[Instant, CommitMetadata]]:
    """Execute all pending compactions; if there are none, plan and execute one that is due.

    A compaction that another writer is executing is skipped.

    Args:
        table: the open table.
        runner: rewrites the file slices.
        merger_class: the class of the user's merger, for a table in merge mode ``CUSTOM``.
        policy: when a compaction is due.
        choice: which slices a new plan contains.

    Raises:
        Refused: a restore is pending.
    """
    planned = pending_compactions(table)
    if planned:
        return _execute_all(table, planned, runner, merger_class)
    return _compact_rest(table, runner, merger_class, policy, choice)


def compact_all_logs(
    table: OpenTable, runner: Runner, merger_class: str | None
) -> list[tuple[Instant, CommitMetadata]]:
    """Execute all pending compactions, then a new one of the logs that are not in their plans.

    A compaction that another writer is executing is skipped.

    Raises:
        Refused: a restore is pending.
    """
    done = _execute_all(table, pending_compactions(table), runner, merger_class)
    return [*done, *_compact_rest(table, runner, merger_class)]


def _compact_rest(
    table: OpenTable,
    runner: Runner,
    merger_class: str | None,
    policy: CompactionPolicy = ALWAYS,
    choice: SliceChoice = ALL_SLICES,
) -> list[tuple[Instant, CommitMetadata]]:
    """Plan and execute a compaction of slices with logs that are in no pending plan."""
    requested = request_if_due(table, policy, choice)
    return _execute_all(table, [requested] if requested else [], runner, merger_class)


def _execute_all(
    table: OpenTable, planned: Sequence[Planned], runner: Runner, merger_class: str | None
) -> list[tuple[Instant, CommitMetadata]]:
    done = []
    for one in planned:
        try:
            compaction = Compaction.begin(table, one, merger_class)
        except WriteConflict:
            table.refresh()
            continue
        done.append(compaction.run(runner))
    return done


def _free_slices(table: OpenTable) -> list[FileSlice]:
    """Return the slices of file groups that are in no pending compaction or clustering."""
    view = table.view()
    taken = view.compactions.keys() | view.clusterings.keys()
    return [s for s in view.slices_for_writing() if s.group not in taken]
