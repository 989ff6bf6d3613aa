"""The indexing action on the timeline of a data table, which announces that an index is built.

1. ``request``    under the lock: the requested file with the plan, then the inflight file
2. the index is built; the process has a heartbeat meanwhile
3. ``complete``   under the lock, after the table's properties name the index

A process may die in between. ``clear_dead`` then removes what it left, or completes the instant if
the properties name the index already. Source: ``ScheduleIndexActionExecutor``,
``RunIndexActionExecutor`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Collection

from lakemark.metadata.index_partitions import drop_partitions, undo_creation
from lakemark.model.action import COMMITS, Action, State
from lakemark.model.index_plan import IndexPlan
from lakemark.model.instant import Instant
from lakemark.storage.properties_file import read_properties
from lakemark.timeline.clock import ClockSlot
from lakemark.timeline.content import encode_index_metadata, encode_index_plan
from lakemark.timeline.locks.table_lock import Lease
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.heartbeat import WriterAlive, forget_heartbeat
from lakemark.transaction.multi_writer import find_dead
from lakemark.transaction.publication import Publication
from lakemark.transaction.table_context import LOCK_WAIT_S, TableContext

#: ``indexUptoInstant`` of an index of a table without commits.
_NO_COMMIT = "0" * 17


def new_instant(context: TableContext, timeline: Timeline) -> Instant:
    """Return a requested indexing action with a new time; the caller holds the lock."""
    time = context.generate_time(timeline.newest_time, ClockSlot.SERVICE)
    return Instant(time, Action.INDEXING, State.REQUESTED)


def request(
    context: TableContext, requested: Instant, partition: str, timeline: Timeline, lease: Lease
) -> tuple[Instant, IndexPlan]:
    """Create the requested and the inflight file; return the inflight instant and the plan."""
    plan = IndexPlan(partitions=(partition,), up_to=newest_commit(timeline))
    lease.check()
    context.timeline.create(requested, encode_index_plan(plan))
    lease.check()
    context.timeline.create(requested.inflight())
    return requested.inflight(), plan


def complete(context: TableContext, pending: Instant, plan: IndexPlan, lease: Lease) -> None:
    """Complete the action, after the properties name the index."""
    timeline = context.timeline.load()
    done = plan.caught_up(newest_commit(timeline))
    publication = Publication(context.timeline, lease, pending)
    publication.prepare(encode_index_metadata(done))
    publication.publish(context.generate_time(timeline.newest_time))
    context.timeline.withdraw(pending)


def newest_commit(timeline: Timeline) -> str:
    """Return the requested time of the newest completed commit."""
    return max((i.requested_at for i in timeline.completed(*COMMITS)), default=_NO_COMMIT)


def clear_dead(context: TableContext) -> None:
    """Finish the indexing actions of dead processes of lakemark.

    Nothing is done about actions of Apache Hudi, because its processes have no heartbeat.
    """
    timeline = context.timeline.load()
    if not _dead(context, timeline):
        return
    with context.lock.hold(LOCK_WAIT_S) as lease:
        clear_dead_under_lock(context, context.timeline.load(), lease)


def clear_dead_under_lock(context: TableContext, timeline: Timeline, lease: Lease) -> None:
    """Finish the indexing actions of dead processes of lakemark; the caller holds the lock."""
    for pending, plan in _dead(context, timeline):
        finish(context, pending, plan, lease)


def finish(context: TableContext, pending: Instant, plan: IndexPlan, lease: Lease) -> None:
    """Complete an indexing action if its index is complete; otherwise remove both.

    The caller holds the lock, and no process builds the index any more.
    """
    properties = read_properties(context.storage)
    if plan.partitions and set(plan.partitions) <= set(properties.stored_metadata_partitions):
        if pending.state is State.REQUESTED:
            lease.check()
            context.timeline.create(pending.inflight())
        complete(context, pending.inflight(), plan, lease)
    else:
        discard(context, pending, plan.partitions, lease)
    forget_heartbeat(context.storage, pending.requested_at)


def discard(
    context: TableContext, pending: Instant, partitions: Collection[str], lease: Lease
) -> None:
    """Remove an indexing action and the half-built partitions; the caller holds the lock."""
    context.timeline.withdraw_all(pending.requested_at, lease.check)
    properties = read_properties(context.storage)
    complete_ones = set(properties.stored_metadata_partitions)
    unfinished = [one for one in partitions if one not in complete_ones]
    clock = context.timeline.clock
    if not complete_ones.intersection(partitions):
        undo_creation(context.storage, pending.requested_at, clock, lease.check)
    drop_partitions(context.storage, properties, unfinished, clock, lease.check)
    lease.check()
    context.timeline.forget(pending)


def is_alive(context: TableContext, pending: Instant) -> bool:
    """Return whether the process of an indexing action may be alive."""
    try:
        return not find_dead(
            context.storage, [pending], context.multi_writer, context.timeline.clock
        )
    except WriterAlive:
        return True


def is_dead(context: TableContext, pending: Instant, plan: IndexPlan) -> bool:
    """Return whether lakemark announced the action, and its process is dead."""
    return plan.is_own and not is_alive(context, pending)


def _dead(context: TableContext, timeline: Timeline) -> list[tuple[Instant, IndexPlan]]:
    pending = context.timeline.pending_indexing(timeline)
    return [(one, plan) for one, plan in pending if is_dead(context, one, plan)]
