"""Rolls back the instants of dead writers, or an instant that an operator names.

If an instant is missing from the active timeline and is older than all active writes, readers treat
its files as committed. So a rollback deletes the files of its target first, and the target's
instant last (``BaseRollbackActionExecutor``). The steps, and the situation after a crash right
after each step, are:

1. delete the target's prepared content
                     the target's writer can no longer publish the target
2. create the requested rollback
                     the next writer executes the rollback's plan
3. create the inflight rollback
                     as after step 2
4. make the target pending if it is completed
                     readers see none of the target's rows
5. delete the hash rings and bucket counts of a replace commit, and the target's files
                     as after step 4
6. publish the rollback
                     the rollback is completed; the target is pending, without files
7. remove the target from the timeline, but keep the plan of a compaction that had not completed
                     the markers of the target still exist, but no reader reads them
8. delete the markers of the target
                     the rollback is finished
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import replace

from lakemark.errors import Fenced, Refused
from lakemark.index.partition_buckets import delete_partition_buckets
from lakemark.index.ring_files import delete_rings
from lakemark.log.log_block import rollback_block
from lakemark.model.action import COMMITS, REPLACING, Action, State
from lakemark.model.file_slice import join
from lakemark.model.instant import Instant
from lakemark.model.rollback_plan import RollbackPlan
from lakemark.timeline.clock import ClockSlot
from lakemark.timeline.content import encode_rollback_metadata, encode_rollback_plan
from lakemark.timeline.locks.table_lock import Lease, LeaseLost
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.undone_instants import find_completed, find_undone, rollbacks_since
from lakemark.transaction.attempt import discard, forget_unplanned, has_instant, is_unplanned
from lakemark.transaction.completion_loss import check_never_completed
from lakemark.transaction.heartbeat import HeartbeatPolicy, clear_expired, forget_heartbeat
from lakemark.transaction.instant_files import (
    as_planned,
    awaited_logs,
    delete_unawaited,
    files_of,
    has_all_files,
    has_logs_in_slice,
    names_of,
)
from lakemark.transaction.late_completion import rolled_back_and_completed, undo_late_completions
from lakemark.transaction.multi_writer import find_dead, has_heartbeat
from lakemark.transaction.plan_owner import check_not_executed
from lakemark.transaction.publication import Publication
from lakemark.transaction.rollback_checks import (
    check_no_restore,
    check_undoable,
    is_log_plan,
    named_instant,
    replaced_since,
)
from lakemark.transaction.table_context import LOCK_WAIT_S, TableContext
from lakemark.write.markers import drop_markers

#: Table services whose plan is kept when an attempt to execute the plan is rolled back.
_COMPACTIONS = (Action.COMPACTION, Action.LOG_COMPACTION)

_log = logging.getLogger(__name__)


def recover(context: TableContext) -> list[str]:
    """Complete pending rollbacks, then roll back the pending commits of dead writers.

    First of all, commits that completed after they were rolled back are undone.

    If writers share the table, a writer is considered dead if its heartbeat has expired both before
    the lock is acquired and under the lock. Because of both checks, no second writer executes a
    rollback that was just requested. If writers do not share the table, all other writers without a
    live heartbeat are considered dead.

    Pending compactions, log compactions and clusterings are kept, because logs that depend on their
    plans may have been written.

    Returns:
        The requested times of the instants that were rolled back.

    Raises:
        Refused: a restore is pending; or another writer's pending rollback would undo a completed
            instant that later instants need; or a pending commit had completed, but its completed
            file was lost.
        WriterAlive: another writer is writing to the table, which is not shared.
    """
    timeline = context.timeline.load()
    check_no_restore(timeline)
    if context.multi_writer is not None:
        # A savepoint has the requested time of its commit, and no heartbeat.
        writing = (i for i in timeline.pending() if i.action is not Action.SAVEPOINT)
        pending = {i.requested_at for i in writing}
        clear_expired(context.storage, context.multi_writer.heartbeats, pending)
    compactions = timeline.pending(*_COMPACTIONS)
    may_be_undone = any(is_unplanned(context, i) for i in compactions) or (
        timeline.completed(Action.ROLLBACK) and timeline.pending(*_COMPACTIONS, Action.CLUSTERING)
    )
    is_late = bool(rolled_back_and_completed(context.timeline, timeline))
    if not (is_late or may_be_undone or timeline.pending(Action.ROLLBACK, *COMMITS)):
        return []
    suspects = {i.requested_at for i in _abandoned(context, timeline)}  # model: find dead
    if not (is_late or suspects or may_be_undone):
        return []
    with context.lock.hold(LOCK_WAIT_S) as lease:
        return _recover(context, suspects, lease)


def roll_back(context: TableContext, target: Instant) -> bool:
    """Roll back a pending instant of this writer.

    If another writer has already rolled the instant back, files that this writer wrote after that
    rollback are deleted. If another writer has begun a new attempt at a planned service, only the
    files of this writer's attempt are deleted.

    Returns:
        False if the instant had already completed; otherwise true.

    Raises:
        Fenced: another writer rolled the instant back, although the table is not shared.
    """
    with context.lock.hold(LOCK_WAIT_S) as lease:
        context.timeline.withdraw(target)
        timeline = context.timeline.load()
        current = timeline.find(target.requested_at)  # model: judge own
        if target.attempt and not (current == target and has_instant(context, target)):
            return not discard(context, target, timeline)
        if current is not None and current.is_completed:
            return False
        if current is not None:
            _roll_back(context, current, timeline, lease)
            return True
        archived = context.timeline.load_archived()
        if find_completed(archived, [target.requested_at]):
            return False
        if find_undone(context.timeline, [target.requested_at], timeline, archived):
            late = files_of(context, target.requested_at)
            lease.check()
            context.delete_files(late)
            drop_markers(context.storage, target.requested_at)
        if context.multi_writer is not None:
            return True
    raise Fenced(target.requested_at, "another writer rolled it back; the newer writer continues")


def plan_rollback(context: TableContext, requested_at: str) -> RollbackPlan:
    """Return the plan with the files that ``roll_back_named`` would delete now.

    Raises:
        InvalidConfig: no such commit is on the active timeline.
        Refused: the commit may not be rolled back; the message contains the remedy.
    """
    timeline = context.timeline.load()
    check_no_restore(timeline)
    target = named_instant(timeline, requested_at)
    _check_undoable(context, target, timeline)
    if timeline.has_reappeared(target) or is_log_plan(target):
        return RollbackPlan(requested_at, target.action, {})
    return _plan(context, target, timeline)


def roll_back_named(context: TableContext, requested_at: str) -> RollbackPlan:
    """Roll back one completed or pending instant, or complete a pending rollback of the instant.

    The plan of a compaction or log compaction that had not completed is kept, and can be executed
    again. The plan of a clustering is removed, and so is that of a log compaction that no writer
    has begun. If later instants need the target of a pending rollback, the rollback is removed. If
    an instant was archived and appears again as a pending one, it is removed, and its files are
    kept. Raises what ``plan_rollback`` raises; for example ``Refused`` if the heartbeat of a
    pending instant's writer is alive.

    Returns:
        The plan with the files that were deleted.
    """
    with context.lock.hold(LOCK_WAIT_S) as lease:
        return _roll_back_named(context, requested_at, lease)


def roll_back_abandoned(context: TableContext, requested_at: str) -> bool:
    """Roll back a pending clustering that no live writer executes.

    Returns:
        False if the clustering was completed or removed meanwhile; otherwise true.

    Raises:
        WriteConflict: another writer is or may be executing the clustering.
        Refused: a restore is pending.
    """
    with context.lock.hold(LOCK_WAIT_S) as lease:
        timeline = context.timeline.load()
        current = timeline.find(requested_at)
        if current is None or current.is_completed:
            return False
        if not timeline.has_reappeared(current):
            check_not_executed(context, current)
        _roll_back_named(context, requested_at, lease)
        return True


def _roll_back_named(context: TableContext, requested_at: str, lease: Lease) -> RollbackPlan:
    timeline = context.timeline.load()
    check_no_restore(timeline)
    for rollback, plan in context.timeline.pending_rollbacks(timeline):
        if plan.instant == requested_at:
            if not _is_obsolete(context, rollback, timeline):
                return _finish(context, rollback, timeline, lease)
            _forget_obsolete(context, rollback)
            timeline = context.timeline.load()
    target = named_instant(timeline, requested_at)  # model: choose attempt
    _check_undoable(context, target, timeline)
    if timeline.has_reappeared(target):
        _forget_archived(context, target, lease)
        return RollbackPlan(requested_at, target.action, {})
    if is_log_plan(target):
        lease.check()
        context.timeline.forget(target)
        forget_heartbeat(context.storage, requested_at)
        return RollbackPlan(requested_at, target.action, {})
    if not target.is_completed:
        context.timeline.withdraw_all(requested_at, lease.check)
        timeline = context.timeline.load()
        target = named_instant(timeline, requested_at)
    if forget_unplanned(context, target):
        return RollbackPlan(requested_at, target.action, {})
    return _roll_back(context, target, timeline, lease)


def _check_undoable(context: TableContext, target: Instant, timeline: Timeline) -> None:
    if target.is_completed:
        check_undoable(target, timeline, context.timeline, context.storage)
    elif (context.multi_writer or context.timeline.is_clustering(target)) and has_heartbeat(
        context.storage, target, context.multi_writer
    ):
        policy = context.multi_writer.heartbeats if context.multi_writer else HeartbeatPolicy()
        expires_after_s = policy.expires_after_s
        message = (
            f"{target} is being written: its writer's heartbeat is alive; stop the writer, or wait "
            f"until it has had no heartbeat for {expires_after_s:.0f} s"
        )
        raise Refused(message)


def _recover(context: TableContext, suspects: Collection[str], lease: Lease) -> list[str]:
    timeline = context.timeline.load()
    check_no_restore(timeline)
    late = undo_late_completions(context, timeline, lease)
    if late:
        timeline = context.timeline.load()
    # model: find dead again
    abandoned = [i for i in _abandoned(context, timeline) if i.requested_at in suspects]
    undone = []
    for rollback in (i for i in abandoned if i.action is Action.ROLLBACK):
        if not _is_planned(context, rollback) or _is_obsolete(context, rollback, timeline):
            _forget_obsolete(context, rollback)
        else:
            undone.append(_finish(context, rollback, timeline, lease))
        timeline = context.timeline.load()  # the rollback changed the timeline
    for commit in abandoned:
        if commit.action is Action.ROLLBACK:
            continue
        if timeline.archived_time(commit.requested_at) is not None:
            _forget_archived(context, commit, lease)
            continue
        check_never_completed(context, commit, timeline)
        context.timeline.withdraw_all(commit.requested_at, lease.check)  # model: withdraw
        timeline = context.timeline.load()
        current = timeline.find(commit.requested_at)
        if current is not None and not current.is_completed:
            undone.append(_roll_back(context, current, timeline, lease))
    _forget_undone(context, context.timeline.load())
    return late + [plan.instant for plan in undone]


def forget_refused_rollbacks(
    context: TableContext, commit: str, timeline: Timeline, lease: Lease
) -> None:
    """Remove the pending rollbacks of a commit that its savepoint refuses.

    Apache Hudi 1.2.0 requests a rollback before it finds the savepoint. Once the savepoint is
    deleted, the next writer would execute that rollback, and the rows of the commit would be gone.

    Args:
        context: the table.
        commit: requested time of the commit, whose savepoint still exists.
        timeline: the timeline, just loaded under the lock.
        lease: the lock.
    """
    for rollback, plan in context.timeline.pending_rollbacks(timeline):
        if plan.instant == commit and _is_obsolete(context, rollback, timeline):
            lease.check()
            _forget_obsolete(context, rollback)


def _forget_obsolete(context: TableContext, rollback: Instant) -> None:
    """Remove a pending rollback that must not be executed."""
    _log.warning("%s is removed: it has completed, or its target must be kept", rollback)
    context.timeline.forget(rollback)
    forget_heartbeat(context.storage, rollback.requested_at)


def _forget_archived(context: TableContext, commit: Instant, lease: Lease) -> None:
    """Delete the requested and inflight files of a commit that completed and was archived.

    A store may execute a request twice. Then an inflight file that the archiver deleted appears
    again.
    """
    _log.warning("%s is removed: the commit completed and is in the history", commit)
    lease.check()
    context.timeline.forget(commit)
    forget_heartbeat(context.storage, commit.requested_at)


def _is_planned(context: TableContext, rollback: Instant) -> bool:
    """Return whether the plan of a pending rollback exists.

    A process that has lost the lock may create the inflight file late, after the rollback was
    completed and archived. Then there is no plan, and the rollback needs no execution.
    """
    return rollback.state is State.REQUESTED or context.timeline.is_requested(rollback)


def _is_obsolete(context: TableContext, rollback: Instant, timeline: Timeline) -> bool:
    """Return whether a pending rollback must not be executed, because its target must be kept.

    The target must be kept if it was archived meanwhile. The target must also be kept if it
    completed after the rollback was requested, or if later instants need the target. In these
    two cases, the target is kept only if the rollback has not yet deleted files of the target, or
    undone its logs by blocks. A clean may have deleted files that later commits replaced, so these
    files are ignored.

    A rollback becomes obsolete for two reasons. First, Apache Hudi publishes an instant without a
    check for a pending rollback of the instant. So a writer whose heartbeat has expired may still
    publish the target, if the process that was to execute the rollback is dead. The rows are then
    acknowledged, and later instants may need them. Second, a process that was about to roll back a
    completed instant may have died or lost the lock before it deleted files. Later commits may have
    replaced the target's files since.
    """
    name = context.timeline.read_rollback_plan(rollback.requested_at).instant
    target = timeline.find(name)
    if target is None:
        return timeline.archived_time(name) is not None
    if target.action not in COMMITS or not target.is_completed:
        return False
    is_late = (target.completed_at or "") >= rollback.requested_at
    if not (is_late or _is_needed(context, target, timeline)):
        return False
    if rollback.state is State.REQUESTED and not is_late:
        return True
    return has_all_files(context, target, replaced_since(target, timeline, context.timeline))


def _is_needed(context: TableContext, commit: Instant, timeline: Timeline) -> bool:
    try:
        check_undoable(commit, timeline, context.timeline, context.storage)
    except Refused:
        return True
    return False


def _abandoned(context: TableContext, timeline: Timeline) -> list[Instant]:
    """Return the pending rollbacks and commits of dead writers, except targets of rollbacks."""
    pending = timeline.pending(Action.ROLLBACK)
    targets = {plan.instant for _, plan in context.timeline.pending_rollbacks(timeline)}
    commits = (
        i for i in context.timeline.pending_writes(timeline) if i.requested_at not in targets
    )
    abandoned = [*pending, *commits]
    return find_dead(context.storage, abandoned, context.multi_writer, context.timeline.clock)


def _roll_back(
    context: TableContext, target: Instant, timeline: Timeline, lease: Lease
) -> RollbackPlan:
    name = context.generate_time(timeline.newest_time, ClockSlot.SERVICE)  # model: plan rollback
    rollback = Instant(name, Action.ROLLBACK, State.REQUESTED)
    content = encode_rollback_plan(_plan(context, target, timeline))
    lease.check()  # only now, because planning lists the table, which may take long
    context.timeline.create(rollback, content)  # model: request rollback
    return _finish(context, rollback, timeline, lease)


def _plan(context: TableContext, target: Instant, timeline: Timeline) -> RollbackPlan:
    awaited = awaited_logs(context.timeline, timeline)
    gone = [path for path in files_of(context, target.requested_at) if path not in awaited]
    return RollbackPlan(target.requested_at, target.action, as_planned(context.storage, gone))


def _finish(
    context: TableContext, rollback: Instant, timeline: Timeline, lease: Lease
) -> RollbackPlan:
    """Execute a requested or inflight rollback of any writer; return the deleted files."""
    with context.alive(rollback.requested_at):
        return _execute(context, rollback, timeline, lease)


def _execute(
    context: TableContext, rollback: Instant, timeline: Timeline, lease: Lease
) -> RollbackPlan:
    started = time.monotonic()
    plan = context.timeline.read_rollback_plan(rollback.requested_at)
    target = timeline.find(plan.instant)
    was_completed = target is not None and target.is_completed
    may_have_completed = was_completed or rollback.state is State.INFLIGHT  # see step 4
    if target is not None and was_completed:
        check_undoable(target, timeline, context.timeline, context.storage)
    if rollback.state is State.REQUESTED:
        _start(context, rollback, lease)
    pending = rollback.inflight()
    if target is not None and was_completed:
        context.timeline.withdraw_all(plan.instant, lease.check)
        lease.check()
        context.timeline.unpublish(target)
        timeline = context.timeline.load()
        target = timeline.find(plan.instant)
    if plan.action in REPLACING:
        lease.check()
        delete_rings(context.storage, plan.instant)
        delete_partition_buckets(context.storage, plan.instant)
    awaited = awaited_logs(context.timeline, timeline)
    undone = _delete_files(context, rollback, plan, awaited, lease)
    done = replace(plan, files=_without(undone, awaited))
    took_ms = int((time.monotonic() - started) * 1000)
    content = encode_rollback_metadata(done, rollback.requested_at, took_ms)
    publication = Publication(context.timeline, lease, pending)
    publication.prepare(content)  # model: prepare rollback
    if target is not None:
        context.timeline.withdraw_all(plan.instant, lease.check)  # model: withdraw target
    with lease.reporting_loss():
        context.metadata_updater.on_rollback(
            plan.instant,
            names_of(undone),
            timeline,
            lease.check,
            may_have_completed=may_have_completed,
        )
    # model: publish rollback
    publication.publish(context.generate_time(context.timeline.load().newest_time))
    context.timeline.withdraw(pending)
    keeps_plan = plan.action in _COMPACTIONS or has_logs_in_slice(context, plan.instant)
    if keeps_plan:
        lease.check()  # if the lock was lost, another attempt may have begun by now
    if target is not None:
        context.timeline.forget(target, keep_plan=keeps_plan)  # model: forget
    drop_markers(context.storage, plan.instant)
    if not keeps_plan:  # otherwise the heartbeat may be that of the next attempt
        forget_heartbeat(context.storage, plan.instant)
    return done


def _start(context: TableContext, rollback: Instant, lease: Lease) -> None:
    """Create the inflight file of a requested rollback.

    If the lock was lost meanwhile, another process may have completed and archived the rollback
    before the inflight file was created. In this situation, the inflight file is deleted again. If
    this process dies before it deletes the file, ``recover`` deletes the file.

    Raises:
        LeaseLost: another process may have taken over the rollback.
    """
    lease.check()
    context.timeline.create(rollback.inflight())  # model: start rollback
    try:
        lease.check()
    except LeaseLost:
        if not context.timeline.is_requested(rollback):
            context.timeline.forget(rollback.inflight())
        raise


def _delete_files(
    context: TableContext,
    rollback: Instant,
    plan: RollbackPlan,
    awaited: Collection[str],
    lease: Lease,
) -> dict[str, tuple[str, ...]]:
    """Delete the files of the rolled back instant; return them in the form of ``plan.files``.

    The table is listed again for two reasons: the dead writer may have written files after the
    rollback was planned, and another writer's plan may spell absolute paths differently. A log in
    the plan of a compaction must continue to exist. So such a log is overwritten with a rollback
    block. (Apache Hudi keeps the log, and adds a rollback block to the slice.)
    """
    files = files_of(context, plan.instant)  # model: list files
    lease.check()
    block = rollback_block(rollback.requested_at, plan.instant)
    delete_unawaited(context, files, awaited, block)  # model: delete files
    return {**plan.files, **as_planned(context.storage, files)}


def _without(
    files: Mapping[str, tuple[str, ...]], kept: Collection[str]
) -> dict[str, tuple[str, ...]]:
    return {
        folder: tuple(p for p in paths if join(folder, p.rpartition("/")[2]) not in kept)
        for folder, paths in files.items()
    }


def _forget_undone(context: TableContext, timeline: Timeline) -> None:
    """Remove the plans of table services that were rolled back after they had completed.

    The writer that rolled the service back died before it removed the plan, so the service is
    pending again. In table version 6, a commit may have written logs to the slice of such a
    compaction since. Then the plan is kept, and the compaction is executed again. Inflight
    compactions without a plan are removed, too. In version 6, a rolled back attempt at a clustering
    looks like a rolled back clustering, so its plan is kept until an operator removes it.
    """
    for clustering in timeline.pending(Action.CLUSTERING):
        name = clustering.requested_at
        undone = rollbacks_since(context.timeline, name, timeline)
        if any(plan.instant == name and plan.action == Action.REPLACE_COMMIT for plan in undone):
            context.timeline.forget(clustering)
    for compaction in timeline.pending(*_COMPACTIONS):
        name = compaction.requested_at
        if forget_unplanned(context, compaction):
            _log.warning("%s is removed: it was created after its plan was removed", compaction)
        elif any(
            plan.instant == name and plan.action not in _COMPACTIONS
            for plan in rollbacks_since(context.timeline, name, timeline)
        ) and not has_logs_in_slice(context, name):
            context.timeline.forget(compaction)
