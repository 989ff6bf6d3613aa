"""Clusters a table: rewrites the rows of file slices into new file groups, which replace theirs.

``request`` writes a plan to the timeline, and begins to execute it, under one lock. The execution
rewrites the groups of the plan, and publishes a replace commit. Any writer may execute a plan, and
may execute it again after a crash (``PlanExecution.begin``).

Rows that are written to the slices of a plan after it was made would be lost. So no plan is made
while a write is pending, and a write that begins later conflicts with the plan
(``lakemark.transaction.conflicts``). A commit may nevertheless have completed in between: if the
process that made the plan had lost the lock, or if a writer of Apache Hudi ignores plans. Therefore
the files of the slices are compared with the plan when an attempt begins, and again under the lock
before it is published (``find_slice``, ``added_files``).

Source: ``BaseClusteringPlanActionExecutor``, ``BaseCommitActionExecutor.executeClustering`` and
``BaseHoodieTableServiceClient.completeClustering`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from lakemark.errors import WriteConflict
from lakemark.model.action import State
from lakemark.model.clustering_plan import ClusteringPlan, PlannedSlice
from lakemark.model.file_slice import FileSlice
from lakemark.model.instant import Instant
from lakemark.services.plan_execution import PlanExecution
from lakemark.timeline.clock import ClockSlot
from lakemark.timeline.content import encode_clustering_plan
from lakemark.timeline.locks.table_lock import Lease
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.rollback_checks import check_no_restore
from lakemark.transaction.table_context import LOCK_WAIT_S, TableContext
from lakemark.transaction.transaction import Transaction
from lakemark.view.file_system_view import FileSystemView

#: Returns the plan of a clustering as of a timeline; None if there is nothing to cluster.
PlanAt: TypeAlias = Callable[[Timeline], ClusteringPlan | None]


class PlanOutdated(WriteConflict):
    """The plan of a clustering does not fit the table, because other writers have changed it."""


def find_slice(view: FileSystemView, planned: PlannedSlice) -> FileSlice | None:
    """Return the slice of the view that a plan rewrites, with only the files that the plan names.

    The result is None if one of these files no longer is in the newest slice of its file group.
    """
    group = None if planned.group in view.replaced else view.groups.get(planned.group)
    current = group.for_readers if group else None
    if current is None or not planned.names <= _names_of(current):
        return None
    logs = tuple(log for log in current.logs if str(log.name) in planned.names)
    is_planned = current.base is None or str(current.base.name) == planned.data_file
    return replace(current, logs=logs) if is_planned else None


def added_files(view: FileSystemView, planned: PlannedSlice) -> frozenset[str]:
    """Return the files that were added to a slice after its clustering was planned."""
    current = view.groups[planned.group].for_readers
    return _names_of(current) - planned.names if current else frozenset()


def request(
    context: TableContext, plan_at: PlanAt, lock_wait_s: float = LOCK_WAIT_S
) -> PlanExecution[ClusteringPlan] | None:
    """Write a plan to the timeline, and begin to execute it.

    The result is None if there is nothing to cluster, or while a write is pending.

    Args:
        context: the table.
        plan_at: returns the plan as of a timeline, or None.
        lock_wait_s: see ``Transaction.resume``.

    Raises:
        Refused: a restore is pending.
        LeaseLost: the lock was lost before the plan was created. If the plan was created after
            that, the next writer that finds it executes or removes it.
    """
    made: list[ClusteringPlan] = []

    def create(lease: Lease) -> Instant | None:
        requested = _create_plan(context, plan_at, lease)
        if requested is None:
            return None
        made.append(requested[1])
        return requested[0]

    transaction = Transaction.request(context, create, lock_wait_s)
    return None if transaction is None else PlanExecution(transaction.instant, made[0], transaction)


def schedule(context: TableContext, plan_at: PlanAt) -> tuple[Instant, ClusteringPlan] | None:
    """Write a plan to the timeline, for any writer to execute.

    The arguments, the errors, and the cases without a plan are those of ``request``.
    """
    with context.lock.hold(LOCK_WAIT_S) as lease:
        return _create_plan(context, plan_at, lease)


def _create_plan(
    context: TableContext, plan_at: PlanAt, lease: Lease
) -> tuple[Instant, ClusteringPlan] | None:
    timeline = context.timeline.load()
    check_no_restore(timeline)
    if context.timeline.pending_writes(timeline):
        return None
    plan = plan_at(timeline)
    if plan is None:
        return None
    name = context.generate_time(timeline.newest_time, ClockSlot.SERVICE)
    requested = Instant(name, context.timeline.version.clustering_action, State.REQUESTED)
    content = encode_clustering_plan(plan, context.storage.location.url)
    lease.check()
    context.timeline.create(requested, content)
    return requested, plan


def _names_of(file_slice: FileSlice) -> frozenset[str]:
    logs = (str(log.name) for log in file_slice.logs)
    return frozenset([*logs, *([str(file_slice.base.name)] if file_slice.base else [])])
