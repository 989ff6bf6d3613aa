"""Finds and undoes commits that completed after they were rolled back.

The store creates a completed instant by copying its prepared content. The store may execute this
copy late. For example, the store has read the content, but the writer receives no answer and gives
up. Then another writer rolls the instant back, and only after that the store writes the copy. Now
the instant is completed, but its files were deleted, and its checkpoint wrongly claims that its
rows were committed. So the instant is rolled back again.

Overwrites and deletions of partitions are checked, too: such a commit hides the file groups that it
replaces, although its own files were deleted. Compactions, log compactions and clusterings are not
checked. Their plans outlive a rollback, so another attempt may rightly complete with the same
requested time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lakemark.model.action import COMMITS, Action, State
from lakemark.model.instant import Instant
from lakemark.timeline.locks.table_lock import Lease
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.transaction.instant_files import (
    as_planned,
    files_of,
    has_all_files,
    names_of,
)
from lakemark.transaction.table_context import TableContext
from lakemark.write.markers import drop_markers

_PLANS = (Action.COMPACTION, Action.LOG_COMPACTION)


def rolled_back_and_completed(store: TimelineStore, timeline: Timeline) -> list[Instant]:
    """Return the commits that are completed, although a rollback or a restore has undone them.

    Args:
        store: the reader of the timeline's instants.
        timeline: the active timeline.
    """
    undone = dict(_undone(store, timeline))
    return [
        commit
        for commit in timeline.completed(*COMMITS)
        if undone.get(commit.requested_at) == commit.action
        and (commit.action is not Action.REPLACE_COMMIT or store.read_commit(commit).replaces_rows)
    ]


def undo_late_completions(context: TableContext, timeline: Timeline, lease: Lease) -> list[str]:
    """Undo commits that completed after they were rolled back. The caller holds the table's lock.

    A commit is kept if all its files exist. Apache Hudi may write these files and complete the
    instant after a rollback, and then the rows are acknowledged. A deletion of partitions, which
    has no files, is kept unless a later commit wrote to a file group that the deletion hides. A
    commit with a savepoint is kept, too.

    Args:
        context: the table's context.
        timeline: the timeline, just loaded.
        lease: the lease of the table's lock.

    Returns:
        The requested times of the commits that were undone.

    Raises:
        LeaseLost: the lock was lost before the next step.
    """
    savepoints = {i.requested_at for i in timeline.completed(Action.SAVEPOINT)}
    late = [
        commit
        for commit in rolled_back_and_completed(context.timeline, timeline)
        if commit.requested_at not in savepoints
        and not _has_plan(context, commit)
        and not _has_its_rows(context, commit)
        and not _hides_no_later_rows(context.timeline, commit, timeline)
    ]
    for commit in late:
        _undo(context, commit, timeline, lease)
    return [commit.requested_at for commit in late]


def _undo(context: TableContext, commit: Instant, timeline: Timeline, lease: Lease) -> None:
    """Repeat the rollback of a commit.

    The completed instant is removed before its files, so that no reader needs the files.
    """
    name = commit.requested_at
    pending = Instant(name, commit.action, State.INFLIGHT)
    lease.check()
    context.timeline.withdraw(pending)
    context.timeline.unpublish(commit)
    files = files_of(context, name)
    lease.check()
    context.delete_files(files)
    gone = names_of(as_planned(context.storage, files))
    others = replace(timeline, instants=tuple(i for i in timeline.instants if i != commit))
    updater = context.metadata_updater
    updater.on_rollback(name, gone, others, lease.check, may_have_completed=True)
    context.timeline.forget(pending)
    drop_markers(context.storage, name)


def _undone(store: TimelineStore, timeline: Timeline) -> Iterator[tuple[str, str]]:
    for rollback in timeline.completed(Action.ROLLBACK):
        plan = store.read_rollback(rollback)
        yield plan.instant, plan.action
    for restore in timeline.completed(Action.RESTORE):
        for one in store.read_restore_plan(restore.requested_at).instants:
            yield one.requested_at, one.action


def _has_its_rows(context: TableContext, commit: Instant) -> bool:
    stats = context.timeline.read_commit(commit).write_stats
    return any(stat.sizes_bytes for stat in stats) and has_all_files(context, commit)


def _hides_no_later_rows(store: TimelineStore, commit: Instant, timeline: Timeline) -> bool:
    """Return whether a commit only deletes rows, and none that were written since its request."""
    metadata = store.read_commit(commit)
    if not metadata.replaces_rows or metadata.write_stats:
        return False
    hidden = {(path, name) for path, names in metadata.replaced_file_ids.items() for name in names}
    later = (i for i in timeline.completed(*COMMITS) if i.requested_at > commit.requested_at)
    stats = (stat for one in store.read_commits(later) for stat in one.write_stats)
    return not any((stat.partition_path or "", stat.file_id) in hidden for stat in stats)


def _has_plan(context: TableContext, commit: Instant) -> bool:
    """Return whether a commit completes a planned table service."""
    plans = (Instant(commit.requested_at, action, State.REQUESTED) for action in _PLANS)
    return any(context.timeline.is_requested(plan) for plan in plans)
