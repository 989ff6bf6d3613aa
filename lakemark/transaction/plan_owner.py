"""Finds out whether another writer may be executing a planned table service.

A writer of lakemark emits a heartbeat while it executes a plan of a shared table. Apache Hudi emits
none for clusterings, resizes and log compactions. Its inflight instants contain no attempt
(``lakemark.transaction.attempt``), so a plan that it has begun may be in execution at any time. If
its files were deleted, it could still publish a commit that names them. Only an operator knows
whether such a writer has died. An instant that was just requested may be begun at any moment, too.

Source: ``BaseHoodieTableServiceClient.cluster`` and ``logCompact`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from lakemark.errors import WriteConflict
from lakemark.model.action import REPLACING, Action, State
from lakemark.model.instant import Instant
from lakemark.transaction.heartbeat import HeartbeatPolicy, is_fresh
from lakemark.transaction.multi_writer import has_heartbeat
from lakemark.transaction.table_context import TableContext

#: Services that Apache Hudi executes without a heartbeat.
_WITHOUT_HEARTBEAT = (*REPLACING, Action.LOG_COMPACTION)


def check_not_executed(context: TableContext, planned: Instant) -> None:
    """Check that no other writer may be executing a plan.

    Args:
        context: the table.
        planned: the pending instant, as of a timeline that was just loaded.

    Raises:
        WriteConflict: its heartbeat is alive, or a writer without heartbeats has begun it.
    """
    if has_heartbeat(context.storage, planned, context.multi_writer):
        message = f"{planned} is being executed by another writer, whose heartbeat is alive"
        raise WriteConflict(message)
    if is_begun_without_heartbeat(context, planned):
        message = (
            f"{planned} was begun by a writer that emits no heartbeats, such as Apache Hudi, and "
            "may still be executed; wait until that writer has completed it; if the writer has "
            f"died, run lakemark table rollback TABLE {planned.requested_at} --run"
        )
        raise WriteConflict(message)


def is_begun_without_heartbeat(context: TableContext, planned: Instant) -> bool:
    """Return whether a writer that emits no heartbeats has begun to execute a plan."""
    return (
        planned.action in _WITHOUT_HEARTBEAT
        and planned.state is State.INFLIGHT
        and not context.timeline.writer_of(planned)
    )


def may_be_executed_by_others(context: TableContext, planned: Instant) -> bool:
    """Return whether another writer may be executing a plan, or be about to begin.

    A writer that has just requested an instant normally begins it at once.
    """
    policy = context.multi_writer.heartbeats if context.multi_writer else HeartbeatPolicy()
    is_new = planned.state is State.REQUESTED and is_fresh(planned, policy, context.timeline.clock)
    try:
        check_not_executed(context, planned)
    except WriteConflict:
        return True
    return is_new
