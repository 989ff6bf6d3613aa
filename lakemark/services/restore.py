"""Restores a table to a commit: undoes every write after the commit, the newest first.

A restore to the empty table undoes all writes, also those that were archived.

Meanwhile, queries see the table lose its newest commits one by one. Writers are refused until the
restore has completed. If the writer of a restore dies, any writer may complete the restore. A
restore of Apache Hudi can be completed, too. The list shows the steps. To the right of each step,
or below it, the list shows what a crash right after the step leaves behind:

1. create the requested restore           a pending plan
2. drop the metadata table, create the inflight restore
                                          a pending plan; the table is read by listing
3. for each instant: unpublish, delete hash rings and files, forget
                                          some instants are undone; the others are in the plan
4. for the empty table: delete the files of archived commits, then the archive
                                          a table without rows, and a pending restore
5. publish                                a completed restore, and pending rollbacks of instants
                                          that no longer exist
6. forget these pending rollbacks         a completed restore

The commits are not rolled back in the metadata table, so it is dropped first. It is built again
afterwards (``operations.metadata_table``), or by the next writer that keeps a metadata table.
Source: ``RestorePlanActionExecutor``, ``BaseRestoreActionExecutor``,
``RestoreInstantComparatorFactory`` of Apache Hudi 1.2.0. Apache Hudi also deletes completed
rollbacks. Lakemark keeps them, because they show late writers that they were fenced.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from lakemark.errors import InvalidConfig, Refused, Unsupported
from lakemark.index.partition_buckets import delete_partition_buckets
from lakemark.index.ring_files import delete_rings
from lakemark.metadata.bootstrap import drop_metadata_table
from lakemark.model.action import COMMITS, REPLACING, Action, State
from lakemark.model.file_names import LogFileName
from lakemark.model.instant import Instant
from lakemark.model.restore_plan import EMPTY_TABLE, RestorePlan, UndoneInstant
from lakemark.model.rollback_plan import RollbackPlan
from lakemark.services.restore_to_empty import keep_columns, remove_archived
from lakemark.services.restored_state import find_lost_files
from lakemark.services.savepoint import check_not_cleaned, check_not_rolled_back
from lakemark.storage.properties_file import read_properties
from lakemark.storage.storage import Storage
from lakemark.timeline.clock import ClockSlot
from lakemark.timeline.content import encode_restore_metadata, encode_restore_plan
from lakemark.timeline.locks.table_lock import Lease
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.transaction.instant_files import (
    as_planned,
    files_by_instant,
    files_named,
    files_of_new_groups,
    was_version_6,
)
from lakemark.transaction.publication import Publication
from lakemark.transaction.table_context import LOCK_WAIT_S, TableContext
from lakemark.view.file_lister import data_file
from lakemark.write.markers import drop_markers

_log = logging.getLogger(__name__)


def pending_restore(timeline: Timeline, store: TimelineStore) -> tuple[Instant, RestorePlan] | None:
    """Return the restore that has begun and not completed, if there is one."""
    for instant in timeline.pending(Action.RESTORE):
        return instant, store.read_restore_plan(instant.requested_at)
    return None


def plan_restore(timeline: Timeline, restore_to: str, is_merge_on_read: bool) -> RestorePlan:
    """Return the writes that come after a completed commit, in the order in which they are undone.

    A write comes after the commit if it completed later, or has not completed. For a compaction,
    the requested time is compared, because rows that were written after that time belong to the
    slices that the compaction opened. Pending clusterings are undone first.

    Args:
        timeline: the active timeline.
        restore_to: requested time of the commit; ``EMPTY_TABLE`` to undo all writes.
        is_merge_on_read: whether a completed ``commit`` is a compaction.

    Raises:
        InvalidConfig: no such commit is on the active timeline.
        SnapshotChanged, CorruptData: the archive could not be read; see ``Timeline.completed_at``.
    """
    if restore_to == EMPTY_TABLE:
        return _plan_of(restore_to, [i for i in timeline.instants if i.action.is_write])
    target = next((i for i in timeline.completed(*COMMITS) if i.requested_at == restore_to), None)
    if target is None:
        message = (
            f"{restore_to} is not the requested time of a completed commit of the active timeline; "
            "lakemark table timeline TABLE lists them"
        )
        raise InvalidConfig(message)
    later = [
        i
        for i in timeline.instants
        if i.action.is_write
        and _is_after(i, target, is_merge_on_read)
        and not timeline.has_reappeared(i)
    ]
    return _plan_of(restore_to, later)


def _plan_of(restore_to: str, later: list[Instant]) -> RestorePlan:
    # In reverse order: pending writes come first, then completed writes from newest to oldest.
    later.sort(key=lambda i: (i.completed_at or "~", i.requested_at), reverse=True)
    later.sort(key=lambda i: i.is_completed or i.action is not Action.CLUSTERING)
    return RestorePlan(restore_to, tuple(UndoneInstant(i.requested_at, i.action) for i in later))


def check_restorable(plan: RestorePlan, timeline: Timeline, context: TableContext) -> None:
    """Check that undoing the plan's instants brings back the whole state as of the commit.

    Raises:
        Refused: there is a later savepoint, a clean is pending, files of the state were cleaned, or
            later writes were archived; the message says what to do first.
        Unsupported: the files to delete are unclear; see ``files_by_instant``.
        CorruptData: a savepoint or a clean is damaged; or the archive, which is to be cleared.
    """
    assert plan.restore_to is not None
    for problem in _obstacles(plan, plan.restore_to, timeline, context):
        message = f"the table cannot be restored to {plan.restore_to}: {problem}"
        raise Refused(message)
    _files_to_delete(context, plan)


def check_same_target(pending: Instant, plan: RestorePlan, restore_to: str | None) -> None:
    """Check that a pending restore restores to this commit; None means any commit.

    Raises:
        InvalidConfig: it restores to another commit, and must be completed first.
    """
    if restore_to not in (None, plan.restore_to):
        message = (
            f"{pending} restores to {plan.restore_to} and has not completed; complete it first, "
            "with lakemark table restore TABLE --run"
        )
        raise InvalidConfig(message)


def restore(
    context: TableContext,
    restore_to: str | None,
    is_merge_on_read: bool,
) -> tuple[Instant, list[RollbackPlan]]:
    """Bring back the state as of a commit; if a restore to it is pending, complete that restore.

    Args:
        context: the table.
        restore_to: requested time of the commit, or of its savepoint; ``EMPTY_TABLE`` to undo all
            writes; None to complete the pending restore.
        is_merge_on_read: see ``plan_restore``.

    Returns:
        The completed restore, and the deleted files of each instant.

    Raises:
        InvalidConfig: there is no such commit; or a restore to another commit is pending; or there
            is no restore to complete.
        Refused: see ``check_restorable``. A pending plan is removed if nothing of it was executed.
        Unsupported: see ``check_restorable``.
    """
    with context.lock.hold(LOCK_WAIT_S) as lease:
        timeline = context.timeline.load()
        found = pending_restore(timeline, context.timeline)
        if found:
            check_same_target(*found, restore_to)
        pending, plan = found or _request(context, timeline, restore_to, is_merge_on_read, lease)
        if found:
            plan = _with_later_commits(plan, pending, timeline, is_merge_on_read)
            _check_again(context, pending, plan, timeline)
        with context.alive(pending.requested_at):
            if plan.empties_table:
                keep_columns(context, timeline, lease)
            drop_metadata_table(context.storage, read_properties(context.storage), lease.check)
            return _execute(context, pending, plan, lease)


def _check_again(
    context: TableContext, pending: Instant, plan: RestorePlan, timeline: Timeline
) -> None:
    """Check a pending plan again, unless its execution has begun; remove it if the check fails.

    A suspended writer may create its plan late. Since the plan was made, a clean may have deleted
    files that the restore needs. The plan is removed, because a pending restore blocks all writers.
    """
    if pending.state is not State.REQUESTED or plan.restore_to is None:
        return
    try:
        check_restorable(plan, timeline, context)
    except (Refused, Unsupported) as error:
        context.timeline.forget(pending)
        message = f"{error}; {pending} was removed, and nothing was undone"
        raise Refused(message) from error


def _is_after(instant: Instant, target: Instant, is_merge_on_read: bool) -> bool:
    is_compaction = instant.action is Action.COMPACTION or (
        is_merge_on_read and instant.action is Action.COMMIT
    )
    if is_compaction:
        return instant.requested_at > target.requested_at
    return instant.completed_at is None or instant.completed_at > (target.completed_at or "")


def _obstacles(
    plan: RestorePlan, restore_to: str, timeline: Timeline, context: TableContext
) -> Iterator[str]:
    undone = {instant.requested_at for instant in plan.instants}
    savepoints = {i.requested_at: i for i in timeline.completed(Action.SAVEPOINT)}
    later = savepoints.keys() if plan.empties_table else undone & savepoints.keys()
    for name in sorted(later):
        remedy = f"lakemark table savepoint TABLE --delete {name} --run"
        yield f"savepoint {name} is later; delete it first: {remedy}"
    for clean in timeline.pending(Action.CLEAN):
        yield f"{clean} has not ended; run that first: lakemark table clean TABLE --run"
    if plan.empties_table:
        context.timeline.load_archived()  # a damaged archive could not be cleared
        return
    check_not_rolled_back(timeline, context.timeline, restore_to)
    if timeline.has_history:
        archived = context.timeline.load_archived().instants(restore_to)
        for gone in archived:
            if gone.action.is_write and gone.requested_at > restore_to:
                yield f"{gone}, which came after it, was archived"
            elif gone.action.is_write and gone.requested_at == restore_to:
                # The next archival deletes this commit from the active timeline. After a restore,
                # it is the only active commit, so the active timeline would have no commits.
                yield "it is archived; restore to a later commit"
    if restore_to not in savepoints:
        check_not_cleaned(timeline, context.timeline, restore_to)
    else:
        yield from _lost_files_of_savepoint(savepoints[restore_to], timeline, context)
    for path in find_lost_files(plan, timeline, context.timeline, context.storage):
        yield f"{path}, which queries would read afterwards, is gone"


def _lost_files_of_savepoint(
    savepoint: Instant, timeline: Timeline, context: TableContext
) -> Iterator[str]:
    kept = context.timeline.read_savepoint(savepoint).files
    later = _logs_of_later_commits(kept, savepoint.requested_at, timeline, context)
    for partition, names in kept.items():
        for name in sorted(set(names) - later - _names_in(context.storage, partition)):
            if not _was_undone(name, timeline):
                yield f"{name} of partition {partition!r}, which its savepoint keeps, is gone"


def _was_undone(name: str, timeline: Timeline) -> bool:
    """Return whether a data file belongs to a commit that an earlier restore undid.

    A savepoint lists the files of commits that began before its commit and completed after it.
    """
    file = data_file("", name, size_bytes=0)
    return file is not None and not timeline.is_committed(file.name.instant)


def _logs_of_later_commits(
    kept: Mapping[str, Iterable[str]], restore_to: str, timeline: Timeline, context: TableContext
) -> set[str]:
    """Return the logs that a savepoint lists, but that its commit's state does not need.

    An earlier restore may have deleted these logs. In table version 6, a savepoint lists all logs
    of a slice, and an upgrade keeps the savepoint. Only active commits show which logs belong to
    the state, so logs of archived commits are not required either.
    """
    store = context.timeline
    if not (store.version.logs_name_their_slice or was_version_6(context.storage)):
        return set()
    commits = (i for i in timeline.completed(*COMMITS) if i.requested_at <= restore_to)
    stats = (stat for commit in commits for stat in store.read_commit(commit).write_stats)
    needed = {path.rpartition("/")[2] for stat in stats for path in stat.sizes_bytes}
    listed = {name for names in kept.values() for name in names if LogFileName.parse(name)}
    return listed - needed


def _names_in(storage: Storage, partition: str) -> set[str]:
    return {info.name for info in storage.list_folder(partition)[1]}


def _request(
    context: TableContext,
    timeline: Timeline,
    restore_to: str | None,
    is_merge_on_read: bool,
    lease: Lease,
) -> tuple[Instant, RestorePlan]:
    plan = plan_restore(timeline, restore_to or "", is_merge_on_read)
    check_restorable(plan, timeline, context)
    at = context.generate_time(timeline.newest_time, ClockSlot.SERVICE)
    requested = Instant(at, Action.RESTORE, State.REQUESTED)
    lease.check()
    context.timeline.create(requested, encode_restore_plan(plan))
    lease.check()  # if the plan is late, ``_with_later_commits`` adds missing commits
    return requested, plan


def _with_later_commits(
    plan: RestorePlan, pending: Instant, timeline: Timeline, is_merge_on_read: bool
) -> RestorePlan:
    """Return a pending plan, with the writes between its requested time and its creation.

    The plan's writer may have lost the lock before it created the plan. Commits that completed
    before the creation precede the restore, so the restore undoes them, too.
    """
    targets = {i.requested_at for i in timeline.completed(*COMMITS)} | {EMPTY_TABLE}
    if plan.restore_to not in targets:
        return plan  # the plan has another format, or the commit was archived since
    known = {one.requested_at for one in plan.instants}
    now = plan_restore(timeline, plan.restore_to or "", is_merge_on_read).instants
    on_timeline = {i.requested_at: i for i in timeline.instants if i.action.is_write}
    missing = [
        one
        for one in now
        if one.requested_at not in known
        and (on_timeline[one.requested_at].completed_at or one.requested_at) > pending.requested_at
    ]
    for one in missing:
        _log.warning("%s also undoes %s, which its plan does not name", pending, one.requested_at)
    return RestorePlan(plan.restore_to, (*missing, *plan.instants))


def _execute(
    context: TableContext, pending: Instant, plan: RestorePlan, lease: Lease
) -> tuple[Instant, list[RollbackPlan]]:
    started = time.monotonic()
    if pending.state is State.REQUESTED:
        context.timeline.create(pending.inflight())
    inflight = pending.inflight()
    files = _files_to_delete(context, plan)
    undone = []
    for instant in plan.instants:
        undone.append(_undo(context, instant, files[instant.requested_at], lease))
    if plan.empties_table:
        undone += remove_archived(context, pending.requested_at, lease)
    took_ms = int((time.monotonic() - started) * 1000)
    content = encode_restore_metadata(
        pending.requested_at, took_ms, undone, deletes_archived=plan.empties_table
    )
    publication = Publication(context.timeline, lease, inflight)
    publication.prepare(content)
    timeline = context.timeline.load()
    completed = publication.publish(context.generate_time(timeline.newest_time))
    context.timeline.withdraw(inflight)
    _forget_rollbacks(context, timeline, plan)
    return completed, undone


def _files_to_delete(context: TableContext, plan: RestorePlan) -> Mapping[str, Sequence[str]]:
    """Return the files of each instant of a plan.

    Commits that are kept may have written copies of their rows to the new file groups of a resize.
    These files are deleted with the resize.

    For the empty table, the names of the files are enough, because all files will be deleted. So
    logs of table version 6 with blocks of several commits do not stop the restore.

    Raises:
        Unsupported: see ``files_by_instant``.
    """
    names = [one.requested_at for one in plan.instants]
    if plan.empties_table:
        return files_named(context, names)
    return {
        name: sorted({*own, *files_of_new_groups(context, name)})
        for name, own in files_by_instant(context, names).items()
    }


def _undo(
    context: TableContext, instant: UndoneInstant, files: Sequence[str], lease: Lease
) -> RollbackPlan:
    """Remove one instant and its files; an earlier attempt may have removed a part of them."""
    name = instant.requested_at
    current = _write_of(context.timeline.load(), name)
    if current is not None:
        context.timeline.withdraw_all(name, lease.check)
    lease.check()
    if current is not None and current.is_completed:
        context.timeline.unpublish(current)
        current = _write_of(context.timeline.load(), name)
    lease.check()
    if instant.action in REPLACING:
        delete_rings(context.storage, name)
        delete_partition_buckets(context.storage, name)
    context.delete_files(files)
    if current is not None:
        context.timeline.forget(current)
    drop_markers(context.storage, name)
    return RollbackPlan(name, instant.action, as_planned(context.storage, files))


def _write_of(timeline: Timeline, requested_at: str) -> Instant | None:
    found = timeline.find(requested_at)
    return found if found is not None and found.action.is_write else None


def _forget_rollbacks(context: TableContext, timeline: Timeline, plan: RestorePlan) -> None:
    """Forget the pending rollbacks of undone instants.

    A restore of Apache Hudi leaves such a rollback for each instant.
    """
    undone = {instant.requested_at for instant in plan.instants}
    for rollback, rollback_plan in context.timeline.pending_rollbacks(timeline):
        if rollback_plan.instant in undone:
            context.timeline.forget(rollback)
