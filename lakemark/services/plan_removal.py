"""Removes the plan of a compaction that must not be executed."""

from __future__ import annotations

import logging
from typing import NoReturn

from lakemark.errors import WriteConflict
from lakemark.model.action import State
from lakemark.model.instant import Instant
from lakemark.transaction.heartbeat import forget_heartbeat
from lakemark.transaction.plan_owner import check_not_executed
from lakemark.transaction.rollback import roll_back_named
from lakemark.transaction.rollback_checks import check_no_restore
from lakemark.transaction.table_context import TableContext

_log = logging.getLogger(__name__)


def remove_plan(
    context: TableContext, pending: Instant, reason: str, lock_wait_s: float
) -> NoReturn:
    """Remove a plan, and the files of earlier attempts to execute it.

    Args:
        context: the table.
        pending: the instant of the plan.
        reason: why the plan must not be executed, for messages.
        lock_wait_s: how long to wait for the table's lock.

    Raises:
        WriteConflict: always; the plan was removed, or another writer is or may be executing it.
        LockTimeout: another writer kept the lock.
        Refused: a restore is pending.
    """
    check_not_executed(context, pending)
    if pending.state is State.INFLIGHT:
        roll_back_named(context, pending.requested_at)
    with context.lock.hold(lock_wait_s) as lease:
        timeline = context.timeline.load()
        check_no_restore(timeline)
        current = timeline.find(pending.requested_at)
        if current is not None and current.state is State.REQUESTED:
            lease.check()
            context.timeline.forget(current)
            forget_heartbeat(context.storage, pending.requested_at)  # the executor died
    _log.warning("%s was removed without being executed: %s", pending, reason)
    message = f"{pending} was removed: {reason}"
    raise WriteConflict(message)
